"""One odd value in a push or a bundle costs no other record and no page."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from compileboard.collectors.contract.events import (
    CacheLookedUp,
    Event,
    ProcessStarted,
    RunStarted,
    SpanSeen,
)
from compileboard.collectors.contract.values import MAX_EXACT_INTEGER, MAX_SUMMED_INTEGER
from compileboard.collectors.store.connection import checkpoint
from compileboard.collectors.store.ingest.ingestor import Ingestor
from tests.tools.odd_records import Cost, OddBoard, make_base_bundle, measure_bundle, measure_push


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> OddBoard:
    return OddBoard(tmp_path_factory.mktemp("odd"), most_things=1)


@pytest.fixture(scope="module")
def bundle(board: OddBoard) -> Iterator[Path]:
    return make_base_bundle(board)


def check(cost: Cost) -> None:
    assert cost.value_count and cost.address_count > 40
    assert (cost.error_count, cost.cut_count, cost.lost_count) == (0, 0, 0), cost.examples


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "kind", ["graph_broke", "runtime_failed", "artifact_seen", "page_faults_counted"]
)
def test_odd_values_of_a_pushed_event_cost_no_page(board: OddBoard, kind: str) -> None:
    check(measure_push(board, kind, ["true"]))


def test_a_span_with_odd_args_leaves_the_timeline_whole(board: OddBoard) -> None:
    check(measure_push(board, "span_seen", ["true"]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("cache_lookups", "time_taken_us", "largest"),
        ("compilations", "codegen_us", "least"),
        ("artifacts", "metadata", "hostile"),
        ("guard_sets", "summary", "hostile"),
        ("aot_graphs", "summary", "hostile"),
        ("runs", "facts", "hostile"),
        ("graph_breaks", "sequence", "0"),
        ("lanes", "process_id", "-1"),
        ("lanes", "first_us", "NaN"),
        ("repros", "manifest", "hostile"),
        ("repro_storages", "body", "hostile"),
    ],
)
def test_odd_values_of_a_bundle_cost_no_page(
    board: OddBoard, bundle: Path, table: str, column: str, value: str
) -> None:
    check(measure_bundle(board, bundle, table, [value], only=[column]))


def test_the_largest_durations_of_a_run_do_not_overflow_their_sum(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    events: list[Event] = [RunStarted("r", 0, 5, "R9", "run"), ProcessStarted("p", 0, 6, "R9", 42)]
    for number in range(1, 4_000, 3):
        took = MAX_SUMMED_INTEGER
        events += [
            CacheLookedUp("p", number, 7, time_taken_us=took, time_saved_us=-took),
            SpanSeen("p", number + 1, 8, name="compile", phase="B", at_us=-MAX_EXACT_INTEGER),
            SpanSeen("p", number + 2, 9, name="compile", phase="E", at_us=MAX_EXACT_INTEGER),
        ]
    Ingestor(store).ingest("R9", events)
    checkpoint(store)
    addresses = ("/runs/R9?tab=caches", "/runs/R9", "/runs/R9/timeline", "/api/v1/runs/R9")
    assert {client.get(address).status_code for address in addresses} == {200}
    assert store.execute("select sum(time_taken_us) from cache_lookups").fetchone()[0] > 2**53
