"""Compiles of a run, and their compilation records with all of torch's metrics."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from compileboard.app.core import fields
from compileboard.app.core.labels import PHASES as LABELS
from compileboard.app.core.page import (
    FilterError,
    Page,
    check_order,
    decode_cursor,
    make_page,
)
from compileboard.app.core.parameters import Parameter
from compileboard.app.core.rows import list_page, list_rows, make_row
from compileboard.app.core.schema import PRIVATE, Keywords, one_of, published
from compileboard.app.runs.trace_files import find_start
from compileboard.collectors.contract.compile_labels import (
    build_label,
    label_function,
    label_line,
    label_role,
)
from compileboard.collectors.contract.library_names import is_library_name
from compileboard.collectors.store.reading import read_body
from compileboard.collectors.store.run_causes import Caller, find_caller, find_user_call, is_wrapper
from compileboard.collectors.store.runs import load_process_names

OUTCOMES = (
    "compiled",
    "restarted",
    "broke",
    "loaded",
    "empty",
    "skipped",
    "failed",
    "recompile_limit",
    "started",
    "announced",
)
# The outcome of the compile `c`. The column has torch's record of the last attempt; graph breaks or
# restarts before it show in the counts.
OUTCOME_SQL = """case
    when c.outcome in ('compiled', 'empty') and c.graph_break_count > 0 then 'broke'
    when c.outcome = 'compiled' and c.attempt_count > 1 then 'restarted'
    else c.outcome
  end"""

Outcome = Annotated[
    str,
    one_of(OUTCOMES),
    "`restarted`: compiled after a restart; `broke`: compiled in parts; `loaded` from a package; "
    "`empty`: nothing to compile; `skipped`, `recompile_limit`: runs eagerly; `started`, "
    "`announced`: its end was not recorded.",
]
RecordOutcome = Annotated[
    str,
    one_of(("compiled", "empty", "skipped", "failed", "recompile_limit")),
    "What torch recorded; graph breaks and restarts before it are in the compile's outcome.",
]


PHASES = ("dynamo", "aot", "inductor", "codegen", "triton", "cudagraph", "restart", "first_calls")

# Orders of the table, never null: column, type, and field of a row, empty if that is None.
ORDERS: dict[str, tuple[str, type[int | str], str]] = {
    "started": ("c.started_us", int, "started_us"),
    "function": ("coalesce(f.name, '')", str, "function"),
    "outcome": (OUTCOME_SQL, str, "outcome"),
    "time": ("c.total_us", int, "total_us"),
    "attempts": ("c.attempt_count", int, "attempt_count"),
    "breaks": ("c.graph_break_count", int, "graph_break_count"),
}


def _describe_phases(phases: Iterable[str]) -> Keywords:
    meanings = {phase.name: phase.meaning for phase in LABELS}
    times = {
        name: {
            "type": ["integer", "null"],
            "description": f"{meanings[name][:1].upper()}{meanings[name][1:]}. Microseconds.",
        }
        for name in phases
    }
    return Keywords(properties=times, required=[*times], additionalProperties=False)


_PHASES_HELP = "Time of each phase, exclusive: microseconds, null where torch recorded none."
PhaseTimes = Annotated[dict[str, int | None], _describe_phases(PHASES), _PHASES_HELP]
RecordPhaseTimes = Annotated[dict[str, int | None], _describe_phases(PHASES[:-1]), _PHASES_HELP]


@dataclass(frozen=True)
class Phases:
    """Time in each phase of forward and backward records, in microseconds; None if torch recorded
    none. Phases do not overlap.

    `first_calls` is the first run of compiled code.
    """

    dynamo_us: int | None
    aot_us: int | None
    inductor_us: int | None
    codegen_us: int | None
    triton_us: int | None
    cudagraph_us: int | None
    restart_us: int | None
    first_calls_us: int | None

    def get(self, phase: str) -> int | None:
        value: int | None = getattr(self, f"{phase}_us")
        return value

    @property
    def times(self) -> PhaseTimes:
        return {phase: self.get(phase) for phase in PHASES}


_MODULE_WRAPPER = "torch/_dynamo/external_utils.py"  # its `inner` calls a user's module


@dataclass(frozen=True)
class CompileRow:
    """One compile of a function."""

    tables = ("compiles",)

    id: fields.RowId
    process_id: fields.ProcessId
    pid: fields.Pid
    generation: int
    compile_id: str
    frame_id: int | None
    frame_compile_id: int | None
    rank: fields.Rank
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    resumed_at: int | None
    outcome: Outcome
    started_us: fields.StartTime
    duration_us: int | None
    total_us: int | None
    attempt_count: int
    graph_break_count: int
    recompiled_from: fields.RecompiledFrom
    recompile_category: fields.RecompileCategory
    process: fields.ProcessName
    phases: Phases = field(metadata=PRIVATE)
    caller: Caller | None = field(metadata=PRIVATE)  # Set for a wrapper in torch or Python itself.
    called_at: fields.CalledAt

    @property
    @published
    def phases_us(self) -> PhaseTimes:
        """Time of each phase."""
        return self.phases.times

    @property
    def code(self) -> str:
        is_module = self.caller is not None and self.file == _MODULE_WRAPPER
        return label_function(
            self.caller.label if is_module and self.caller else self.function, self.resumed_at
        )

    @property
    def location(self) -> str:
        """Return the file and line of the function, or of its caller for a wrapper in torch or
        Python itself.
        """
        file, line = (self.caller.file, self.caller.line) if self.caller else (self.file, self.line)
        return label_line(file, line)

    @property
    def role(self) -> str:
        return label_role(self.recompiled_from, self.recompile_category)

    @property
    @published
    def label(self) -> str:
        """Return the process, function, file and line, and the number of the compile among those of
        the function.
        """
        return build_label(self.process, self.code, self.location, self.role)


@dataclass(frozen=True)
class CompileFilter:
    text: Annotated[str | None, Parameter("q"), "Text to look for; capitals do not matter."] = None
    outcome: Annotated[str | None, Parameter(choices=OUTCOMES), "Outcome of the compile."] = None
    recompiled: Annotated[bool | None, "Only compiles that are recompiles, or only the others."] = (
        None
    )
    artifact: str | None = None  # torch's name of one of its artifacts


@dataclass(frozen=True)
class Compilation:
    tables = ("compilations",)

    id: int
    sequence: int
    compile_key: int | None
    compile_id: str | None
    process_id: str
    rank: int | None
    kind: str
    function: str | None
    file: str | None
    line: int | None
    outcome: str
    start_us: int | None
    duration_us: int | None
    phases_us: dict[str, int | None]
    restart_count: int
    duration_source: (
        str | None
    )  # torch's fields that it is computed from; None from an older recorder
    metrics: dict[str, Any]

    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        body = read_body(columns.pop("body"))
        times = {phase: columns.pop(f"{phase}_us") for phase in PHASES if phase != "first_calls"}
        line, metrics = columns["line"], body.get("metrics")
        return columns | {
            "phases_us": times,
            "line": body.get("line") if line is None else line,
            "metrics": metrics if isinstance(metrics, dict) else {},
            "duration_source": body.get("duration_source"),
        }


_COLUMNS = f"""
  c.id, c.process_id, p.pid, c.generation, c.compile_id, c.frame_id, c.frame_compile_id,
  coalesce(c.rank, p.rank) as rank, f.name as function, f.file, c.line, c.resumed_at,
  {OUTCOME_SQL} as outcome, c.started_us, c.duration_us, nullif(c.total_us, 0) as total_us,
  c.attempt_count, c.graph_break_count,
  c.recompiled_from, c.recompile_category,
  c.stack_id
"""
_SOURCE = """
from compiles as c
left join functions as f on f.id = c.function_id
left join processes as p on p.id = c.process_id
"""
_SUMS = """
  sum(case when k.kind != 'runtime' then k.dynamo_us end) as dynamo_us,
  sum(case when k.kind != 'runtime' then k.aot_us end) as aot_us,
  sum(case when k.kind != 'runtime' then k.inductor_us end) as inductor_us,
  sum(case when k.kind != 'runtime' then k.codegen_us end) as codegen_us,
  sum(case when k.kind != 'runtime' then k.triton_us end) as triton_us,
  sum(k.cudagraph_us) as cudagraph_us,
  sum(case when k.kind != 'runtime' then k.restart_us end) as restart_us,
  sum(case when k.kind = 'runtime' then k.duration_us - coalesce(k.cudagraph_us, 0) end)
    as first_calls_us
"""
_WHERE = f"""
  c.run_id = :run_id
  and (:outcome is null or :outcome = {OUTCOME_SQL})
  and (:recompiled is null or (c.recompiled_from is not null) = :recompiled)
  and (:text is null or instr(lower(coalesce(f.name, '') || ' ' || coalesce(f.file, '')),
    lower(:text)))
  and (:artifact is null or c.id in (
    select a.compile_key
    from artifacts as a
    where a.run_id = :run_id
      and a.name = :artifact
  ))
"""  # noqa: S608 - our own names
COMPILATIONS_SQL = """
select
  k.id, k.sequence, k.compile_key, k.compile_id, k.process_id, coalesce(c.rank, p.rank) as rank,
  k.kind,
  f.name as function, f.file, c.line, k.outcome, k.start_us, k.duration_us, k.dynamo_us, k.aot_us,
  k.inductor_us,
  k.codegen_us, k.triton_us, k.cudagraph_us, k.restart_us, k.restart_count, e.body
from compilations as k
left join compiles as c on c.id = k.compile_key
left join functions as f on f.id = k.function_id
left join processes as p on p.id = k.process_id
left join events as e on e.process_id = k.process_id and e.sequence = k.sequence
"""
RUN_COMPILATIONS_SQL = f"""
{COMPILATIONS_SQL}
where k.run_id = :run_id
  and (coalesce(k.start_us, -1), k.id) > (:after_us, :after_id)
order by k.start_us, k.id
limit :limit
"""
COMPILE_RECORDS_SQL = f"""
{COMPILATIONS_SQL}
where k.compile_key = :key
order by k.sequence, k.id
limit :limit
"""
PHASES_SQL = f"""
select {_SUMS}
from compilations as k
where k.run_id = :run_id
limit 1
"""  # noqa: S608 - our own names
CHAIN_SQL = f"""
select {_COLUMNS}
{_SOURCE}
where c.process_id = :process_id
  and c.generation = :generation
  and c.frame_id = :frame_id
order by c.frame_compile_id, c.id
limit :limit
"""
# Of one function, the first compile first.
FUNCTION_SQL = f"""
select {_COLUMNS}
{_SOURCE}
where c.function_id = :function_id
  and c.run_id = :run_id
order by c.started_us, c.id
limit :limit
"""
BEFORE_SQL = f"""
select {_COLUMNS}
{_SOURCE}
where c.run_id = :run_id
  and (c.started_us, c.id) < (:after_us, :after_id)
order by c.started_us desc, c.id desc
limit 1
"""
AFTER_SQL = f"""
select {_COLUMNS}
{_SOURCE}
where c.run_id = :run_id
  and (c.started_us, c.id) > (:after_us, :after_id)
order by c.started_us, c.id
limit 1
"""
OUTCOMES_SQL = f"""
select {OUTCOME_SQL} as final, count(*) as compile_count
from compiles as c
where c.run_id = :run_id
group by final
order by compile_count desc, final
limit 20
"""  # noqa: S608 - our own names


def compiles_sql(order: str, up: bool, after: bool) -> str:
    key, direction, sign = ORDERS[order][0], "asc" if up else "desc", ">" if up else "<"
    behind = f"and ({key}, c.id) {sign} (:after_key, :after_id)" if after else ""
    # Every part is a constant of this module; values are bound.
    return f"""
select {_COLUMNS}
{_SOURCE}
where {_WHERE}
  {behind}
order by {key} {direction}, c.id {direction}
limit :limit
"""


def phases_sql(count: int) -> str:
    marks = ", ".join(f":key{n}" for n in range(count))
    return f"""
select k.compile_key, {_SUMS}
from compilations as k
where k.compile_key in ({marks})
group by k.compile_key
order by k.compile_key
limit {max(count, 1)}
"""  # noqa: S608  marks are ours


def _bind_selection(run_id: str, selection: CompileFilter | None) -> dict[str, Any]:
    selected = vars(selection or CompileFilter())
    return {"run_id": run_id} | {
        name: None if value == "" else value for name, value in selected.items()
    }


def _to_rows(connection: sqlite3.Connection, records: list[sqlite3.Row]) -> list[CompileRow]:
    phases: dict[int, Phases] = {}
    if records:
        keys = {f"key{n}": row["id"] for n, row in enumerate(records)}
        for row in connection.execute(phases_sql(len(records)), keys):
            values = dict(row)
            key = values.pop("compile_key")
            phases[key] = Phases(**values)
    nothing = Phases(*(None,) * 8)
    processes = load_process_names(connection, (row["process_id"] for row in records))
    callers: dict[tuple[str, int], tuple[Caller | None, str | None]] = {}
    rows = []
    for row in records:
        values = dict(row)
        caller = called_at = None
        stack_id = values.pop("stack_id")
        file = row["file"] or ""
        if stack_id is not None and is_library_name(file):
            if (file, stack_id) not in callers:
                wrapped = find_caller(connection, stack_id) if is_wrapper(file) else None
                callers[file, stack_id] = wrapped, find_user_call(connection, file, stack_id)
            caller, called_at = callers[file, stack_id]
        rows.append(
            CompileRow(
                **values,
                process=processes[row["process_id"]],
                phases=phases.get(row["id"], nothing),
                caller=caller,
                called_at=called_at,
            )
        )
    return rows


def list_compiles(
    connection: sqlite3.Connection,
    run_id: str,
    selection: CompileFilter | None = None,
    *,
    sort: str = "started.asc",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[CompileRow]:
    """List a run's compiles. `sort` is a name in ORDERS, largest first, or that name with ".asc".

    Raises FilterError for an invalid sort, outcome or cursor.
    """
    order, direction = check_order(sort, ORDERS)
    if selection and selection.outcome and selection.outcome not in OUTCOMES:
        raise FilterError(
            f"outcome: {selection.outcome[:40]!r} is not one of {', '.join(OUTCOMES)}"
        )
    _column, kind, name = ORDERS[order]
    after = decode_cursor(cursor, kind, int)
    values = _bind_selection(run_id, selection) | {"limit": limit + 1}
    if after:
        values |= {"after_key": after[0], "after_id": after[1]}
    sql = compiles_sql(order, direction == "asc", after is not None)
    rows = _to_rows(connection, connection.execute(sql, values).fetchall())
    return make_page(rows, limit, lambda row: (getattr(row, name) or kind(), row.id))


def count_compiles(
    connection: sqlite3.Connection, run_id: str, selection: CompileFilter | None = None
) -> int:
    sql = f"select count(*) {_SOURCE} where {_WHERE}"
    return int(connection.execute(sql, _bind_selection(run_id, selection)).fetchone()[0])


def count_outcomes(connection: sqlite3.Connection, run_id: str) -> dict[str, int]:
    return dict(connection.execute(OUTCOMES_SQL, {"run_id": run_id}).fetchall())


def get_beside(
    connection: sqlite3.Connection, compile_row: CompileRow, run_id: str, forward: bool
) -> CompileRow | None:
    values = {"run_id": run_id, "after_us": compile_row.started_us, "after_id": compile_row.id}
    records = connection.execute(AFTER_SQL if forward else BEFORE_SQL, values).fetchall()
    return _to_rows(connection, records)[0] if records else None


def get_compile(connection: sqlite3.Connection, run_id: str, key: int) -> CompileRow | None:
    sql = f"select {_COLUMNS} {_SOURCE} where c.id = :key and c.run_id = :run_id limit 1"
    records = connection.execute(sql, {"key": key, "run_id": run_id}).fetchall()
    return _to_rows(connection, records)[0] if records else None


def get_function_id(connection: sqlite3.Connection, key: int) -> int | None:
    sql = "select function_id from compiles where id = :key"
    row = connection.execute(sql, {"key": key}).fetchone()
    return None if row is None else row["function_id"]


def list_function_compiles(
    connection: sqlite3.Connection, run_id: str, function_id: int, limit: int = 50
) -> list[CompileRow]:
    values = {"run_id": run_id, "function_id": function_id, "limit": limit}
    return _to_rows(connection, connection.execute(FUNCTION_SQL, values).fetchall())


def list_chain(
    connection: sqlite3.Connection,
    process_id: str,
    generation: int,
    frame_id: int | None,
    limit: int = 500,
) -> list[CompileRow]:
    if frame_id is None:
        return []
    values = {
        "process_id": process_id,
        "generation": generation,
        "frame_id": frame_id,
        "limit": limit,
    }
    return _to_rows(connection, connection.execute(CHAIN_SQL, values).fetchall())


def get_phases(connection: sqlite3.Connection, run_id: str) -> Phases:
    return make_row(Phases, connection.execute(PHASES_SQL, {"run_id": run_id}).fetchone())


list_compilations = partial(
    list_page,
    Compilation,
    RUN_COMPILATIONS_SQL,
    first={"us": -2, "id": 0},
    key=lambda row: (-1 if row.start_us is None else row.start_us, row.id),
)
list_records = partial(list_rows, Compilation, COMPILE_RECORDS_SQL, limit=100)


def get_start(
    connection: sqlite3.Connection, compile_: CompileRow, records: list[Compilation]
) -> dict[str, Any]:
    if compile_.outcome == "announced":
        return {}
    before = next((record.sequence for record in records if record.kind == "forward"), None)
    return find_start(
        connection, compile_.process_id, compile_.compile_id, compile_.started_us, before
    )
