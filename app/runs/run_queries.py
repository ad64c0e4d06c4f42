"""The data of one run: its row, tags, facts, processes and configuration texts."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

from compileboard.app.core.engine import SqliteEngine, get_row
from compileboard.app.core.fields import Count, EventTime, Pid, ProcessId, RowId, StartTime
from compileboard.app.core.rows import list_page, list_rows, make_row
from compileboard.app.core.schema import published
from compileboard.app.runs.rows import RUN_SQL, RunRow, to_row
from compileboard.collectors.contract.shapes import RunFacts
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.reading import read_body, read_json


@dataclass(frozen=True)
class RunDetail:
    """`facts` has argv, git, host, gpus and environment as the collector wrote them."""

    run: RunRow
    tags: tuple[tuple[str, str], ...]
    cwd: str | None
    keep_source: bool
    facts: dict[str, Any]
    stack_room: bool | None = (
        None  # with `run --stack-room`; None if the collector did not start it
    )
    pruned_us: int | None = None  # when its detail was deleted; its totals and results stay

    def fact(self, *path: str) -> Any:
        value: Any = self.facts
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    @property
    def gpus(self) -> list[dict[str, Any]]:
        return [gpu for gpu in self.facts.get("gpus") or [] if isinstance(gpu, dict)]


@dataclass(frozen=True)
class ProcessRow:
    """One process of a run."""

    tables = ("processes",)

    id: ProcessId
    parent_id: str | None
    parent_pid: Annotated[int | None, "`pid` of that process; null where it was not recorded."]
    pid: Pid
    rank: int | None
    local_rank: int | None
    world_size: int | None
    level: str | None
    command: str | None
    started_us: StartTime
    last_seen_us: int
    python_version: str | None
    torch_version: str | None
    torch_git: str | None
    cuda_version: str | None
    cudnn_version: str | None
    triton_version: str | None
    capabilities: dict[str, str]
    environment: dict[str, str]
    counters: dict[str, dict[str, Any]] | None
    compile_times: dict[str, float] | None
    losses: Annotated[dict[str, Count] | None, "Lost records by reason."]
    snapshot_final: bool
    task: str | None = None
    calm_us: int | None = None
    calm_cpu_us: int | None = None
    calm_fault_count: int | None = None
    is_on_stack_cliff: bool | None = None

    @property
    def faults_per_s(self) -> float | None:
        if not self.calm_us or self.calm_fault_count is None:
            return None
        return self.calm_fault_count * 1e6 / self.calm_us

    @property
    @published
    def label(self) -> str:
        """Return the process's rank, else its pid."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"pid {self.pid}" if self.pid is not None else f"process {self.id[:8]}"


@dataclass(frozen=True)
class StackCliff:
    calm_us: int
    calm_fault_count: int
    python_version: str | None
    command: str
    stack_room: bool

    @property
    def faults_per_s(self) -> float:
        return self.calm_fault_count * 1e6 / self.calm_us


@dataclass(frozen=True)
class ConfigUse:
    """A configuration text and the number of the run's processes that had it."""

    kind: Annotated[
        str,
        "dynamo, inductor, functorch, compiler, or changed: what differs from torch's defaults.",
    ]
    config_hash: Annotated[str, "Hash, as in `/runs/<run_id>/configs/<config_hash>`."]
    process_count: Annotated[Count, "Processes of the run that had it."]


@dataclass(frozen=True)
class ConfigText:
    """A configuration text with its content."""

    config_hash: Annotated[str, "Hash of the text."]
    kind: Annotated[str, "dynamo, inductor, functorch, compiler or changed."]
    body: Annotated[str, "The text."]

    @property
    @published
    def values(self) -> dict[str, Any]:
        """Return the settings by name; empty if the text is not a JSON object."""
        try:
            values = json.loads(self.body)
        except ValueError:
            return {}
        return values if isinstance(values, dict) else {}


DETAIL_SQL = """
select cwd, keep_source, facts, stack_room, pruned_us
from runs
left join pruned_runs on pruned_runs.run_id = runs.id
where id = :run_id
limit 1
"""
PRUNED_SQL = "select 1 from pruned_runs where run_id = :run_id limit 1"
TAGS_SQL = """
select key, value
from run_tags
where run_id = :run_id
order by key
limit 20000
"""
_PARENT_PID = (
    "(select pid from processes as parents where parents.id = processes.parent_id) as parent_pid"
)
_COLUMNS = (
    _PARENT_PID if field.name == "parent_pid" else field.name for field in fields(ProcessRow)
)
_PROCESSES = f"select {', '.join(_COLUMNS)} from processes"  # noqa: S608  own texts only
PROCESSES_SQL = f"""
{_PROCESSES}
where run_id = :run_id
order by coalesce(rank, 1000000), started_us, id
limit :limit
"""
CLIFFS_SQL = """
select p.calm_us, p.calm_fault_count, p.python_version, r.command,
coalesce(r.stack_room, 0) as stack_room
from processes as p
join runs as r on r.id = p.run_id
where p.run_id = :run_id
  and p.is_on_stack_cliff = 1
  and p.calm_us > 0
  and p.calm_fault_count is not null
order by p.calm_fault_count desc, p.id
limit :limit
"""
CONFIGS_SQL = """
select c.kind, c.config_hash, count(*) as process_count
from processes as p
join process_configs as c on c.process_id = p.id
where p.run_id = :run_id
group by c.kind, c.config_hash
order by c.kind, process_count desc, c.config_hash
limit :limit
"""
CONFIG_SQL = """
select hash as config_hash, kind, body
from configs
where hash = :config_hash
  and exists (
    select 1
    from processes as p
    join process_configs as c on c.process_id = p.id
    where p.run_id = :run_id
      and c.config_hash = :config_hash
  )
limit 1
"""
CHANGED_SQL = """
select p.id as process_id, t.body
from processes as p
join process_configs as c on c.process_id = p.id and c.kind = 'changed'
join configs as t on t.hash = c.config_hash
where p.run_id = :run_id
order by p.started_us, p.id, c.config_hash
limit :limit
"""


def get_run(connection: sqlite3.Connection, run_id: str) -> RunDetail | None:
    run = get_row(SqliteEngine(connection), RUN_SQL, {"id": run_id})
    row = connection.execute(DETAIL_SQL, {"run_id": run_id}).fetchone()
    if run is None or row is None:
        return None
    tags = tuple((key, value) for key, value in connection.execute(TAGS_SQL, {"run_id": run_id}))
    facts = read_json(RunFacts, row["facts"]) or {}
    return make_row(RunDetail, {**dict(row), "run": to_row(run), "tags": tags, "facts": facts})


def is_pruned(connection: sqlite3.Connection, run_id: str) -> bool:
    return connection.execute(PRUNED_SQL, {"run_id": run_id}).fetchone() is not None


list_processes = partial(list_rows, ProcessRow, PROCESSES_SQL, limit=256)
list_configs = partial(list_rows, ConfigUse, CONFIGS_SQL, limit=200)


def get_config(connection: sqlite3.Connection, run_id: str, config_hash: str) -> ConfigText | None:
    row = connection.execute(CONFIG_SQL, {"run_id": run_id, "config_hash": config_hash}).fetchone()
    return ConfigText(row["config_hash"], row["kind"], unpack(row["body"])) if row else None


def list_changed_configs(
    connection: sqlite3.Connection, run_id: str, limit: int = 256
) -> list[tuple[str, dict[str, dict[str, Any]]]]:
    """List the settings changed from torch's defaults by process id: {module: {setting: {value,
    default}}}.
    """
    rows = connection.execute(CHANGED_SQL, {"run_id": run_id, "limit": limit})
    return [
        (row["process_id"], read_json(dict[str, dict[str, Any]], row["body"]) or {}) for row in rows
    ]


PROCESS_PAGE_SQL = f"""
{_PROCESSES}
where run_id = :run_id
  and (started_us, id) > (:after_us, :after_id)
order by started_us, id
limit :limit
"""
NOTES_SQL = """
select rowid as id, process_id, time_us, body
from events
where run_id = :run_id
  and kind = 'noted'
  and rowid > :after_id
order by rowid
limit :limit
"""


@dataclass(frozen=True)
class NoteRow:
    """A record that this version cannot decode."""

    id: RowId
    process_id: ProcessId
    time_us: EventTime
    compile_id: Annotated[str | None, "Compile id as torch prints it."]
    name: Annotated[str, "torch's own name of the record."]
    body: Annotated[Any, "The record as torch wrote it."]

    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        event = read_body(columns["body"])
        name = str(event.get("name") or "not readable")
        own = {"compile_id": event.get("compile_id"), "name": name, "body": event.get("body")}
        return columns | own


list_process_page = partial(
    list_page,
    ProcessRow,
    PROCESS_PAGE_SQL,
    first={"us": -(2**62), "id": ""},
    key=attrgetter("started_us", "id"),
)
list_notes = partial(list_page, NoteRow, NOTES_SQL, first={"id": 0}, key=lambda row: (row.id,))


@dataclass(frozen=True)
class RunFeatures:
    has_spans: bool
    has_stacks: bool
    has_artifacts: bool
    has_texts: bool
    has_guards: bool
    has_symbols: bool
    has_aot: bool
    has_cuda_graphs: bool
    has_steps: bool
    has_ranks: bool
    has_repros: bool


def get_run_features(reader: sqlite3.Connection, run_id: str) -> RunFeatures:
    """Return which tabs of a run have content. Each takes one index lookup."""
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
          exists (select 1 from cudagraphs where run_id = :id)
            or exists (select 1 from cudagraph_skips where run_id = :id) as has_cuda_graphs,
          exists (select 1 from step_windows where run_id = :id) as has_steps,
          (select count(*) from (select 1 from processes where run_id = :id
            and rank is not null limit 2)) > 1
            as has_ranks,
          exists (select 1 from repros where run_id = :id and state = 'captured') as has_repros
        """,
        {"id": run_id},
    ).fetchone()
    return make_row(RunFeatures, row)


STATE_SQL = """
select
  r.heartbeat_us, r.ended_us, t.compile_count, t.record_count, t.graph_break_count,
  t.recompile_count,
  t.cache_hit_count, t.cache_miss_count, t.cache_bypass_count, t.process_count, t.compile_us,
  t.result_count,
  (select count(*) from result_files as f where f.run_id = r.id) as result_file_count,
  (select sum(g.end_offset_bytes) from logs as g where g.run_id = r.id) as read_bytes,
  (select max(g.read_us) from logs as g where g.run_id = r.id) as read_us,
  (select c.id from compiles as c where c.run_id = r.id order by c.started_us,
    c.id limit 1) as first_key,
  (select max(ended_us) from trials) as tried_us  -- of any run: causes are the same in all
from runs as r
left join run_totals as t on t.run_id = r.id
where r.id = :run_id
limit 1
"""


def get_run_state(connection: sqlite3.Connection, run_id: str) -> tuple[object, ...]:
    """Return a run's state: equal states mean equal records."""
    row = connection.execute(STATE_SQL, {"run_id": run_id}).fetchone()
    return tuple(row) if row is not None else ()
