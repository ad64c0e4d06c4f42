"""Symbols created, specialized and guarded in a run, by compile and by line of user code."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from compileboard.app.compiles.run_queries import OUTCOME_SQL
from compileboard.app.core.page import Page, bind_page, make_page
from compileboard.collectors.contract.shapes import Frame
from compileboard.collectors.contract.values import fit_json
from compileboard.collectors.fixes.causes import CodeIndex
from compileboard.collectors.fixes.statement import find_whole, mark_part
from compileboard.collectors.store.reading import read_json
from compileboard.collectors.store.run_causes import list_source_lines_at

MAX_RECORDS = 400  # Records of one compile.
MAX_LINES = 25
_NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class SymbolRecord:
    id: int
    kind: str
    symbol: str | None
    expression: str | None
    value: str | None
    value_range: str | None
    source: str | None
    file: str | None
    line: int | None
    source_line: str | None
    stack: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class ShapeCompile:
    key: int
    compile_id: str
    rank: int | None
    function: str | None
    file: str | None
    outcome: str
    record_count: int
    records: tuple[SymbolRecord, ...]
    sizes: dict[str, list[Any]]


@dataclass(frozen=True)
class ShapeLine:
    file: str | None
    line: int | None
    source_line: str | None
    guard_count: int
    specialized_count: int
    compile_count: int
    expression: str | None
    expression_count: int


COMPILES_SQL = f"""
select
  c.started_us, c.id as key, c.compile_id, coalesce(c.rank, p.rank) as rank, f.name as function,
  f.file,
  {OUTCOME_SQL} as outcome,
  (select count(*) from symbols as s where s.compile_key = c.id) as record_count
from compiles as c
left join functions as f on f.id = c.function_id
left join processes as p on p.id = c.process_id
where c.run_id = :run_id
  and (c.started_us, c.id) > (:after_us, :after_id)
  and exists (select 1 from symbols as s where s.compile_key = c.id)
order by c.started_us, c.id
limit :limit
"""  # noqa: S608 - our own names
RECORDS_SQL = """
select id, kind, symbol, expression, value, value_range, source, file, line, source_line, detail
from symbols
where compile_key = :key
order by id
limit :limit
"""
VALUES_SQL = """
select symbol, value
from symbols
where compile_key = :key
  and kind = 'created'
  and symbol is not null
  and value is not null
order by id
limit :limit
"""
SIZES_SQL = """
select metadata
from artifacts
where compile_key = :key
  and name = 'dynamo_output_graph'
order by sequence desc
limit 1
"""
LINES_SQL = """
select
  s.file, s.line, min(s.source_line) as source_line, sum(s.kind = 'guarded') as guard_count,
  sum(s.kind = 'specialized') as specialized_count, count(distinct s.compile_key) as compile_count,
  min(case when s.kind = 'guarded' then s.expression end) as expression,
  count(distinct case when s.kind = 'guarded' then s.expression end) as expression_count
from symbols as s
where s.run_id = :run_id
  and s.kind in ('guarded', 'specialized')
group by s.file, s.line
order by guard_count + specialized_count desc, s.file, s.line
limit :limit
"""
COUNTS_SQL = """
select kind, count(*) as record_count
from symbols
where run_id = :run_id
group by kind
order by kind
limit 20
"""


def count_kinds(connection: sqlite3.Connection, run_id: str) -> dict[str, int]:
    return {
        row["kind"]: row["record_count"]
        for row in connection.execute(COUNTS_SQL, {"run_id": run_id})
    }


def list_lines(
    connection: sqlite3.Connection, run_id: str, limit: int = MAX_LINES
) -> list[ShapeLine]:
    rows = connection.execute(LINES_SQL, {"run_id": run_id, "limit": limit}).fetchall()
    code = _read_code(connection, run_id, rows)
    shape_lines = [
        ShapeLine(**{**dict(row), "source_line": _find_source(code, row)}) for row in rows
    ]
    # A record without a user line has torch's generated code as its location: <string>.
    own = [
        line
        for line in shape_lines
        if line.source_line is None and (line.file or "<").startswith("<")
    ]
    lines = [line for line in shape_lines if line not in own]
    if own:
        guards, fixed = (
            sum(line.guard_count for line in own),
            sum(line.specialized_count for line in own),
        )
        most = max(line.compile_count for line in own)  # their compiles overlap: a lower bound
        kinds = sum(line.expression_count for line in own)
        lines.append(ShapeLine(None, None, None, guards, fixed, most, own[0].expression, kinds))
    return sorted(lines, key=lambda line: -line.guard_count - line.specialized_count)


def list_shape_compiles(
    connection: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 10
) -> Page[ShapeCompile]:
    values = bind_page(run_id, cursor, limit, {"us": -(2**62), "id": 0})
    records = connection.execute(COMPILES_SQL, values).fetchall()
    started = {row["key"]: row["started_us"] for row in records}
    page = make_page(records, limit, lambda row: (started[row["key"]], row["key"]))
    return page.map(lambda row: _read_compile(connection, run_id, row))


def _read_code(
    connection: sqlite3.Connection, run_id: str, rows: Iterable[sqlite3.Row]
) -> CodeIndex:
    places = [(row["file"], row["line"]) for row in rows]
    return CodeIndex(list_source_lines_at(connection, run_id, places))


def _read_compile(connection: sqlite3.Connection, run_id: str, row: sqlite3.Row) -> ShapeCompile:
    values = {name: row[name] for name in row.keys() if name != "started_us"}  # noqa: SIM118 - a row iterates its values
    limit = {"key": row["key"], "limit": MAX_RECORDS}
    records = connection.execute(RECORDS_SQL, limit).fetchall()
    code = _read_code(connection, run_id, records)
    sizes = connection.execute(SIZES_SQL, {"key": row["key"]}).fetchone()
    return ShapeCompile(
        **values,
        records=tuple(_read_record(record, code) for record in records),
        sizes=_read_sizes(sizes["metadata"] if sizes else None),
    )


def _find_source(code: CodeIndex, row: sqlite3.Row) -> str | None:
    """Return the statement that contains a recorded line, or the line, marked if it is a part."""
    text: str | None = row["source_line"]
    part = code.find(row["file"], row["line"]) if text else None
    whole = find_whole(part.lines, part.first_line, row["line"]) if part else None
    return whole if whole and text and text in whole else text and mark_part(text)


def _read_record(row: sqlite3.Row, code: CodeIndex) -> SymbolRecord:
    values = {**dict(row), "source_line": _find_source(code, row)}
    detail = read_json(dict[str, Any], values.pop("detail")) or {}
    frames = fit_json(list[Frame], detail.get("user_stack")) or ()
    return SymbolRecord(
        **values,
        stack=tuple(
            {key: frame.get(key) for key in ("file", "line", "name", "code")} for frame in frames
        ),
    )


def _read_sizes(metadata: str | None) -> dict[str, list[Any]]:
    stated = read_json(dict[str, Any], metadata) or {}
    return fit_json(dict[str, list[Any]], stated.get("sizes")) or {}


def list_values(connection: sqlite3.Connection, compile_key: int) -> dict[str, int]:
    rows = connection.execute(VALUES_SQL, {"key": compile_key, "limit": 10 * MAX_RECORDS})
    return {symbol: int(value) for symbol, value in rows if _NUMBER.fullmatch(value)}
