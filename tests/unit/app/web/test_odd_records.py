"""One odd value in a push or a bundle costs no other record and no page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "kind", ["graph_broke", "runtime_failed", "artifact_seen", "page_faults_counted"]
)
def test_odd_values_of_a_pushed_event_cost_no_page(board: OddBoard, kind: str) -> None:
    check(measure_push(board, kind, ["true"]))


def test_a_span_with_odd_args_leaves_the_timeline_whole(board: OddBoard) -> None:
    check(measure_push(board, "span_seen", ["true"]))


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
