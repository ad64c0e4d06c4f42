"""The longest phases of a run as a still picture: every lane a strip, with idle time left out."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.analysis.timeline import describe_lanes, find_phase
from compileboard.app.format import format_duration
from compileboard.app.queries.timeline import Lane, LaneWindow, Span

DRAWN = 400  # spans of all lanes together
_GAP = 0.3  # percent of the width that stands for idle time
_LABELLED = 6.0  # percent that a span needs for its name to be written into it


@dataclass(frozen=True)
class StripSpan:
    """Hold one phase as it is drawn.

    Units: start and width are percent of the strip's width.
    """

    row: int
    start: float
    width: float
    color: str
    name: str
    about: str

    @property
    def labelled(self) -> bool:
        """Say whether there is room for its name."""
        return self.width >= _LABELLED


@dataclass(frozen=True)
class StripLane:
    """Hold one lane's strip; `span_count` is how many phases the lane has in all."""

    label: str
    rows: int
    spans: tuple[StripSpan, ...]
    span_count: int


def draw_strips(
    lanes: Sequence[Lane],
    windows: Sequence[LaneWindow],
    busy: Sequence[tuple[int, int]],
    functions: Mapping[int, tuple[str, str | None]],
) -> list[StripLane]:
    """Draw the longest phases of each lane; `busy` are the times in which any lane is."""
    place = _make_scale(busy)
    drawn = []
    for lane, said, window in zip(lanes, describe_lanes(lanes), windows):
        longest = heapq.nlargest(DRAWN // len(lanes), window.spans, key=lambda it: it.duration_us or 0)
        spans = tuple(_draw(it, place, functions) for it in sorted(longest, key=lambda it: (it.begin_us, it.depth)))
        rows = 1 + max((it.row for it in spans), default=0)
        drawn.append(StripLane(said["label"], rows, spans, lane.span_count))
    return drawn


def _draw(it: Span, place: Callable[[int], float], functions: Mapping[int, tuple[str, str | None]]) -> StripSpan:
    start = place(it.begin_us)
    width = max(place(it.begin_us + (it.duration_us or 0)) - start, 0.05)
    compile_id, function = functions.get(it.compile_key or 0, (it.compile_id, None))
    said = [it.name, format_duration(it.duration_us), " ".join(word for word in (compile_id, function) if word)]
    return StripSpan(
        it.depth, round(start, 2), round(width, 2), find_phase(it.name).color, it.name, ", ".join(filter(None, said))
    )


def _make_scale(busy: Sequence[tuple[int, int]]) -> Callable[[int], float]:
    """Return what places a time; between two busy stretches there is a gap of one width, however long it was."""
    begins = [begin for begin, _end in busy]
    befores = [0]
    for begin, end in busy:
        befores.append(befores[-1] + end - begin)
    gap = _GAP if len(busy) * _GAP < 30 else 0
    scale = (100 - gap * (len(busy) - 1)) / max(befores[-1], 1)

    def place(at_us: int) -> float:
        number = max(bisect_right(begins, at_us) - 1, 0)
        begin, end = busy[number]
        return (befores[number] + min(max(at_us - begin, 0), end - begin)) * scale + number * gap

    return place
