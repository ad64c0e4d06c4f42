"""Headline tiles: the level before, hollow points of incomplete runs, no colour for noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from compileboard.app.benchmarks.trend_queries import ModelSet, StoredSummary
from compileboard.app.runs.overview import HeadlineTile, build_tiles

SET = ModelSet("demo", None, None, None, None, None, False, 1)
EMPTY = StoredSummary(
    **dict.fromkeys(StoredSummary.__dataclass_fields__, None)  # type: ignore[arg-type]
    | {"run_id": "", "started_us": 0, "set": SET, "is_incomplete": False}
)


def _tile(
    *values: float | None,
    incident_us: int | None = None,
    recovered: Sequence[tuple[int, int]] = (),
    **newest: Any,
) -> HeadlineTile | None:
    """Build the tile of the speedup; values are the oldest first, a run a microsecond."""
    summaries = [
        replace(
            EMPTY,
            run_id=f"R{position}",
            started_us=position,
            geomean_speedup=value,
            abs_latency_ms=1 / (value or 1),
        )
        for position, value in enumerate(values)
    ]
    summaries[-1] = replace(summaries[-1], **newest)
    tiles = build_tiles(summaries[::-1], incident_us, recovered)
    return tiles[0] if tiles else None


def test_a_drop_is_measured_from_the_level_before_the_incident() -> None:
    tile = _tile(6.0, 5.8, 5.9, 4.0, 3.5, 4.47, incident_us=3)
    assert tile is not None
    assert (tile.text, tile.change, tile.verdict) == ("4.47×", "▼ 24% from 5.9×", "worse")
    assert tile.changed_from == 3


def test_runs_of_an_incident_that_recovered_are_no_reference() -> None:
    tile = _tile(6.0, 5.9, 5.8, 3.0, 3.1, 3.2, 3.0, 4.4, incident_us=7, recovered=[(3, 7)])
    assert tile is not None
    assert (tile.change, tile.verdict) == ("▼ 25% from 5.9×", "worse")


def test_a_run_that_lost_models_is_never_the_headline() -> None:
    tile = _tile(5.9, 5.8, 6.0, 5.9, 7.75, is_incomplete=True)
    assert tile is not None
    assert (tile.run_id, tile.text, tile.incomplete) == ("R3", "5.9×", [4])


def test_a_change_that_noise_or_eager_mode_made_has_no_colour() -> None:
    for values, newest in (
        ((4.0, 5.0), {}),
        ((4.0, 4.1, 4.0, 5.0), {"abs_latency_ms": 1 / 4}),
        ((3.0, 9.0, 4.0, 5.0), {}),
    ):
        tile = _tile(*values, **newest)
        assert tile is not None
        assert tile.verdict in ("moved", "same")


def test_a_metric_without_a_value_has_no_tile() -> None:
    assert _tile(None, None) is None
