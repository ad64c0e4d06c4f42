"""Compiles that a kill interrupted, with and without torch's timed phases."""

from __future__ import annotations

import lzma
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.runs.failures import (
    COUNT_SQL,
    OPEN_SQL,
    UNFINISHED_SQL,
    count_unfinished,
    list_unfinished,
)
from compileboard.app.runs.queries import get_run
from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.contract.events import (
    CompileStarted,
    ProcessStarted,
    RunEnded,
    RunStarted,
)
from compileboard.collectors.logs.log_loader import LoadOptions
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.terminal.run_summary import summarize
from tests.tools.make_db import DATA
from tests.unit.app.clickhouse.published import OpenEngine
from tests.unit.app.explored import LOGS
from tests.unit.app.plan import assert_no_scan

RUN, PROCESS, START_US = "01J00000000000000000KILLED", "c" * 32, 1_795_000_000_000_000


def _record_killed_run(store: sqlite3.Connection, later: bool = False) -> None:
    starts = [
        CompileStarted(PROCESS, 2 + n, START_US + n, f"{n}/0", n, 0, function="f")
        for n in range(1 + later)
    ]
    Ingestor(store).ingest(RUN, [
        RunStarted(f"run-{RUN}", 0, START_US, RUN, "train"),
        ProcessStarted(PROCESS, 1, START_US, run_id=RUN, pid=7, torch_version="2.13.0"),
        *starts,
        RunEnded(f"run-{RUN}", 9, START_US + 2_500_000, RUN, "killed", signal="SIGKILL"),
    ])  # fmt: skip


def _read_run(client: FlaskClient, run_id: str = RUN) -> dict[str, Any]:
    data: dict[str, Any] = client.get(f"/api/v1/runs/{run_id}").json["data"]  # type: ignore[index]
    return data


def test_killed_run_says_which_compile_never_finished(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    _record_killed_run(store)
    data = _read_run(client)
    assert data["compile_us"] is None
    (finding,) = data["problems"]
    assert (finding["kind"], finding["title"]) == ("unfinished", "Compile 0/0 never finished")
    assert finding["number"] == "2.50 s from its start to the end of the run"
    page = client.get(f"/runs/{RUN}").text
    assert (
        "0 µs" not in page
        and "Nothing stands out" not in page
        and "1 compile never finished" in page
    )


def test_unfinished_compile_before_another_has_no_duration(
    open_engine: OpenEngine, store: sqlite3.Connection
) -> None:
    _record_killed_run(store, later=True)
    run = get_run(open_engine(store), RUN)
    assert run is not None
    last, first = list_unfinished(store, run)
    assert (last.compile_id, last.is_last, last.until_us) == ("1/0", True, 2_499_999)
    assert (first.compile_id, first.is_last, first.until_us) == ("0/0", False, None)
    assert count_unfinished(store, run) == 2


def test_running_run_has_no_unfinished_compile(
    open_engine: OpenEngine, store: sqlite3.Connection
) -> None:
    _record_killed_run(store)
    store.execute("update runs set state = 'running'")
    run = get_run(open_engine(store), RUN)
    assert (
        run is not None and list_unfinished(store, run) == [] and count_unfinished(store, run) == 0
    )


@pytest.fixture
def cut_run(database: Path, store: sqlite3.Connection, tmp_path: Path) -> str:
    """Import a real log that ends where inductor began to write code: what a killed program
    leaves.
    """
    records = re.split(rb"(?m)^(?=V\d{4} )", lzma.decompress(LOGS["zoo_recompiles"].read_bytes()))
    at = next(
        n
        for n, record in enumerate(records)
        if b'"fx_codegen_and_compile"' in record and b'"ph": "B"' in record
    )
    (tmp_path / "cut.log").write_bytes(b"".join(records[: at + 1]))
    import_paths(
        [str(tmp_path / "cut.log")],
        str(database),
        LoadOptions(name="cut"),
        print_line=lambda _line: None,
    )
    return str(store.execute("select id from runs").fetchone()["id"])


def test_cut_log_names_the_open_phases(
    client: FlaskClient, store: sqlite3.Connection, cut_run: str
) -> None:
    (finding,) = [
        finding
        for finding in _read_run(client, cut_run)["problems"]
        if finding["kind"] == "unfinished"
    ]
    assert finding["code"].startswith("dynamo › ") and finding["code"].endswith(
        " › fx_codegen_and_compile"
    )
    assert (
        finding["advice"]
        == "It was in inductor: fx_codegen_and_compile, the last phase that began."
    )
    key = store.execute("select id from compiles where outcome = 'started'").fetchone()["id"]
    page = client.get(f"/runs/{cut_run}/compiles/{key}").text
    assert "Never finished" in page and "fx_codegen_and_compile" in page
    assert (
        ">0 µs<" not in page
    )  # the last record began that phase: nobody knows for how long it was open


def test_code_that_came_from_a_saved_package_is_no_unfinished_compile(
    client: FlaskClient, database: Path, store: sqlite3.Connection, tmp_path: Path
) -> None:
    log = lzma.decompress((DATA / "trace" / "torch2.13-precompile.log.xz").read_bytes())
    (tmp_path / "second.log").write_bytes(log)
    import_paths(
        [str(tmp_path / "second.log")],
        str(database),
        LoadOptions(name="p"),
        print_line=lambda _line: None,
    )
    rows = store.execute("select run_id, outcome, resumed_at from compiles order by id").fetchall()
    assert [(row["outcome"], row["resumed_at"]) for row in rows] == [
        ("loaded", None),
        ("loaded", 20),
    ]
    assert _read_run(client, rows[0]["run_id"])["problems"] == []
    page = client.get(f"/runs/{rows[0]['run_id']}?tab=compiles&outcome=loaded").text
    assert "loaded" in page and "not finished" not in page


def test_killed_run_draws_no_chart_of_compiles_without_a_time(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    _record_killed_run(store)
    page = client.get(f"/runs/{RUN}?tab=compiles").text
    assert "not finished" in page and "compiles-chart" not in page


def test_unfinished_queries_scan_nothing(store: sqlite3.Connection) -> None:
    values = {"run_id": RUN, "key": None, "limit": 20}
    for sql in (UNFINISHED_SQL, OPEN_SQL, COUNT_SQL):
        assert_no_scan(store, sql, values)


@pytest.mark.parametrize(
    "left", [b"entire_frame_compile_time_s", b"end_time_us", b"dynamo_cumulative_compile_time_us"]
)
def test_log_without_durations_has_the_time_that_it_has(
    client: FlaskClient, database: Path, store: sqlite3.Connection, tmp_path: Path, left: bytes
) -> None:
    text = lzma.decompress((DATA / "trace" / "torch2.11-cuda-hf_Llama_dynamic.log.xz").read_bytes())
    for name in {b"duration_us", b"entire_frame_compile_time_s", b"end_time_us"} - {left}:
        text = text.replace(b'"%s"' % name, b'"was_%s"' % name)
    (tmp_path / "old.log").write_bytes(text)
    import_paths(
        [str(tmp_path / "old.log")],
        str(database),
        LoadOptions(name="old"),
        print_line=lambda _line: None,
    )
    row = store.execute(
        "select r.id, c.id as key from runs as r join compiles as c on c.run_id = r.id"
    ).fetchone()
    assert _read_run(client, row["id"])["compile_us"] > 1_000_000
    page = client.get(f"/runs/{row['id']}/compiles/{row['key']}").text
    assert re.search(rf" by [\w -]*{left.decode()}", page)


def test_summary_of_the_terminal_names_unfinished_compiles(
    store: sqlite3.Connection, database: Path
) -> None:
    _record_killed_run(store)
    summary = summarize(str(database), RUN)
    assert (
        summary is not None
        and "Compiles that never finished" in summary.text()
        and "f: compile 0/0" in summary.text()
    )
    assert "2.50 s from its start to the end of the run" in summary.text()
    store.execute("update runs set state = 'running'")
    summary = summarize(str(database), RUN)
    assert summary is not None and summary.unfinished == []
