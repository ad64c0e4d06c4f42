"""Errors that a wrapper raised: recorded tracebacks of torch 2.13, and the AOT page's panel."""

from __future__ import annotations

import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.aot.model import explain_errors
from compileboard.app.runs.failures import FailureRow
from tests.tools.make_db import DATA
from tests.unit.app.hostile import MARKUP
from tests.unit.app.seed import add_run, insert


def failure(text: str, phase: str) -> FailureRow:
    message = text.partition("RuntimeError: ")[2]
    unset = dict.fromkeys(FailureRow.__dataclass_fields__)
    return FailureRow(
        **unset | {"phase": phase, "text": text, "message": message, "error_type": "RuntimeError"}
    )


def test_a_wrong_guess_is_raised_by_the_wrapper() -> None:
    [error] = explain_errors(
        [failure((DATA / "raised" / "tangent.txt").read_text(encoding="utf-8"), "backward")]
    )
    assert "another type or subclass" in error.meaning
    assert "__coerce_same_metadata_as_tangent__" in error.fix


def test_a_copy_into_one_of_several_views_is_raised_by_the_wrapper() -> None:
    text = (DATA / "raised" / "unbind.txt").read_text(encoding="utf-8")
    assert "autograd does not allow" in explain_errors([failure(text, "wrapper")])[0].meaning


@pytest.mark.parametrize("name", ["inductor.txt", "nested.txt"])
def test_what_the_graph_raises_is_no_wrappers(name: str) -> None:
    assert (
        explain_errors([failure((DATA / "raised" / name).read_text(encoding="utf-8"), "backward")])
        == []
    )


def test_page_lists_errors_also_without_graphs(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_run(store, "R")
    values = {
        "process_id": "p",
        "sequence": 1,
        "phase": "wrapper",
        "error_type": "RuntimeError",
        "time_us": 1,
    }
    message = f"{MARKUP} compiled with non-empty donated buffers"
    insert(store, "failures", run_id="R", message=message, **values)
    store.commit()
    page = client.get("/runs/R/aot").text
    assert "Errors in wrappers" in page and "donated_buffer to False" in page
    assert "<img src=x" not in page
