"""Find the differences between the ranks of a run by aspect, and the first compile at which they
diverge.

Compiles of ranks are aligned by function, in each rank's own order, since the clocks of machines
differ.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import NamedTuple

from compileboard.app.artifacts.diff import NOISE
from compileboard.app.ranks.run_queries import TEXTS, CompilePosition, RankCompile, RankSequence


class Aspect(NamedTuple):
    name: str
    label: str
    meaning: str


ASPECTS = (
    Aspect("compiles", "Compiles", "functions and compile IDs, in order"),
    Aspect("recompiles", "Recompiles", "which compiles were recompiles, and the failed guard"),
    Aspect("outcomes", "Outcomes", "outcomes of the shared compiles"),
    Aspect("breaks", "Graph breaks", "graph breaks of the shared compiles"),
    Aspect("caches", "Caches", "cache results of the shared compiles, in order"),
    Aspect(
        "collectives",
        "Collectives",
        "collectives that inductor scheduled, in order: another order can hang",
    ),
    Aspect("tensors", "Tensors", "input sizes of the shared compiles, and inductor's buffers"),
    Aspect("graphs", "Graphs", "dynamo's graphs of the shared compiles, without device numbers"),
    Aspect(
        "code",
        "Generated code",
        "inductor's code of the shared compiles, without device numbers and paths",
    ),
)
SAME, DIFFERS, NOT_RECORDED, NOT_COMPARED = "same", "differs", "not recorded", "not compared"

# Different on every rank: the number of its device, and names derived from it.
_DEVICE = re.compile(
    r"\b(?P<kind>cuda|xpu|hpu|mtia|npu):\d+|\b(?P<word>device|index|device_index)=\d+"
    r"|\b(?P<call>_DeviceGuard|get_raw_stream|set_device)\(\d+\)|\bstream\d+\b"
)
_NOISE = re.compile("|".join(re.sub(r"\?P<\w+>", "?:", pattern) for pattern in NOISE.values()))
_KERNEL_HASH = re.compile(r"'(?:backend_hash|kernel_hash)': '\w+'")


@dataclass(frozen=True)
class RankGroup:
    ranks: tuple[int, ...]
    compile: RankCompile | None


@dataclass(frozen=True)
class Divergence:
    shared_count: int
    aspect: str
    last: CompilePosition | None
    groups: tuple[RankGroup, ...]


@dataclass(frozen=True)
class AlignedCompiles:
    position: CompilePosition
    differs: tuple[str, ...]
    cells: tuple[RankCompile | None, ...]
    rank_count: int
    least_us: int
    most_us: int
    slowest_rank: int

    @property
    def spread_us(self) -> int:
        return self.most_us - self.least_us


@dataclass(frozen=True)
class RankSummary:
    rank: int
    pids: tuple[int | None, ...]
    compile_count: int
    recompile_count: int
    graph_break_count: int
    piece_count: int | None  # pieces of graphs split by DDPOptimizer; None: graphs not recorded
    total_us: int
    phases: dict[str, int]
    slowest: RankCompile | None
    verdicts: dict[str, str]

    def get(self, phase: str) -> int | None:
        return self.phases.get(phase)


@dataclass(frozen=True)
class CollectiveSchedule:
    ranks: tuple[int, ...]
    steps: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        return sum(count for _operation, count in self.steps)


@dataclass(frozen=True)
class RankComparison:
    ranks: tuple[RankSummary, ...]
    aspects: dict[str, str]
    columns: tuple[tuple[int, ...], ...]
    rows: tuple[AlignedCompiles, ...]
    divergence: Divergence | None
    partial: tuple[RankCompile, ...]  # recompiles that some ranks lack, in program order
    schedules: tuple[CollectiveSchedule, ...] = ()


_TEXT = {aspect: number for number, aspect in enumerate(TEXTS)}
_Rows = dict[CompilePosition, dict[int, RankCompile]]
_Digests = Mapping[int, bytes]


def normalize(text: str, aspect: str) -> bytes:
    """Return a digest of a text without rank-specific parts and without estimated times of
    tensors.
    """
    if aspect == "tensors":
        try:
            ops = json.loads(text)["ops"]
            text = json.dumps(
                [{key: op[key] for key in op if key != "estimated_runtime_ns"} for op in ops]
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
    text = (
        _NOISE.sub("", _DEVICE.sub(r"\g<kind>\g<word>\g<call>", text))
        if aspect != "collectives"
        else text
    )
    return hashlib.blake2b(
        _KERNEL_HASH.sub("", text).encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


def list_schedules(
    sequences: Sequence[RankSequence], texts: Mapping[int, str]
) -> tuple[CollectiveSchedule, ...]:
    """List the schedules of collectives, grouping ranks with the same one; `texts` is by
    payload.
    """
    ranks_by_steps: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for sequence in sequences:
        numbers = (
            number for entry in sequence.compiles for number in entry.texts[_TEXT["collectives"]]
        )
        operations = [
            operation for number in numbers for operation in _read_schedule(texts.get(number, ""))
        ]
        steps = tuple((operation, len(list(same))) for operation, same in groupby(operations))
        ranks_by_steps.setdefault(steps, []).append(sequence.rank)
    if not any(ranks_by_steps):
        return ()
    return tuple(CollectiveSchedule(tuple(ranks), steps) for steps, ranks in ranks_by_steps.items())


def _read_schedule(text: str) -> list[str]:
    try:
        operations = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [str(operation) for operation in operations] if isinstance(operations, list) else []


def list_undecided_texts(sequences: Sequence[RankSequence]) -> list[tuple[str, int]]:
    """List (aspect, payload) of texts that differ and must be compared without their device
    numbers.
    """
    rows = _align_compiles(sequences)
    unclear: dict[tuple[str, int], None] = {}
    for aspects in (("collectives",), ("tensors", "graphs"), ("code",)):
        for compiles in rows.values():
            for aspect in aspects:
                ids = {rank_compile.texts[_TEXT[aspect]] for rank_compile in compiles.values()}
                if len(ids) > 1:
                    unclear.update(
                        dict.fromkeys(
                            (aspect, number) for numbers in sorted(ids) for number in numbers
                        )
                    )
    return list(unclear)


def compare_ranks(sequences: Sequence[RankSequence], digests: _Digests) -> RankComparison:
    rows = _align_compiles(sequences)
    verdicts = {
        sequence.rank: dict.fromkeys((aspect.name for aspect in ASPECTS), SAME)
        for sequence in sequences
    }
    _judge_whole(sequences, verdicts, digests)
    differing: dict[CompilePosition, list[str]] = {}
    classes: dict[int, list[int]] = {sequence.rank: [] for sequence in sequences}
    unclear: set[str] = set()
    for key, compiles in rows.items():
        kinds = _judge_position(compiles, verdicts, digests, unclear)
        if len(compiles) < len(sequences) and "compiles" not in kinds:
            kinds = ["compiles", *kinds]
        if kinds:
            differing[key] = kinds
            seen: dict[Hashable, int] = {None: 0}
            for rank, known in classes.items():
                rank_compile = compiles.get(rank)
                known.append(
                    seen.setdefault(
                        rank_compile and _alignment_key(rank_compile, kinds, digests), len(seen)
                    )
                )
    aspects = _summarize_aspects(sequences, verdicts, unclear)
    grouped: dict[tuple[int, ...], list[int]] = {}
    for rank, known in classes.items():
        grouped.setdefault(tuple(known), []).append(rank)
    columns = tuple(
        tuple(ranks)
        for ranks in sorted(grouped.values(), key=lambda members: (-len(members), members[0]))
    )
    return RankComparison(
        ranks=tuple(_summarize(sequence, verdicts[sequence.rank]) for sequence in sequences),
        aspects=aspects,
        columns=columns,
        rows=tuple(
            _make_row(key, compiles, differing.get(key, ()), columns)
            for key, compiles in rows.items()
        ),
        divergence=_find_divergence(sequences, digests),
        partial=tuple(_list_partial_compiles(rows, len(sequences))),
    )


def _align_compiles(sequences: Iterable[RankSequence]) -> _Rows:
    order: list[CompilePosition] = []
    known: set[CompilePosition] = set()
    shapes: set[tuple[CompilePosition, ...]] = set()
    rows: _Rows = {}
    for sequence in sequences:
        positions = tuple(rank_compile.position for rank_compile in sequence.compiles)
        for rank_compile in sequence.compiles:
            rows.setdefault(rank_compile.position, {})[sequence.rank] = rank_compile
        if positions in shapes:
            continue
        shapes.add(positions)
        merged: list[CompilePosition] = []
        fresh: dict[CompilePosition | None, list[CompilePosition]] = {}
        before: CompilePosition | None = None
        for position in positions:
            if position in known:
                before = position
            else:
                fresh.setdefault(before, []).append(position)
                known.add(position)
        merged.extend(fresh.get(None, ()))
        for position in order:
            merged.append(position)
            merged.extend(fresh.get(position, ()))
        order = merged
    return {position: rows[position] for position in order}


def _aspect_value(rank_compile: RankCompile, aspect: str, digests: _Digests) -> Hashable:
    if aspect == "outcomes":
        return rank_compile.outcome
    if aspect == "breaks":
        return rank_compile.breaks
    if aspect == "caches":
        return rank_compile.caches
    texts = tuple(digests.get(number) for number in rank_compile.texts[_TEXT[aspect]])
    return (rank_compile.sizes, texts) if aspect == "tensors" else texts


# A graph break changes the outcome, so it comes first.
_PLACED = ("breaks", "outcomes", "caches", "tensors", "graphs", "code")


def _alignment_key(rank_compile: RankCompile, kinds: Iterable[str], digests: _Digests) -> Hashable:
    return (
        rank_compile.function_id,
        rank_compile.causes,
        *(_aspect_value(rank_compile, kind, digests) for kind in kinds if kind in _PLACED),
    )


def _judge_position(
    compiles: Mapping[int, RankCompile],
    verdicts: dict[int, dict[str, str]],
    digests: _Digests,
    unclear: set[str],
) -> list[str]:
    marks = {
        (
            rank_compile.outcome,
            rank_compile.breaks,
            rank_compile.caches,
            rank_compile.sizes,
            rank_compile.causes,
            rank_compile.function_id,
        )
        for rank_compile in compiles.values()
    }
    together = {rank_compile.texts for rank_compile in compiles.values()}
    if len(marks) == 1 and len(together) == 1:
        return []
    texts = [
        aspect for aspect, number in _TEXT.items() if len({ids[number] for ids in together}) > 1
    ]
    differing = (
        []
        if len({rank_compile.function_id for rank_compile in compiles.values()}) == 1
        else ["compiles"]
    )
    if len({rank_compile.causes for rank_compile in compiles.values()}) > 1:
        differing.append("recompiles")
    for aspect in _PLACED:
        ids = (
            {number for ids in together for number in ids[_TEXT[aspect]]} if aspect in texts else ()
        )
        if any(number not in digests for number in ids):
            unclear.add(aspect)
            continue
        values = {
            rank: _aspect_value(rank_compile, aspect, digests)
            for rank, rank_compile in compiles.items()
        }
        if odd := list_outliers(values):
            differing.append(aspect)
            for rank in odd:
                verdicts[rank][aspect] = DIFFERS
    return differing


def list_outliers(values: Mapping[int, Hashable]) -> list[int]:
    """List the ranks that differ from more than half of the others, or all ranks if there is no
    majority.
    """
    counts = Counter(values.values())
    if len(counts) < 2:
        return []
    usual, count = counts.most_common(1)[0]
    return [rank for rank, value in values.items() if count * 2 <= len(values) or value != usual]


def _judge_whole(
    sequences: Sequence[RankSequence], verdicts: dict[int, dict[str, str]], digests: _Digests
) -> None:
    compiles = {
        sequence.rank: tuple((entry.position, entry.function_id) for entry in sequence.compiles)
        for sequence in sequences
    }
    recompiles = {
        sequence.rank: tuple(
            (entry.position, entry.causes) for entry in sequence.compiles if entry.causes
        )
        for sequence in sequences
    }
    collectives = {
        sequence.rank: tuple(
            digests.get(number, number)
            for entry in sequence.compiles
            for number in entry.texts[_TEXT["collectives"]]
        )
        for sequence in sequences
    }
    whole: tuple[tuple[str, Mapping[int, Hashable]], ...] = (
        ("compiles", compiles),
        ("recompiles", recompiles),
        ("collectives", collectives),
    )
    for aspect, values in whole:
        for rank in list_outliers(values):
            verdicts[rank][aspect] = DIFFERS


def _summarize_aspects(
    sequences: Sequence[RankSequence], verdicts: dict[int, dict[str, str]], unclear: set[str]
) -> dict[str, str]:
    recorded = {"compiles", "recompiles", "outcomes", "breaks"}
    for sequence in sequences:
        for rank_compile in sequence.compiles:
            recorded.update(
                aspect for aspect, number in _TEXT.items() if rank_compile.texts[number]
            )
            if rank_compile.caches:
                recorded.add("caches")
            if rank_compile.sizes:
                recorded.add("tensors")
    aspects = {}
    for aspect in (aspect.name for aspect in ASPECTS):
        differs = any(rank_verdicts[aspect] == DIFFERS for rank_verdicts in verdicts.values())
        default = (
            NOT_RECORDED if aspect not in recorded else NOT_COMPARED if aspect in unclear else SAME
        )
        aspects[aspect] = DIFFERS if differs else default
        for rank_verdicts in verdicts.values():
            if rank_verdicts[aspect] != DIFFERS:
                rank_verdicts[aspect] = default
    return aspects


def _find_divergence(sequences: Sequence[RankSequence], digests: _Digests) -> Divergence | None:
    last: CompilePosition | None = None
    for position, candidates in enumerate(
        zip_longest(*(sequence.compiles for sequence in sequences))
    ):
        compiles = {
            sequence.rank: rank_compile
            for sequence, rank_compile in zip(sequences, candidates, strict=True)
        }
        steps: dict[int, Hashable] = {
            rank: None
            if rank_compile is None
            else (rank_compile.position, rank_compile.function_id)
            for rank, rank_compile in compiles.items()
        }
        if len(set(steps.values())) > 1:
            return Divergence(position, "compiles", last, _group_ranks(compiles, steps))
        there = {
            rank: rank_compile
            for rank, rank_compile in compiles.items()
            if rank_compile is not None
        }
        causes: dict[int, Hashable] = {
            rank: rank_compile.causes for rank, rank_compile in there.items()
        }
        if len(set(causes.values())) > 1:
            return Divergence(position, "recompiles", last, _group_ranks(compiles, causes))
        kinds = _judge_position(there, {rank: {} for rank in there}, digests, set())
        if kinds:
            values = {
                rank: _aspect_value(rank_compile, kinds[0], digests)
                for rank, rank_compile in there.items()
            }
            return Divergence(position, kinds[0], last, _group_ranks(compiles, values))
        last = next(iter(there.values())).position
    return None


def _group_ranks(
    compiles: Mapping[int, RankCompile | None], values: Mapping[int, Hashable]
) -> tuple[RankGroup, ...]:
    ranks_by_value: dict[Hashable, list[int]] = {}
    for rank, value in values.items():
        ranks_by_value.setdefault(value, []).append(rank)
    ordered = sorted(ranks_by_value.values(), key=lambda members: (-len(members), members[0]))
    return tuple(RankGroup(tuple(ranks), compiles[ranks[0]]) for ranks in ordered)


def _list_partial_compiles(rows: _Rows, rank_count: int) -> Iterator[RankCompile]:
    for compiles in rows.values():
        recompiled = {
            rank: rank_compile for rank, rank_compile in compiles.items() if rank_compile.causes
        }
        if recompiled and (
            len(recompiled) < rank_count
            or len({rank_compile.causes for rank_compile in recompiled.values()}) > 1
        ):
            seen = set()
            for rank_compile in recompiled.values():
                if rank_compile.causes not in seen:
                    seen.add(rank_compile.causes)
                    yield rank_compile


def _make_row(
    position: CompilePosition,
    compiles: Mapping[int, RankCompile],
    differs: Iterable[str],
    columns: Sequence[Sequence[int]],
) -> AlignedCompiles:
    times = {rank: rank_compile.total_us for rank, rank_compile in compiles.items()}
    slowest = max(times, key=lambda rank: (times[rank], -rank))
    return AlignedCompiles(
        position=position,
        differs=tuple(differs),
        cells=tuple(compiles.get(ranks[0]) for ranks in columns),
        rank_count=len(compiles),
        least_us=min(times.values()),
        most_us=times[slowest],
        slowest_rank=slowest,
    )


def _summarize(sequence: RankSequence, verdicts: dict[str, str]) -> RankSummary:
    has_graphs = any(rank_compile.texts[_TEXT["graphs"]] for rank_compile in sequence.compiles)
    return RankSummary(
        rank=sequence.rank,
        pids=tuple(process.pid for process in sequence.processes),
        compile_count=len(sequence.compiles),
        recompile_count=sum(bool(rank_compile.causes) for rank_compile in sequence.compiles),
        graph_break_count=sum(len(rank_compile.breaks) for rank_compile in sequence.compiles),
        piece_count=sum(rank_compile.piece_count for rank_compile in sequence.compiles)
        if has_graphs
        else None,
        total_us=sequence.total_us,
        phases=sequence.phases,
        slowest=max(
            sequence.compiles, key=lambda rank_compile: rank_compile.total_us, default=None
        ),
        verdicts=verdicts,
    )
