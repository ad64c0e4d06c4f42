"""Repros of all runs: failures by fingerprint, and the repros of a run or a failure."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from compileboard.app.core import fields
from compileboard.app.core.engine import Row, SqliteEngine, get_row
from compileboard.app.core.page import Page, check_order, decode_cursor, make_page
from compileboard.app.core.parameters import Parameter
from compileboard.app.core.schema import one_of
from compileboard.collectors.contract.fingerprints import format_id, parse_id
from compileboard.collectors.contract.repros import KINDS, LEVELS, PHASES

Kind = Annotated[
    str, one_of(KINDS), "What failed: `accuracy` is a wrong result, `crash` an end by a signal."
]
ErrorType = Annotated[str | None, "Class of the exception, or the signal."]
Message = Annotated[str | None, "First 300 characters of its message."]
Operation = Annotated[str | None, "The operation that failed or is wrong, where it is known."]
NodeCount = Annotated[fields.Count | None, "Call nodes of the graph."]
MinimalCount = Annotated[
    fields.Count | None, "Call nodes of the smallest minimal graph; null before `minify`."
]
Fingerprint = Annotated[
    str, "Error class, message without values, and operation: the same in every database."
]
_MAX_VARIANTS = 5_000


@dataclass(frozen=True)
class FailureFilter:
    text: Annotated[
        str | None,
        Parameter("q"),
        "Part of the error, the operation or the function; capitals do not matter.",
    ] = None
    kind: Annotated[str | None, Parameter(choices=KINDS), "What failed."] = None
    torch: Annotated[str | None, "A version of torch, whole."] = None
    device: Annotated[str | None, "The GPU's name, whole, or `cpu`."] = None


@dataclass(frozen=True)
class DistinctFailure:
    """The repros of one failure: those with the same error class, operation, and message without
    values.
    """

    id: Annotated[
        fields.ContentId, "`id` of its newest repro, or of the one that was minimised furthest."
    ]
    fingerprint: Fingerprint
    kind: Kind
    error_type: ErrorType
    message: Message
    operation: Operation
    function: fields.FunctionName
    file: fields.FileName
    repro_count: Annotated[fields.Count, "Repros that failed so."]
    run_count: Annotated[fields.Count, "Runs that have it."]
    first_us: Annotated[fields.TimeUs, "When it was first captured."]
    last_us: Annotated[fields.TimeUs, "When it was last captured."]
    torch_versions: Annotated[tuple[str, ...], "Versions of torch that had it."]
    devices: Annotated[tuple[str, ...], "Names of GPUs that had it, or `cpu`."]
    node_count: NodeCount
    minimal_node_count: MinimalCount


@dataclass(frozen=True)
class ReproRow:
    """A stored repro of a failure."""

    tables = ("repros",)

    id: fields.ContentId
    run_id: fields.RunId
    run_name: Annotated[str, "The run's name."]
    kind: Kind
    level: Annotated[str, one_of(LEVELS)]
    phase: Annotated[str, one_of(PHASES)]
    fingerprint: Fingerprint
    error_type: ErrorType
    message: Message
    operation: Operation
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    node_count: NodeCount
    torch_version: str | None
    device: str | None
    process_id: fields.ProcessId
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    time_us: fields.EventTime
    minimal_node_count: MinimalCount


ORDERS = {"last": "last_us", "first": "first_us", "runs": "run_count", "repros": "repro_count"}
DEFAULT_ORDER = "last"
_CONDITIONS: dict[str, str] = {
    "kind": "r.kind = :kind",
    "torch": "r.torch_version = :torch",
    "device": "r.device = :device",
    "text": """(
    instr(lower(r.error_type), :text) > 0 or instr(lower(r.message), :text) > 0
    or instr(lower(r.operation), :text) > 0
    or instr(lower(f.name), :text) > 0 or instr(lower(f.file), :text) > 0
  )""",
}
REPROS_SQL = """
select
  r.id, r.run_id, coalesce(a.title, n.name) as run_name, r.kind, r.level, r.phase, r.fingerprint,
  r.error_type,
  r.message, r.operation, f.name as function, f.file, r.line, r.node_count, r.torch_version,
  r.device, r.process_id,
  r.compile_key, r.compile_id, r.time_us
from repros as r
join runs as n on n.id = r.run_id
left join run_annotations as a on a.run_id = r.run_id
left join functions as f on f.id = r.function_id
where {condition}
  and r.state = 'captured'
  and (:after_us is null or (r.time_us, r.id) < (:after_us, :after_id))
order by r.time_us desc, r.id desc
limit :limit
"""
MINIMAL_SQL = """
select x.repro_id, min(x.node_count) as node_count
from repro_results as x
where x.repro_id $in(:ids)
  and x.node_count is not null
group by x.repro_id
limit :limit
"""
NEWEST_SQL = """
select
  r.id, r.kind, r.error_type, r.message, r.operation, f.name as function, f.file, r.node_count
from repros as r
left join functions as f on f.id = r.function_id
where r.fingerprint = :fingerprint
  and r.state = 'captured'
  and r.time_us = :last_us
order by r.id desc
limit 1
"""
VARIANTS_SQL = """
select r.fingerprint, r.torch_version, r.device
from repros as r
where r.fingerprint $in(:fingerprints)
  and r.state = 'captured'
group by r.fingerprint, r.torch_version, r.device
order by r.fingerprint, r.torch_version, r.device
limit :limit
"""
MIN_SQL = """
select r.fingerprint, r.id, r.node_count, x.node_count as minimal_node_count
from repro_results as x
join repros as r on r.id = x.repro_id
where r.fingerprint $in(:fingerprints)
  and r.state = 'captured'
  and x.node_count is not null
order by x.node_count desc, r.time_us
limit :limit
"""
CHOICES_SQL = """
select r.torch_version, r.device
from repros as r
where r.state = 'captured'
group by r.torch_version, r.device
limit :limit
"""
FAILURE_SQL = """
select max(x.id) as id
from repros as r
join failures as x on x.process_id = r.process_id
where r.id = :id
  and (
    x.position = r.failure_position
    or (r.failure_position is null and x.phase = 'compile' and x.compile_key = r.compile_key)
  )
group by r.id
"""


def failures_sql(order: str, up: bool, filters: Sequence[str], after: bool) -> str:
    column, direction, sign = ORDERS[order], "asc" if up else "desc", ">" if up else "<"
    conditions = "".join(f"\n  and {_CONDITIONS[name]}" for name in filters)
    functions = "left join functions as f on f.id = r.function_id" if "text" in filters else ""
    behind = f"where (g.{column}, g.fingerprint) {sign} (:after_key, :after_id)" if after else ""
    return f"""
with grouped as (
  select
    r.fingerprint, count(*) as repro_count, count(distinct r.run_id) as run_count,
    min(r.time_us) as first_us,
    max(r.time_us) as last_us
  from repros as r
  {functions}
  where r.state = 'captured'{conditions}
  group by r.fingerprint
)
select g.fingerprint, g.repro_count, g.run_count, g.first_us, g.last_us
from grouped as g
{behind}
order by g.{column} {direction}, g.fingerprint {direction}
limit :limit
"""  # noqa: S608  own texts only


def _rows(board: sqlite3.Connection, sql: str, values: Mapping[str, Any]) -> list[Row]:
    return SqliteEngine(board).rows(sql, values)


def list_failures(
    board: sqlite3.Connection,
    selected: FailureFilter = FailureFilter(),
    *,
    sort: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[DistinctFailure]:
    """List failures, by default the last captured first. Raises FilterError for an invalid order or
    cursor.
    """
    order, direction = check_order(sort or DEFAULT_ORDER, ORDERS)
    after = decode_cursor(cursor, int, str)
    values = {name: value for name, value in vars(selected).items() if value is not None}
    sql = failures_sql(order, direction == "asc", tuple(values), after is not None)
    if "text" in values:
        values["text"] = values["text"].lower()
    values |= {"limit": limit + 1}
    if after is not None:
        values |= {"after_key": after[0], "after_id": after[1]}
    page = make_page(
        _rows(board, sql, values), limit, lambda row: (row[ORDERS[order]], row["fingerprint"])
    )
    return Page(tuple(_describe(board, page.rows)), page.next)


def get_failure(board: sqlite3.Connection, fingerprint: str) -> DistinctFailure | None:
    sql = failures_sql(DEFAULT_ORDER, False, (), False).replace(
        "where r.state", "where r.fingerprint = :fingerprint\n  and r.state", 1
    )
    return next(
        iter(_describe(board, _rows(board, sql, {"fingerprint": fingerprint, "limit": 1}))), None
    )


def _describe(board: sqlite3.Connection, rows: Sequence[Row]) -> list[DistinctFailure]:
    if not rows:
        return []
    fingerprints = [row["fingerprint"] for row in rows]
    values = {"fingerprints": fingerprints, "limit": _MAX_VARIANTS}
    versions: dict[str, dict[str, None]] = defaultdict(dict)
    devices: dict[str, dict[str, None]] = defaultdict(dict)
    for row in _rows(board, VARIANTS_SQL, values):
        versions[row["fingerprint"]][row["torch_version"]] = None
        devices[row["fingerprint"]][row["device"]] = None
    smallest = {
        row["fingerprint"]: row for row in _rows(board, MIN_SQL, values)
    }  # the last one wins
    failures = []
    for row in rows:
        key = row["fingerprint"]
        (shown,) = _rows(board, NEWEST_SQL, {"fingerprint": key, "last_us": row["last_us"]})
        minimal = smallest.get(key)
        failures.append(
            DistinctFailure(
                **dict(zip(row.keys(), row)),
                **{
                    name: shown[name]
                    for name in ("kind", "error_type", "message", "operation", "function", "file")
                },
                torch_versions=tuple(version for version in versions[key] if version),
                devices=tuple(device for device in devices[key] if device),
                node_count=(minimal or shown)["node_count"],
                minimal_node_count=minimal["minimal_node_count"] if minimal else None,
                id=format_id((minimal or shown)["id"]),
            )
        )
    return failures


def list_repros(
    board: sqlite3.Connection,
    *,
    run_id: str | None = None,
    fingerprint: str | None = None,
    tasks: Sequence[str] | None = None,
    issue_id: int | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[ReproRow]:
    """List repros, newest first: those of a run, its tasks, a fingerprint, or a failure across
    runs, without trials.

    Raises FilterError for an invalid cursor.
    """
    conditions = {
        "r.run_id = :run_id": run_id,
        "r.fingerprint = :fingerprint": fingerprint,
        (
            "r.process_id in (select p.id from processes as p where p.run_id = :run_id and p.task "
            "$in(:tasks))"
        ): tasks,
        "r.issue_id = :issue_id and n.source <> 'trial'": issue_id,
    }
    after_us, after_id = decode_cursor(cursor, int, int) or (None, None)
    values = {
        "run_id": run_id,
        "fingerprint": fingerprint,
        "tasks": tasks,
        "issue_id": issue_id,
        "after_us": after_us,
        "after_id": after_id,
        "limit": limit + 1,
    }
    condition = "\n  and ".join(text for text, value in conditions.items() if value is not None)
    rows = _rows(board, REPROS_SQL.format(condition=condition), values)
    page = make_page(rows, limit, lambda row: (row["time_us"], row["id"]))
    minimal = _list_minimal(board, [row["id"] for row in page.rows])
    return page.map(lambda row: _make_repro(row, minimal))


def _list_minimal(board: sqlite3.Connection, ids: Sequence[int]) -> Mapping[int, int]:
    rows = _rows(board, MINIMAL_SQL, {"ids": ids, "limit": len(ids)}) if ids else []
    return {row["repro_id"]: row["node_count"] for row in rows}


def _make_repro(row: Row, minimal: Mapping[int, int]) -> ReproRow:
    values: dict[str, Any] = dict(zip(row.keys(), row))
    return ReproRow(
        **values | {"id": format_id(values["id"]), "minimal_node_count": minimal.get(values["id"])}
    )


def get_repro(board: sqlite3.Connection, repro_id: str) -> ReproRow | None:
    values = {"id": parse_id(repro_id), "after_us": None, "after_id": None, "limit": 1}
    row = get_row(SqliteEngine(board), REPROS_SQL.format(condition="r.id = :id"), values)
    return None if row is None else _make_repro(row, _list_minimal(board, [row["id"]]))


def find_failure(connection: sqlite3.Connection, repro_id: str) -> int | None:
    row = get_row(SqliteEngine(connection), FAILURE_SQL, {"id": parse_id(repro_id)})
    return None if row is None else int(row["id"])


@dataclass(frozen=True)
class ReproChoices:
    torches: Sequence[str] = field(default_factory=tuple)
    devices: Sequence[str] = field(default_factory=tuple)


def list_choices(board: sqlite3.Connection) -> ReproChoices:
    rows = _rows(board, CHOICES_SQL, {"limit": 500})
    return ReproChoices(
        *(sorted({row[name] for row in rows} - {None}) for name in ("torch_version", "device"))
    )
