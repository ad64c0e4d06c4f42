"""Stacks where compiles started, as one tree per run with shared outer frames."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from compileboard.collectors.store.ingest.insert import InsertForId

_DEEPEST = 500  # a program that recurses without end has no more to tell below


_STACK_NODE = InsertForId("stack_nodes")


class StackIndex:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._known: dict[tuple[Any, ...], int] = {}

    def forget(self) -> None:
        self._known.clear()

    def find(self, run_id: str, stack: Sequence[Mapping[str, Any]]) -> int | None:
        node: int | None = None
        is_new = False
        for depth, frame in enumerate(stack[-_DEEPEST:]):
            file, line, name = _text(frame.get("file")), frame.get("line"), _text(frame.get("name"))
            line = line if isinstance(line, int) else None
            key = (run_id, node, file, line, name)
            node_id = self._known.get(key)
            if node_id is None:
                values = {
                    "run_id": run_id,
                    "parent_id": node,
                    "depth": depth,
                    "file": file,
                    "line": line,
                    "name": name,
                }
                known_id = (
                    None if is_new else self._find_node(values)
                )  # a node that is new has none below it
                is_new = known_id is None
                node_id = (
                    self._add_node(values, frame.get("code")) if known_id is None else known_id
                )
                self._known[key] = node_id
            node = node_id
        return node

    def _add_node(self, values: dict[str, Any], code: Any) -> int:
        return _STACK_NODE.add_for_id(
            self.connection, {**values, "code": code if isinstance(code, str) else None}
        )

    def _find_node(self, values: dict[str, Any]) -> int | None:
        row = self.connection.execute(
            """
            select id
            from stack_nodes
            where run_id = :run_id
              and coalesce(parent_id, 0) = coalesce(:parent_id, 0)
              and file = :file
              and coalesce(line, -1) = coalesce(:line, -1)
              and name = :name
            """,
            values,
        ).fetchone()
        return None if row is None else int(row["id"])


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else "<unknown>"
