"""Runs' records for a comparison or check: repeats, settings, environment, distinct causes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from compileboard.app.core.engine import Engine
from compileboard.app.core.fields import (
    CalledAt,
    Count,
    DurationUs,
    FileName,
    FunctionName,
    LineNumber,
    make_facts,
    title_break,
    title_cause,
)
from compileboard.app.core.labels import describe_cuda_graph_status
from compileboard.app.core.schema import PRIVATE
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.fixes.titles import is_of_ddp, name_stack_values
from compileboard.collectors.store.reading import read_json
from compileboard.collectors.store.results import TIMING, ExperimentResult
from compileboard.collectors.store.run_causes import find_break_call, find_first_call

# Samples of an experiment that may be shown beside the leading one.
_SECOND_PROCESS = "second_process_s"
_WANTED = "from json_each(:run_ids) as wanted"
REPEATS_SQL = f"""
select k.result_id, k.name, k.body
{_WANTED}
join results as x on x.run_id = wanted.value
join result_repeats as k on k.result_id = x.id
where x.experiment in ({", ".join(f"'{name}'" for name in (*sorted(TIMING), "caching_precompile"))})
  and k.name in (
    'eager', 'compiled', 'cold_compile_s', 'warm_compile_s', 'eager_peak_gb', 'compiled_peak_gb',
    'load_s',
    'export_s', '{_SECOND_PROCESS}'
  )
order by k.result_id, k.name
limit :limit
"""
VERSIONS_SQL = f"""
select distinct p.torch_version, p.triton_version, p.cuda_version, p.python_version
{_WANTED}
join processes as p on p.run_id = wanted.value
limit :limit
"""
TIMING_SQL = f"""
select distinct
  json_extract(x.facts, '$.settings.repeat') as repeat,
  json_extract(x.facts, '$.settings.iterations_per_run') as iterations_per_run,
  json_extract(x.facts, '$.settings.quick') as quick
{_WANTED}
join results as x on x.run_id = wanted.value
where x.experiment = 'performance'
  and json_type(x.facts, '$.settings') = 'object'
limit :limit
"""
CHANGED_SQL = f"""
select distinct t.hash, t.body
{_WANTED}
join processes as p on p.run_id = wanted.value
join process_configs as c on c.process_id = p.id and c.kind = 'changed'
join configs as t on t.hash = c.config_hash
order by t.hash
limit :limit
"""


@dataclass(frozen=True)
class EnvironmentVersions:
    torch: tuple[str, ...]
    triton: tuple[str, ...]
    cuda: tuple[str, ...]
    python: tuple[str, ...]


def load_repeats(
    connection: sqlite3.Connection, run_ids: Sequence[str]
) -> dict[int, dict[str, list[float]]]:
    """Units: eager and compiled ms, the others as named."""
    repeats_by_result: dict[int, dict[str, list[float]]] = {}
    for row in connection.execute(REPEATS_SQL, _bind_runs(run_ids, 60_000)):
        repeats_by_result.setdefault(row["result_id"], {})[row["name"]] = (
            read_json(list[float], row["body"]) or []
        )
    return repeats_by_result


def choose_samples(
    parts: Sequence[ExperimentResult], repeats: Mapping[int, dict[str, list[float]]]
) -> dict[str, list[float]]:
    samples = dict(repeats.get(parts[0].id, {}))
    for part in parts[1:]:
        if _SECOND_PROCESS in (own := repeats.get(part.id, {})):
            samples.setdefault(_SECOND_PROCESS, own[_SECOND_PROCESS])
    return samples


def list_versions(connection: sqlite3.Connection, run_ids: Sequence[str]) -> EnvironmentVersions:
    rows = connection.execute(VERSIONS_SQL, _bind_runs(run_ids, 1000)).fetchall()
    columns = list(zip(*rows)) or [()] * 4
    return EnvironmentVersions(
        *(tuple(sorted({version for version in column if version})) for column in columns)
    )


def list_timing(connection: sqlite3.Connection, run_ids: Sequence[str]) -> list[dict[str, Any]]:
    rows = connection.execute(TIMING_SQL, _bind_runs(run_ids, 100))
    return [{name: value for name, value in dict(row).items() if value is not None} for row in rows]


def list_changed(
    connection: sqlite3.Connection, run_ids: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """List settings changed from torch's defaults, each text once: hash and {module: {setting:
    …}}.
    """
    changed = []
    for row in connection.execute(CHANGED_SQL, _bind_runs(run_ids, 1000)):
        values = read_json(dict[str, Any], row["body"])
        if values is not None:
            changed.append((row["hash"], values))
    return changed


def _bind_runs(run_ids: Sequence[str], limit: int) -> dict[str, Any]:
    return {"run_ids": json.dumps(list(run_ids)), "limit": limit}


# The first one's line: SQLite takes it from the row of the minimum.
BREAKS_SQL = """
select
  p.task, d.fingerprint, d.gb_id as kind, d.reason, f.name as function, f.file, b.line,
  count(*) as count, min(b.time_us) as time_us, d.gb_id, d.gb_type, d.explanation, d.source_line
from graph_breaks as b
join distinct_breaks as d on d.id = b.distinct_id
left join functions as f on f.id = d.function_id
left join processes as p on p.id = b.process_id
where b.run_id = :run_id
group by p.task, d.id
order by p.task, d.id
limit :limit
"""
CAUSES_SQL = """
select
  p.task, u.fingerprint, u.category as kind, u.reason, f.name as function, f.file,
  coalesce(r.guard_line, r.line) as line,
  count(*) as count, min(r.time_us) as time_us, u.source
from recompiles as r
join recompile_causes as u on u.id = r.cause_id
left join functions as f on f.id = u.function_id
left join processes as p on p.id = r.process_id
where r.run_id = :run_id
group by p.task, u.id
order by p.task, u.id
limit :limit
"""
RERECORDINGS_SQL = """
select
  p.task, d.fingerprint, d.status as kind, coalesce(d.inputs, d.status) as reason,
  f.name as function, f.file, null as line, count(*) as count, min(g.time_us) as time_us
from cudagraphs as g
join rerecording_reasons as d on d.id = g.reason_id
left join functions as f on f.id = d.function_id
left join processes as p on p.id = g.process_id
where g.run_id = :run_id
group by p.task, d.id
order by p.task, d.id
limit :limit
"""
# By field of a side.
DISTINCT = {"breaks": BREAKS_SQL, "causes": CAUSES_SQL, "rerecordings": RERECORDINGS_SQL}
COUNTS_SQL = """
select v.result_id, v.name, v.value
from results as x
join result_values as v on v.result_id = x.id
where x.run_id = :run_id
  and (v.name like '%instruction_count' or v.name like '%noise_margin')
order by v.result_id, v.name
limit :limit
"""
# Files of expected results use names of their own, so that they are not taken for measurements.
EXPECTED_SQL = """
select x.id, v.name, v.value, json_extract(x.facts, '$.expected_accuracy') as accuracy
from results as x
left join result_values as v on v.result_id = x.id and v.name like 'expected\\_%' escape '\\'
where x.run_id = :run_id
  and x.experiment like 'expected\\_%' escape '\\'
order by x.id, v.name
limit :limit
"""
OBSERVED_SQL = """
select count(*)
from processes
where run_id = :run_id
  and torch_version is not null
"""
MOST = 100_000


@dataclass(frozen=True)
class DistinctReason:
    fingerprint: Annotated[str, "What makes it the same in another run."]
    kind: Annotated[
        str | None,
        "torch's id of a graph break, the category of a guard, torch's word of a CUDA graph.",
    ]
    reason: Annotated[str, "Why, in torch's words."]
    function: FunctionName
    file: FileName
    line: LineNumber
    called_at: CalledAt = field(default=None, kw_only=True)
    title: Annotated[str | None, "What happens; null in an old baseline."] = field(
        default=None, kw_only=True
    )
    is_by_design: Annotated[
        bool, "Whether a module of torch breaks the graph on purpose: DistributedDataParallel."
    ] = field(default=False, kw_only=True)

    @property
    def head(self) -> str:
        return self.title or name_stack_values(self.reason)


@dataclass(frozen=True)
class DistinctItem(DistinctReason):
    """A reason that occurred in a model.

    `model` is a result's key, or in a check the name of its row; None if only the whole side is
    known. `experiment` is the one whose task had it, if known.
    """

    count: int
    model: Any = None
    experiment: str | None = None


def list_task_distinct(
    connection: sqlite3.Connection, sql: str, run_id: str
) -> list[tuple[str | None, DistinctItem]]:
    listed = []
    for row in connection.execute(sql, {"run_id": run_id, "limit": MOST}):
        names = ("fingerprint", "kind", "reason", "function", "file", "line", "count")
        item = DistinctItem(**{name: row[name] for name in names})
        if sql == BREAKS_SQL:
            facts = make_facts(row)
            called_at = find_break_call(connection, run_id, item.fingerprint, item.file)
            title, is_by_design = title_break(facts), is_of_ddp(facts)
        else:
            called_at = find_first_call(connection, run_id, item.file, item.function)
            title = (
                title_cause(row["kind"], row["source"], item.reason)
                if sql == CAUSES_SQL
                else describe_cuda_graph_status(row["kind"]).word
            )
            is_by_design = False
        own = replace(item, called_at=called_at, title=title, is_by_design=is_by_design)
        listed.append((row["task"], own))
    return listed


def drop_unrecorded(
    found: Mapping[str, tuple[DistinctItem, ...]], is_observed: bool, has_cuda_graphs: bool
) -> dict[str, Any]:
    """Replace what was not recorded with None, so that it does not count as removed."""
    return {
        name: items
        if (has_cuda_graphs if name == "rerecordings" else items or is_observed)
        else None
        for name, items in found.items()
    }


def list_instruction_counts(
    connection: sqlite3.Connection, run_id: str
) -> dict[int, dict[str, float]]:
    counts_by_result: dict[int, dict[str, float]] = {}
    for row in connection.execute(COUNTS_SQL, {"run_id": run_id, "limit": MOST}):
        counts_by_result.setdefault(row["result_id"], {})[row["name"]] = row["value"]
    return counts_by_result


def list_expected(connection: sqlite3.Connection, run_id: str) -> dict[int, dict[str, Any]]:
    cells_by_result: dict[int, dict[str, Any]] = {}
    for row in connection.execute(EXPECTED_SQL, {"run_id": run_id, "limit": MOST}):
        cells = cells_by_result.setdefault(
            row["id"], {"accuracy": row["accuracy"]} if row["accuracy"] else {}
        )
        if row["name"]:
            cells[row["name"].removeprefix("expected_")] = row["value"]
    return cells_by_result


def count_observed(connection: sqlite3.Connection, run_id: str) -> int:
    return int(connection.execute(OBSERVED_SQL, {"run_id": run_id}).fetchone()[0])


FUNCTIONS_SQL = """
select
  f.id, f.file, f.name, sum(n.compile_count) as compile_count,
  sum(n.graph_break_count) as graph_break_count,
  sum(n.recompile_count) as recompile_count, nullif(sum(n.compile_us), 0) as compile_us
from $each(:run_ids) as wanted
join $rows(run_functions, :run_ids) as n on n.run_id = wanted.value
join functions as f on f.id = n.function_id
group by f.id, f.file, f.name
order by compile_us desc, f.id
limit :limit
"""
DISTINCT_IDS_SQL = """
select id, fingerprint
from {table}
where fingerprint $in(:fingerprints)
order by id
limit :limit
"""


@dataclass(frozen=True)
class FunctionCost:
    """A function's counts and compile time on one side."""

    id: int = field(metadata=PRIVATE)
    file: str = field(metadata=PRIVATE)
    name: str = field(metadata=PRIVATE)
    compile_count: Annotated[Count, "Compiles of the function."]
    graph_break_count: Annotated[Count, "Graph breaks of the function."]
    recompile_count: Annotated[Count, "Recompiles of the function."]
    compile_us: Annotated[DurationUs | None, "Time of its compiles."]


def list_function_sums(engine: Engine, run_ids: Sequence[str]) -> list[FunctionCost]:
    return [
        FunctionCost(**dict(row))
        for row in engine.rows(FUNCTIONS_SQL, {"run_ids": list(run_ids), "limit": 1000})
    ]


def find_distinct_ids(engine: Engine, table: str, fingerprints: Sequence[str]) -> dict[str, str]:
    sql = DISTINCT_IDS_SQL.format(
        table={
            "breaks": "distinct_breaks",
            "causes": "recompile_causes",
            "rerecordings": "rerecording_reasons",
        }[table]
    )
    values = {"fingerprints": list(fingerprints), "limit": 100_000}
    return {row["fingerprint"]: format_id(row["id"]) for row in engine.rows(sql, values)}
