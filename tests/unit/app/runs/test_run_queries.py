from __future__ import annotations

import sqlite3

import pytest

from compileboard.app.compiles import run_queries as compiles
from compileboard.app.core.page import FilterError
from compileboard.app.reasons import run_queries as graph_breaks
from compileboard.app.reasons import run_queries as recompiles
from compileboard.app.runs import failures, trace_files
from compileboard.app.runs import run_queries as run_detail
from compileboard.collectors.contract.events import GraphBroke
from compileboard.collectors.store.ingest.ingestor import Ingestor
from tests.unit.app.recorded import MARKUP, PROCESS, RUN, START_US, record_run

BIG_TABLES = (
    "compiles",
    "compilations",
    "graph_breaks",
    "recompiles",
    "guard_failures",
    "events",
    "cache_lookups",
)


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    record_run(store)


def test_get_run_has_tags_facts_and_totals(reader: sqlite3.Connection) -> None:
    detail = run_detail.get_run(reader, RUN)
    assert detail is not None
    assert (detail.run.compile_count, detail.run.recompile_count, detail.run.graph_break_count) == (
        4,
        2,
        1,
    )
    assert detail.fact("host", "name") == "box"
    assert detail.fact("host", "name", "more") is None
    assert run_detail.get_run(reader, "none") is None


def test_list_compiles_pages_through_every_compile_in_every_order(
    reader: sqlite3.Connection,
) -> None:
    for sort in [*compiles.ORDERS, *(f"{order}.asc" for order in compiles.ORDERS)]:
        ids: list[int] = []
        cursor = None
        while True:
            page = compiles.list_compiles(reader, RUN, sort=sort, cursor=cursor, limit=1)
            ids += [row.id for row in page.rows]
            cursor = page.next
            if cursor is None:
                break
        assert len(ids) == len(set(ids)) == 4, sort


def test_list_compiles_filters(reader: sqlite3.Connection) -> None:
    def names(**options: object) -> list[str]:
        wanted_filter = compiles.CompileFilter(**options)  # type: ignore[arg-type]
        assert compiles.count_compiles(reader, RUN, wanted_filter) == len(
            compiles.list_compiles(reader, RUN, wanted_filter).rows
        )
        return [row.compile_id for row in compiles.list_compiles(reader, RUN, wanted_filter).rows]

    assert names(outcome="failed") == ["1/0"]
    assert names(recompiled=True) == ["0/1", "0/2"]
    assert names(text="G") == ["1/0"]
    with pytest.raises(FilterError, match="sort"):
        compiles.list_compiles(reader, RUN, sort="color")
    with pytest.raises(FilterError, match="outcome"):
        names(outcome="great")


def test_phases_of_a_compile_keep_runtime_records_apart(reader: sqlite3.Connection) -> None:
    first = compiles.list_compiles(reader, RUN).rows[0]
    assert (first.total_us, first.duration_us) == (300_000, 200_000)
    assert first.phases.dynamo_us == 200_000
    assert first.phases.first_calls_us == 40_000
    second = compiles.list_compiles(reader, RUN).rows[1]
    assert second.phases.first_calls_us is None


def test_list_compilations_has_every_metric_under_its_own_name(reader: sqlite3.Connection) -> None:
    first = compiles.list_compilations(reader, RUN, limit=4)
    second = compiles.list_compilations(reader, RUN, first.next, 4)
    records = [*first.rows, *second.rows]
    assert [record.kind for record in records] == [
        "forward",
        "backward",
        "runtime",
        "forward",
        "forward",
        "forward",
    ]
    assert records[0].metrics["guard_count"] == 12
    assert sum(record.duration_us or 0 for record in records if record.kind != "runtime") == 506_000


def test_a_compile_that_traced_its_function_twice_restarted(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    store.execute("update compiles set attempt_count = 2 where compile_id in ('0/1', '0/2')")
    chain = compiles.list_chain(reader, PROCESS, 0, 0)
    assert [compile_row.outcome for compile_row in chain] == [
        "broke",
        "restarted",
        "recompile_limit",
    ]


def test_a_compile_has_its_start_and_its_chain(reader: sqlite3.Connection) -> None:
    rows = {row.compile_id: row for row in compiles.list_compiles(reader, RUN).rows}
    first = rows["0/0"]
    start = compiles.get_start(reader, first, compiles.list_records(reader, key=first.id))
    assert trace_files.list_stack(start)[0]["code"] == "f(x)"
    chain = compiles.list_chain(reader, PROCESS, 0, 0)
    assert [(compile_row.compile_id, compile_row.outcome) for compile_row in chain] == [
        ("0/0", "broke"),
        ("0/1", "compiled"),
        ("0/2", "recompile_limit"),
    ]
    assert compiles.get_compile(reader, "other", first.id) is None


def test_graph_breaks_one_by_one_and_distinct_agree(reader: sqlite3.Connection) -> None:
    graph_break = graph_breaks.list_graph_breaks(reader, RUN).rows[0]
    assert (graph_break.gb_id, graph_break.hints, graph_break.outcome) == (
        "GB0059",
        (f"Avoid {MARKUP}",),
        "resumed",
    )
    assert graph_break.compile_us == 300_000
    distinct = graph_breaks.list_distinct_breaks(reader, RUN).rows[0]
    assert (distinct.break_count, distinct.outcomes, distinct.compile_us) == (
        1,
        {"resumed": 1},
        300_000,
    )
    assert graph_breaks.list_graph_breaks(reader, RUN, distinct_id="0" * 16).rows == ()


def test_words_of_another_run_change_no_runs_breaks(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    words = {
        "reason": "forged",
        "explanation": "forged",
        "hints": ["forged"],
        "source_line": "forged",
        "line": 66,
    }
    forged = GraphBroke("other", 1, 9, fingerprint="b1", **words)
    before = graph_breaks.list_distinct_breaks(reader, RUN).rows
    Ingestor(store).ingest("other", [forged])
    assert graph_breaks.list_distinct_breaks(reader, RUN).rows == before
    store.execute(
        "update distinct_breaks set reason = 'forged', hints = '[]', line = 66"
    )  # as if it had come first
    assert graph_breaks.list_distinct_breaks(reader, RUN).rows == before


def test_recompiles_have_the_guards_of_every_cache_entry(reader: sqlite3.Connection) -> None:
    rows = recompiles.list_recompiles(reader, RUN).rows
    assert [[guard.cache_entry for guard in row.guards] for row in rows] == [
        ["0/0"],
        ["0/1", "0/0"],
    ]
    chain = recompiles.list_chains(reader, RUN).rows[0]
    assert (chain.function, chain.recompile_count, chain.limit_count) == ("f", 2, 1)
    limit = recompiles.list_limit_hits(reader, RUN).rows[0]
    assert (limit.function, limit.fail_reason) == ("f", "limit reached")
    cause = recompiles.list_causes(reader, RUN).rows[0]
    assert (cause.recompile_count, cause.partial_count, cause.compile_us) == (2, 2, 201_000)


def test_failures_caches_skips_and_notes_are_listed(reader: sqlite3.Connection) -> None:
    failure = failures.list_failures(reader, RUN).rows[0]
    assert (failure.outcome, failure.function, failure.text) == (
        "failed",
        "g",
        f"Traceback {MARKUP}",
    )
    assert [
        (failure.error_type, failure.compile_count)
        for failure in failures.count_failed(reader, RUN)
    ] == [("BackendCompilerFailed", 1)]
    results = {
        (cache_result.cache, cache_result.result): cache_result
        for cache_result in failures.count_cache_results(reader, RUN)
    }
    assert results["fx_graph", "hit"].time_saved_us == 900_000
    assert len(failures.list_cache_lookups(reader, RUN, limit=1).rows) == 1
    assert failures.list_cudagraph_skips(reader, RUN).rows[0].function == "f"
    assert trace_files.list_notes(reader, RUN)[0].name == f"artifact:{MARKUP}"


def test_configuration_texts_belong_to_their_run(reader: sqlite3.Connection) -> None:
    uses = run_detail.list_configs(reader, RUN)
    assert [(use.kind, use.config_hash) for use in uses] == [
        ("changed", "77f7156fe72cc1eb"),
        ("dynamo", "a4797441f1dafbf1"),
    ]
    text = run_detail.get_config(reader, RUN, "a4797441f1dafbf1")
    assert text is not None and text.values["recompile_limit"] == 2
    assert run_detail.get_config(reader, "other", "a4797441f1dafbf1") is None


def test_a_damaged_event_shows_what_the_columns_have(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    store.execute("update events set body = x'02ff' where kind = 'graph_broke'")
    graph_break = graph_breaks.list_graph_breaks(reader, RUN).rows[0]
    assert (graph_break.gb_id, graph_break.text, graph_break.stack) == ("GB0059", "", ())


def _plan(reader: sqlite3.Connection, sql: str) -> list[str]:
    names = {"run_id": RUN, "limit": 5, "after_us": 0, "after_id": 0, "after_key": START_US}
    others = (
        "outcome",
        "text",
        "recompiled",
        "distinct_id",
        "key",
        "process_id",
        "generation",
        "frame_id",
        "sequence",
    )
    others += ("least", "after_count")
    values = dict.fromkeys((*others, "artifact")) | {f"key{n}": n for n in range(3)} | names
    return [row["detail"] for row in reader.execute(f"explain query plan {sql}", values)]


@pytest.mark.parametrize(
    "sql",
    [
        *(
            compiles.compiles_sql(order, up, True)
            for order in compiles.ORDERS
            for up in (True, False)
        ),
        compiles.phases_sql(3),
        compiles.RUN_COMPILATIONS_SQL,
        compiles.COMPILE_RECORDS_SQL,
        compiles.CHAIN_SQL,
        compiles.BEFORE_SQL,
        compiles.AFTER_SQL,
        compiles.PHASES_SQL,
        compiles.OUTCOMES_SQL,
        trace_files.BEFORE_SQL,
        trace_files.NOTES_SQL,
        graph_breaks.RUN_BREAKS_SQL,
        graph_breaks.COMPILE_BREAKS_SQL,
        graph_breaks.DISTINCT_SQL,
        graph_breaks.OUTCOMES_SQL,
        recompiles.RUN_RECOMPILES_SQL,
        recompiles.CHAINS_SQL,
        recompiles.CAUSES_SQL,
        recompiles.LIMITS_SQL,
        recompiles.keyed_sql(3),
        recompiles.guards_sql(3),
        failures.FAILURES_SQL,
        failures.FAILED_SQL,
        failures.LOOKUPS_SQL,
        failures.SKIPS_SQL,
        failures.CACHE_RESULTS_SQL,
        failures.COMPILE_LOOKUPS_SQL,
    ],
)
def test_run_queries_scan_no_table(reader: sqlite3.Connection, sql: str) -> None:
    assert [
        step for step in _plan(reader, sql) if step.startswith("SCAN") and "CONSTANT" not in step
    ] == []
