"""How runs and models stand in lists and on pages: what failed or is slower is never plain green."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.analysis.result_words import describe_status
from app.analysis.run_states import describe_recorded_state
from app.queries.result_rows import Measured, fill
from app.queries.runs import get_run
from tests.unit.app.seed import add_run


@pytest.mark.parametrize(
    ("state", "totals", "word", "kind", "problems"),
    [
        ("finished", {}, "finished", "good", ()),
        ("finished", {"failure_count": 1}, "finished", "warn", ("1 failure",)),
        ("finished", {"failure_count": 1, "runtime_failure_count": 2}, "finished", "warn", ("3 failures",)),
        ("finished", {"failed_result_count": 2}, "finished", "warn", ("2 results failed",)),
        ("killed", {"failure_count": 2}, "killed", "bad", ("2 failures",)),
        ("imported", {"failure_count": 1}, "imported", "quiet", ("1 failure",)),
    ],
)
def test_state_names_what_failed_in_a_run(
    client: FlaskClient, store: sqlite3.Connection, state: str, totals: Any, word: str, kind: str, problems: Any
) -> None:
    add_run(store, "R1", state=state, totals=totals)
    run = get_run(store, "R1")
    assert run is not None
    assert describe_recorded_state(run) == (word, kind, describe_recorded_state(run).explanation, problems)
    for page in ("/", "/runs", "/runs/R1"):
        text = client.get(page).text
        assert all(f'<span class="badge badge--bad">{problem}</span>' in text for problem in problems), page


@pytest.mark.parametrize(
    ("speedup", "high", "kind"),
    [
        (0.577, 0.6, "warn"),
        (0.9, 1.1, "good"),
        (0.9, None, "warn"),
        (0.97, None, "good"),
        (1.4, 1.5, "good"),
        (None, None, "good"),
    ],
)
def test_measured_model_that_is_slower_is_not_green(speedup: float | None, high: float | None, kind: str) -> None:
    values = {"status": "measured", "reason": None, "speedup": speedup, "speedup_low": None, "speedup_high": high}
    assert describe_status(fill(Measured, values)).kind == kind


def test_a_run_of_results_alone_counts_nothing(client: FlaskClient, store: sqlite3.Connection) -> None:
    add_run(store, "R1", torch_version=None, totals={"result_count": 3, "graph_break_count": 2, "process_count": 1})
    data = client.get("/api/v1/runs/R1").json["data"]  # type: ignore[index]
    assert {name: data[name] for name in ("graph_break_count", "compile_count", "recompile_count", "compile_us")} == {
        "graph_break_count": 2,
        "compile_count": None,
        "recompile_count": None,
        "compile_us": None,
    }
    row = client.get("/runs").text.partition("<tbody>")[2]
    assert row.count("not recorded") >= 3 and "0 µs" not in row
