"""Graphs that AOTAutograd compiled: their metadata, and the wrappers that torch wrote."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from compileboard.app.core import fields
from compileboard.app.core.rows import list_page
from compileboard.collectors.contract.shapes import AotSummary
from compileboard.collectors.contract.values import fit_json
from compileboard.collectors.store.payloads import DDP_SPLIT, WRAPPER_ARTIFACTS
from compileboard.collectors.store.reading import read_json, read_text

CONFIG_ARTIFACT = "torch._functorch.config"
_MOST = 20_000
_WRAPPERS = ", ".join(f"'{name}'" for name in (*WRAPPER_ARTIFACTS, DDP_SPLIT))


@dataclass(frozen=True)
class AotGraph:
    tables = ("aot_graphs",)

    id: fields.RowId
    artifact_id: int
    process_id: fields.ProcessId
    rank: fields.Rank
    compile_key: fields.CompileKey
    compile_id: fields.CompileId
    function: fields.FunctionName
    file: fields.FileName
    line: fields.LineNumber
    place: Annotated[fields.Count, "Which of the compile's graphs it is, from 1."]
    graph_count: Annotated[
        fields.Count, "Graphs of its compile: more than one where DDP splits it."
    ]
    summary: dict[str, Any] = field(repr=False)

    @staticmethod
    def read_columns(columns: dict[str, Any]) -> dict[str, Any]:
        alone = {"place": 1, "graph_count": 1} if columns["compile_key"] is None else {}
        return columns | alone | {"summary": read_summary(columns["summary"])}


GRAPHS_SQL = """
select
  g.id, g.artifact_id, a.process_id, coalesce(c.rank, p.rank) as rank, g.compile_key, g.compile_id,
  f.name as function, f.file, c.line, g.summary,
  (select count(*) from aot_graphs as o where o.compile_key = g.compile_key) as graph_count,
  (select count(*) from aot_graphs as o where o.compile_key = g.compile_key
    and o.id <= g.id) as place
from aot_graphs as g
join artifacts as a on a.id = g.artifact_id
left join compiles as c on c.id = g.compile_key
left join functions as f on f.id = c.function_id
left join processes as p on p.id = a.process_id
where g.run_id = :run_id
  and g.id > :after_id
order by g.id
limit :limit
"""
SUMMARIES_SQL = """
select id, compile_key, compile_id, summary
from aot_graphs
where run_id = :run_id
order by id
limit :limit
"""
WRAPPERS_SQL = f"""
select compile_key, name
from artifacts
where run_id = :run_id
  and name in ({_WRAPPERS})
  and compile_key is not null
order by name, id
limit :limit
"""  # noqa: S608  our own names
BACKWARD_SQL = """
select t.body
from artifacts as m
join artifacts as a on a.compile_key = m.compile_key
join payloads as t on t.id = a.payload_id
where m.id = :artifact_id
  and a.name = 'aot_backward_graph'
  and a.process_id = m.process_id
  and a.sequence > m.sequence
order by a.sequence
limit 1
"""
CONFIGS_SQL = """
select compile_key, payload_id
from artifacts
where run_id = :run_id
  and name = :name
  and compile_key is not null
  and payload_id is not null
order by id
limit :limit
"""
CONFIG_SQL = """
select body
from payloads
where id = :payload_id
"""


def read_summary(text: str) -> dict[str, Any]:
    """Read a graph's summary. Every field of an unreadable one is "not recorded"."""
    summary: dict[str, Any] = read_json(AotSummary, text) or fit_json(AotSummary, {})
    return summary


list_aot_graphs = partial(
    list_page, AotGraph, GRAPHS_SQL, first={"id": 0}, key=lambda graph: (graph.id,)
)


def list_summaries(
    connection: sqlite3.Connection, run_id: str
) -> list[tuple[int, int | None, str | None, str]]:
    return [
        tuple(row) for row in connection.execute(SUMMARIES_SQL, {"run_id": run_id, "limit": _MOST})
    ]


def list_wrappers(connection: sqlite3.Connection, run_id: str) -> dict[int, frozenset[str]]:
    """List the wrappers whose source torch logged, by compile; none before torch 2.13."""
    wrappers: defaultdict[int, set[str]] = defaultdict(set)
    for row in connection.execute(WRAPPERS_SQL, {"run_id": run_id, "limit": 10 * _MOST}):
        wrappers[row["compile_key"]].add(row["name"])
    return {key: frozenset(names) for key, names in wrappers.items()}


def list_rng_settings(connection: sqlite3.Connection, run_id: str) -> dict[int, bool]:
    settings: dict[int, Any] = {}  # by payload, because most compiles of a process share it
    compiles: dict[int, bool] = {}
    for row in connection.execute(
        CONFIGS_SQL, {"run_id": run_id, "name": CONFIG_ARTIFACT, "limit": _MOST}
    ):
        payload_id = row["payload_id"]
        if payload_id not in settings:
            body = connection.execute(CONFIG_SQL, {"payload_id": payload_id}).fetchone()
            settings[payload_id] = (
                read_json(dict[str, Any], body["body"] if body else None) or {}
            ).get("functionalize_rng_ops")
        if isinstance(settings[payload_id], bool):
            compiles.setdefault(row["compile_key"], settings[payload_id])
    return compiles


def read_backward(connection: sqlite3.Connection, artifact_id: int) -> str | None:
    row = connection.execute(BACKWARD_SQL, {"artifact_id": artifact_id}).fetchone()
    return None if row is None else read_text(row["body"])
