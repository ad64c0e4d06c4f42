"""Minimal programs that `bench --minify` stored among a result's facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_FINISHED = "minified"


@dataclass(frozen=True)
class MinimalProgram:
    repro_id: str | None
    graph: int | None
    graph_count: int | None
    node_count_before: int
    node_count: int
    operations: tuple[str, ...]
    failure: str | None
    program: str | None  # None: source is not stored
    is_finished: bool  # False: stopped at its time limit


def list_minimal_programs(facts: Mapping[str, Any]) -> list[MinimalProgram]:
    listed = facts.get("minimal_programs")
    bodies = [body for body in listed if isinstance(body, dict)] if isinstance(listed, list) else []
    return [_parse(body) for body in bodies]


def _parse(body: Mapping[str, Any]) -> MinimalProgram:
    operations = body.get("operations")
    return MinimalProgram(
        repro_id=_text(body.get("repro")),
        graph=_count(body.get("graph")),
        graph_count=_count(body.get("graph_count")),
        node_count_before=_count(body.get("node_count_before")) or 0,
        node_count=_count(body.get("node_count")) or 0,
        operations=tuple(map(str, operations)) if isinstance(operations, list) else (),
        failure=_text(body.get("failure")),
        program=_text(body.get("program")),
        is_finished=body.get("status") == _FINISHED,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
