"""The board's unpublished changes, and why they wait."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

WAITING_SQL = """
select count(*) + (select count(*) from published_runs where run_id not in (select id
  from runs)) as waiting_count
from runs as r
left join published_runs as p on p.run_id = r.id
where p.run_id is null
  or p.run_pub < r.pub
  or (p.rows_run_pub < r.pub and r.state <> 'running')
"""
STATE_SQL = "select version, passed_us, error, error_us from engine_publications where id = 1"
# Whether what the board has of a run, or has no longer, is what the engine shows, as far as people
# change it.
SHOWN_SQL = """
select coalesce(
  (
    select coalesce(p.run_pub, -1) >= 0 and p.annotated_us is a.changed_us
    from runs as r
    left join published_runs as p on p.run_id = r.id
    left join run_annotations as a on a.run_id = r.id
    where r.id = :run_id
  ),
  not exists (select 1 from published_runs where run_id = :run_id)
)
"""


@dataclass(frozen=True)
class PublicationState:
    """The progress of publication.

    Units: passed_us, when last nothing waited, and error_us are since the epoch.
    """

    waiting_count: int  # runs whose newest state the engine has not
    version: int  # grows with every row of a run there
    passed_us: int | None
    error: str | None
    error_us: int | None


def get_publication_state(connection: sqlite3.Connection) -> PublicationState | None:
    row = connection.execute(STATE_SQL).fetchone()
    if row is None:
        return None
    return PublicationState(connection.execute(WAITING_SQL).fetchone()[0], *row)


def get_publication_error(connection: sqlite3.Connection) -> str | None:
    row = connection.execute(STATE_SQL).fetchone()
    return None if row is None else row["error"]


def is_shown(connection: sqlite3.Connection, run_id: str) -> bool:
    return bool(connection.execute(SHOWN_SQL, {"run_id": run_id}).fetchone()[0])
