"""Recompiles across runs: numbers agree with the rows, filters narrow, one cause has its page."""

from __future__ import annotations

import html
import re
import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.core.fields import CauseFields
from compileboard.app.reasons.queries import (
    get_reason,
    get_reason_trends,
    list_affected_runs,
    list_reasons,
)
from compileboard.app.reasons.recompiles import RECOMPILES
from compileboard.collectors.contract.fingerprints import format_id, parse_id
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.store.run_causes import load_causes
from tests.unit.app.clickhouse.published import OpenEngine, on_both_engines
from tests.unit.app.seed import START_US, add_function, add_run, insert

pytestmark = on_both_engines

ALL = RECOMPILES.read_filter({})


def test_causes_agree_with_their_recompiles(
    open_engine: OpenEngine, recorded_reader: sqlite3.Connection
) -> None:
    causes = list_reasons(open_engine(recorded_reader), RECOMPILES, ALL, limit=1000).rows
    rows = recorded_reader.execute(
        "select cause_id, count(*), sum(is_partial) from recompiles group by cause_id"
    )
    expected = {format_id(key): (count, partial) for key, count, partial in rows}
    assert {cause.id: (cause.recompile_count, cause.partial_count) for cause in causes} == expected


def test_the_summary_is_the_sum_of_the_list(
    open_engine: OpenEngine, recorded_reader: sqlite3.Connection
) -> None:
    causes = list_reasons(open_engine(recorded_reader), RECOMPILES, ALL, limit=1000).rows
    trends = get_reason_trends(open_engine(recorded_reader), RECOMPILES, ALL)
    summary, cells = trends.summary, trends.grid
    total = recorded_reader.execute(
        "select count(*), count(distinct run_id) from recompiles"
    ).fetchone()
    assert (summary.recompile_count, summary.run_count) == tuple(total)
    assert summary.partial_count == sum(cause.partial_count for cause in causes)
    limits = recorded_reader.execute(
        "select count(*) from compiles where outcome = 'recompile_limit'"
    ).fetchone()[0]
    assert summary.limit_count == limits
    assert sum(kind.count for kind in cells.kinds) == summary.recompile_count


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", RECOMPILES.orders)
@pytest.mark.parametrize("way", ["", ".asc"])
def test_pages_visit_every_cause_once_in_order(
    open_engine: OpenEngine, recorded_reader: sqlite3.Connection, order: str, way: str
) -> None:
    whole = list_reasons(
        open_engine(recorded_reader), RECOMPILES, ALL, sort=order + way, limit=1000
    ).rows
    keys = [getattr(cause, RECOMPILES.orders[order]) for cause in whole]
    assert keys == sorted(keys, reverse=not way)
    cursor, seen = None, []
    while True:
        page = list_reasons(
            open_engine(recorded_reader), RECOMPILES, ALL, sort=order + way, cursor=cursor, limit=25
        )
        seen += [row.id for row in page.rows]
        cursor = page.next
        if cursor is None:
            break
    assert seen == [cause.id for cause in whole]


def _add_cause(
    store: sqlite3.Connection, category: str, source: str, function_id: int | None
) -> int:
    values = {
        "fingerprint": f"{category}/{source}",
        "category": category,
        "source": source,
        "reason": f"{source} != 2",
    }
    return insert(store, "recompile_causes", function_id=function_id, **values)


@pytest.fixture
def seeded(store: sqlite3.Connection) -> tuple[int, int]:
    """Add two causes: a size in both runs, an int value in the newer one alone."""
    function_id = add_function(store, "Model.forward", "model.py")
    first = _add_cause(store, "tensor_size", "L['x']", function_id)
    second = _add_cause(store, "int_value", "L['100%_n']", None)
    for number, suite in enumerate(("a", "b")):
        add_run(store, f"R{number}", suite=suite, started_us=START_US + number)
        values = {"recompile_count": 2, "partial_count": 1, "compile_us": 1000}
        insert(store, "run_causes", run_id=f"R{number}", cause_id=first, **values)
    insert(store, "run_causes", run_id="R1", cause_id=second, recompile_count=1)
    return first, second


@pytest.mark.parametrize(
    ("query", "which"),
    [
        ("", (0, 1)),
        ("q=l['X']", (0,)),
        ("q=%25_", (1,)),
        ("category=int_value", (1,)),
        ("function=Model.f", (0,)),
        ("suite=a", (0,)),
        ("suite=b&sort=recompiles.asc", (1, 0)),
        ("suite=c", ()),
    ],
)
def test_each_filter_lets_its_causes_through(
    client: FlaskClient, seeded: tuple[int, int], query: str, which: tuple[int, ...]
) -> None:
    answer = client.get(f"/recompiles?{query}")
    assert answer.status_code == 200
    listed = list(
        dict.fromkeys(
            int(number) for number in re.findall(r'href="/recompiles/(\d+)"', answer.text)
        )
    )
    assert listed == [seeded[number] for number in which]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("sort=x", "sort: 'x' is not one of recompiles"),
        ("category=x", "category: 'x' is not one of tensor_size"),
        ("cursor=x", "cursor: "),
        ("x=y", "x: there is no such filter"),
    ],
)
def test_a_bad_filter_is_one_sentence(client: FlaskClient, query: str, sentence: str) -> None:
    answer = client.get(f"/recompiles?{query}")
    assert answer.status_code == 400
    assert sentence in html.unescape(answer.text)


def _list_causes(reader: sqlite3.Connection, run_id: str, reason_id: str) -> list[Cause]:
    return [
        cause for cause in load_causes(reader, run_id) if parse_id(reason_id) in cause.content_ids
    ]


def test_one_cause_has_its_runs_values_and_fixes(
    open_engine: OpenEngine, recorded_client: FlaskClient, recorded_reader: sqlite3.Connection
) -> None:
    for row in list_reasons(open_engine(recorded_reader), RECOMPILES, ALL, limit=5).rows:
        reason = get_reason(open_engine(recorded_reader), RECOMPILES, parse_id(row.id))
        assert reason is not None
        assert (reason.recompile_count, reason.run_count) == (row.recompile_count, row.run_count)
        runs = list_affected_runs(
            open_engine(recorded_reader), RECOMPILES, parse_id(row.id), limit=500
        ).rows
        assert sum(run.count for run in runs) == row.recompile_count
        text = html.unescape(recorded_client.get(f"/recompiles/{row.id}").text)
        fixes = [
            fix.title
            for cause in _list_causes(recorded_reader, runs[0].id, row.id)
            for fix in cause.fixes
        ]
        assert all(title in text for title in fixes)
        assert all(f"/runs/{run.id}" in text for run in runs)


@pytest.mark.parametrize("number", ["0", "999999", "x", "-1", "1e3"])
def test_a_cause_that_is_not_there_is_not_found(client: FlaskClient, number: str) -> None:
    answer = client.get(f"/recompiles/{number}")
    assert answer.status_code == 404
    assert f"There is no cause of recompiles {number}" in answer.text


@pytest.mark.parametrize(
    ("category", "source", "title"),
    [
        ("module_attribute", "self.calls, self.mode", "self.calls and self.mode change together"),
        ("several", "x, d['a, b']", "x and d['a, b'] change together"),
        ("int_value", "d['a, b']", "d['a, b'] changes"),
    ],
)
def test_a_cause_of_several_sources_names_them(category: str, source: str, title: str) -> None:
    cause = CauseFields()
    cause.category, cause.source, cause.reason = category, source, "why"
    assert cause.title == title
