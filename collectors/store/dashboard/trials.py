"""Trials: fixes that `try` ran on a copy of a run's program, with their results."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any, Literal

from compileboard.collectors.store.connection import write_transaction
from compileboard.collectors.store.publications import publish_run
from compileboard.collectors.store.reading import read_json

Outcome = Literal[
    "improved", "unchanged", "worse", "different", "failed", "not_applied", "interrupted"
]
OUTCOME_LABELS: dict[str, str] = {
    "improved": "Improved",
    "unchanged": "No effect",
    "worse": "Worse",
    "different": "Output differs",
    "failed": "Failed",
    "not_applied": "Not applied",
    "interrupted": "Interrupted",
}


@dataclass(frozen=True)
class Trial:
    id: str
    run_id: str
    base_run_id: str | None
    new_run_id: str | None
    fix_id: str | None
    cause_fingerprint: str | None
    title: str
    patch: str | None
    settings: tuple[str, ...]
    outcome: Outcome
    summary: str
    started_us: int
    ended_us: int
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome_label(self) -> str:
        return OUTCOME_LABELS[self.outcome]


_COLUMNS = """
  id, run_id, base_run_id, new_run_id, fix_id, cause_fingerprint, title, patch, settings, outcome, summary,
  started_us, ended_us, result
"""


def save_trial(connection: sqlite3.Connection, trial: Trial) -> None:
    values = {name: getattr(trial, name) for name in _COLUMNS.replace(",", " ").split()}
    values |= {"settings": json.dumps(trial.settings), "result": json.dumps(trial.result)}
    with write_transaction(connection):
        connection.execute(
            f"""
            insert into trials ({_COLUMNS})
            values ({", ".join(f":{name}" for name in values)})
            """,  # noqa: S608  own names
            values,
        )
        publish_run(connection, trial.run_id)


def list_trials(connection: sqlite3.Connection, run_id: str) -> list[Trial]:
    return _list(connection, "run_id = :run_id", run_id)


def get_trial_of(connection: sqlite3.Connection, run_id: str) -> Trial | None:
    return next(
        iter(_list(connection, "new_run_id = :run_id or base_run_id = :run_id", run_id)), None
    )


def _list(connection: sqlite3.Connection, condition: str, run_id: str) -> list[Trial]:
    rows = connection.execute(
        f"select {_COLUMNS} from trials where {condition} order by started_us desc, id desc",  # noqa: S608 - our own names
        {"run_id": run_id},
    )
    return [_read(row) for row in rows]


def _read(row: sqlite3.Row) -> Trial:
    values = dict(row)
    values["settings"] = tuple(read_json(list[str], row["settings"]) or ())
    values["result"] = read_json(dict[str, Any], row["result"]) or {}
    return Trial(**values)
