"""The trend of each reason over slots of runs, and of each kind of reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from compileboard.app.core.engine import Row
from compileboard.app.core.fields import Count, DurationUs, PartialRecompiles
from compileboard.app.reasons.sums import ReasonSum
from compileboard.app.runs.queries import TrendSlot
from compileboard.collectors.contract.fingerprints import format_id, parse_id

TimeOfReasons = Annotated[
    DurationUs | None, "Time of the compiles that had it; of CUDA graphs, of recording them."
]
TrendLine = Annotated[list[float], "Mean count a run, one number for each of `slots`."]


@dataclass(frozen=True)
class KindTrend:
    """Totals and trend of one kind of graph break, recompile, re-recording or failure."""

    kind: Annotated[
        str, "Kind of graph break, category of guard, status of CUDA graphs or type of exception."
    ]
    gb_id: Annotated[str | None, "torch's id, for graph breaks."]
    distinct_count: Annotated[
        Count, "Distinct graph breaks, causes, reasons or failures of this kind."
    ]
    function_count: Annotated[Count, "Functions that have any of this kind."]
    count: Annotated[Count, "Occurrences of all of this kind."]
    partial_count: PartialRecompiles
    duration_us: TimeOfReasons
    trend: TrendLine


@dataclass(frozen=True)
class TrendGrid:
    counts: Mapping[int, list[int]]
    slots: Sequence[TrendSlot]
    kinds: tuple[KindTrend, ...]
    function_count: int

    def line(self, thing: str) -> list[float]:
        return _divide_by_runs(self.counts.get(parse_id(thing), ()), self.slots)

    @property
    def lines(self) -> dict[str, list[float]]:
        return {
            format_id(thing): _divide_by_runs(counts, self.slots)
            for thing, counts in self.counts.items()
        }


def _divide_by_runs(counts: Sequence[int], slots: Sequence[TrendSlot]) -> list[float]:
    return [count / slot.run_count for count, slot in zip(counts, slots)]


def read_grid(
    kind_counts: Iterable[Row],
    kind_slots: Iterable[Row],
    lines: Iterable[Sequence[Any]],
    slots: list[TrendSlot],
) -> TrendGrid:
    """Build the grid of trends from an engine's totals per kind, per kind and slot, and per reason
    and slot (`lines`: id, slot, count).
    """
    if not slots:
        return TrendGrid({}, slots, (), 0)
    last = len(slots) - 1
    kinds: dict[str, KindSums] = {}
    function_count = 0
    for row in kind_counts:
        if row["is_of_all"]:
            function_count = row["function_count"]
        else:
            counts_of_none, of_kind = [0] * len(slots), row["distinct_count"]
            kinds[row["kind"]] = KindSums(
                row["gb_id"], counts_of_none, of_kind, function_count=row["function_count"]
            )
    for row in kind_slots:
        if not row["is_of_all"] and row["kind"] in kinds:  # otherwise of a run added in between
            sums = kinds[row["kind"]]
            sums.counts[min(row["slot"], last)] += row["count"]
            sums.partial_count += row["partial_count"]
            sums.duration_us += row["duration_us"]
    counts: dict[int, list[int]] = {}
    for thing, slot, count in lines:
        counts.setdefault(thing, [0] * len(slots))[min(slot, last)] += count
    return replace(make_grid(counts, kinds, slots), function_count=function_count)


def make_grid(
    counts: Mapping[int, list[int]], kinds: Mapping[str, KindSums], slots: list[TrendSlot]
) -> TrendGrid:
    trends = [
        kind_sums.make_trend(kind, slots)
        for kind, kind_sums in kinds.items()
        if kind_sums.distinct_count
    ]
    trends.sort(key=lambda trend: (-trend.count, -trend.partial_count, trend.kind))
    function_count = len(
        {function for kind_sums in kinds.values() for function in kind_sums.functions}
    )
    return TrendGrid(counts, slots, tuple(trends), function_count)


@dataclass
class KindSums:
    gb_id: str | None
    counts: list[int]
    distinct_count: int = 0
    functions: set[int] = field(default_factory=set)
    partial_count: int = 0
    duration_us: int = 0
    function_count: int = 0  # if functions were counted elsewhere

    def add(self, function_id: int | None, total: ReasonSum, counts: Sequence[int]) -> None:
        self.distinct_count += 1
        self.partial_count += total.partial_count
        self.duration_us += total.duration_us
        if function_id is not None:
            self.functions.add(function_id)
        self.counts = [mine + new for mine, new in zip(self.counts, counts)]

    def make_trend(self, kind: str, slots: Sequence[TrendSlot]) -> KindTrend:
        return KindTrend(
            kind=kind,
            gb_id=self.gb_id,
            distinct_count=self.distinct_count,
            function_count=self.function_count or len(self.functions),
            count=sum(self.counts),
            partial_count=self.partial_count,
            duration_us=self.duration_us or None,
            trend=_divide_by_runs(self.counts, slots),
        )
