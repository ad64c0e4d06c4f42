"""A run's compiles in order: outcome, attempts, events of the log, and chains of recompiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from compileboard.app.compiles.run_queries import CompileRow
from compileboard.app.core.labels import PHASES, Phase, PhaseShare, list_shares, sum_phases
from compileboard.app.reasons.run_queries import RecompileRow
from compileboard.app.runs.trace_files import CompileEvent
from compileboard.collectors.contract.categories import Category, label_category


@dataclass(frozen=True)
class AttemptSteps:
    steps: tuple[CompileEvent, ...]

    @property
    def first(self) -> CompileEvent:
        return self.steps[0]


@dataclass(frozen=True)
class Attempt:
    number: int
    lines: tuple[AttemptSteps, ...]


@dataclass(frozen=True)
class CompileEntry:
    compile: CompileRow
    attempts: tuple[Attempt, ...]
    artifact_count: int


def build_entries(
    compiles: Sequence[CompileRow], steps: Sequence[CompileEvent]
) -> list[CompileEntry]:
    by_compile: dict[int, list[CompileEvent]] = {}
    for step in steps:
        by_compile.setdefault(step.compile_key, []).append(step)
    entries = []
    for compile_row in compiles:
        own = by_compile.get(compile_row.id, [])
        count = sum(step.kind == "artifact" for step in own)
        entries.append(CompileEntry(compile_row, split_attempts(own), count))
    return entries


def split_attempts(steps: Sequence[CompileEvent]) -> tuple[Attempt, ...]:
    """Split a compile's steps by attempt: an event belongs to the attempt of the artifacts before
    it.
    """
    artifacts = {(step.process_id, step.sequence) for step in steps if step.kind == "artifact"}
    last = max((step.attempt or 0 for step in steps), default=0)
    steps_by_attempt: dict[int, list[CompileEvent]] = {}
    now = 0
    for step in steps:
        if step.kind == "lookup" and (step.process_id, step.sequence) in artifacts:
            continue
        # torch logs records of a compile after its last attempt, and does not number attempts
        # without artifacts.
        now = last if step.kind == "record" else now if step.attempt is None else step.attempt
        steps_by_attempt.setdefault(now, []).append(step)
    return tuple(
        Attempt(number, _join_steps(own)) for number, own in sorted(steps_by_attempt.items())
    )


def _join_steps(steps: Sequence[CompileEvent]) -> tuple[AttemptSteps, ...]:
    lines = []
    for (kind, _name), group in groupby(steps, key=lambda step: (step.kind, step.name)):
        same = tuple(group)
        lines += (
            [AttemptSteps(same)] if kind == "artifact" else [AttemptSteps((step,)) for step in same]
        )
    return tuple(lines)


@dataclass(frozen=True)
class ChainLink:
    compile: CompileRow
    recompile: RecompileRow | None

    @property
    def category(self) -> Category | None:
        return None if self.recompile is None else label_category(self.recompile.category)


def build_steps(
    compiles: Sequence[CompileRow], recompiles: Sequence[RecompileRow]
) -> list[ChainLink]:
    by_compile = {recompile.compile_key: recompile for recompile in recompiles}
    return [ChainLink(compile_row, by_compile.get(compile_row.id)) for compile_row in compiles]


def shorten_steps(steps: Sequence[ChainLink], max_count: int = 40) -> tuple[list[ChainLink], int]:
    if len(steps) <= max_count:
        return list(steps), 0
    first = max_count // 4
    return [*steps[:first], *steps[len(steps) - (max_count - first) :]], len(steps) - max_count


@dataclass(frozen=True)
class CompileBar:
    compile: CompileRow
    time_us: int
    shares: tuple[PhaseShare, ...]


@dataclass(frozen=True)
class CompileGroup:
    process: str
    code: str
    line: str
    bars: tuple[CompileBar, ...]


def group_compiles(
    compiles: Sequence[CompileRow], beside: Sequence[CompileRow] = ()
) -> list[CompileGroup]:
    highest_us = max(
        (sum_phases(compile_row.phases) or 0 for compile_row in (*compiles, *beside)), default=0
    )
    rows_by_function: dict[tuple[str, str, str], list[CompileRow]] = {}
    for compile_row in compiles:
        if sum_phases(compile_row.phases):
            function = (compile_row.process, compile_row.code, compile_row.location)
            rows_by_function.setdefault(function, []).append(compile_row)
    return [
        CompileGroup(
            *function,
            tuple(_build_bar(row, highest_us) for row in sorted(rows, key=_compile_order)),
        )
        for function, rows in rows_by_function.items()
    ]


def _compile_order(compile_row: CompileRow) -> tuple[int, int]:
    return compile_row.started_us, compile_row.id


def _build_bar(compile_row: CompileRow, highest_us: int) -> CompileBar:
    shares = list_shares(compile_row.phases, highest_us)
    return CompileBar(compile_row, sum(share.time_us for share in shares), tuple(shares))


def list_present_phases(groups: Sequence[CompileGroup]) -> list[Phase]:
    present = {share.phase.name for group in groups for bar in group.bars for share in bar.shares}
    return [phase for phase in PHASES if phase.name in present]
