"""Every query across runs gives the same on both engines: values, types and order."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import fields, is_dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.app.benchmarks import queries as models
from compileboard.app.benchmarks import series_queries as series
from compileboard.app.benchmarks import trend_queries as trends
from compileboard.app.benchmarks.queries import ModelFilter
from compileboard.app.clickhouse.engine import ClickHouseEngine
from compileboard.app.clickhouse.passes import list_months, rebuild_month
from compileboard.app.core.engine import Engine, SqliteEngine
from compileboard.app.core.page import FilterError
from compileboard.app.reasons import queries as reasons
from compileboard.app.reasons.failure_issues import FAILURES, IssueFilter
from compileboard.app.reasons.graph_breaks import GRAPH_BREAKS, BreakFilter
from compileboard.app.reasons.recompiles import RECOMPILES, CauseFilter
from compileboard.app.reasons.rerecordings import RERECORDINGS, RerecordingFilter
from compileboard.app.runs import overview_queries as overview
from compileboard.app.runs import queries as runs
from compileboard.app.runs.queries import RunFilter
from compileboard.app.server import prometheus as newest_runs
from compileboard.collectors.store.connection import open_reader
from tests.unit.app.clickhouse.published import PublishedBoard, PublishedBoards
from tests.unit.app.core.broad_board import DAY_US, ODD_TEXTS, BroadBoard
from tests.unit.app.core.fleet_calls import CALLS, NOT_COMPARED, list_functions
from tests.unit.app.seed import add_distinct_break, add_run, insert

pytestmark = pytest.mark.clickhouse


@pytest.fixture(scope="module")
def board(broad: Path) -> Iterator[BroadBoard]:
    with closing(open_reader(broad)) as reader:
        yield BroadBoard(reader)


@pytest.fixture(scope="module")
def published(chdb_folder: Path, board: BroadBoard) -> ClickHouseEngine:
    return PublishedBoard(chdb_folder).publish(board.connection)


# Detection puts the points of a series in its own order: reading them sorted takes longer.
_UNSORTED = (series.list_model_points, series.list_suite_points, series.list_run_points)


def _call(function: Callable[..., Any], engine: Engine, arguments: Mapping[str, Any]) -> Any:
    """Call a function; what it refuses to do is an answer too."""
    try:
        answer = _plain(function(engine=engine, **arguments))
    except FilterError as error:
        return str(error)
    if function is series.list_point_runs:  # an engine numbers publications by itself
        answer = [[name, run | {"pub": 0}] for name, run in answer]
    return _sort(answer) if function in _UNSORTED else answer


def _plain(value: Any) -> Any:
    """Return a value as lists, dictionaries and scalars, whatever order sets and dictionaries
    have.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return [
            type(value).__name__,
            {field.name: _plain(getattr(value, field.name)) for field in fields(value)},
        ]
    if isinstance(value, Mapping):
        return {
            "items": sorted(([_plain(key), _plain(each)] for key, each in value.items()), key=repr)
        }
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value), key=repr)
    if isinstance(value, list | tuple | Iterator):
        return list(map(_plain, value))
    return value


def _sort(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sort(each) for key, each in value.items()}
    return sorted(map(_sort, value), key=repr) if isinstance(value, list) else value


def _is_same(answer: Any, other: Any) -> bool:
    """Return True if two values are equal, their types too, and their floats to 1e-12."""
    if type(answer) is not type(other):
        return False
    if isinstance(answer, dict):
        return answer.keys() == other.keys() and all(
            _is_same(answer[key], other[key]) for key in answer
        )
    if isinstance(answer, list):
        return len(answer) == len(other) and all(map(_is_same, answer, other))
    return (
        math.isclose(answer, other, rel_tol=1e-12)
        if isinstance(answer, float)
        else bool(answer == other)
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "function", CALLS, ids=lambda of: f"{of.__module__.rpartition('.')[2]}.{of.__name__}"
)
def test_a_query_gives_the_same(
    function: Callable[..., Any], board: BroadBoard, published: ClickHouseEngine
) -> None:
    answers = []
    for arguments in CALLS[function](board):
        expected = _call(function, SqliteEngine(board.connection), arguments)
        answer = _call(function, published, arguments)
        assert _is_same(answer, expected), f"{function.__name__}({arguments})"
        answers.append(repr(expected))
    assert len(set(answers)) > (len(answers) > 1), "no argument makes a difference"


@settings(max_examples=8)
@given(
    text=st.text(min_size=1, max_size=8) | st.sampled_from([text[:9] for text in ODD_TEXTS if text])
)
def test_any_text_is_looked_for_alike(
    board: BroadBoard, published: ClickHouseEngine, text: str
) -> None:
    calls: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (runs.list_runs, {"selection": RunFilter(text=text), "pinned_first": False}),
        (
            reasons.list_reasons,
            {"subject": GRAPH_BREAKS, "selected": BreakFilter(RunFilter(), text=text)},
        ),
        (models.list_brief_results, {"selection": ModelFilter(q=text)}),
        (runs.find_run_ids, {"prefix": text}),
    ]
    for function, arguments in calls:
        expected = _call(function, SqliteEngine(board.connection), arguments)
        assert _is_same(_call(function, published, arguments), expected)


_texts = st.text(max_size=5) | st.sampled_from([text[:9] for text in ODD_TEXTS])
_numbers = st.integers(0, 3) | st.integers(0, 2**50)


@settings(max_examples=8)
@given(
    st.lists(
        st.tuples(_texts, st.none() | _texts, st.none() | _texts, _numbers, _numbers),
        min_size=1,
        max_size=6,
    )
)
def test_any_runs_are_listed_alike(
    store: sqlite3.Connection,
    published_boards: PublishedBoards,
    drawn: list[tuple[str, str | None, str | None, int, int]],
) -> None:
    store.execute("delete from runs")
    for number, (name, suite, branch, started_us, count) in enumerate(drawn):
        words = {
            "name": name,
            "suite": suite,
            "git_branch": branch,
            "host": branch,
            "started_us": started_us,
        }
        add_run(
            store, f"R{number}", **words, totals={"compile_count": count, "compile_us": started_us}
        )
    engine = published_boards.open_engine(store)
    calls: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (runs.list_runs, {"sort": "compiles.asc"}),
        *((runs.list_runs, {"selection": RunFilter(text=name[:2])}) for name, *_rest in drawn),
        (runs.list_choices, {}),
        (trends.list_branches, {}),
        (overview.list_series, {}),
        (series.list_series_names, {}),
        (newest_runs.list_newest_runs, {"limit": 9}),
    ]
    for function, arguments in calls:
        assert _is_same(
            _call(function, engine, arguments), _call(function, SqliteEngine(store), arguments)
        )


@pytest.fixture(scope="module")
def spread(
    chdb_folder: Path, board: BroadBoard
) -> Iterator[tuple[sqlite3.Connection, PublishedBoard]]:
    """Spread the runs over five months."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        board.connection.backup(connection)
        connection.row_factory = sqlite3.Row
        connection.execute(
            "update runs set started_us = started_us - rowid % 5 * 30 * :day", {"day": DAY_US}
        )
        published = PublishedBoard(chdb_folder)
        published.publish(connection)
        yield connection, published


_NOVEMBER_US = 1_793_491_200_000_000  # 2026-11-01 00:00 UTC
_SPANS: tuple[dict[str, Any], ...] = (
    {},
    {"suite": "nightly", "name": "train"},
    {"suite": "nightly"},
    {"name": "train", "since_us": _NOVEMBER_US - 40 * DAY_US},
    {"since_us": _NOVEMBER_US, "before_us": _NOVEMBER_US + 18 * DAY_US},
    {"since_us": _NOVEMBER_US - 61 * DAY_US + 1, "before_us": _NOVEMBER_US},
    {"before_us": _NOVEMBER_US - 15 * DAY_US},
    {"host": "box"},
)


@pytest.mark.nightly
@pytest.mark.parametrize("step", [2, 1])  # every second month is summed up, all
def test_sums_of_months_change_no_answer(
    spread: tuple[sqlite3.Connection, PublishedBoard], step: int
) -> None:
    connection, published = spread
    with published.engine.clients.borrow() as client:
        months = sorted(list_months(client))
        assert len(months) > 4
        for month in months[::step]:
            rebuild_month(client, month, step)
    subjects = (
        (GRAPH_BREAKS, BreakFilter),
        (RECOMPILES, CauseFilter),
        (RERECORDINGS, RerecordingFilter),
        (FAILURES, IssueFilter),
    )
    for span, (subject, filter_type) in product(_SPANS, subjects):
        selected = filter_type(RunFilter(**span), text=None if span else "a")
        listed = reasons.list_reasons(SqliteEngine(connection), subject, selected, limit=5).rows
        chosen = {"subject": subject, "selected": selected}
        for function, more in (
            (reasons.list_reasons, {"sort": "last", "limit": 9}),
            (reasons.get_reason_trends, {"shown": [reason.id for reason in listed]}),
        ):
            expected = _call(function, SqliteEngine(connection), chosen | more)
            assert _is_same(_call(function, published.engine, chosen | more), expected), chosen


def test_reasons_whose_texts_are_not_there_are_left_out(
    chdb_folder: Path, store: sqlite3.Connection
) -> None:
    add_run(store, "R1")
    distinct_id = add_distinct_break(store, "a break")
    insert(store, "run_breaks", run_id="R1", distinct_id=distinct_id, break_count=1, compile_us=1)
    published = PublishedBoard(chdb_folder)
    engine, every = (
        published.publish(store),
        {"subject": GRAPH_BREAKS, "selected": BreakFilter(RunFilter())},
    )
    assert [reason.break_count for reason in reasons.list_reasons(engine, **every).rows] == [1]
    with published.clients.borrow() as client:
        client.command("truncate table distinct_breaks")
    assert reasons.list_reasons(engine, **every).rows == ()
    assert reasons.get_reason(engine, GRAPH_BREAKS, distinct_id) is None


def test_no_query_is_missing() -> None:
    missing = set(list_functions()) - CALLS.keys()
    assert {function.__name__ for function in missing} == NOT_COMPARED
