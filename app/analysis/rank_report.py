"""What a run's ranks have in common and where they part, read and compared: the same for the page and for the API."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from app.analysis.kept import keep
from app.analysis.rank_words import SaidDivergence, describe_divergence, explain_groups
from app.analysis.ranks import RankComparison, compare_ranks, list_unclear, normalize
from app.queries.ranks import list_names, list_ranks, read_texts
from app.queries.run_recompiles import RecompileRow, list_compile_recompiles

_MOST_TEXT_BYTES = 600_000  # of texts that differ as they are; reading and normalising them takes ≈ 0.15 s
_MOST_REASONS = 8


@dataclass(frozen=True)
class Parting:
    """Hold where ranks part in words, why, and the recompiles besides that not every rank has."""

    said: SaidDivergence | None
    why: list[RecompileRow]
    partial: list[RecompileRow]
    partial_count: int


def read_comparison(connection: sqlite3.Connection, run_id: str) -> RankComparison | None:
    """Compare a run's ranks, 64 with 500 compiles each in a second, and keep it; None where it has fewer than two."""
    return keep(connection, run_id, _compare)


def _compare(connection: sqlite3.Connection, run_id: str) -> RankComparison | None:
    sequences = list_ranks(connection, run_id)
    if len(sequences) < 2:
        return None
    unclear = list_unclear(sequences)
    texts = read_texts(connection, (number for _aspect, number in unclear), _MOST_TEXT_BYTES)
    digests = {number: normalize(texts[number], aspect) for aspect, number in unclear if number in texts}
    return compare_ranks(sequences, digests)


def read_parting(connection: sqlite3.Connection, found: RankComparison) -> Parting:
    """Read what happened where ranks part: names, and the guards that failed."""
    groups = found.divergence.groups if found.divergence else ()
    names = list_names(connection, {it.compile.function_id or 0 for it in groups if it.compile})
    parted = explain_groups(found.divergence)[:_MOST_REASONS]
    partial = [it.key for it in found.partial[:_MOST_REASONS] if it.key not in parted]
    return Parting(
        said=describe_divergence(found.divergence, names) if found.divergence else None,
        why=list_compile_recompiles(connection, parted),
        partial=list_compile_recompiles(connection, partial),
        partial_count=len(found.partial),
    )
