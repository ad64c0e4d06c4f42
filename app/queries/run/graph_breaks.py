"""A run's graph breaks: one by one, and the distinct ones with their costs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.queries import fields
from compileboard.app.queries.page import Page, bind_page, make_page
from compileboard.app.queries.run.trace_files import get_event, list_stack
from compileboard.app.schema import one_of
from compileboard.collectors.contract.fingerprints import parse_id
from compileboard.collectors.store.process_names import name_rows
from compileboard.collectors.store.reading import read_body, read_json


@dataclass(frozen=True)
class GraphBreakRow(fields.TitledBreak):
    """One graph break."""

    id: fields.RowId
    process_id: fields.ProcessId
    process: fields.ProcessName
    rank: fields.Rank
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    distinct_id: fields.BreakId
    fingerprint: Annotated[str, "Identifies the graph break in every database."]
    gb_id: fields.GbId
    gb_type: fields.GbType
    reason: fields.BreakReason
    explanation: fields.Explanation
    hints: fields.Hints
    debug_context: Annotated[str | None, "torch's context of it."]
    function: fields.FunctionName
    file: fields.FileName
    line: Annotated[int | None, "Line of the innermost frame of your own code."]
    torch_file: Annotated[
        str | None, "File that torch's text names: a library's where the break is in its code."
    ]
    torch_line: Annotated[int | None, "Line that torch's text names."]
    source_line: fields.SourceLine
    outcome: Annotated[
        str,
        one_of(("resumed", "skipped", "unknown")),
        (
            "Whether the function goes on compiled after it (resumed) or its frame runs eagerly "
            "(skipped)."
        ),
    ]
    time_us: fields.EventTime
    compile_us: fields.CompileUs
    stack: fields.Stack
    text: Annotated[str, "All that torch wrote."]


@dataclass(frozen=True)
class RunDistinctBreak(fields.TitledBreak):
    """One graph break with its totals in one run."""

    distinct_id: fields.BreakId
    gb_id: fields.GbId
    gb_type: fields.GbType
    reason: fields.BreakReason
    explanation: fields.Explanation
    hints: fields.Hints
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    source_line: fields.SourceLine
    break_count: Annotated[fields.Count, "Graph breaks."]
    compile_us: fields.CompilesUs
    outcomes: Annotated[dict[str, fields.Count], "Graph breaks by outcome."]


BREAKS_SQL = """
select
  b.id, b.process_id, coalesce(c.rank, p.rank) as rank, b.compile_key, b.compile_id, b.distinct_id,
  d.fingerprint,
  d.gb_id, d.gb_type, d.reason, d.explanation, d.hints, f.name as function, f.file, b.line,
  d.source_line, b.outcome,
  b.time_us, nullif(c.total_us, 0) as compile_us, e.body
from graph_breaks as b
join distinct_breaks as d on d.id = b.distinct_id
left join compiles as c on c.id = b.compile_key
left join functions as f on f.id = coalesce(b.function_id, c.function_id)
left join processes as p on p.id = b.process_id
left join events as e on e.process_id = b.process_id and e.sequence = b.sequence
"""
RUN_BREAKS_SQL = f"""
{BREAKS_SQL}
where b.run_id = :run_id
  and (:distinct_id is null or b.distinct_id = :distinct_id)
  and (b.time_us, b.id) > (:after_us, :after_id)
order by b.time_us, b.id
limit :limit
"""
COMPILE_BREAKS_SQL = f"""
{BREAKS_SQL}
where b.compile_key = :key
order by b.time_us, b.id
limit :limit
"""
DISTINCT_SQL = """
select
  r.distinct_id, d.gb_id, d.gb_type, d.reason, d.explanation, d.hints, f.name as function, f.file,
  d.line,
  d.source_line, r.break_count, nullif(r.compile_us, 0) as compile_us
from run_breaks as r
join distinct_breaks as d on d.id = r.distinct_id
left join functions as f on f.id = d.function_id
where r.run_id = :run_id
  and (r.compile_us, r.distinct_id) < (:after_us, :after_id)
order by r.compile_us desc, r.distinct_id desc
limit :limit
"""
OUTCOMES_SQL = """
select b.distinct_id, b.outcome, count(*) as break_count, max(b.time_us) as time_us, b.process_id,
b.sequence, b.line
from graph_breaks as b
where b.run_id = :run_id
group by b.distinct_id, b.outcome
order by b.distinct_id, b.outcome
limit 20000
"""


_NAMED_BY_TORCH = re.compile(
    r"^Graph break in user code at (?P<path>.+):(?P<line>\d{1,9})$", re.MULTILINE
)


def _find_torch_line(text: str, stack: Sequence[dict[str, Any]]) -> dict[str, Any]:
    named = _NAMED_BY_TORCH.search(text)
    if named is None:
        return {"torch_file": None, "torch_line": None}
    line, name = int(named["line"]), named["path"].replace("\\", "/").rsplit("/", 1)[-1]
    files = [
        frame["file"]
        for frame in stack
        if frame.get("line") == line and isinstance(frame.get("file"), str)
    ]
    file = next(
        (file for file in reversed(files) if file.rsplit("/", 1)[-1] == name), named["path"]
    )
    return {"torch_file": file, "torch_line": line}


def _choose_words(values: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    hints = tuple(body["hints"] if body else read_json(list[str], values["hints"]) or ())
    words = {
        name: body.get(name) or values[name] for name in ("reason", "explanation", "source_line")
    }
    return words | {"hints": hints}


def _to_break(row: dict[str, Any]) -> GraphBreakRow:
    values = fields.name_ids(row, "distinct_id")
    body = read_body(values.pop("body"))
    values |= _choose_words(values, body)
    text, stack = body.get("text") or "", tuple(list_stack(body))
    return GraphBreakRow(
        **values,
        **_find_torch_line(text, stack),
        debug_context=body.get("debug_context"),
        stack=stack,
        text=text,
    )


def list_graph_breaks(
    connection: sqlite3.Connection,
    run_id: str,
    cursor: str | None = None,
    limit: int = 50,
    *,
    distinct_id: int | None = None,
) -> Page[GraphBreakRow]:
    """Raises FilterError for an unusable cursor."""
    values = bind_page(run_id, cursor, limit) | {"distinct_id": distinct_id}
    rows = [
        _to_break(row) for row in name_rows(connection, connection.execute(RUN_BREAKS_SQL, values))
    ]
    return make_page(rows, limit, lambda row: (row.time_us, row.id))


def list_compile_breaks(
    connection: sqlite3.Connection, key: int, limit: int = 100
) -> list[GraphBreakRow]:
    records = connection.execute(COMPILE_BREAKS_SQL, {"key": key, "limit": limit})
    return [_to_break(row) for row in name_rows(connection, records)]


def list_distinct_breaks(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 50
) -> Page[RunDistinctBreak]:
    """List the breaks with the most compile time first. Raises FilterError for an unusable
    cursor.
    """
    values = bind_page(run_id, cursor, limit, (2**62, 2**62))
    records = connection.execute(DISTINCT_SQL, values).fetchall()
    outcomes: dict[int, dict[str, int]] = {}
    newest: dict[int, sqlite3.Row] = {}  # of the run itself
    if records:
        for row in connection.execute(OUTCOMES_SQL, {"run_id": run_id}):
            outcomes.setdefault(row["distinct_id"], {})[row["outcome"]] = row["break_count"]
            if row["time_us"] >= newest.get(row["distinct_id"], row)["time_us"]:
                newest[row["distinct_id"]] = row
    rows = []
    for record in records:
        values, own = fields.name_ids(record, "distinct_id"), newest.get(record["distinct_id"])
        values |= _choose_words(
            values, get_event(connection, own["process_id"], own["sequence"]) if own else {}
        )
        values["line"] = own["line"] if own else values["line"]
        rows.append(RunDistinctBreak(**values, outcomes=outcomes.get(record["distinct_id"], {})))
    return make_page(rows, limit, lambda row: (row.compile_us or 0, parse_id(row.distinct_id)))


def count_distinct_breaks(connection: sqlite3.Connection, run_id: str) -> int:
    sql = "select count(*) from run_breaks where run_id = :run_id"
    return int(connection.execute(sql, {"run_id": run_id}).fetchone()[0])
