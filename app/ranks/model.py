"""How the ranks of a run differ, in sentences and as rows for page and API."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from compileboard.app.compiles.run_queries import PHASES, Outcome, PhaseTimes
from compileboard.app.core.fields import (
    CompileId,
    CompileKey,
    Count,
    DurationUs,
    FunctionName,
    Generation,
)
from compileboard.app.core.format import format_duration, format_plural
from compileboard.app.core.labels import describe_outcome
from compileboard.app.core.run_cache import cached_for_run
from compileboard.app.core.schema import one_of
from compileboard.app.ranks.rank_differences import (
    ASPECTS,
    DIFFERS,
    NOT_COMPARED,
    NOT_RECORDED,
    SAME,
    AlignedCompiles,
    Divergence,
    RankComparison,
    RankGroup,
    RankSummary,
    compare_ranks,
    list_schedules,
    list_undecided_texts,
    normalize,
)
from compileboard.app.ranks.run_queries import (
    TEXTS,
    RankCompile,
    list_names,
    list_ranks,
    read_texts,
)
from compileboard.app.reasons.run_queries import RecompileRow, list_compile_recompiles

_MAX_RANGES = 10
_CACHES = {"fx_graph": "FX graph", "aot_autograd": "AOTAutograd"}
_TEXTS = {
    "tensors": "had inputs of other sizes, or buffers that inductor laid out otherwise",
    "graphs": "traced another graph",
    "code": "got other code from inductor",
    "collectives": "scheduled other collectives",
}


@dataclass(frozen=True)
class RankGroupText:
    ranks: str
    did: str
    compile: RankCompile | None


@dataclass(frozen=True)
class DivergenceText:
    sentence: str
    before: str
    groups: tuple[RankGroupText, ...]


def name_ranks(ranks: Iterable[int], capital: bool = False) -> str:
    """Format ranks with ranges: `ranks 0–6, 8`."""
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    shown = [
        f"{a}" if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}"
        for a, b in ranges[:_MAX_RANGES]
    ]
    if len(ranges) > _MAX_RANGES:
        left = sum(b - a + 1 for a, b in ranges[_MAX_RANGES:])
        shown.append(f"and {left} more")
    is_single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return f"{'Rank' if capital else 'rank'}{'' if is_single else 's'} {', '.join(shown)}"


def describe_divergence(
    divergence: Divergence, names: Mapping[int, tuple[str, str]]
) -> DivergenceText:
    groups = sorted(
        divergence.groups, key=lambda group: (group.compile is None, len(group.ranks), group.ranks)
    )
    after = divergence.last.compile_id if divergence.last else None
    texts = tuple(
        RankGroupText(
            name_ranks(group.ranks),
            _describe_behaviour(divergence.aspect, group, names, after),
            group.compile,
        )
        for group in groups
    )
    parts = [f"{group.ranks} {group.did}" for group in texts[:4]]
    if len(texts) > 4:
        parts.append(f"{format_plural(len(texts) - 4, 'more group')} of ranks differ")
    sentence = "; ".join(parts)
    before = "The ranks differ from their first compile on."
    if divergence.shared_count:
        before = (
            f"The {format_plural(divergence.shared_count, 'compile')} before it are the same "
            "on every rank."
        )
    if divergence.shared_count == 1:
        before = "The compile before it is the same on every rank."
    return DivergenceText(f"{sentence[:1].upper()}{sentence[1:]}.", before, texts)


def _describe_behaviour(
    aspect: str, group: RankGroup, names: Mapping[int, tuple[str, str]], after: str | None
) -> str:
    rank_compile = group.compile
    if rank_compile is None:
        return f"compiled nothing after {after}" if after else "compiled nothing"
    name = names.get(rank_compile.function_id or 0, ("a function that torch did not name", ""))[0]
    where = f"{name} ({rank_compile.position.compile_id})"
    if aspect == "compiles":
        return (
            f"{'re' if rank_compile.causes else ''}compiled {name} as "
            f"{rank_compile.position.compile_id}"
        )
    if aspect == "recompiles":
        why = "for another guard" if rank_compile.causes else "without a failed guard"
        return f"compiled {name} as {rank_compile.position.compile_id} {why}"
    if aspect == "outcomes":
        return f"ended {where} as “{describe_outcome(rank_compile.outcome, running=False).word}”"
    if aspect == "breaks":
        count = (
            format_plural(len(rank_compile.breaks), "graph break")
            if rank_compile.breaks
            else "no graph break"
        )
        return f"had {count} in {where}"
    if aspect == "caches":
        return f"found in the caches for {where}: {describe_caches(rank_compile.caches)}"
    return f"{_TEXTS[aspect]} in {where}"


def describe_caches(results: Sequence[str]) -> str:
    """Format the lookups of one compile: `FX graph 2 hits, 1 miss`."""
    counts = Counter(results)
    by_cache: dict[str, list[str]] = {}
    for result, count in counts.items():
        cache, _space, word = result.partition(" ")
        by_cache.setdefault(_CACHES.get(cache, cache), []).append(f"{count} × {word}")
    return (
        "; ".join(f"{cache} {', '.join(counts)}" for cache, counts in by_cache.items())
        or "no lookup"
    )


def explain_groups(divergence: Divergence | None) -> list[int]:
    if divergence is None or divergence.aspect not in ("compiles", "recompiles"):
        return []
    return [
        group.compile.key for group in divergence.groups if group.compile and group.compile.causes
    ]


def describe_times(ranks: Sequence[RankSummary]) -> str | None:
    slow = max(ranks, key=lambda rank: (rank.total_us, -rank.rank))
    quick = min(ranks, key=lambda rank: (rank.total_us, rank.rank))
    if not slow.total_us:
        return None
    most, least = format_duration(slow.total_us), format_duration(quick.total_us)
    if (slow.total_us - quick.total_us) * 20 < slow.total_us:
        return f"All ranks took about as long: {least} to {most}."
    more = format_duration(slow.total_us - quick.total_us)
    return (
        f"Rank {slow.rank} spent {most} compiling, {more} "
        f"more than rank {quick.rank}. Ranks meet at every collective, so the others may have "
        "waited that long. "
        "Waiting is not recorded."
    )


def list_verdicts(comparison: RankComparison) -> list[tuple[tuple[int, ...], dict[str, str]]]:
    groups: dict[tuple[str, ...], list[RankSummary]] = {}
    for rank in comparison.ranks:
        groups.setdefault(tuple(rank.verdicts.values()), []).append(rank)
    ordered = sorted(
        groups.items(), key=lambda item: (-item[0].count("differs"), len(item[1]), item[1][0].rank)
    )
    return [
        (tuple(summary.rank for summary in group), group[0].verdicts) for _key, group in ordered
    ]


def describe_differences(comparison: RankComparison) -> str:
    odd = [
        aspect.label.lower() for aspect in ASPECTS if comparison.aspects[aspect.name] == "differs"
    ]
    if not odd:
        return f"All {len(comparison.ranks)} ranks compiled the same, as far as recorded."
    listed = odd[0] if len(odd) == 1 else f"{', '.join(odd[:-1])} and {odd[-1]}"
    return f"The ranks differ in {listed}."


MAX_REASONS = 100
MAX_PARTIAL = 8
MAX_ALIGNED = 1000
MAX_SPREADS = 8
# Of texts that differ; reading and normalising them takes ≈ 0.15 s.
_MAX_TEXT_BYTES = 600_000

_SCHEDULE = list(TEXTS).index("collectives")

FunctionNames = Mapping[int, tuple[str, str]]


@dataclass(frozen=True)
class RanksScreen:
    """Differences between the ranks of a run.

    `divergence` is None if they agree. `reasons` are the recompiles at the divergence, `partial`
    others that some ranks lack (`partial_count` in all); `names` has function and file by function
    ID.
    """

    comparison: RankComparison
    divergence: DivergenceText | None
    reasons: Sequence[RecompileRow]
    partial: Sequence[RecompileRow]
    partial_count: int
    names: FunctionNames

    @cached_property
    def summary(self) -> str:
        return describe_differences(self.comparison)

    @property
    def times(self) -> str | None:
        return describe_times(self.comparison.ranks)

    @cached_property
    def verdicts(self) -> list[tuple[str, tuple[int, ...], dict[str, str]]]:
        """Return label, ranks and verdicts of ranks with equal verdicts, the most different
        first.
        """
        return [
            (name_ranks(ranks), ranks, verdicts)
            for ranks, verdicts in list_verdicts(self.comparison)
        ]

    @property
    def is_timed(self) -> bool:
        return any(rank.total_us for rank in self.comparison.ranks)

    def list_rows(self, every: bool = False) -> Sequence[AlignedCompiles]:
        return (
            self.comparison.rows if every else [row for row in self.comparison.rows if row.differs]
        )

    @cached_property
    def spreads(self) -> list[AlignedCompiles]:
        shared = (row for row in self.comparison.rows if row.rank_count > 1)
        return sorted(shared, key=lambda row: -row.spread_us)[:MAX_SPREADS]


def build_ranks(reader: sqlite3.Connection, run_id: str) -> RanksScreen | None:
    """Compare a run's ranks; None if it has fewer than two. 64 ranks with 500 compiles each take a
    second.
    """
    comparison = cached_for_run(reader, run_id, _compare)
    if comparison is None:
        return None
    divergence = comparison.divergence
    names = read_names(reader, (group.compile for group in divergence.groups) if divergence else ())
    parted = explain_groups(divergence)[:MAX_REASONS]
    partial = [
        compile.key for compile in comparison.partial[:MAX_PARTIAL] if compile.key not in parted
    ]
    return RanksScreen(
        comparison=comparison,
        divergence=describe_divergence(divergence, names) if divergence else None,
        reasons=list_compile_recompiles(reader, parted),
        partial=list_compile_recompiles(reader, partial),
        partial_count=len(comparison.partial),
        names=names,
    )


def read_names(reader: sqlite3.Connection, compiles: Iterable[RankCompile | None]) -> FunctionNames:
    return list_names(
        reader, {row.function_id for row in compiles if row and row.function_id is not None}
    )


def _compare(reader: sqlite3.Connection, run_id: str) -> RankComparison | None:
    sequences = list_ranks(reader, run_id)
    if len(sequences) < 2:
        return None
    unclear = list_undecided_texts(sequences)
    texts = read_texts(reader, (number for _aspect, number in unclear), _MAX_TEXT_BYTES)
    digests = {
        number: normalize(texts[number], aspect) for aspect, number in unclear if number in texts
    }
    scheduled = {
        number
        for sequence in sequences
        for entry in sequence.compiles
        for number in entry.texts[_SCHEDULE]
    }
    schedules = list_schedules(sequences, read_texts(reader, sorted(scheduled), _MAX_TEXT_BYTES))
    return replace(compare_ranks(sequences, digests), schedules=schedules)


_ASPECT_NAMES = tuple(aspect.name for aspect in ASPECTS)
_RankVerdict = Annotated[
    str,
    one_of((SAME, DIFFERS, NOT_RECORDED, NOT_COMPARED)),
    "`not recorded`: nothing of it came; `not compared`: texts differ, and they were too many "
    "to leave out what each "
    "rank has of its own.",
]
_Verdicts = Annotated[
    dict[str, _RankVerdict],
    (
        "By what is compared: "
        f"{', '.join(f'`{aspect.name}` ({aspect.meaning})' for aspect in ASPECTS)}."
    ),
]


@dataclass(frozen=True)
class RankSummaryRow:
    """Totals of one rank, and whether it differs from the others."""

    rank: Annotated[int, "Number of the rank among all, from 0."]
    pids: Annotated[Sequence[int | None], "Its processes, in the order they started."]
    compile_count: Annotated[Count, "Compiles of its processes."]
    recompile_count: Annotated[Count, "Recompiles of its processes."]
    graph_break_count: Annotated[Count, "Graph breaks of its processes."]
    piece_count: Annotated[
        Count | None,
        "Pieces that DDPOptimizer cut graphs into; 0: none was cut, null: graphs not recorded.",
    ]
    total_us: Annotated[DurationUs | None, "Time of its compiles, forward and backward."]
    phases_us: PhaseTimes
    slowest_key: CompileKey
    verdicts: Annotated[
        dict[str, _RankVerdict],
        "Against more than half of the ranks; where no half agrees, all differ.",
    ]


@dataclass(frozen=True)
class RankGroupRow:
    """Ranks with the same behaviour at a divergence."""

    ranks: Annotated[Sequence[int], "Numbers of the ranks that behave so."]
    compile_key: CompileKey
    compile_id: CompileId
    function: FunctionName
    outcome: Outcome | None


@dataclass(frozen=True)
class RankDivergenceRow:
    """The first compile, in each rank's own order, at which ranks differ."""

    aspect: Annotated[str, one_of(_ASPECT_NAMES), "What differs."]
    shared_count: Annotated[Count, "Compiles before it, alike on every rank."]
    sentence: Annotated[str, "What the ranks do there, in one sentence."]
    groups: Annotated[
        Sequence[RankGroupRow],
        (
            "The largest group first. `compile_key` is the compile of its first rank, null where "
            "it compiled nothing more."
        ),
    ]
    recompiles: Annotated[
        Sequence[RecompileRow], "Why the compiles there are recompiles, where that is what differs."
    ]


@dataclass(frozen=True)
class AlignedCompile:
    """One compile ID across all ranks."""

    process: Annotated[Count, "Index of the process within its rank."]
    generation: Generation
    compile_id: Annotated[str, "Compile id as torch prints it: `0/1`."]
    differs: Annotated[
        Sequence[Annotated[str, one_of(_ASPECT_NAMES)]], "Aspects in which ranks differ here."
    ]
    rank_count: Annotated[Count, "Ranks that have it."]
    least_us: Annotated[DurationUs, "Time of the quickest rank."]
    most_us: Annotated[DurationUs, "Time of the slowest rank."]
    slowest_rank: Annotated[int, "Number of the rank that took longest."]
    compile_keys: Annotated[
        Sequence[int | None],
        "Its compile on the first rank of each of `columns`, null where it has none.",
    ]


@dataclass(frozen=True)
class ScheduleStep:
    """Consecutive collectives of one kind."""

    operation: Annotated[str, "Operation, in torch's words."]
    count: Annotated[Count, "Consecutive calls."]


@dataclass(frozen=True)
class RankScheduleRow:
    """The collectives that inductor scheduled for some ranks."""

    ranks: Annotated[Sequence[int], "Numbers of the ranks with this schedule."]
    steps: Annotated[Sequence[ScheduleStep], "Collectives in the order in which they are called."]


@dataclass(frozen=True)
class RanksReport:
    """The ranks of a run, where they differ, and the first divergence."""

    ranks: Annotated[Sequence[RankSummaryRow], "Every rank; none where the run has fewer than two."]
    schedules: Annotated[
        Sequence[RankScheduleRow], "Collectives by rank; none where inductor recorded none."
    ]
    aspects: _Verdicts
    divergence: Annotated[
        RankDivergenceRow | None, "Where ranks first differ; null where they do not."
    ]
    times: Annotated[
        str | None, "Which rank compiled longest, in words; null where no time was recorded."
    ]
    columns: Annotated[
        Sequence[Sequence[int]],
        "Ranks that compiled everything alike, together; `compile_keys` of `rows` has this order.",
    ]
    rows: Annotated[
        Sequence[AlignedCompile],
        (
            f"What differs, in program order, the first {MAX_ALIGNED}; with `rows=all` every "
            "compile id."
        ),
    ]
    row_count: Annotated[Count, "Number of rows."]


def report_ranks(screen: RanksScreen | None, *, every_row: bool = False) -> RanksReport:
    """Return the compiles that differ between ranks, or all with `every_row`."""
    if screen is None:
        return RanksReport((), (), {}, None, None, (), (), 0)
    comparison, rows = screen.comparison, screen.list_rows(every_row)
    return RanksReport(
        ranks=[_make_rank(rank) for rank in comparison.ranks],
        schedules=[
            RankScheduleRow(schedule.ranks, [ScheduleStep(*step) for step in schedule.steps])
            for schedule in comparison.schedules
        ],
        aspects=comparison.aspects,
        divergence=_make_divergence(screen),
        times=screen.times,
        columns=comparison.columns,
        rows=[_make_row(row) for row in rows[:MAX_ALIGNED]],
        row_count=len(rows),
    )


def _make_rank(rank: RankSummary) -> RankSummaryRow:
    return RankSummaryRow(
        rank=rank.rank,
        pids=rank.pids,
        compile_count=rank.compile_count,
        recompile_count=rank.recompile_count,
        graph_break_count=rank.graph_break_count,
        piece_count=rank.piece_count,
        total_us=rank.total_us or None,
        phases_us={phase: rank.get(phase) for phase in PHASES},
        slowest_key=rank.slowest.key if rank.slowest else None,
        verdicts=rank.verdicts,
    )


def _make_divergence(screen: RanksScreen) -> RankDivergenceRow | None:
    divergence, text = screen.comparison.divergence, screen.divergence
    if divergence is None or text is None:
        return None
    return RankDivergenceRow(
        aspect=divergence.aspect,
        shared_count=divergence.shared_count,
        sentence=text.sentence,
        groups=[_make_group(group, screen.names) for group in divergence.groups],
        recompiles=screen.reasons,
    )


def _make_group(group: RankGroup, names: FunctionNames) -> RankGroupRow:
    first = group.compile
    if first is None:
        return RankGroupRow(group.ranks, None, None, None, None)
    function = names.get(first.function_id or 0, (None,))[0]
    return RankGroupRow(group.ranks, first.key, first.position.compile_id, function, first.outcome)


def _make_row(row: AlignedCompiles) -> AlignedCompile:
    return AlignedCompile(
        process=row.position.process,
        generation=row.position.generation,
        compile_id=row.position.compile_id,
        differs=row.differs,
        rank_count=row.rank_count,
        least_us=row.least_us,
        most_us=row.most_us,
        slowest_rank=row.slowest_rank,
        compile_keys=[cell.key if cell else None for cell in row.cells],
    )
