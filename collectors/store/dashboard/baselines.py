"""Write baselines, which users compare with."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from typing import Any

from compileboard.collectors.store.codec import pack
from compileboard.collectors.store.connection import write_transaction

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+@/-]{0,98}[A-Za-z0-9._+@-])?")
# What a name would hide, or be hidden by, where people say what to compare with.
RESERVED = (
    (re.compile(r"latest|previous", re.IGNORECASE), "that is the newest run, or the one before"),
    (re.compile(r".*\.csv", re.IGNORECASE), "that is a file"),
    (re.compile(r"[0-9a-f]{4,40}", re.IGNORECASE), "that may be the beginning of a commit's hash"),
    (
        re.compile(r"0[0-9A-HJKMNP-TV-Z]{1,25}|[1-7][0-9A-HJKMNP-TV-Z]{3,25}", re.IGNORECASE),
        "that may be a run's id",
    ),
)
NOTE_LIMIT = 20_000

INSERT = """
insert into baselines (name, run_id, note, created_us, changed_us, body)
values (:name, :run_id, nullif(:note, ''), :now_us, :now_us, :body)
on conflict (name) do nothing
"""
UPDATE = """
update baselines set
  run_id = :run_id,
  note = case when :note is null then note else nullif(:note, '') end,
  changed_us = :now_us,
  body = :body
where name = :name
"""


def save_baseline(
    connection: sqlite3.Connection,
    name: str,
    body: dict[str, Any],
    *,
    run_id: str | None,
    note: str | None = None,
    replacing: bool = False,
    now_us: int | None = None,
) -> bool:
    """Save a new baseline; return False if the name exists.

    With `replacing`, replace an existing one, keeping its note if none is given; False if there is
    none. Raises ValueError for an invalid name or note.
    """
    if not replacing:
        _check_name(name)
    if note is not None and len(note) > NOTE_LIMIT:
        raise ValueError(f"a note has at most {NOTE_LIMIT} characters; this one has {len(note)}")
    values = {
        "name": name,
        "run_id": run_id,
        "note": None if note is None else note.strip(),
        "now_us": time.time_ns() // 1000 if now_us is None else now_us,
        "body": pack(json.dumps(body, separators=(",", ":")), primed=False),
    }
    with write_transaction(connection):
        return bool(connection.execute(UPDATE if replacing else INSERT, values).rowcount)


def delete_baseline(connection: sqlite3.Connection, name: str) -> bool:
    with write_transaction(connection):
        return bool(
            connection.execute("delete from baselines where name = :name", {"name": name}).rowcount
        )


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name[:80]!r} is no baseline's name: expected a letter or digit, then at most 99 "
            "letters, digits and "
            ". _ + @ / -, and no / at its end"
        )
    for pattern, meaning in RESERVED:
        if pattern.fullmatch(name):
            raise ValueError(
                f"{name[:80]!r} is no baseline's name: {meaning}; choose another, as main or "
                "release/2.4"
            )
