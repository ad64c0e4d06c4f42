"""Sums of reasons that are remembered: the same as read anew, whatever became of the runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from compileboard.app.core.engine import SqliteEngine
from compileboard.app.reasons import sums as reason_sums
from compileboard.app.reasons.graph_breaks import GRAPH_BREAKS, BreakFilter
from compileboard.app.reasons.queries import get_reason_trends, list_reasons
from compileboard.app.reasons.recompiles import RECOMPILES, CauseFilter
from compileboard.app.runs.queries import RunFilter, choose_slot_size
from compileboard.collectors.store.runs import publish_removal, publish_run
from tests.unit.app.seed import START_US, add_distinct_break, add_run, insert

SUBJECTS = [
    (GRAPH_BREAKS, BreakFilter(RunFilter())),
    (RECOMPILES, CauseFilter(RunFilter(suite="captures"))),
]


def ask(connection: sqlite3.Connection) -> list[Any]:
    engine = SqliteEngine(connection)
    return [
        answer
        for subject, selected in SUBJECTS
        for answer in (
            list_reasons(engine, subject, selected, limit=1000),
            get_reason_trends(engine, subject, selected),
        )
    ]


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reason_sums, "_memory", reason_sums._SumsCache())


def add(store: sqlite3.Connection, number: int, distinct: int) -> None:
    run_id = f"R{number:04}"
    add_run(store, run_id, started_us=START_US + number * 1_000_000)
    insert(
        store,
        "run_breaks",
        run_id=run_id,
        distinct_id=distinct,
        break_count=number + 1,
        compile_us=number,
    )
    publish_run(store, run_id)


def grow(store: sqlite3.Connection, run_id: str) -> None:
    store.execute("update run_breaks set break_count = break_count + 1 where run_id = ?", (run_id,))
    publish_run(store, run_id)


def move(store: sqlite3.Connection, run_id: str) -> None:
    store.execute("update runs set started_us = started_us - 50000000 where id = ?", (run_id,))
    publish_run(store, run_id)


def delete(store: sqlite3.Connection, run_id: str) -> None:
    store.execute("delete from runs where id = ?", (run_id,))
    publish_removal(store)


CHANGES: list[Callable[[sqlite3.Connection, str], None]] = [grow, move, delete]


@example(changes=[(1, 4), (2, 0)])  # the first slot has other runs, and the same first and last one
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 120)), min_size=1, max_size=8))
def test_remembered_sums_are_those_that_are_read_anew(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, changes: list[tuple[int, int]]
) -> None:
    forget(monkeypatch)
    store.execute("delete from runs")
    store.execute("delete from distinct_breaks")
    publish_removal(store)
    distinct = add_distinct_break(store, "print")
    for number in range(100):
        add(store, number, distinct)
    newest = 100
    for kind, chosen in changes:
        ask(store)
        if kind == 3:
            add(store, newest, distinct)
            newest += 1
        else:
            CHANGES[kind](store, f"R{chosen:04}")
    remembered = ask(store)
    forget(monkeypatch)
    assert ask(store) == remembered


def test_only_the_slots_that_changed_are_read(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    distinct = add_distinct_break(store, "print")
    for number in range(100):
        add(store, number, distinct)
    ask(store)
    statements: list[str] = []
    store.set_trace_callback(statements.append)
    ask(store)
    assert not any("run_breaks" in statement for statement in statements)
    grow(store, "R0099")
    ask(store)
    read = [statement for statement in statements if "group by w.slot, b.distinct_id" in statement]
    assert len(read) == 1
    assert "json_each('[24]')" in read[0]


@pytest.mark.parametrize(
    ("run_count", "size"), [(0, 1), (48, 1), (49, 2), (96, 2), (97, 4), (7500, 256)]
)
def test_slots_double(run_count: int, size: int) -> None:
    assert choose_slot_size(run_count) == size


def test_what_is_remembered_is_bounded(
    store: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    distinct = add_distinct_break(store, "print")
    for number in range(10):
        add(store, number, distinct)
    first = ask(store)
    of_one = reason_sums._memory._size // 2
    monkeypatch.setattr(reason_sums, "MAX_REMEMBERED", 3 * of_one)
    for suite in ("a", "b", "captures"):
        list_reasons(SqliteEngine(store), GRAPH_BREAKS, BreakFilter(RunFilter(suite=suite)))
    assert ask(store) == first
    assert reason_sums._memory._size <= 3 * of_one
    monkeypatch.setattr(reason_sums, "MAX_REMEMBERED", 1)
    grow(store, "R0009")
    assert ask(store) != first
    assert reason_sums._memory._size <= 1  # of a filter that no run passes
