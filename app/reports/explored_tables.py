"""The tables of a report that come from torch's own logs, under the API's names; texts are not in them."""

from __future__ import annotations

import sqlite3
from typing import Any

from compileboard.app.analysis.aot_report import explain_graphs
from compileboard.app.analysis.explored_rows import (
    artifact_row,
    graph_row,
    guard_set_row,
    no_stack_row,
    read_stack_tree,
    span_name_row,
    stack_row,
)
from compileboard.app.analysis.rows import plain_row
from compileboard.app.analysis.shape_rows import shapes_row
from compileboard.app.analysis.shapes import build_shapes
from compileboard.app.queries import artifacts, guard_sets, logs, shapes, stacks, timeline
from compileboard.app.queries.aot_graphs import list_aot_graphs
from compileboard.app.queries.page import Page
from compileboard.app.reports.table import Table


def _list_names(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(timeline.list_totals(connection, run_id, limit=100_000)), None)


def _list_stacks(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    tree = read_stack_tree(connection, run_id)
    places = [it for number, it in tree.places.items() if number]
    codes = stacks.list_codes(connection, (it.id for it in places))
    found = [no_stack_row(tree.without_stack)] if tree.without_stack else []
    return Page((*found, *(stack_row(it, codes.get(it.id)) for it in places)), None)


def _list_aot(connection: sqlite3.Connection, run_id: str, cursor: str | None, limit: int) -> Page[Any]:
    page = list_aot_graphs(connection, run_id, cursor, limit)
    return Page(tuple(explain_graphs(connection, run_id, page.rows)), page.next)


def _list_rejects(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(logs.sum_rejects(connection, run_id)), None)


def _list_guards(connection: sqlite3.Connection, run_id: str, cursor: str | None, limit: int) -> Page[Any]:
    return guard_sets.list_guard_sets(connection, run_id, cursor=cursor, limit=limit)


EXPLORED_TABLES = (
    Table("artifacts", artifacts.list_artifacts, artifact_row),
    Table("spans_by_name", _list_names, span_name_row),
    Table("stacks", _list_stacks, dict),
    Table("guards", _list_guards, guard_set_row),
    Table("symbols", shapes.list_shape_compiles, lambda it: shapes_row(build_shapes(it))),
    Table("aot", _list_aot, graph_row),
    Table("rejects", _list_rejects, plain_row),
)
