"""How the ranks of a run differ: where they part, in which aspects, and which of them is slow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from compileboard.app.analysis.ranks.comparison import (
    AlignedRow,
    RankComparison,
    RankSummary,
    compare_ranks,
    list_unclear,
    normalize,
)
from compileboard.app.analysis.ranks.divergence import (
    DivergenceText,
    describe_differences,
    describe_divergence,
    describe_times,
    explain_groups,
    list_verdicts,
    name_ranks,
)
from compileboard.app.queries.run.compiles import PHASES
from compileboard.app.queries.run.ranks import RankCompile, list_names, list_ranks, read_texts
from compileboard.app.queries.run.recompiles import RecompileRow, list_compile_recompiles
from compileboard.app.queries.run_cache import cached_for_run

MOST_REASONS = 100
MOST_PARTIAL = 8
MOST_ALIGNED = 1000
MOST_SPREADS = 8
_MOST_TEXT_BYTES = 600_000  # of texts that differ as they are; reading and normalising them takes ≈ 0.15 s

FunctionNames = Mapping[int, tuple[str, str]]


@dataclass(frozen=True)
class RanksScreen:
    """How the ranks of a run differ.

    `divergence` is None where they do not part. `reasons` are the recompiles that part them, `partial` others that not
    every rank has, of `partial_count`; `names` has function and file by function id.
    """

    comparison: RankComparison
    divergence: DivergenceText | None
    reasons: Sequence[RecompileRow]
    partial: Sequence[RecompileRow]
    partial_count: int
    names: FunctionNames

    @cached_property
    def summary(self) -> str:
        """Describe in which aspects the ranks differ."""
        return describe_differences(self.comparison)

    @property
    def times(self) -> str | None:
        """Describe which rank compiled longest."""
        return describe_times(self.comparison.ranks)

    @cached_property
    def verdicts(self) -> list[tuple[str, tuple[int, ...], dict[str, str]]]:
        """List label, ranks and verdicts of ranks that are judged alike, those that differ most first."""
        return [(name_ranks(ranks), ranks, verdicts) for ranks, verdicts in list_verdicts(self.comparison)]

    @property
    def is_timed(self) -> bool:
        """Return True where a compile time was recorded."""
        return any(rank.total_us for rank in self.comparison.ranks)

    def list_rows(self, every: bool = False) -> Sequence[AlignedRow]:
        """List the compiles in which ranks differ, or all."""
        return self.comparison.rows if every else [row for row in self.comparison.rows if row.differs]

    @cached_property
    def spreads(self) -> list[AlignedRow]:
        """List the compiles whose slowest and quickest ranks are furthest apart."""
        shared = (row for row in self.comparison.rows if row.rank_count > 1)
        return sorted(shared, key=lambda row: -row.spread_us)[:MOST_SPREADS]


def build_ranks(reader: sqlite3.Connection, run_id: str) -> RanksScreen | None:
    """Compare a run's ranks, 64 with 500 compiles each in a second; None where it has fewer than two."""
    comparison = cached_for_run(reader, run_id, _compare)
    if comparison is None:
        return None
    divergence = comparison.divergence
    names = read_names(reader, (group.compile for group in divergence.groups) if divergence else ())
    parted = explain_groups(divergence)[:MOST_REASONS]
    partial = [compile.key for compile in comparison.partial[:MOST_PARTIAL] if compile.key not in parted]
    return RanksScreen(
        comparison=comparison,
        divergence=describe_divergence(divergence, names) if divergence else None,
        reasons=list_compile_recompiles(reader, parted),
        partial=list_compile_recompiles(reader, partial),
        partial_count=len(comparison.partial),
        names=names,
    )


def read_names(reader: sqlite3.Connection, compiles: Iterable[RankCompile | None]) -> FunctionNames:
    """Read function and file, by function id, of compiles that a page shows."""
    return list_names(reader, {row.function_id for row in compiles if row and row.function_id is not None})


def _compare(reader: sqlite3.Connection, run_id: str) -> RankComparison | None:
    sequences = list_ranks(reader, run_id)
    if len(sequences) < 2:
        return None
    unclear = list_unclear(sequences)
    texts = read_texts(reader, (number for _aspect, number in unclear), _MOST_TEXT_BYTES)
    digests = {number: normalize(texts[number], aspect) for aspect, number in unclear if number in texts}
    return compare_ranks(sequences, digests)


_NO_RANKS: dict[str, Any] = {
    "ranks": [],
    "aspects": {},
    "divergence": None,
    "times": None,
    "columns": [],
    "rows": [],
    "row_count": 0,
}


def serialize_ranks(screen: RanksScreen | None, *, every_row: bool = False) -> dict[str, Any]:
    """Return how a run's ranks differ: compile by compile what differs, or with `every_row` all."""
    if screen is None:
        return dict(_NO_RANKS)
    comparison, rows = screen.comparison, screen.list_rows(every_row)
    return {
        "ranks": [_serialize_rank(rank) for rank in comparison.ranks],
        "aspects": comparison.aspects,
        "divergence": _serialize_divergence(screen),
        "times": screen.times,
        "columns": [list(ranks) for ranks in comparison.columns],
        "rows": [_serialize_row(row) for row in rows[:MOST_ALIGNED]],
        "row_count": len(rows),
    }


def _serialize_rank(rank: RankSummary) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "pids": list(rank.pids),
        "compile_count": rank.compile_count,
        "recompile_count": rank.recompile_count,
        "total_us": rank.total_us or None,
        "phases_us": {phase: rank.get(phase) for phase in PHASES},
        "slowest_key": rank.slowest.key if rank.slowest else None,
        "verdicts": rank.verdicts,
    }


def _serialize_divergence(screen: RanksScreen) -> dict[str, Any] | None:
    divergence, text = screen.comparison.divergence, screen.divergence
    if divergence is None or text is None:
        return None
    return {
        "aspect": divergence.aspect,
        "shared_count": divergence.shared_count,
        "sentence": text.sentence,
        "groups": [
            {
                "ranks": list(group.ranks),
                "compile_key": group.compile.key if group.compile else None,
                "compile_id": group.compile.position.compile_id if group.compile else None,
                "function": screen.names.get(group.compile.function_id or 0, (None,))[0] if group.compile else None,
                "outcome": group.compile.outcome if group.compile else None,
            }
            for group in divergence.groups
        ],
        "recompiles": list(screen.reasons),
    }


def _serialize_row(row: AlignedRow) -> dict[str, Any]:
    return {
        "process": row.position.process,
        "generation": row.position.generation,
        "compile_id": row.position.compile_id,
        "differs": list(row.differs),
        "rank_count": row.rank_count,
        "least_us": row.least_us,
        "most_us": row.most_us,
        "slowest_rank": row.slowest_rank,
        "compile_keys": [cell.key if cell else None for cell in row.cells],
    }
