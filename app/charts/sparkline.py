"""Sparklines, as the points of an SVG drawing without scripts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from compileboard.app.charts.base import NEARLY_SAME

MARGIN_PX = 3


@dataclass(frozen=True)
class SparklineDrawing:
    """What _macros/sparkline.html draws; `parts` are the line between its gaps, `hollow` values
    that are no part of it.

    `dots` are the newest value of the line and those between two gaps.

    Units: pixels.
    """

    width: int
    height: int
    parts: Sequence[str]
    hollow: Sequence[tuple[float, float]]
    dots: Sequence[tuple[float, float]]
    shade: tuple[float, float] | None


def draw_sparkline(
    values: Sequence[float | None],
    *,
    hollow: Collection[int] = (),
    bad_from: int | None = None,
    bad_to: int | None = None,
    width: int = 96,
    height: int = 30,
) -> SparklineDrawing:
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    span = max(high - low, NEARLY_SAME * max(abs(low), abs(high)))
    step = (width - 2 * MARGIN_PX) / max(len(values) - 1, 1)

    def place_point(position: int, value: float) -> tuple[float, float]:
        share = 0.5 + (value - (low + high) / 2) / span if span else 0.5
        return round(MARGIN_PX + position * step, 1), round(
            height - MARGIN_PX - share * (height - 2 * MARGIN_PX), 1
        )

    points = [
        None if value is None else place_point(position, value)
        for position, value in enumerate(values)
    ]
    parts: list[list[tuple[float, float]]] = [[]]
    for position, point in enumerate(points):
        if position in hollow:
            continue
        if point is None:
            parts.append([])
        else:
            parts[-1].append(point)
    parts = [part for part in parts if part]
    shade = None
    if bad_from is not None and values:
        start, end = (
            MARGIN_PX + (bad_from - 0.5) * step,
            MARGIN_PX + ((bad_to or len(values)) - 0.5) * step,
        )
        left, right = max(start, 0.0), min(end, float(width))
        shade = (round(left, 1), round(max(right - left, 0.0), 1))
    return SparklineDrawing(
        width=width,
        height=height,
        parts=[" ".join(f"{x},{y}" for x, y in part) for part in parts if len(part) > 1],
        hollow=[
            point
            for position, point in enumerate(points)
            if point is not None and position in hollow
        ],
        dots=[part[0] for part in parts[:-1] if len(part) == 1] + [part[-1] for part in parts[-1:]],
        shade=shade,
    )
