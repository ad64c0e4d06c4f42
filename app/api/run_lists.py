"""What one run has, a list an address."""

from __future__ import annotations

from flask import request

from compileboard.app.analysis import rows
from compileboard.app.api.answer import Answer, find_run, give_page, read_cursor, read_limit, read_number, read_word
from compileboard.app.db import get_reader
from compileboard.app.queries import compiles, run_breaks, run_events, run_pages, run_recompiles
from compileboard.app.queries.page import FilterError

_YES_NO = {"": None, "yes": True, "no": False}


def list_compiles(run_id: str) -> Answer:
    """List compiles."""
    find_run(run_id)
    recompiled = request.args.get("recompiled", "")
    if recompiled not in _YES_NO:
        raise FilterError(f"recompiled: {recompiled[:40]!r} is neither yes nor no")
    wanted = compiles.CompileFilter(read_word("outcome"), read_word("q"), _YES_NO[recompiled])
    sort = request.args.get("sort") or "started.asc"
    page = compiles.list_compiles(get_reader(), run_id, wanted, sort=sort, cursor=read_cursor(), limit=read_limit())
    return give_page(page, rows.compile_row)


def list_compilations(run_id: str) -> Answer:
    """List CompilationMetrics records."""
    find_run(run_id)
    page = compiles.list_compilations(get_reader(), run_id, read_cursor(), read_limit())
    return give_page(page, rows.compilation_row)


def list_graph_breaks(run_id: str) -> Answer:
    """List graph breaks."""
    find_run(run_id)
    distinct = request.args.get("distinct", "")
    number = read_number(distinct)
    if distinct and number is None:
        raise FilterError(f"distinct: {distinct[:40]!r} is not the number of a distinct graph break")
    page = run_breaks.list_graph_breaks(get_reader(), run_id, read_cursor(), read_limit(), distinct_id=number)
    return give_page(page, rows.graph_break_row)


def list_distinct_breaks(run_id: str) -> Answer:
    """List distinct graph breaks."""
    find_run(run_id)
    page = run_breaks.list_distinct_breaks(get_reader(), run_id, read_cursor(), read_limit())
    return give_page(page, rows.distinct_break_row)


def list_recompiles(run_id: str) -> Answer:
    """List recompiles."""
    find_run(run_id)
    return give_page(
        run_recompiles.list_recompiles(get_reader(), run_id, read_cursor(), read_limit()), rows.recompile_row
    )


def list_chains(run_id: str) -> Answer:
    """List frames that were compiled again."""
    find_run(run_id)
    return give_page(run_recompiles.list_chains(get_reader(), run_id, read_cursor(), read_limit()), rows.plain_row)


def list_causes(run_id: str) -> Answer:
    """List what the run was recompiled for."""
    find_run(run_id)
    return give_page(run_pages.list_causes(get_reader(), run_id, read_cursor(), read_limit()), rows.cause_row)


def list_limit_hits(run_id: str) -> Answer:
    """List compiles that dynamo gave up on."""
    find_run(run_id)
    return give_page(run_pages.list_limit_hits(get_reader(), run_id, read_cursor(), read_limit()), rows.limit_hit_row)


def list_failures(run_id: str) -> Answer:
    """List exceptions that compiles raised."""
    find_run(run_id)
    return give_page(run_events.list_failures(get_reader(), run_id, read_cursor(), read_limit()), rows.failure_row)


def list_cache_lookups(run_id: str) -> Answer:
    """List look-ups in caches."""
    find_run(run_id)
    page = run_events.list_cache_lookups(get_reader(), run_id, read_cursor(), read_limit())
    return give_page(page, rows.cache_lookup_row)


def list_cudagraph_skips(run_id: str) -> Answer:
    """List CUDA graphs that were not used."""
    find_run(run_id)
    page = run_events.list_cudagraph_skips(get_reader(), run_id, read_cursor(), read_limit())
    return give_page(page, rows.cudagraph_skip_row)


def list_processes(run_id: str) -> Answer:
    """List processes."""
    find_run(run_id)
    return give_page(run_pages.list_processes(get_reader(), run_id, read_cursor(), read_limit()), rows.process_row)


def list_notes(run_id: str) -> Answer:
    """List records that have no decoder."""
    find_run(run_id)
    return give_page(run_pages.list_notes(get_reader(), run_id, read_cursor(), read_limit()), rows.plain_row)
