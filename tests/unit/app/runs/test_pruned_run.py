"""The pages of a run whose detail was pruned: they say so, and show what stays."""

from __future__ import annotations

import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.collectors.store.pruning import PruneRule, prune_runs
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.recorded import RUN, record_run

PRUNED_US = 1_795_000_000_000_000


@pytest.fixture
def pruned(store: sqlite3.Connection) -> None:
    record_run(store)
    assert [run.id for run in prune_runs(store, PruneRule(2**60), 2**60, now_us=PRUNED_US)] == [RUN]


@pytest.mark.parametrize(
    "tab",
    [
        "",
        "?tab=compiles",
        "?tab=breaks",
        "?tab=recompiles",
        "?tab=failures",
        "?tab=caches",
        "/timeline",
        "/stacks",
        "/guards",
        "/aot",
    ],
)
def test_its_pages_tell_when_it_was_pruned(pruned: None, client: FlaskClient, tab: str) -> None:
    answer = client.get(f"/runs/{RUN}{tab}")
    assert answer.status_code == 200
    assert "Detail pruned on" in answer.text
    wrong = (
        "Nothing to fix",
        "No graph breaks",
        "No compiles",
        "No recompiles",
        "No failures.",
        "No timeline",
    )
    assert [words for words in wrong if words in answer.text] == []


def test_the_api_tells_when_and_has_the_totals(pruned: None, client: FlaskClient) -> None:
    run = client.get(f"/api/v1/runs/{RUN}").get_json()["data"]
    assert (run["pruned_us"], run["graph_break_count"]) == (PRUNED_US, 1)
    assert run["verdict"]["sentence"] == "1 graph break, 2 recompiles"


@on_both_engines
def test_lists_across_runs_have_its_counts(pruned: None, client: FlaskClient) -> None:
    assert RUN in client.get("/runs").text
    breaks = client.get("/api/v1/graph_breaks").get_json()["data"]
    assert breaks[0]["break_count"] == 1
    assert client.get(f"/graph_breaks/{breaks[0]['id']}").status_code == 200
