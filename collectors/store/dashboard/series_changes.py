"""Series changes that detection found, and people's comments on them. The one writer of these tables."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping
from typing import Any

from compileboard.collectors.store.connection import write_transaction

ACTIONS = ("acknowledge", "ignore", "note", "reopen")
# What an action makes of a finding's handling; a note leaves it.
HANDLING = {"acknowledge": "acknowledged", "ignore": "ignored", "reopen": "open"}
WHO_LIMIT = 100
TEXT_LIMIT = 20_000
# What tells the series of a subject on one branch from others, but for the metric.
SERIES = ("suite", "model", "mode", "dtype", "device", "hardware", "backend", "dynamic", "batch_size", "world_size")
IDENTITY = ("kind", "subject", *SERIES, "branch", "metric")
FOUND = (
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
_COLUMNS = ("id", *IDENTITY, *FOUND)

# The statements name our own columns alone; every value is bound.
SAVE = f"""
insert into findings ({", ".join(_COLUMNS)}, found_us, changed_us, noticed_us)
values ({", ".join(f":{name}" for name in _COLUMNS)}, :now_us, :now_us, iif(:confirmed_us is null, null, :now_us))
on conflict (id) do update set
  {", ".join(f"{name} = excluded.{name}" for name in FOUND if name != "confirmed_us")},
  confirmed_us = coalesce(confirmed_us, excluded.confirmed_us),
  noticed_us = coalesce(noticed_us, excluded.noticed_us),
  changed_us = excluded.changed_us
"""  # noqa: S608
# What was never confirmed, and nobody spoke of, was noise; the rest stays and says so.
DROP = """
delete from findings
where id = :id
  and confirmed_us is null
  and not exists (select 1 from finding_words as w where w.finding_id = findings.id)
"""
WITHDRAW = """
update findings
set state = 'withdrawn', changed_us = :now_us
where id = :id
  and state <> 'withdrawn'
"""
MARK = """
insert into detection (id, seen, version, finished_us)
values (1, :seen, :version, :now_us)
on conflict (id) do update set seen = excluded.seen, version = excluded.version, finished_us = excluded.finished_us
"""
RANGE = """
select f.id
from findings as f
join findings as o on o.id = :id
where f.first_run_id = o.first_run_id
  and (f.id = o.id or (:whole_range = 1 and f.before_run_id is o.before_run_id and f.state <> 'withdrawn'))
order by f.id
"""
ADD_COMMENT = """
insert into finding_words (finding_id, action, who, text, time_us)
values (:id, :action, :who, nullif(:text, ''), :now_us)
"""


def save_findings(
    connection: sqlite3.Connection,
    changes: Iterable[Mapping[str, Any]],
    removed_ids: Iterable[str],
    *,
    seen: str,
    version: int,
    now_us: int | None = None,
) -> None:
    """Save what detection found, withdraw what it finds no longer, and save how far it came: all or nothing."""
    now_us = _now() if now_us is None else now_us
    with write_transaction(connection):
        connection.executemany(SAVE, [{**change, "now_us": now_us} for change in changes])
        for finding_id in removed_ids:
            if not connection.execute(DROP, {"id": finding_id}).rowcount:
                connection.execute(WITHDRAW, {"id": finding_id, "now_us": now_us})
        connection.execute(MARK, {"seen": seen, "version": version, "now_us": now_us})


def save_comment(
    connection: sqlite3.Connection,
    finding_id: str,
    action: str,
    *,
    author: str,
    text: str | None = None,
    whole_range: bool = False,
    now_us: int | None = None,
) -> bool:
    """Save a person's action on a finding or comment; return False if there is no such finding.

    With `whole_range` the same is kept of every finding that came between the same two runs, but for withdrawn ones.

    Raises: ValueError in words if author, action or text cannot be used.
    """
    author, text = " ".join(author.split()), (text or "").strip()
    _check(action, author, text)
    now_us = _now() if now_us is None else now_us
    with write_transaction(connection):
        findings = connection.execute(RANGE, {"id": finding_id, "whole_range": int(whole_range)}).fetchall()
        for (change_id,) in findings:
            comment = {"id": change_id, "action": action, "who": author, "text": text, "now_us": now_us}
            connection.execute(ADD_COMMENT, comment)
            if action in HANDLING:
                handling = {"id": change_id, "handling": HANDLING[action]}
                connection.execute("update findings set handling = :handling where id = :id", handling)
    return bool(findings)


def _check(action: str, author: str, text: str) -> None:
    if action not in ACTIONS:
        raise ValueError(f"{action[:40]!r} cannot be done with a finding; expected one of {', '.join(ACTIONS)}")
    if not author:
        raise ValueError("who: nobody is named; give the name that others know you by")
    if len(author) > WHO_LIMIT:
        raise ValueError(f"who: at most {WHO_LIMIT} characters; this has {len(author)}")
    if action == "ignore" and not text:
        raise ValueError("text: to ignore a finding, say why; others will want to know")
    if action == "note" and not text:
        raise ValueError("text: a note needs some words")
    if len(text) > TEXT_LIMIT:
        raise ValueError(f"text: at most {TEXT_LIMIT} characters; this has {len(text)}")


def _now() -> int:
    return time.time_ns() // 1000
