"""A break's and a recompile cause's page lead to the models that have it."""

from __future__ import annotations

import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.reasons.graph_breaks import GRAPH_BREAKS
from compileboard.app.reasons.queries import ReasonSubject
from compileboard.app.reasons.reason_events import (
    affected_sql,
    benchmarks_sql,
    list_affected_models,
    list_benchmarks,
)
from compileboard.app.reasons.recompiles import RECOMPILES
from compileboard.collectors.contract.fingerprints import format_id
from tests.unit.app.benched import BREAK_ID, RUNS, bench_suite
from tests.unit.app.clickhouse.published import OpenEngine
from tests.unit.app.plan import assert_no_scan


@pytest.mark.parametrize(
    ("subject", "stored", "count"),
    [(GRAPH_BREAKS, "distinct_id from run_breaks", 2), (RECOMPILES, "cause_id from run_causes", 1)],
)
def test_a_model_is_listed_once_with_its_newest_speedup(
    open_engine: OpenEngine,
    store: sqlite3.Connection,
    reader: sqlite3.Connection,
    subject: ReasonSubject,
    stored: str,
    count: int,
) -> None:
    bench_suite(store)
    (reason_id,) = reader.execute(f"select {stored}").fetchone()
    run_ids = list_benchmarks(open_engine(reader), subject, reason_id)
    (model,) = list_affected_models([(reader, run_ids)], subject, reason_id)
    speedup = (
        "select speedup from results join series on series.id = series_id where model = "
        "'Breaky' and run_id = ?"
    )
    newest = reader.execute(f"{speedup} and experiment = 'performance'", (RUNS[-1],)).fetchone()[0]
    assert (model.model, model.run_id, model.event_count, model.speedup) == (
        "Breaky",
        RUNS[-1],
        count,
        newest,
    )
    assert_no_scan(reader, affected_sql(subject), {"id": 1, "run_ids": "[]"})
    assert_no_scan(reader, benchmarks_sql(subject), {"id": 1, "limit": 10})


@pytest.mark.parametrize(
    ("path", "stored"),
    [("graph_breaks", "distinct_id from run_breaks"), ("recompiles", "cause_id from run_causes")],
)
def test_the_page_links_to_the_model(
    client: FlaskClient,
    store: sqlite3.Connection,
    reader: sqlite3.Connection,
    path: str,
    stored: str,
) -> None:
    bench_suite(store)
    text = client.get(f"/{path}/{format_id(reader.execute(f'select {stored}').fetchone()[0])}").text
    address = text.partition('href="/models/Breaky')[2].partition('"')[0].replace("&amp;", "&")
    assert "Models affected" in text
    assert "Fuse the two norms</a>" in text, "a benchmark's run is called by its commit's subject"
    assert client.get(f"/models/Breaky{address}").status_code == 200


def test_a_break_of_models_without_a_backend_has_its_page(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    bench_suite(store)
    store.execute("update series set backend = ''")
    text = client.get(f"/graph_breaks/{BREAK_ID}").text
    assert "Models affected" in text and "bench_models · inference · float32 · cuda<" in text
