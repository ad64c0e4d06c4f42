"""Where a run's ranks part and the guards that say why: the same for the page and for the report."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.analysis.rank_words import SaidDivergence, describe_divergence, explain_groups
from compileboard.app.analysis.ranks import RankComparison
from compileboard.app.queries.ranks import list_names
from compileboard.app.queries.run_recompiles import RecompileRow, list_compile_recompiles

REASONS = 8


@dataclass(frozen=True)
class Parting:
    """Hold where ranks part and why; `said` is None where they do not.

    `why` are the recompiles that part them, `partial` others that not every rank has, of `partial_count`.
    """

    said: SaidDivergence | None
    why: Sequence[RecompileRow]
    partial: Sequence[RecompileRow]
    partial_count: int


def read_parting(connection: sqlite3.Connection, found: RankComparison, most: int = REASONS) -> Parting:
    """Read the names and guards of what parts a run's ranks."""
    groups = found.divergence.groups if found.divergence else ()
    functions = {it.compile.function_id for it in groups if it.compile and it.compile.function_id is not None}
    names = list_names(connection, functions)
    parted = explain_groups(found.divergence)[:most]
    partial = [it.key for it in found.partial[:most] if it.key not in parted]
    return Parting(
        describe_divergence(found.divergence, names) if found.divergence else None,
        list_compile_recompiles(connection, parted),
        list_compile_recompiles(connection, partial),
        len(found.partial),
    )
