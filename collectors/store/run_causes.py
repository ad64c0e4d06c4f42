"""List the causes of a run's lost compile time from the database."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from compileboard.collectors.contract.compile_labels import label_line
from compileboard.collectors.contract.events import Recompiled
from compileboard.collectors.contract.fingerprints import content_id
from compileboard.collectors.contract.library_names import is_library_name
from compileboard.collectors.fixes.causes import Cause, build_causes
from compileboard.collectors.fixes.fix import (
    BreakOccurrence,
    RecordedBreak,
    RecordedCompile,
    RecordedRecompile,
    RecordedRun,
    SourceLines,
)
from compileboard.collectors.fixes.recompiles import to_recorded
from compileboard.collectors.store.ingest.insert import InsertOnce
from compileboard.collectors.store.reading import read_body, read_event, read_json

MOST_EXCERPTS = 500  # a run's

_EXCERPT = InsertOnce("source_excerpts", "file", "first_line", "text")


def save_source_lines(
    connection: sqlite3.Connection, run_id: str, excerpts: Iterable[SourceLines]
) -> None:
    for excerpt in excerpts:
        text = "\n".join(excerpt.lines)
        excerpt_id = content_id("source", excerpt.file, excerpt.first_line, text)
        values = {
            "id": excerpt_id,
            "file": excerpt.file,
            "first_line": excerpt.first_line,
            "text": text,
        }
        _EXCERPT.add_once(connection, values)
        connection.execute(
            """
            insert or ignore into run_source_excerpts (run_id, excerpt_id)
            select id, :excerpt_id
            from runs
            where id = :run_id
            """,
            {"run_id": run_id, "excerpt_id": excerpt_id},
        )


def list_source_lines(connection: sqlite3.Connection, run_id: str) -> list[SourceLines]:
    rows = connection.execute(
        """
        select e.file, e.first_line, e.text
        from run_source_excerpts as r
        join source_excerpts as e on e.id = r.excerpt_id
        where r.run_id = :run_id
        order by e.file, e.first_line
        limit :most
        """,
        {"run_id": run_id, "most": MOST_EXCERPTS},
    )
    return [
        SourceLines(row["file"], row["first_line"], tuple(row["text"].split("\n"))) for row in rows
    ]


MOST_ROWS = 100_000
_DEEPEST = 500
_TORCH = ("torch/", "functorch/", "torchgen/")
_TYPE = re.compile(r"type=<class '(?P<name>[\w.<>]+)'>")
_VERSION = re.compile(r"^(\d+)\.(\d+)")

COMPILES_SQL = """
select
  c.id as key, c.process_id, c.compile_id, c.generation, c.frame_id, f.name as function, f.file,
  c.line, c.resumed_at,
  c.outcome, c.total_us, c.stack_id, c.recompiled_from is not null as is_recompile,
  (select coalesce(sum(k.restart_us), 0)
   from compilations as k
   where k.compile_key = c.id and k.kind = 'forward') as restart_us
from compiles as c
left join functions as f on f.id = c.function_id
where c.run_id = :run_id
order by c.started_us, c.id
limit :most
"""
RECOMPILES_SQL = """
select r.id, r.compile_key, r.cause_id, u.fingerprint, f.file, f.name as function, e.body
from recompiles as r
join events as e on e.process_id = r.process_id and e.sequence = r.sequence
left join recompile_causes as u on u.id = r.cause_id
left join functions as f on f.id = r.function_id
where r.run_id = :run_id
  and r.compile_key is not null
order by r.time_us, r.id
limit :most
"""
# A body has what its own columns lack.
DYNAMIC_SQL = """
select k.compile_key, e.body
from recompiles as r
join compilations as k on k.compile_key = r.compile_key and k.kind = 'forward'
join events as e on e.process_id = k.process_id and e.sequence = k.sequence
where r.run_id = :run_id
  and exists (
    select 1
    from guard_failures as g
    where g.recompile_id = r.id and g.category = 'tensor_size')
order by r.time_us, r.id
limit :most
"""
# A body has what its own columns lack: the context, and the stack of a break in a function that
# another one called.
BREAKS_SQL = """
with firsts (distinct_id, id) as materialized (
  select distinct_id, min(id)
  from graph_breaks
  where run_id = :run_id
  group by distinct_id
)
select
  b.distinct_id, b.compile_key, b.outcome, b.line, d.fingerprint, d.gb_id, d.gb_type, d.reason,
  d.explanation, d.hints,
  f.name as function, f.file, d.source_line, c.function_id is not b.function_id as is_inlined,
  cf.name as frame_function, cf.file as frame_file,
  case when c.function_id is not b.function_id
    or b.id = (select o.id from firsts as o where o.distinct_id = b.distinct_id)
    then e.body end as body
from graph_breaks as b
join distinct_breaks as d on d.id = b.distinct_id
left join functions as f on f.id = b.function_id
left join compiles as c on c.id = b.compile_key
left join functions as cf on cf.id = c.function_id
left join events as e on e.process_id = b.process_id and e.sequence = b.sequence
where b.run_id = :run_id
order by b.time_us, b.id
limit :most
"""
STACK_SQL = """
with recursive stack (id, parent_id, file, line, name, code, depth) as (
  select id, parent_id, file, line, name, code, 0
  from stack_nodes
  where id = :node
  union all
  select n.id, n.parent_id, n.file, n.line, n.name, n.code, s.depth + 1
  from stack_nodes as n
  join stack as s on n.id = s.parent_id
  where s.depth < :deepest
)
select file, line, name, code
from stack
where file not like '<%'
order by depth
limit :deepest
"""
FIRST_STACK_SQL = """
select c.stack_id
from functions as f
join compiles as c on c.function_id = f.id and c.run_id = :run_id
where f.file = :file
  and f.name = :name
  and c.stack_id is not null
order by c.id
limit 1
"""


def load_causes(connection: sqlite3.Connection, run_id: str) -> list[Cause]:
    return build_causes(load_recorded_run(connection, run_id))


def load_recorded_run(connection: sqlite3.Connection, run_id: str) -> RecordedRun:
    values = {"run_id": run_id, "most": MOST_ROWS}
    recompiles = _read_recompiles(connection, values)
    breaks, occurrences = _read_breaks(connection, values)
    row = connection.execute("select torch_version from runs where id = :run_id", values).fetchone()
    version = _VERSION.match((row["torch_version"] if row else None) or "")
    run = RecordedRun(
        compiles=_read_compiles(connection, values, recompiles),
        recompiles=recompiles,
        breaks=breaks,
        occurrences=occurrences,
        code=list_source_lines(connection, run_id),
    )
    return (
        run if version is None else replace(run, torch_version=(int(version[1]), int(version[2])))
    )


class Caller(NamedTuple):
    file: str
    line: int | None
    name: str
    code: str | None

    @property
    def label(self) -> str:
        return f"module called by {self.name}"


def is_wrapper(file: str) -> bool:
    """Return whether a file is torch's or holds Python's own decorators."""
    return file.startswith("torch/") or file in {"contextlib.py", "functools.py"}


def find_caller(
    connection: sqlite3.Connection, stack_id: int, is_skipped: Callable[[str], bool] = is_wrapper
) -> Caller | None:
    """Return the innermost frame of a stack whose file is not skipped: by default the user's."""
    frames = _list_callers(connection, stack_id)
    return next((frame for frame in frames if not is_skipped(frame.file)), None)


def find_user_call(
    connection: sqlite3.Connection, file: str | None, stack_id: int | None
) -> str | None:
    """Return where the user's code called a library's function, None for a user's own file."""
    if stack_id is None or not is_library_name(file or ""):
        return None
    call = find_caller(connection, stack_id, is_library_name)
    if call is None and is_wrapper(file or ""):
        call = find_caller(connection, stack_id)
    return label_line(call.file, call.line) if call else None


def find_first_call(
    connection: sqlite3.Connection, run_id: str, file: str | None, function: str | None
) -> str | None:
    """Return where the user's code called a library's function before its first compile in a run,
    None for a user's own function.
    """
    if not is_library_name(file or ""):
        return None
    values = {"run_id": run_id, "file": file, "name": function}
    row = connection.execute(FIRST_STACK_SQL, values).fetchone()
    return find_user_call(connection, file, row["stack_id"]) if row else None


def _list_callers(connection: sqlite3.Connection, stack_id: int) -> list[Caller]:
    return [
        Caller(*row)
        for row in connection.execute(STACK_SQL, {"node": stack_id, "deepest": _DEEPEST})
    ]


def _read_recompiles(
    connection: sqlite3.Connection, values: Mapping[str, Any]
) -> list[RecordedRecompile]:
    dynamic = {
        row["compile_key"]: str(read_body(row["body"]).get("dynamic_sources") or "")
        for row in connection.execute(DYNAMIC_SQL, values)
    }
    recompiles = []
    for row in connection.execute(RECOMPILES_SQL, values):
        event = read_event(row["body"])
        if isinstance(event, Recompiled):
            recompile = to_recorded(event, row["compile_key"], row["file"], row["function"])
            sources = dynamic.get(row["compile_key"], "").split(",")
            recompiles.append(
                replace(
                    recompile,
                    dynamic_sources=tuple(filter(None, sources)),
                    cause_id=row["cause_id"],
                    fingerprint=row["fingerprint"],
                )
            )
    return recompiles


def _read_compiles(
    connection: sqlite3.Connection, values: Mapping[str, Any], recompiles: list[RecordedRecompile]
) -> list[RecordedCompile]:
    rows = connection.execute(COMPILES_SQL, values).fetchall()
    types = {
        recompile.compile_key: match["name"]
        for recompile in recompiles
        for guard in recompile.guards
        if (guard.source or "") == "fn" and (match := _TYPE.search(guard.reason))
    }
    frame_types = {
        (row["process_id"], row["generation"], row["frame_id"]): types[row["key"]]
        for row in rows
        if row["key"] in types
    }
    callers: dict[int, Caller | None] = {}
    calls: dict[tuple[str | None, int | None], str | None] = {}
    compiles = []
    for row in rows:
        function, file, line, caller = row["function"], row["file"], row["line"], None
        if (file or "").startswith(_TORCH) and row["stack_id"] is not None:
            if row["stack_id"] not in callers:
                callers[row["stack_id"]] = find_caller(connection, row["stack_id"])
            caller = callers[row["stack_id"]]
        if caller is not None:
            module = frame_types.get((row["process_id"], row["generation"], row["frame_id"]))
            function = f"{module.rsplit('.', 1)[-1]}.forward" if module else caller.label
            file, line = caller.file, caller.line
        location = (file, row["stack_id"])
        if location not in calls:
            calls[location] = find_user_call(connection, *location)
        compiles.append(
            RecordedCompile(
                key=row["key"],
                process_id=row["process_id"],
                compile_id=row["compile_id"],
                frame=(row["generation"], row["frame_id"]),
                function=function,
                file=file,
                line=line,
                resumed_at=row["resumed_at"],
                outcome=row["outcome"],
                total_us=row["total_us"],
                restart_us=min(row["restart_us"], row["total_us"]),
                is_recompile=bool(row["is_recompile"]),
                torch_function=row["function"] if caller is not None else None,
                source_line=caller.code if caller is not None else None,
                called_at=calls[location],
            )
        )
    return compiles


def _read_breaks(
    connection: sqlite3.Connection, values: Mapping[str, Any]
) -> tuple[list[RecordedBreak], list[BreakOccurrence]]:
    distinct: dict[int, RecordedBreak] = {}
    occurrences = []
    for row in connection.execute(BREAKS_SQL, values):
        body = read_body(row["body"])
        if row["distinct_id"] not in distinct:
            distinct[row["distinct_id"]] = RecordedBreak(
                id=row["distinct_id"],
                hints=tuple(body.get("hints") or read_json(list[str], row["hints"]) or ()),
                context=str(body.get("debug_context") or ""),
                explanation=body.get("explanation") or row["explanation"] or "",
                called_at=_find_call_in_stack(body) if is_library_name(row["file"] or "") else None,
                **{name: body.get(name) or row[name] for name in ("reason", "source_line")},
                **{
                    name: row[name]
                    for name in ("fingerprint", "gb_id", "gb_type", "function", "file", "line")
                },
            )
        frame_line = _find_frame_line(row, body) if row["is_inlined"] else row["line"]
        occurrences.append(
            BreakOccurrence(row["distinct_id"], row["compile_key"], row["outcome"], frame_line)
        )
    return list(distinct.values()), occurrences


def _find_call_in_stack(body: Mapping[str, Any]) -> str | None:
    stack = body.get("stack")
    for frame in reversed(stack if isinstance(stack, list) else []):
        file = frame.get("file") if isinstance(frame, dict) else None
        if isinstance(file, str) and not file.startswith("<") and not is_library_name(file):
            line = frame.get("line")
            return label_line(file, line if isinstance(line, int) else None)
    return None


def _find_frame_line(row: sqlite3.Row, body: Mapping[str, Any]) -> int | None:
    stack = body.get("stack")
    name = (row["frame_function"] or "").rsplit(".", 1)[-1]
    for frame in reversed(stack if isinstance(stack, list) else []):
        if not isinstance(frame, dict):
            continue
        if (
            frame.get("file") == row["frame_file"]
            and str(frame.get("name")).rsplit(".", 1)[-1] == name
        ):
            line = frame.get("line")
            return line if isinstance(line, int) else None
    return None
