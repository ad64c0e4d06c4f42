"""Labels that distinguish a run's processes: model, experiment, rank, pid."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from compileboard.collectors.contract.compile_labels import ProcessIdentity, name_processes

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


def name_rows(connection: sqlite3.Connection, rows: Iterable[sqlite3.Row]) -> list[dict[str, Any]]:
    records = [dict(row) for row in rows]
    names = load_process_names(connection, (row["process_id"] for row in records))
    return [row | {"process": names[row["process_id"]]} for row in records]
