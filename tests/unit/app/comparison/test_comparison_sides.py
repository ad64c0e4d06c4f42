"""What people name to compare, and what is read of it."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace

import pytest

from compileboard.app.cli.main import main
from compileboard.app.comparison.compare import build_comparison
from compileboard.app.comparison.load import load_side
from compileboard.app.comparison.sides import (
    find_default,
    find_side,
    list_side_choices,
    resolve_run_ids,
)
from compileboard.app.core.newest import read_clock
from compileboard.app.core.page import FilterError
from compileboard.app.core.store import FileStore
from compileboard.collectors.store.ingest.ingestor import Ingestor
from tests.unit.app.benched import (
    ACCURACY,
    DAY_US,
    MLP,
    RUNS,
    add_results,
    bench_suite,
    list_break,
    measure,
)
from tests.unit.app.clickhouse.published import OpenEngine
from tests.unit.app.compared import now
from tests.unit.app.seed import START_US, add_run


def test_sides_are_runs_commits_branches_and_versions(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    bench_suite(store)
    newest, oldest = RUNS[2], RUNS[0]
    commit = reader.execute("select git_commit from runs where id = ?", (oldest,)).fetchone()[0]
    named = {
        text: find_side(reader, *now(open_engine(reader)), text, "base")
        for text in (oldest, f"commit:{commit[:8]}", "branch:main")
    }
    named["torch:2.11.0"] = find_side(reader, *now(open_engine(reader)), "torch:2.11.0", "base")
    assert {
        text: [run.run.id for run in named_side.runs] for text, named_side in named.items()
    } == {
        oldest: [oldest],
        f"commit:{commit[:8]}": [oldest],
        "branch:main": [newest],
        "torch:2.11.0": [newest],
    }
    offered = {side_choice.value for side_choice in list_side_choices(reader, open_engine(reader))}
    assert {oldest, "branch:main", "torch:2.11.0", f"commit:{commit[:12]}"} <= offered


def test_words_of_the_command_line_name_runs(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    with pytest.raises(FilterError, match="new: there is no run in this database"):
        resolve_run_ids(reader, *now(open_engine(reader)), "previous", "latest")
    bench_suite(store)
    first, second, third = RUNS
    assert resolve_run_ids(reader, *now(open_engine(reader)), "previous", "latest") == (
        second,
        third,
    )
    assert resolve_run_ids(reader, *now(open_engine(reader)), "previous", second) == (first, second)
    assert resolve_run_ids(reader, *now(open_engine(reader)), "latest", first) == (third, first)
    assert resolve_run_ids(reader, *now(open_engine(reader)), "previous", "branch:main") == (
        second,
        "branch:main",
    )
    assert resolve_run_ids(reader, *now(open_engine(reader)), "baseline:x", "latest") == (
        "baseline:x",
        third,
    )
    with pytest.raises(FilterError, match="base: there is no earlier run named"):
        resolve_run_ids(reader, *now(open_engine(reader)), "previous", first)
    with pytest.raises(FilterError, match="new: there is no run 'previous'"):
        resolve_run_ids(reader, *now(open_engine(reader)), "latest", "previous")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("01JB", "base: '01JB' fits several runs, give more of the id: 01JBENCH"),
        (
            "nothing",
            (
                "base: there is no run 'nothing' in this database; expected the beginning of a "
                "run's id"
            ),
        ),
        ("branch:other", "base: no run of branch 'other' is in this database"),
        ("commit:", "base: 'commit:' is not a side; it must be"),
        ("tag:x", "base: 'tag:x' is not a side; it must be"),
        ("baseline:x", "base: there is no baseline 'x'; known: none yet"),
        ("x" * 300, "base: must be at most 200 characters, got 300"),
    ],
)
def test_a_side_that_is_not_there_is_said(
    open_engine: OpenEngine,
    store: sqlite3.Connection,
    reader: sqlite3.Connection,
    text: str,
    message: str,
) -> None:
    bench_suite(store)
    with pytest.raises(FilterError) as error:
        find_side(reader, *now(open_engine(reader)), text, "base")
    assert str(error.value).startswith(message)


def test_the_default_is_the_newest_benchmark_and_the_one_before(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    assert find_default(reader, *now(open_engine(reader)), None, None) is None
    bench_suite(store)
    add_run(store, "LIVE", started_us=START_US + 9 * DAY_US)
    assert find_default(reader, *now(open_engine(reader)), None, None) == (RUNS[1], RUNS[2])
    assert find_default(reader, *now(open_engine(reader)), None, RUNS[1]) == (RUNS[0], RUNS[1])
    assert find_default(reader, *now(open_engine(reader)), RUNS[0], None) == (RUNS[0], RUNS[1])
    assert find_default(reader, *now(open_engine(reader)), None, RUNS[0]) is None


def test_the_run_before_is_one_that_measured_the_same(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    add_results(store, "OLD", MLP, started_us=START_US)
    add_results(store, "OTHER", measure(model="cnn"), started_us=START_US + DAY_US)
    add_results(store, "NEW", MLP, started_us=START_US + 2 * DAY_US)
    assert find_default(reader, *now(open_engine(reader)), None, "NEW") == ("OLD", "NEW")
    assert find_default(reader, *now(open_engine(reader)), None, "OTHER") == (
        "OLD",
        "OTHER",
    )  # else simply the one before


def test_a_suite_measured_in_parts_is_one_side(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    for run_id, event in (("A", MLP), ("B", measure(**ACCURACY)), ("C", measure(model="cnn"))):
        add_results(store, run_id, event)
    store.execute("update runs set git_commit = 'abc123'")
    store.commit()
    side = load_side(
        FileStore(reader),
        read_clock(),
        find_side(reader, *now(open_engine(reader)), "commit:abc", "new"),
    )
    assert sorted(run.id for run in side.runs) == ["A", "B", "C"]
    assert {entry.model: (entry.accuracy, len(entry.repeats)) for entry in side.entries} == {
        "mlp": ("pass", 2),
        "cnn": (None, 2),
    }


def test_a_side_has_its_surroundings(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    quick = measure(facts={"settings": {"repeat": 3, "quick": True}})
    add_results(store, "A", quick, replace(quick, model="cnn", facts={"settings": {}}))
    side = load_side(
        FileStore(reader), read_clock(), find_side(reader, *now(open_engine(reader)), "A", "base")
    )
    assert side.environment["timing"] == ("repeat 3, quick", "the harness's default")
    assert (side.environment["torch"], side.environment["hardware"]) == (
        ("2.11.0",),
        ("AMD EPYC 9654",),
    )
    assert side.environment["host"] == ()


def test_breaks_are_those_of_the_models_tasks(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    bench_suite(store, RUNS[:2])
    comparison = build_comparison(FileStore(reader), read_clock(), RUNS[0], RUNS[1]).comparison
    assert [
        (change.model, change.word, change.new_count) for change in comparison.breaks.changes
    ] == [("Breaky", "unchanged", 2)]
    assert [(change.model, change.word) for change in comparison.causes.changes] == [
        ("Breaky", "unchanged")
    ]
    assert {
        exclusion.reason for exclusion in comparison.excluded if exclusion.model == "Hungry"
    } == {"failed (out of memory) on base, failed (out of memory) in new"}


def test_a_stored_baseline_is_a_side(store: sqlite3.Connection, reader: sqlite3.Connection) -> None:
    bench_suite(store, RUNS[:2])
    database = reader.execute("pragma database_list").fetchone()[2]
    assert main(["baseline", "save", "good", "--run", RUNS[0], "--db", database]) == 0
    comparison = build_comparison(
        FileStore(reader), read_clock(), "baseline:good", RUNS[0]
    ).comparison
    assert {delta.word for pair in comparison.pairs for delta in pair.deltas.values()} == {"same"}
    assert {metric_sum.change for metric_sum in comparison.sums} == {0}
    assert [(change.model, change.word) for change in comparison.breaks.changes] == [
        ("Breaky", "unchanged")
    ]
    newer = build_comparison(FileStore(reader), read_clock(), "baseline:good", RUNS[1]).comparison
    speed = next(pair.deltas["speedup"] for pair in newer.pairs if pair.model == "MobileNetV3")
    assert (speed.word, speed.method) == ("eager", "intervals"), (
        "a baseline keeps eager mode's latency, which is what moved"
    )


def test_a_stored_baseline_keeps_the_samples(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    for number, run_id in enumerate(RUNS[:2]):
        samples = [value * (1 + number) for value in (1.9, 2.0, 2.1)]
        repeats = {**MLP.repeats, "cold_compile_s": samples}
        event = measure(values={**MLP.values, "compilation_latency": samples[1]}, repeats=repeats)
        add_results(store, run_id, event, started_us=START_US + number * DAY_US)
    database = reader.execute("pragma database_list").fetchone()[2]
    assert main(["baseline", "save", "good", "--run", RUNS[0], "--db", database]) == 0
    ((of_run,), (of_baseline,)) = (
        build_comparison(FileStore(reader), read_clock(), base, RUNS[1]).comparison.pairs
        for base in (RUNS[0], "baseline:good")
    )
    delta = of_baseline.deltas["compilation_latency_s"]
    assert (delta.word, delta) == ("worse", of_run.deltas["compilation_latency_s"])


def test_runs_without_a_benchmark_are_compared(recorded_reader: sqlite3.Connection) -> None:
    runs = [
        row[0]
        for row in recorded_reader.execute(
            "select run_id from run_totals order by compile_count desc"
        )
    ]
    comparison = build_comparison(
        FileStore(recorded_reader), read_clock(), runs[1], runs[0]
    ).comparison
    assert comparison.pairs == ()
    assert {total.metric.name for total in comparison.totals} >= {
        "compile_s",
        "graph_break_count",
        "recompile_count",
    }
    assert len(comparison.functions) > 0
    same = build_comparison(FileStore(recorded_reader), read_clock(), runs[0], runs[0]).comparison
    assert {change.word for change in same.breaks.changes} <= {"unchanged"}
    assert {total.word for total in same.totals} == {"same"}


def test_one_suite_of_a_run_of_two_takes_nothing_of_the_other(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    for run_id in ("A", "B"):
        add_results(store, run_id, MLP, measure(suite="other", model="theirs", task="theirs"))
        Ingestor(store).ingest(run_id, list_break(f"{run_id}/theirs", START_US), now_us=START_US)
    whole, of_suite = (
        build_comparison(FileStore(reader), read_clock(), "A", "B").comparison,
        build_comparison(FileStore(reader), read_clock(), "A", "B", suite="builtin").comparison,
    )
    assert (len(whole.pairs), len(of_suite.pairs), of_suite.totals, of_suite.functions) == (
        2,
        1,
        (),
        (),
    )
    assert (len(whole.breaks.changes), len(of_suite.breaks.changes)) == (1, 0)
    with pytest.raises(FilterError, match="neither A nor B has a result of suite 'odd'"):
        build_comparison(FileStore(reader), read_clock(), "A", "B", suite="odd")


def test_programs_that_one_side_never_ran_are_left_out(
    store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    for run_id, commit in (("A", "aaaa"), ("B", "bbbb")):
        add_results(store, run_id, MLP)
        store.execute("update runs set git_commit = ? where id = ?", (commit, run_id))
    add_run(store, "DEMO", name="demo", git_commit="bbbb")
    Ingestor(store).ingest("DEMO", list_break("DEMO/p", START_US), now_us=START_US)
    comparison = build_comparison(
        FileStore(reader), read_clock(), "commit:aaaa", "commit:bbbb"
    ).comparison
    assert ([run.id for run in comparison.new.runs], comparison.breaks.changes) == (["B"], ())
    assert "only commit:bbbb ran demo, which is left out" in comparison.warnings
    assert [
        run.id
        for run in build_comparison(
            FileStore(reader), read_clock(), "A", "DEMO"
        ).comparison.new.runs
    ] == ["DEMO"]


def test_the_default_base_is_no_run_that_still_runs(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    for day, run_id in enumerate(("A", "B", "C")):
        add_results(store, run_id, MLP, started_us=START_US + day * DAY_US)
    store.execute(
        "update runs set state = 'running', heartbeat_us = ? where id = 'B'",
        (time.time_ns() // 1000,),
    )
    assert (
        find_default(reader, *now(open_engine(reader)), None, None)
        == ("A", "C")
        == find_default(reader, *now(open_engine(reader)), None, "C")
    )


def test_a_run_that_fell_silent_is_compared(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    for day, run_id in enumerate(("A", "B")):
        add_results(store, run_id, MLP, started_us=START_US + day * DAY_US)
    store.execute("update runs set state = 'running', git_branch = 'main' where id = 'B'")
    assert find_default(reader, *now(open_engine(reader)), None, None) == ("A", "B")
    assert find_side(reader, *now(open_engine(reader)), "branch:main", "new").runs[0].run.id == "B"


def test_the_newest_run_of_a_branch_is_one_that_ended(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    for day, (run_id, commit) in enumerate((("A", "aaaaaa"), ("B", "bbbbbb"))):
        add_results(store, run_id, MLP, started_us=START_US + day * DAY_US)
        store.execute(
            "update runs set git_branch = 'main', git_commit = ? where id = ?", (commit, run_id)
        )
    assert find_side(reader, *now(open_engine(reader)), "branch:main", "new").runs[0].run.id == "B"
    store.execute(
        "update runs set state = 'running', heartbeat_us = ? where id = 'B'",
        (time.time_ns() // 1000,),
    )
    assert find_side(reader, *now(open_engine(reader)), "branch:main", "new").runs[0].run.id == "A"
    assert (
        find_side(reader, *now(open_engine(reader)), "commit:bbbb", "new").runs[0].run.id == "B"
    )  # where there is no other
