"""What of a run there is to explore: which pages have something to show."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True)
class Explored:
    """Say what was recorded of a run beside its events."""

    has_spans: bool
    has_stacks: bool
    has_artifacts: bool
    has_texts: bool
    has_guards: bool
    has_symbols: bool
    has_aot: bool
    has_ranks: bool
    has_search: bool


def get_explored(reader: sqlite3.Connection, run_id: str) -> Explored:
    """Look at what a run has, each with one step into an index."""
    row = reader.execute(
        """
        select
          exists (select 1 from lanes where run_id = :id and span_count > 0) as has_spans,
          exists (select 1 from stack_nodes where run_id = :id) as has_stacks,
          exists (select 1 from artifacts where run_id = :id) as has_artifacts,
          exists (select 1 from logs where run_id = :id and payloads = 'kept')
            and exists (select 1 from artifacts where run_id = :id) as has_texts,
          exists (select 1 from guard_sets where run_id = :id) as has_guards,
          exists (select 1 from symbols where run_id = :id) as has_symbols,
          exists (select 1 from aot_graphs where run_id = :id) as has_aot,
          (select count(*) from (select 1 from processes where run_id = :id and rank is not null limit 2)) > 1
            as has_ranks,
          exists (select 1 from search_runs where run_id = :id) as has_search
        """,
        {"id": run_id},
    ).fetchone()
    return Explored(**{name: bool(row[name]) for name in row.keys()})  # noqa: SIM118 - a row iterates its values
