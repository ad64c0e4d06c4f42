"""Series changes found by detection, and the incidents made of them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compileboard.collectors.store.connection import write_transaction
from compileboard.collectors.store.dashboard.incidents import IncidentMove, move_discussion

# What tells the series of a subject on one branch from others, but for the metric.
SERIES = (
    "suite",
    "model",
    "mode",
    "dtype",
    "device",
    "hardware",
    "backend",
    "dynamic",
    "batch_size",
    "world_size",
)
IDENTITY = ("kind", "subject", *SERIES, "branch", "metric")
DETECTED = (
    "direction",
    "state",
    "before_value",
    "after_value",
    "relative",
    "p_value",
    "before_run_id",
    "first_run_id",
    "low_run_id",
    "high_run_id",
    "recovered_run_id",
    "first_us",
    "confirmed_us",
    "evidence",
)
# What detection says of an incident; status, owner and reason are people's.
ASSEMBLED = (
    "direction",
    "state",
    "title",
    "suite",
    "branch",
    "severity",
    "lead_change_id",
    "change_count",
    "last_good_run_id",
    "first_bad_run_id",
    "recovered_run_id",
    "first_us",
    "recovered_us",
    "confirmed_us",
    "evidence",
)
_COLUMNS = ("id", *IDENTITY, *DETECTED)

# The statements name our own columns alone; every value is bound.
SAVE_CHANGE = f"""
insert into series_changes ({", ".join(_COLUMNS)}, found_us, changed_us, noticed_us)
values ({", ".join(f":{name}" for name in _COLUMNS)}, :now_us, :now_us, iif(:confirmed_us is null, null, :now_us))
on conflict (id) do update set
  {", ".join(f"{name} = excluded.{name}" for name in DETECTED if name != "confirmed_us")},
  confirmed_us = coalesce(confirmed_us, excluded.confirmed_us),
  noticed_us = coalesce(noticed_us, excluded.noticed_us),
  changed_us = excluded.changed_us
"""  # noqa: S608 - our own names
SAVE_INCIDENT = f"""
insert into incidents (id, {", ".join(ASSEMBLED)}, found_us, changed_us, noticed_us)
values (:id, {", ".join(f":{name}" for name in ASSEMBLED)}, :now_us, :now_us, iif(:confirmed_us is null, null, :now_us))
on conflict (id) do update set
  {", ".join(f"{name} = excluded.{name}" for name in ASSEMBLED if name != "confirmed_us")},
  confirmed_us = coalesce(confirmed_us, excluded.confirmed_us),
  noticed_us = coalesce(noticed_us, excluded.noticed_us),
  changed_us = excluded.changed_us
"""  # noqa: S608 - our own names
# What was never confirmed was noise, unless somebody spoke of it; the rest stays and says so.
DROP_CHANGE = "delete from series_changes where id = :id and confirmed_us is null"
WITHDRAW_CHANGE = """
update series_changes
set state = 'withdrawn', changed_us = :now_us
where id = :id
  and state <> 'withdrawn'
"""
MARK = """
insert into detection (id, seen, version, finished_us)
values (1, :seen, :version, :now_us)
on conflict (id) do update set seen = excluded.seen, version = excluded.version, finished_us = excluded.finished_us
"""


@dataclass
class DetectedRows:
    changes: Sequence[Mapping[str, Any]] = ()
    withdrawn_ids: Sequence[str] = ()
    dropped_ids: Sequence[str] = ()
    incidents: Sequence[Mapping[str, Any]] = ()
    members: Mapping[str, Sequence[str]] = field(default_factory=dict)
    moves: Sequence[IncidentMove] = ()
    removed_incident_ids: Iterable[str] = ()


def save_detected(
    connection: sqlite3.Connection,
    detected: DetectedRows,
    *,
    seen: str,
    version: int,
    now_us: int | None = None,
) -> None:
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    with write_transaction(connection):
        connection.executemany(
            SAVE_CHANGE, [{**change, "now_us": now_us} for change in detected.changes]
        )
        connection.executemany(
            WITHDRAW_CHANGE, [{"id": id_, "now_us": now_us} for id_ in detected.withdrawn_ids]
        )
        connection.executemany(
            SAVE_INCIDENT, [{**incident, "now_us": now_us} for incident in detected.incidents]
        )
        for move in detected.moves:
            move_discussion(connection, move)
        connection.executemany(
            (
                "update series_changes set incident_id = :incident_id where id = :id and "
                "incident_id is not :incident_id"
            ),
            [
                {"id": id_, "incident_id": incident_id}
                for incident_id, ids in detected.members.items()
                for id_ in ids
            ],
        )
        connection.executemany(DROP_CHANGE, [{"id": id_} for id_ in detected.dropped_ids])
        connection.executemany(
            "delete from incidents where id = ?", [(id_,) for id_ in detected.removed_incident_ids]
        )
        connection.execute(MARK, {"seen": seen, "version": version, "now_us": now_us})
