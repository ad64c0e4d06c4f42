"""An event that the store refuses is refused alone; the rest of its batch is unchanged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.contract.events import (
    ArtifactSeen,
    BenchMeasured,
    CacheLookedUp,
    Compiled,
    CompileStarted,
    Event,
    GraphBroke,
    ProcessStarted,
    Recompiled,
    RunStarted,
    SnapshotTaken,
    SpanSeen,
    SymbolSeen,
)
from compileboard.collectors.contract.rejects import IngestResult
from compileboard.collectors.store.connection import StoreError, open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from tests.unit.decode.recorded_logs import events as decoded

LOG = "torch2.11-cuda-zoo_recompiles"
FRAME = {"process_id": "odd", "sequence": 1, "time_us": 1, "compile_id": "0/0"}
ODD: list[Event] = [
    Compiled(**FRAME, metrics={"guard_count": "x"}),  # type: ignore[arg-type]
    Compiled(**FRAME, metrics={"restart_reasons": 1.5}),  # type: ignore[arg-type]
    Compiled(**FRAME, duration_us=2**63),  # type: ignore[arg-type]
    CompileStarted(**FRAME, line=1.5),  # type: ignore[arg-type]
    CompileStarted(**FRAME, stack=[3]),  # type: ignore[arg-type,list-item]
    GraphBroke(**FRAME, reason="\ud800"),  # type: ignore[arg-type]
    Recompiled(**FRAME, guards="x"),  # type: ignore[arg-type]
    CacheLookedUp(**FRAME, result="?", time_taken_us={}),  # type: ignore[arg-type]
    SnapshotTaken("odd", 1, 1, losses=[1]),  # type: ignore[arg-type]
    ArtifactSeen(**FRAME, size_bytes=2**70),  # type: ignore[arg-type]
    ArtifactSeen(**FRAME, text=3),  # type: ignore[arg-type]
    ArtifactSeen(**FRAME, guards={"guard_count": []}),  # type: ignore[arg-type]
    SpanSeen(**FRAME, name="n", at_us=2**63),  # type: ignore[arg-type]
    SpanSeen(**FRAME, name="n", phase="B", args={"a": {1}}),  # type: ignore[arg-type]
    SymbolSeen(**FRAME, symbol=["s0"]),  # type: ignore[arg-type]
    BenchMeasured("odd", 1, 1, "s", "m", "performance", values={"speedup": []}),  # type: ignore[dict-item]
    RunStarted("odd", 1, 1, "R", "r", tags={"k": []}),  # type: ignore[dict-item]
    ProcessStarted("odd", 1, 2**64, run_id="R", pid=1),
]
SPAN = SpanSeen("p", 10**9, 1, name="open over the odd one", phase="B", at_us=5)
DERIVED = {"sqlite_sequence", "payloads", "span_names"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        yield connection


def contents(store: sqlite3.Connection) -> dict[str, list[Any]]:
    names = [row[0] for row in store.execute("select name from sqlite_schema where type = 'table'")]
    mine = [
        name
        for name in names
        if name not in DERIVED and "search" not in name and "migration" not in name
    ]
    return {
        name: sorted((tuple(row) for row in store.execute(f"select * from {name}")), key=repr)
        for name in mine
    }


@pytest.mark.parametrize("odd", ODD, ids=lambda event: type(event).__name__)
def test_an_odd_event_costs_nothing_but_itself(tmp_path: Path, odd: Event) -> None:
    events, stored = (
        [RunStarted("R", 0, 1, "R", "r"), SPAN, *decoded(LOG), replace(SPAN, phase="E", at_us=9)],
        [],
    )
    for name, batch in (("with", [*events[:200], odd, *events[200:]]), ("without", events)):
        with closing(open_writer(tmp_path / f"{name}.db")) as store:
            migrate_connection(store)
            result = Ingestor(store).ingest("R", batch, now_us=5)
            stored.append(contents(store))
            assert [refused_event.event for refused_event in result.refused] == (
                [odd] if name == "with" else []
            )
    assert stored[0]["spans"] and stored[0]["artifacts"]
    assert {name for name in stored[0] if len(stored[0][name]) != len(stored[1][name])} == set()
    assert (
        stored[0]["run_totals"] == stored[1]["run_totals"]
        and stored[0]["compiles"] == stored[1]["compiles"]
    )


def test_a_batch_of_nothing_but_odd_events_is_recorded(store: sqlite3.Connection) -> None:
    result = Ingestor(store).ingest("R", ODD)
    assert len(result.refused) == len(ODD) and result.new_count == 0
    assert (
        Ingestor(store)
        .ingest("R", [ODD[0], ProcessStarted("p", 0, 1, run_id="R", pid=1)])
        .new_count
        == 1
    )
    assert all(refused_event.reason for refused_event in result.refused)


def test_what_goes_with_a_batch_is_written_once_and_sees_what_was_refused(
    store: sqlite3.Connection,
) -> None:
    calls: list[IngestResult] = []
    Ingestor(store).ingest("R", [ODD[0]], extra_writes=calls.append)
    assert [len(call.refused) for call in calls] == [1]

    def fail(result: IngestResult) -> None:
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        Ingestor(store).ingest(
            "R", [ProcessStarted("p", 0, 1, run_id="R", pid=1)], extra_writes=fail
        )
    assert store.execute("select count(*) from processes").fetchone()[0] == 0


def test_a_database_that_cannot_be_written_is_no_fault_of_an_event(
    store: sqlite3.Connection, tmp_path: Path
) -> None:
    store.execute("pragma query_only = on")
    with pytest.raises(StoreError, match="cannot be written"):
        Ingestor(store).ingest("R", [ODD[0]])
    store.execute("pragma query_only = off")
    store.execute("drop table events")
    with pytest.raises(StoreError, match="fault of CompileBoard"):
        Ingestor(store).ingest("R", decoded(LOG)[:50])
