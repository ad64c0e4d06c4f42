"""A line of a few values without axes, as the points of an SVG drawing: nothing to load, nothing to run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

MARGIN_PX = 3


@dataclass(frozen=True)
class SparklineDrawing:
    """What _macros/sparkline.html draws; `parts` are the line between its gaps, `hollow` values that are no part of it.

    Units: pixels.
    """

    width: int
    height: int
    parts: Sequence[str]
    hollow: Sequence[tuple[float, float]]
    newest: tuple[float, float] | None
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
    """Return the line through values, None as a gap; `hollow` positions beside the line; shaded from `bad_from` on."""
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    step = (width - 2 * MARGIN_PX) / max(len(values) - 1, 1)

    def place_point(position: int, value: float) -> tuple[float, float]:
        share = (value - low) / (high - low) if high > low else 0.5
        return round(MARGIN_PX + position * step, 1), round(height - MARGIN_PX - share * (height - 2 * MARGIN_PX), 1)

    points = [None if value is None else place_point(position, value) for position, value in enumerate(values)]
    parts: list[list[str]] = [[]]
    for position, point in enumerate(points):
        if position in hollow:
            continue
        if point is None:
            parts.append([])
        else:
            parts[-1].append(f"{point[0]},{point[1]}")
    line = [point for position, point in enumerate(points) if point is not None and position not in hollow]
    shade = None
    if bad_from is not None and values:
        start, end = MARGIN_PX + (bad_from - 0.5) * step, MARGIN_PX + ((bad_to or len(values)) - 0.5) * step
        left, right = max(start, 0.0), min(end, float(width))
        shade = (round(left, 1), round(max(right - left, 0.0), 1))
    return SparklineDrawing(
        width=width,
        height=height,
        parts=[" ".join(part) for part in parts if part],
        hollow=[point for position, point in enumerate(points) if point is not None and position in hollow],
        newest=line[-1] if line else None,
        shade=shade,
    )
