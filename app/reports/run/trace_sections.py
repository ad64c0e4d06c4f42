"""What of a report comes from torch's own logs: a section each, read with the pages' own queries, and bounded.

A section is the variables of its template; what a run has nothing of has no section.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import Any

from compileboard.app.analysis import stacks as stack_tree
from compileboard.app.analysis.aot.report import explain_graphs, report_run
from compileboard.app.analysis.caches.lookups import read_lookup, summarize_diff
from compileboard.app.analysis.guards.breakdown import advise, describe_kind, list_origins, sum_guards
from compileboard.app.analysis.ranks.comparison import ASPECTS, read_comparison
from compileboard.app.analysis.ranks.divergence import (
    describe_differences,
    describe_times,
    list_verdicts,
    name_ranks,
    read_divergence,
)
from compileboard.app.analysis.shapes import build_shapes, describe_guard, describe_range, describe_reason
from compileboard.app.analysis.timeline import DRAWN, LEGEND, build_strips, find_phase
from compileboard.app.queries.run import failures, guards, shapes, stacks, timeline
from compileboard.app.queries.run.aot import list_aot_graphs
from compileboard.app.queries.run.caches import get_lookup
from compileboard.app.queries.run.run import RunFeatures
from compileboard.app.queries.run.trace_files import sum_rejects
from compileboard.app.reports.redaction import select_source
from compileboard.collectors.contract.rejects import KINDS

MOST_NAMES = 60
MOST_BLOCKS = 60
MOST_SETS = 40
MOST_PLACES = 20
MOST_SHAPES = 8
MOST_GRAPHS = 40
MOST_MISSES = 5
MOST_LANES = 16
_COLUMNS = 100_000  # so fine that the longest phases are chosen by their length alone; of 10 lanes are read 400

Section = dict[str, Any]


def read_sections(connection: sqlite3.Connection, run_id: str, has: RunFeatures, source: bool) -> dict[str, Section]:
    """Read the sections that a run has something for, in the order of the report."""
    wanted: tuple[tuple[str, bool, Callable[..., Section | None]], ...] = (
        ("ranks", has.has_ranks, _read_ranks),
        ("timeline", has.has_spans, _read_timeline),
        ("stacks", has.has_stacks, _read_stacks),
        ("guards", has.has_guards, _read_guards),
        ("shapes", has.has_symbols, _read_shapes),
        ("misses", has.has_artifacts, _read_misses),
        ("aot", has.has_aot, _read_aot),
        ("rejects", True, _read_rejects),
    )
    found = {name: read(connection, run_id, source) for name, there, read in wanted if there}
    return {name: section for name, section in found.items() if section}


def _read_ranks(connection: sqlite3.Connection, run_id: str, source: bool) -> Section | None:
    found = read_comparison(connection, run_id)
    if found is None:
        return None
    parting = read_divergence(connection, found)
    return {
        "found": found,
        "aspects": ASPECTS,
        "summary": describe_differences(found),
        "times": describe_times(found.ranks),
        "verdicts": [(name_ranks(ranks), ranks, said) for ranks, said in list_verdicts(found)],
        "parting": parting.said,
        "why": select_source(parting.why, source),
        "partial": select_source(parting.partial, source),
        "partial_count": parting.partial_count,
    }


def _read_timeline(connection: sqlite3.Connection, run_id: str, _source: bool) -> Section:
    lanes = timeline.list_lanes(connection, run_id)
    drawn = lanes[:MOST_LANES]
    first_us, last_us = min(it.first_us for it in lanes), max(it.last_us for it in lanes) + 1
    windows = [timeline.get_window(connection, it, first_us, last_us, _COLUMNS, lane_count=len(drawn)) for it in drawn]
    keys = sorted({it.compile_key for window in windows for it in window.spans if it.compile_key is not None})
    busy = timeline.list_busy(connection, drawn, (last_us - first_us) // 200) or [(first_us, last_us)]
    totals = [it for it in timeline.list_totals(connection, run_id) if it.instant_count < it.span_count]
    return {
        "strips": build_strips(drawn, windows, busy, timeline.list_functions(connection, keys)),
        "drawn_count": DRAWN,
        "lane_count": len(lanes),
        "totals": totals[:MOST_NAMES],
        "name_count": len(totals),
        "find_phase": find_phase,
        "legend": LEGEND,
    }


def _read_stacks(connection: sqlite3.Connection, run_id: str, source: bool) -> Section:
    compiles, nodes = stacks.list_stack_compiles(connection, run_id), stacks.list_nodes(connection, run_id)
    tree = stack_tree.build_tree(nodes, compiles)
    block = stack_tree.lay_out(tree.root, most=MOST_BLOCKS)
    counts = Counter(map(stack_tree.name_ending, compiles))
    frames = stack_tree.list_frames(block)
    return {
        "block": block,
        "codes": stacks.list_codes(connection, frames) if source else {},
        "without_count": len(tree.without_stack),
        "loose": stack_tree.list_loose_stacks(nodes, stacks.list_loose_records(connection, run_id)),
        "most_loose": MOST_BLOCKS,
        "endings": [(ending, stack_tree.describe_ending(ending), count) for ending, count in counts.most_common()],
        "describe": stack_tree.describe_ending,
        "name_ending": stack_tree.name_ending,
        "list_shares": stack_tree.list_shares,
        "is_library": stack_tree.is_library_name,
    }


def _read_guards(connection: sqlite3.Connection, run_id: str, _source: bool) -> Section:
    totals = guards.get_totals(connection, run_id)
    sums = sum_guards(guards.list_summaries(connection, run_id))
    origins = list_origins(sums)
    return {
        "totals": totals,
        "sums": sums,
        "origins": origins,
        "advice": advise(origins, totals.median_us),
        "sets": guards.list_guard_sets(connection, run_id, limit=MOST_SETS).rows,
        "most_places": MOST_PLACES,
        "describe_kind": describe_kind,
    }


def _read_shapes(connection: sqlite3.Connection, run_id: str, source: bool) -> Section:
    page = shapes.list_shape_compiles(connection, run_id, limit=MOST_SHAPES)
    return {
        "counts": shapes.count_kinds(connection, run_id),
        "lines": select_source(shapes.list_lines(connection, run_id), source),
        "views": [build_shapes(it) for it in select_source(page.rows, source)],
        "more": page.next is not None,
        "describe_guard": describe_guard,
        "describe_range": describe_range,
        "describe_reason": describe_reason,
    }


def _read_misses(connection: sqlite3.Connection, run_id: str, source: bool) -> Section | None:
    """Say of the first misses what differs from the nearest earlier key; each is compared with hundreds."""
    rows = select_source(failures.list_cache_lookups(connection, run_id, limit=200).rows, source)
    found = []
    for it in [it for it in rows if it.result == "miss"][:MOST_MISSES]:
        lookup = get_lookup(connection, run_id, it.id)
        diff = read_lookup(connection, lookup).diff if lookup is not None else None
        if diff is not None:
            found.append((it, summarize_diff(diff)))
    return {"rows": found} if found else None


def _read_aot(connection: sqlite3.Connection, run_id: str, _source: bool) -> Section:
    page = list_aot_graphs(connection, run_id, limit=MOST_GRAPHS)
    return {
        "report": report_run(connection, run_id),
        "graphs": explain_graphs(connection, run_id, page.rows),
    }


def _read_rejects(connection: sqlite3.Connection, run_id: str, source: bool) -> Section | None:
    rows = select_source(sum_rejects(connection, run_id), source)
    return {"rows": rows, "kinds": KINDS} if rows else None
