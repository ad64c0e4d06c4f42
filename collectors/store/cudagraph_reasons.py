"""Read the reasons why a run's CUDA graphs are re-recorded or not used, with the affected calls."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from compileboard.collectors.fixes.cudagraph_fixes import (
    OVERWRITTEN,
    suggest_overwritten,
    suggest_recorded_again,
    suggest_skipped,
)
from compileboard.collectors.fixes.fix import Fix
from compileboard.collectors.store.run_causes import STACK_SQL, Caller

MOST = 100
_CALL_DEPTH = 500

AGAIN_SQL = """
select
  x.status, x.compile_key, max(p.compile_key) as parent_key, f.name as function,
  count(*) as count
from cudagraphs as x
left join cudagraphs as p on p.process_id = x.process_id
  and p.tree = x.tree
  and p.graph = x.parent_graph
  and p.stage = 'recording'
left join compiles as c on c.id = x.compile_key
left join functions as f on f.id = c.function_id
where x.run_id = :run_id
  and x.status is not null
group by x.compile_key, x.status
order by count(*) desc, x.compile_key, x.status
limit :most
"""
SKIPPED_SQL = """
select
  s.reason as status, s.compile_key, null as parent_key, f.name as function, count(*) as count,
  s.file, s.line, s.code
from cudagraph_skips as s
left join compiles as c on c.id = s.compile_key
left join functions as f on f.id = c.function_id
where s.run_id = :run_id
group by s.compile_key, s.reason, s.file, s.line
order by count(*) desc, s.compile_key, s.reason
limit :most
"""
OVERWRITTEN_SQL = """
select
  e.message as status, min(x.compile_key) as compile_key, null as parent_key, f.name as function,
  count(distinct f.id) as function_count, count(distinct e.id) as count
from failures as e
join cudagraphs as x on x.run_id = e.run_id
join compiles as c on c.id = x.compile_key
join functions as f on f.id = c.function_id
where e.run_id = :run_id
  and e.message like :overwritten
group by e.message
order by e.message
limit :most
"""
FUNCTION_SQL = """
select f.name
from compiles as c
join functions as f on f.id = c.function_id
where c.id = :key
"""
STACK_OF_SQL = "select stack_id from compiles where id = :key"


@dataclass(frozen=True)
class CudagraphReason:
    """A reason why CUDA graphs were re-recorded or not used.

    `call` is the place where the program calls the function; `maker` is the function that made the
    output that moved or is still alive, with its call.
    """

    kind: str  # again | skipped | overwritten
    status: str
    count: int
    function: str | None
    call: Caller | None
    maker: str | None = None
    maker_call: Caller | None = None
    file: str | None = None
    line: int | None = None
    code: str | None = None

    @property
    def fixes(self) -> tuple[Fix, ...]:
        if self.kind == "skipped":
            return suggest_skipped(self.status, self.code)
        if self.kind == "overwritten":
            return suggest_overwritten(self.status)
        return suggest_recorded_again(self.status)


def list_cudagraph_reasons(connection: sqlite3.Connection, run_id: str) -> list[CudagraphReason]:
    values = {"run_id": run_id, "most": MOST, "overwritten": f"%{OVERWRITTEN}%"}
    found = []
    for kind, sql in (
        ("again", AGAIN_SQL),
        ("skipped", SKIPPED_SQL),
        ("overwritten", OVERWRITTEN_SQL),
    ):
        for row in map(dict, connection.execute(sql, values).fetchall()):
            # Of several functions nobody knows whose output was overwritten.
            is_known = row.get("function_count", 1) == 1
            maker = connection.execute(FUNCTION_SQL, {"key": row["parent_key"]}).fetchone()
            found.append(
                CudagraphReason(
                    kind,
                    row["status"],
                    row["count"],
                    row["function"] if is_known else None,
                    _find_call(connection, row["compile_key"]) if is_known else None,
                    maker["name"] if maker else None,
                    _find_call(connection, row["parent_key"]),
                    *(row.get(name) for name in ("file", "line", "code")),
                )
            )
    return found


def _find_call(connection: sqlite3.Connection, key: int | None) -> Caller | None:
    """Return the program's frame that called the compiled function."""
    row = connection.execute(STACK_OF_SQL, {"key": key}).fetchone()
    values = {"node": row["stack_id"] if row else None, "deepest": _CALL_DEPTH}
    has_entered = False
    for caller in (Caller(*frame) for frame in connection.execute(STACK_SQL, values)):
        if has_entered and not caller.file.startswith("torch/"):
            return caller
        has_entered = has_entered or caller.file == "torch/_dynamo/eval_frame.py"
    return None
