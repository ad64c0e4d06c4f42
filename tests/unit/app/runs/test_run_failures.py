"""What compiled code raised is on the run's and compile's page, in reports and the API."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.comparison.load import load_side
from compileboard.app.comparison.sides import find_side
from compileboard.app.core.newest import read_clock
from compileboard.app.core.store import FileStore
from compileboard.app.runs import failures
from compileboard.app.runs import run_queries as run_detail
from compileboard.app.runs.model import build_summary
from compileboard.app.runs.rows import describe_state
from compileboard.collectors.cli.run import list_summary_lines
from compileboard.collectors.contract.events import RuntimeFailed
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.terminal.run_summary import summarize
from tests.unit.app.clickhouse.published import OpenEngine
from tests.unit.app.compared import now
from tests.unit.app.recorded import MARKUP, PROCESS, RUN, START_US, record_run

RAISED: dict[str, Any] = {
    "compile_id": "0/0",
    "frame_id": 0,
    "frame_compile_id": 0,
    "phase": "backward",
    "compiled_us": START_US * 2,
    "error_type": "RuntimeError",
    "message": f"a gradient {MARKUP}",
    "text": f"Traceback {MARKUP} in step",
    "function": "train",
    "file": "train.py",
    "line": 40,
    "occurrence_count": 1200,
}
ENDED: dict[str, Any] = {
    "phase": "program",
    "error_type": "ValueError",
    "message": "no",
    "ended_program": True,
}


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    record_run(store)
    told = [
        RuntimeFailed(PROCESS, 900 + n, START_US + n, position=n, **failure)
        for n, failure in enumerate((RAISED, ENDED))
    ]
    Ingestor(store).ingest(RUN, told)


def get(client: FlaskClient, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_run_in_which_compiled_code_raised_is_not_plain_green(reader: sqlite3.Connection) -> None:
    detail = run_detail.get_run(reader, RUN)
    assert detail is not None
    state = describe_state(detail.run, detail.run.heartbeat_us, 30)
    assert (state.word, state.kind) == ("finished", "warn")
    assert state.problems[0] == "3 failures"


def test_what_to_do_names_what_was_raised(reader: sqlite3.Connection) -> None:
    detail = run_detail.get_run(reader, RUN)
    assert detail is not None
    listed = build_summary(reader, detail.run).problems
    problems = {problem.title: problem for problem in listed if problem.kind == "failure"}
    assert list(problems) == [
        *("Compile failed: BackendCompilerFailed", "The program ended: ValueError"),
        "Raised in backward: RuntimeError",
    ]
    raised = problems["Raised in backward: RuntimeError"]
    assert (raised.number, raised.function, raised.line) == ("1,200 times", "train", 40)


def test_a_failed_compiles_group_has_its_own_words(reader: sqlite3.Connection) -> None:
    (group,) = failures.count_failed(reader, RUN)
    assert (group.error_type, group.compile_count) == ("BackendCompilerFailed", 1)


def test_the_failures_tab_has_a_card_for_each(client: FlaskClient) -> None:
    text = get(client, f"/runs/{RUN}?tab=failures")
    assert text.count('<article class="panel card"') == 3
    assert ">program<" not in text  # "ended the program" says it
    for word in ("backward", "ended the program", "1,200"):
        assert word in text
    assert "<b onclick" not in text


def test_the_compiles_page_says_what_its_code_raised(
    client: FlaskClient, reader: sqlite3.Connection
) -> None:
    (key,) = reader.execute("select compile_key from failures where phase = 'backward'").fetchone()
    text = get(client, f"/runs/{RUN}/compiles/{key}")
    assert "1,200 times" in text and "RuntimeError" in text
    assert ">raised 1,200 times</span>" in text


def test_the_api_tells_phases_counts_and_the_end(client: FlaskClient) -> None:
    rows = client.get(f"/api/v1/runs/{RUN}/failures").json["data"]  # type: ignore[index]
    assert [
        (row["phase"], row["occurrence_count"], row["ended_program"], row["file"]) for row in rows
    ] == [
        ("backward", 1200, False, "train.py"),
        ("program", 1, True, None),
        ("compile", 1, False, "model.py"),
    ]
    told = client.get(f"/api/v1/runs/{RUN}").json["data"]  # type: ignore[index]
    assert (told["failure_count"], told["skipped_frame_count"]) == (3, 0)


def test_a_comparison_counts_them_as_failures(
    open_engine: OpenEngine, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    store.execute("update processes set torch_version = '2.13.0' where run_id = ?", (RUN,))
    side = load_side(
        FileStore(reader), read_clock(), find_side(reader, *now(open_engine(reader)), RUN, "base")
    )
    assert side.totals["failure_count"] == 3


def test_reports_and_the_terminal_have_them_too(client: FlaskClient, database: Path) -> None:
    assert "| `RuntimeError` | backward | 1,200 |" in get(client, f"/runs/{RUN}/report.md")
    assert "ended the program" in get(client, f"/runs/{RUN}/report.html")
    summary = summarize(str(database), RUN)
    assert summary is not None and summary.failure_count == 3
    verdict, counts, next_command = list_summary_lines(str(database), RUN)
    assert (
        verdict == summary.savings
        and ", 3 failures; " in counts
        and f" try {RUN} --all " in next_command
    )
    assert (summary.failures[0].text, summary.failures[0].count) == ("train: RuntimeError", 1200)
