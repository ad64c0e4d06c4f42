"""Owners of runs: the first sender may add to a run, and so may the scope `write`."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.collectors.store.dashboard.audit import ActionOrigin, record_action
from compileboard.collectors.store.errors import StoreError


@dataclass(frozen=True)
class RunSender:
    """Who adds to runs: `owner` is `token:NAME`, `login:NAME` from a proxy, or None for this
    machine.
    """

    owner: str | None = None
    may_add_to_all: bool = True

    @property
    def name(self) -> str:
        return (self.owner or "").partition(":")[2]


THIS_MACHINE = RunSender()


class NotOwner(StoreError):
    def __init__(self, sender: RunSender, *run_ids: str) -> None:
        super().__init__(
            f"run {', '.join(run_ids)} is there already, and {sender.name} did not send it: "
            "nothing of it was added. "
            "Use the token that sent it, or one of the scope write."
        )


def may_add(connection: sqlite3.Connection, run_id: str, sender: RunSender) -> bool:
    """Return whether a sender may add to a run: its own, or a new one.

    A run without an owner was recorded on this machine, even if deleted since.
    """
    if sender.may_add_to_all:
        return True
    owners = _list_owners(connection, run_id)
    return not owners or sender.owner in owners


def claim_run(connection: sqlite3.Connection, run_id: str, sender: RunSender) -> None:
    if sender.owner is None:
        return
    owners = _list_owners(connection, run_id)
    if not owners:
        connection.execute(
            "insert into run_owners (run_id, owner) values (?, ?)", (run_id, sender.owner)
        )
        record_action(connection, "run.send", run_id, ActionOrigin("api", sender.name))
    elif not sender.may_add_to_all and sender.owner not in owners:
        raise NotOwner(sender, run_id)


def _list_owners(connection: sqlite3.Connection, run_id: str) -> list[str | None]:
    rows = connection.execute(
        "select owner from run_owners where run_id = :run_id", {"run_id": run_id}
    ).fetchall()
    if not rows:
        query = """
            select null from runs where id = :run_id
            union all
            select null from removed_runs where run_id = :run_id
            """
        rows = connection.execute(query, {"run_id": run_id}).fetchall()
    return [row[0] for row in rows]


# Where a row of a process may be; an event of any other kind is in `events` too.
_OF_PROCESSES = ("events", "artifacts", "lanes", "symbols", "repros", "logs")
_FIND_OTHER_RUN = " union all ".join(
    f"select 1 from {table} where {column} = :process_id and run_id <> :run_id"  # noqa: S608 - our own names
    for table, column in (("processes", "id"), *((table, "process_id") for table in _OF_PROCESSES))
)


def is_of_other_run(connection: sqlite3.Connection, run_id: str, process_id: str) -> bool:
    key = {"run_id": run_id, "process_id": process_id}
    own = "select 1 from processes where id = :process_id and run_id = :run_id"
    if connection.execute(own, key).fetchone() is not None:
        return False
    return connection.execute(f"{_FIND_OTHER_RUN} limit 1", key).fetchone() is not None
