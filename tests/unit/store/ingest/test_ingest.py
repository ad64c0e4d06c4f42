"""Events become rows once, whatever comes twice, late, shuffled or torn off."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from compileboard.collectors.contract.events import (
    Compiled,
    CompileStarted,
    Event,
    FrameContext,
    GraphBroke,
    ProcessStarted,
    Recompiled,
    RecordsLost,
    RunEnded,
    RunStarted,
    SnapshotTaken,
)
from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.dashboard import annotate
from compileboard.collectors.store.ingest.ingestor import HELD_WHOLE, Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.trash import delete_run
from tests.unit.decode.recorded_logs import events as decoded

LOG = "torch2.13-guards"
TABLES = (
    "events",
    "compiles",
    "compilations",
    "graph_breaks",
    "recompiles",
    "guard_failures",
    "failures",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        yield connection


def recorded_events(name: str = LOG) -> list[Event]:
    made = list(decoded(name))
    process = made[0].process_id
    return [ProcessStarted(process, -1, made[0].time_us, run_id="R", pid=1), *made]


def counts(store: sqlite3.Connection) -> dict[str, int]:
    return {table: store.execute(f"select count(*) from {table}").fetchone()[0] for table in TABLES}


def totals(store: sqlite3.Connection) -> dict[str, int]:
    return dict(store.execute("select * from run_totals").fetchone())


def start(node: str = "node", **rest: object) -> RunStarted:
    return RunStarted(node, 0, 1, run_id="R", name=str(rest.pop("name", "a run")), **rest)  # type: ignore[arg-type]


def test_ingest_is_idempotent_for_the_same_and_overlapping_batches(
    store: sqlite3.Connection,
) -> None:
    events, ingestor = recorded_events(), Ingestor(store)
    ingestor.ingest("R", events[:300])
    ingestor.ingest("R", events[200:])
    before = counts(store), totals(store)
    again = Ingestor(store).ingest("R", events)
    assert again.new_count == 0
    assert (counts(store), totals(store)) == before
    assert before[0]["recompiles"] > 50


def test_batches_of_any_size_give_the_same_totals(
    store: sqlite3.Connection, tmp_path: Path
) -> None:
    events, dice = recorded_events(), random.Random(7)
    Ingestor(store).ingest("R", events)
    with closing(open_writer(tmp_path / "other.db")) as other:
        migrate_connection(other)
        position = 0
        while position < len(events):
            size = dice.choice([1, 2, 5, 40])
            Ingestor(other).ingest(
                "R", events[position : position + size]
            )  # a new recorder each time
            position += size
        assert totals(other) == totals(store)
        assert counts(other) == counts(store)


def test_batches_of_any_size_give_the_same_compiles_and_stacks(
    store: sqlite3.Connection, tmp_path: Path
) -> None:
    events = recorded_events()
    Ingestor(store).ingest("R", events)
    query = """
        select
          generation, compile_id, rank, function_id, c.line, resumed_at, outcome, started_us,
          duration_us, total_us,
          attempt_count, recompiled_from, n.depth, n.file, n.line, n.name, n.code
        from compiles as c
        left join stack_nodes as n on n.id = c.stack_id
        order by c.id
        """
    with closing(open_writer(tmp_path / "other.db")) as other:
        migrate_connection(other)
        for event in events:
            Ingestor(other).ingest("R", [event])
        nodes = "select count(*), count(distinct depth), sum(parent_id is null) from stack_nodes"
        for sql in (query, nodes):
            assert [tuple(row) for row in other.execute(sql)] == [
                tuple(row) for row in store.execute(sql)
            ]


def test_processes_shuffled_into_each_other_give_the_same_totals(
    store: sqlite3.Connection, tmp_path: Path
) -> None:
    first, dice = recorded_events(), random.Random(3)
    two = [replace(event, process_id="second") for event in first]
    Ingestor(store).ingest("R", first + two)
    with closing(open_writer(tmp_path / "other.db")) as other:
        migrate_connection(other)
        ingestor, queues = Ingestor(other), [list(first), list(two)]
        while any(queues):
            queue = dice.choice([queue for queue in queues if queue])
            ingestor.ingest(
                "R", [queue.pop(0) for _ in range(min(len(queue), dice.randint(1, 60)))]
            )
        assert totals(other) == totals(store)


@pytest.mark.parametrize("name", [LOG, "torch2.13-breaks", "torch2.11-cuda-hf_Bert_train"])
def test_roll_ups_equal_the_rows_they_count(store: sqlite3.Connection, name: str) -> None:
    Ingestor(store).ingest("R", recorded_events(name))
    check_roll_ups(store)


def check_roll_ups(store: sqlite3.Connection) -> None:
    for column, sql in {
        "compile_count": "select count(*) from compiles",
        "record_count": "select count(*) from compilations",
        "graph_break_count": "select count(*) from graph_breaks",
        "recompile_count": "select count(*) from recompiles",
        "failure_count": "select count(*) from compiles where outcome = 'failed'",
        "recompile_limit_count": "select count(*) from compiles where outcome = 'recompile_limit'",
        "cache_hit_count": "select count(*) from cache_lookups where result = 'hit'",
        "compile_us": (
            "select coalesce(sum(duration_us), 0) from compilations where kind <> 'runtime'"
        ),
        "recompile_us": (
            "select coalesce(sum(total_us), 0) from compiles where recompiled_from is not null"
        ),
        "restart_count": "select sum(restart_count) from compilations",
    }.items():
        assert totals(store)[column] == store.execute(sql).fetchone()[0], column
    for table, total, sql in (
        (
            "run_functions",
            "graph_break_count",
            "select count(*) from graph_breaks where function_id is not null",
        ),
        (
            "run_functions",
            "recompile_count",
            "select count(*) from recompiles where function_id is not null",
        ),
        (
            "run_functions",
            "compile_count",
            "select count(*) from compiles where function_id is not null",
        ),
        ("run_breaks", "break_count", "select count(*) from graph_breaks"),
        ("run_causes", "recompile_count", "select count(*) from recompiles"),
        ("run_causes", "partial_count", "select coalesce(sum(is_partial), 0) from recompiles"),
        (
            "run_causes",
            "compile_us",
            """
            select coalesce(sum(total_us), 0)
            from recompiles
            join compiles on compiles.id = compile_key
            """,
        ),
    ):
        summed = store.execute(f"select coalesce(sum({total}), 0) from {table}").fetchone()[0]
        assert summed == store.execute(sql).fetchone()[0], (table, total)


def late(events: list[Event], *, traced: bool) -> list[Event]:
    """Take away all that was said of a frame before its first recompile, as a late install does.

    After reset() the frames' numbers come again; each stretch between two is a process of its own
    here.
    """
    stretches: list[list[Event]] = [[]]
    seen: set[str | None] = set()
    for event in events:
        if isinstance(event, CompileStarted) and not event.attempt:
            if event.compile_id in seen:
                stretches.append([])
                seen.clear()
            seen.add(event.compile_id)
        stretches[-1].append(replace(event, process_id=f"{event.process_id}-{len(stretches)}"))
    later_events: list[Event] = []
    for stretch in stretches:
        hidden = {event.frame_id for event in stretch if isinstance(event, Recompiled)}
        for event in stretch:
            if isinstance(event, Recompiled):
                hidden.discard(event.frame_id)
            unseen = isinstance(event, FrameContext) and event.frame_id in hidden
            if not unseen and (traced or not isinstance(event, CompileStarted)):
                later_events.append(event)
    return later_events


def cause_ids(store: sqlite3.Connection, run_id: str) -> set[int]:
    sql = "select cause_id from run_causes where run_id = :run_id"
    return {row["cause_id"] for row in store.execute(sql, {"run_id": run_id})}


@pytest.mark.parametrize("size", [3, 10_000])
@pytest.mark.parametrize("traced", [True, False])
def test_a_recompile_whose_first_compile_was_not_recorded(
    store: sqlite3.Connection, traced: bool, size: int
) -> None:
    events = late(recorded_events(), traced=traced)
    for position in range(0, len(events), size):
        Ingestor(store).ingest("late", events[position : position + size])
    unnamed = "select count(*) from recompiles where function_id is null"
    assert store.execute(unnamed).fetchone()[0] == 0
    check_roll_ups(store)
    missing = "select count(*) from recompile_causes where function_id is null"
    assert store.execute(missing).fetchone()[0] == 0, (
        "nothing is left of the causes without a function"
    )
    again = [replace(event, process_id="again") for event in recorded_events()]
    Ingestor(store).ingest("whole", again)
    late_ids = cause_ids(store, "late")
    assert late_ids <= cause_ids(store, "whole"), (
        "one cause has one id, whether its function's first compile was seen or not"
    )
    assert len(late_ids) > 20


def test_a_batch_that_breaks_off_leaves_nothing(store: sqlite3.Connection) -> None:
    def breaking() -> Iterator[Event]:
        yield from recorded_events()[:50]
        raise RuntimeError("the recorder was interrupted")

    ingestor = Ingestor(store)
    with pytest.raises(RuntimeError):
        ingestor.ingest("R", breaking())
    assert sum(counts(store).values()) == 0
    ingestor.ingest("R", recorded_events())
    identities = {
        (event.process_id, event.sequence)
        for event in recorded_events()
        if type(event) not in HELD_WHOLE
    }
    assert counts(store)["events"] == len(identities)


def test_a_deleted_run_stays_deleted_and_its_texts_go_with_it(store: sqlite3.Connection) -> None:
    ingestor = Ingestor(store)
    ingestor.ingest("R", [start(), *recorded_events()])
    assert delete_run(store, "R")
    for table in (
        *TABLES,
        "functions",
        "distinct_breaks",
        "recompile_causes",
        "configs",
        "processes",
        "run_totals",
    ):
        assert store.execute(f"select count(*) from {table}").fetchone()[0] == 0, table
    assert ingestor.ingest("R", [start(), *recorded_events()]).deleted_run
    assert store.execute("select count(*) from runs").fetchone()[0] == 0
    assert not delete_run(store, "R")


def test_annotate_sets_the_given_words_alone(store: sqlite3.Connection) -> None:
    Ingestor(store).ingest("R", [start()])
    assert annotate(store, "R", title="<b>mine</b>", note="a note")
    assert annotate(store, "R", pinned=True)
    row = store.execute("select title, note, pinned from run_annotations").fetchone()
    assert tuple(row) == ("<b>mine</b>", "a note", 1)
    assert annotate(store, "R", title="")
    assert store.execute("select title from run_annotations").fetchone()["title"] is None
    assert not annotate(store, "nobody", title="x")
    with pytest.raises(ValueError, match="at most 200"):
        annotate(store, "R", title="x" * 201)


def run_row(store: sqlite3.Connection) -> sqlite3.Row:
    row: sqlite3.Row = store.execute("select * from runs").fetchone()
    return row


def test_the_first_node_describes_a_shared_run_and_the_worst_end_is_its_end(
    store: sqlite3.Connection,
) -> None:
    ingestor = Ingestor(store)
    ingestor.ingest("R", [start("a", host={"name": "alpha"}, tags={"k": "1"})])
    ingestor.ingest(
        "R", [start("b", name="other", host={"name": "beta"}, tags={"k": "2", "more": "x"})]
    )
    ingestor.ingest("R", [RunEnded("a", 1, 50, run_id="R", state="failed", exit_code=3)])
    assert run_row(store)["state"] == "running", "the other node is still at it"
    ingestor.ingest("R", [RunEnded("b", 1, 90, run_id="R", state="finished", exit_code=0)])
    row = run_row(store)
    assert (row["name"], row["host"], row["state"], row["exit_code"], row["ended_us"]) == (
        "a run", "alpha", "failed", 3, 90,
    )  # fmt: skip
    assert dict(store.execute("select key, value from run_tags").fetchall()) == {
        "k": "1",
        "more": "x",
    }


def test_a_run_whose_start_arrives_late_is_described_then(store: sqlite3.Connection) -> None:
    ingestor = Ingestor(store)
    ingestor.ingest("R", [ProcessStarted("p", 0, 100, run_id="R", pid=1)])
    assert run_row(store)["name"] == "R"
    ingestor.ingest("R", [start(name="train.py")])
    assert (run_row(store)["name"], run_row(store)["started_us"]) == ("train.py", 1)


def test_what_has_no_time_says_nothing_of_the_start(store: sqlite3.Connection) -> None:
    ingestor = Ingestor(store)
    ingestor.ingest("R", [ProcessStarted("p", 0, 0, run_id="R", pid=1)])
    assert run_row(store)["started_us"] == 0
    ingestor.ingest("R", [replace(start(name="train.py"), time_us=7)])
    assert run_row(store)["started_us"] == 7


def test_losses_keep_the_largest_count_of_each_reason(store: sqlite3.Connection) -> None:
    ingestor = Ingestor(store)
    process = ProcessStarted("p", 0, 1, run_id="R", pid=1)
    ingestor.ingest("R", [process, SnapshotTaken("p", 1, 2, losses={"a": 1})])
    ingestor.ingest("R", [SnapshotTaken("p", 2, 3, final=True, losses={"a": 3})])
    ingestor.ingest("R", [RecordsLost("p", -5, 4, run_id="R", losses={"a": 2, "torn": 2})])
    ingestor.ingest("R", [RecordsLost("p", -5, 4, run_id="R", losses={"a": 2, "torn": 2})])
    assert totals(store)["loss_count"] == 5
    assert store.execute("select losses from processes").fetchone()[0] == '{"a": 3, "torn": 2}'


def test_a_process_that_says_twice_who_it_is_is_one(store: sqlite3.Connection) -> None:
    starts = [ProcessStarted("p", sequence, 1, run_id="R", pid=1) for sequence in (0, 7)]
    Ingestor(store).ingest("R", starts)
    assert totals(store)["process_count"] == 1


def test_a_break_whose_compile_never_ended_stays_unknown(store: sqlite3.Connection) -> None:
    broke = GraphBroke(
        "p", 0, 1, compile_id="0/0", frame_id=0, frame_compile_id=0, reason="r", fingerprint="f"
    )
    Ingestor(store).ingest("R", [broke])
    assert store.execute("select outcome from graph_breaks").fetchone()[0] == "unknown"
    assert totals(store)["compile_count"] == 1


@pytest.mark.parametrize(
    ("outcome", "of_break"),
    [("compiled", "resumed"), ("skipped", "skipped"), ("failed", "skipped"), ("empty", "resumed")],
)
def test_a_break_whose_text_does_not_tell_has_the_outcome_of_its_compile(
    store: sqlite3.Connection, outcome: str, of_break: str
) -> None:
    begun = [
        start(),
        ProcessStarted("p", 0, 1, run_id="R", pid=1),
        CompileStarted("p", 1, 1, "0/0", 0, 0, function="f"),
    ]
    broke = GraphBroke("p", 2, 2, "0/0", 0, 0, reason="print", outcome="unknown", fingerprint="x")
    done = Compiled("p", 3, 3, "0/0", 0, 0, record_kind="forward", outcome=outcome)
    Ingestor(store).ingest("R", [*begun, broke, done])
    assert store.execute("select outcome from graph_breaks").fetchone()[0] == of_break


def test_a_sign_of_life_writes_one_page(store: sqlite3.Connection) -> None:
    ingestor = Ingestor(store)
    ingestor.ingest("R", [start()])
    checkpoint(store)
    ingestor.beat("R", 2**60)
    assert store.execute("select state, heartbeat_us from runs").fetchall()[0][:] == (
        "running",
        2**60,
    )
    _busy, page_count, _copied = store.execute("pragma wal_checkpoint").fetchone()
    assert page_count == 1, "no index has what changes every few seconds"
