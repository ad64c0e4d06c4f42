"""Run rows: who may add to a run, publication numbers, and process names.

The first sender may add to a run, and so may senders with the scope `write`.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compileboard.collectors.contract.compile_labels import ProcessIdentity, name_processes
from compileboard.collectors.store.connection import StoreError, has_row, read_value
from compileboard.collectors.store.reading import read_body
from compileboard.collectors.store.tokens import ActionOrigin, record_action


@dataclass(frozen=True)
class RunSender:
    """A sender of runs: `owner` is `token:NAME`, `login:NAME` from a proxy, or None for this
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


def list_disabling(connection: sqlite3.Connection, run_id: str) -> list[str]:
    """Return what turned torch.compile off in a run's processes when they ended."""
    rows = connection.execute(
        """
        select body
        from events
        where run_id = :run_id
          and kind = 'snapshot_taken'
        order by time_us desc
        limit 100
        """,
        {"run_id": run_id},
    )
    found = (name for row in rows for name in read_body(row["body"]).get("disabling") or ())
    return list(dict.fromkeys(found))


def may_add(connection: sqlite3.Connection, run_id: str, sender: RunSender) -> bool:
    """Return whether a sender may add to a run, because it is new or the sender's own.

    A run without an owner was recorded on this machine, even if it was deleted since.
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
    if has_row(connection, own, key):
        return False
    return has_row(connection, f"{_FIND_OTHER_RUN} limit 1", key)


NEXT = "update publications set pub = pub + 1 returning pub"


def publish_run(connection: sqlite3.Connection, run_id: str) -> None:
    pub = read_value(connection, NEXT)
    connection.execute("update runs set pub = :pub where id = :id", {"id": run_id, "pub": pub})


def publish_removal(connection: sqlite3.Connection) -> None:
    connection.execute("update publications set pub = pub + 1, removed_pub = pub + 1")


def get_last_result_id(connection: sqlite3.Connection) -> int:
    """Return the largest result id of any sealed run."""
    last_id = read_value(connection, "select last_result_id from publications")
    return int(last_id)


# Only processes that compiled something: a launcher beside them is never named on a page of
# compiles.
PROCESSES_SQL = """
select p.run_id, p.id, p.task, p.rank, p.pid
from json_each(:run_ids) as wanted
cross join processes as p on p.run_id = wanted.value
where exists (select 1 from compiles as c where c.process_id = p.id)
order by p.run_id, p.started_us, p.id
limit :limit
"""
RUNS_SQL = """
select distinct p.run_id
from json_each(:process_ids) as wanted
cross join processes as p on p.id = wanted.value
limit :limit
"""
_MOST = 10_000


def load_process_names(
    connection: sqlite3.Connection, process_ids: Iterable[str]
) -> Mapping[str, str]:
    ids = sorted(set(process_ids))
    if not ids:
        return {}
    runs = connection.execute(RUNS_SQL, {"process_ids": json.dumps(ids), "limit": _MOST})
    values = {"run_ids": json.dumps([row["run_id"] for row in runs]), "limit": _MOST}
    processes: dict[str, list[ProcessIdentity]] = defaultdict(list)
    for run_id, *identity in connection.execute(PROCESSES_SQL, values):
        processes[run_id].append(ProcessIdentity(*identity))
    names = {
        id_: name for members in processes.values() for id_, name in name_processes(members).items()
    }
    return {id_: names.get(id_, "") for id_ in ids}


def add_process_names(
    connection: sqlite3.Connection, rows: Iterable[sqlite3.Row]
) -> list[dict[str, Any]]:
    records = [dict(row) for row in rows]
    names = load_process_names(connection, (row["process_id"] for row in records))
    return [row | {"process": names[row["process_id"]]} for row in records]
