"""CUDA graphs of a run: recordings, the warm-up runs before them, and skips."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from compileboard.app.core import fields
from compileboard.app.core.labels import describe_cuda_graph_status
from compileboard.app.core.rows import list_page, list_rows
from compileboard.app.core.schema import one_of, published
from compileboard.collectors.contract import shapes
from compileboard.collectors.store.reading import read_json

MAX_GRAPHS = 5_000


@dataclass(frozen=True)
class MovedInput:
    """An input whose address differs from that at the recording of the graph."""

    name: Annotated[str, "Name of the input in the graph."]
    dtype: Annotated[str | None, "Dtype of the input."]
    shape: Annotated[tuple[int, ...] | None, "Shape of the input."]
    stack: fields.Stack

    @property
    def frame(self) -> Mapping[str, Any] | None:
        """Return the line that uses the input; torch keeps no line for parameters."""
        return self.stack[-1] if self.stack else None


@dataclass(frozen=True)
class GraphMismatch:
    """A reason why a CUDA graph could not be replayed, so that another was recorded."""

    graph: Annotated[int, "Number of the graph that did not fit, or began a path."]
    status: Annotated[str, "Why, in torch's word."]
    inputs: Annotated[tuple[MovedInput, ...], "The inputs that moved: the first 20."]
    input_count: Annotated[fields.Count, "How many moved."]

    @property
    @published
    def meaning(self) -> Annotated[str, "Why, in words."]:
        return describe_cuda_graph_status(self.status).meaning


@dataclass(frozen=True)
class CudaGraph:
    """One recording of a CUDA graph, or one warm-up run before it."""

    tables = ("cudagraphs",)

    id: fields.RowId
    process_id: fields.ProcessId
    process: fields.ProcessName
    rank: fields.Rank
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    stage: Annotated[str, one_of(("warm_up", "recording")), "Recorded, or only run before."]
    mode: str | None
    tree: int
    device: int | None
    graph_function: int
    graph: int | None
    parent_graph: int | None
    depth: int
    duration_us: int | None
    reserved_before_bytes: int | None
    reserved_after_bytes: int | None
    call_count: int | None
    status: str | None
    reasons: Annotated[
        tuple[GraphMismatch, ...], "What did not fit of the function's four newest graphs there."
    ]
    time_us: fields.EventTime

    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        return columns | {"reasons": read_reasons(columns["reasons"])}


def read_reasons(column: str | None) -> tuple[GraphMismatch, ...]:
    reasons = read_json(list[shapes.GraphMismatch], column) or ()
    return tuple(_read_mismatch(reason) for reason in reasons)


def _read_mismatch(reason: shapes.GraphMismatch) -> GraphMismatch:
    inputs = tuple(
        MovedInput(
            moved["name"],
            moved["dtype"],
            None if moved["shape"] is None else tuple(moved["shape"]),
            tuple(dict(frame) for frame in moved["stack"]),
        )
        for moved in reason["inputs"]
    )
    return GraphMismatch(reason["graph"], reason["status"], inputs, reason["input_count"])


def _select_sql(reasons: str) -> str:
    return f"""
select
  x.id, x.process_id, coalesce(c.rank, p.rank) as rank, x.compile_key, x.compile_id,
  f.name as function, f.file, c.line, x.stage, x.mode, x.tree, x.device, x.graph_function,
  x.graph, x.parent_graph, x.depth, x.duration_us, x.reserved_before_bytes,
  x.reserved_after_bytes, x.call_count, x.status, {reasons} as reasons, x.time_us
from cudagraphs as x
left join compiles as c on c.id = x.compile_key
left join functions as f on f.id = c.function_id
left join processes as p on p.id = x.process_id
"""  # noqa: S608 - our own texts


GRAPHS_SQL = f"""
{_select_sql("x.reasons")}
where x.run_id = :run_id
  and (x.time_us, x.id) > (:after_us, :after_id)
order by x.time_us, x.id
limit :limit
"""
# Of a graph with a hundred siblings each has a reason; a page shows why the newest did not fit.
_WITH_NEWEST_REASON = _select_sql("""case
    when x.status is not null and json_valid(x.reasons)
      then json_array(json_extract(x.reasons, '$[#-1]'))
  end""")
COMPILE_GRAPHS_SQL = f"""
{_WITH_NEWEST_REASON}
where x.compile_key = :key
order by x.time_us, x.id
limit :limit
"""
NEWEST_REASONS_SQL = f"""
{_WITH_NEWEST_REASON}
where x.run_id = :run_id
order by x.time_us, x.id
limit :limit
"""

list_graphs = partial(list_page, CudaGraph, GRAPHS_SQL)


def list_all(connection: sqlite3.Connection, run_id: str) -> list[CudaGraph]:
    """List a run's CUDA graphs up to a limit, each only with the reason that concerns its newest
    sibling.
    """
    return list_rows(CudaGraph, NEWEST_REASONS_SQL, connection, run_id, limit=MAX_GRAPHS)
