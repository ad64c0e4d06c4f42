"""A run's page, its API, and its report as HTML, Markdown and JSON say the same of it."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from compileboard.app.core.settings import Settings
from compileboard.app.reasons.model import MAX_CAUSES, MAX_STEPS
from compileboard.app.reports.markdown import MAX_TABLE_ROWS
from compileboard.collectors.contract.events import GuardFailure, Recompiled, dump_event
from compileboard.collectors.store.codec import pack
from compileboard.collectors.store.dashboard import Trial, save_trial
from compileboard.collectors.store.run_causes import load_causes
from compileboard.collectors.terminal.run_summary import summarize
from tests.unit.app.seed import START_US, add_function, add_run, insert

RUN, PROCESS = "R1", "p" * 32
STALE_AFTER_US = Settings().stale_after_s * 1_000_000


def add_observed_run(store: sqlite3.Connection, state: str = "finished", **totals: int) -> None:
    add_run(store, RUN, state=state, heartbeat_us=START_US, torch_version="2.13.0", totals=totals)
    times = {"started_us": START_US, "last_seen_us": START_US, "last_sequence": 1}
    told = {"capabilities": '{"trace": "ok (read from its log)"}', "environment": "{}"}
    insert(store, "processes", id=PROCESS, run_id=RUN, pid=7, **times, **told)


def add_compile(store: sqlite3.Connection, number: int, function_id: int, **more: str | int) -> int:
    values: dict[str, str | int] = {
        "outcome": "compiled",
        "total_us": 1000,
        "frame_id": 0,
        "frame_compile_id": number,
    }
    values |= {"run_id": RUN, "process_id": PROCESS, "generation": 0, "compile_id": f"0/{number}"}
    return insert(
        store,
        "compiles",
        **(values | {"started_us": START_US + number, "function_id": function_id} | more),
    )


def add_causes(store: sqlite3.Connection, count: int) -> None:
    function_id = add_function(store)
    for number in range(count):
        cause = {
            "category": "tensor_size",
            "source": f"L['x{number}']",
            "reason": f"size of x{number}",
        }
        cause_id = insert(
            store, "recompile_causes", fingerprint=f"f{number}", function_id=function_id, **cause
        )
        counts = {"recompile_count": 1, "compile_us": 1000 + number}
        insert(store, "run_causes", run_id=RUN, cause_id=cause_id, **counts)


@pytest.fixture
def get(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def answer(path: str, now_us: int = START_US) -> str:
        monkeypatch.setattr(time, "time_ns", lambda: now_us * 1000)
        response = client.get(path)
        assert response.status_code == 200, response.text
        return response.text

    return answer


@pytest.mark.parametrize(
    ("silent_us", "word"),
    [(0, "running"), (STALE_AFTER_US, "running"), (STALE_AFTER_US + 1, "interrupted?")],
)
def test_a_silent_recorders_run_has_one_state(
    get: Callable[..., str],
    store: sqlite3.Connection,
    client: FlaskClient,
    silent_us: int,
    word: str,
) -> None:
    add_observed_run(store, "running", compile_count=1)
    now_us = START_US + silent_us
    for path in (f"/runs/{RUN}", f"/runs/{RUN}/report.html"):
        badge = re.search(
            r'class="run__line"[^<]*<span class="badge[^>]*>([^<]*)<', get(path, now_us)
        )
        assert badge is not None
        assert badge[1] == word, path
    assert f"\n{word} · " in get(f"/runs/{RUN}/report.md", now_us)
    for path in (f"/api/v1/runs/{RUN}", f"/runs/{RUN}/report.json"):
        assert re.findall(r'"shown_state": ?"([^"]*)"', get(path, now_us)) == [word], path


def add_recompiles(store: sqlite3.Connection, count: int) -> None:
    for number in range(count):
        function_id = add_function(store, f"f{number}")  # in one, a single change would undo them
        cause = {"category": "int_value", "source": f"k{number}", "reason": f"k{number} == 1"}
        cause_id = insert(
            store, "recompile_causes", fingerprint=f"r{number}", function_id=function_id, **cause
        )
        key = add_compile(store, number, function_id, recompiled_from="?", total_us=2000 + number)
        of_run = {"run_id": RUN, "process_id": PROCESS, "sequence": number, "time_us": START_US}
        of_cause = {"compile_key": key, "function_id": function_id, "cause_id": cause_id}
        insert(store, "recompiles", **of_cause, **of_run)
        guard = GuardFailure(
            "0/0", cause["reason"], "int_value", cause["source"], fingerprint=f"r{number}"
        )
        event = Recompiled(PROCESS, number, START_US, guards=[guard])
        insert(store, "events", kind=event.KIND, body=pack(dump_event(event)), **of_run)


def test_every_cause_is_named_everywhere(
    get: Callable[..., str], store: sqlite3.Connection, client: FlaskClient
) -> None:
    count = MAX_TABLE_ROWS + 3
    add_observed_run(store, compile_count=count, recompile_count=count, compile_us=10**6)
    add_recompiles(store, count)
    listed = client.get(f"/api/v1/runs/{RUN}/causes").json["data"]
    saved_us = [cause["saved_us"] for cause in listed]
    assert saved_us == sorted(saved_us, reverse=True) and len(listed) == count
    titles = [cause["title"] for cause in listed]
    sentence = client.get(f"/api/v1/runs/{RUN}").json["data"]["verdict"]["sentence"]
    for path in (f"/runs/{RUN}", f"/runs/{RUN}/report.html"):
        assert re.findall(r'<span class="cause__title">(.*?)</span>', get(path)) == titles, path
        assert sentence in get(path)
    assert "And 3 more causes." in get(f"/runs/{RUN}/report.md")
    assert sentence in get(f"/runs/{RUN}/report.md")


def test_causes_have_one_limit(get: Callable[..., str], store: sqlite3.Connection) -> None:
    add_observed_run(store, compile_count=1, recompile_count=MAX_CAUSES + 5)
    add_causes(store, MAX_CAUSES + 5)
    for path in (f"/runs/{RUN}?tab=recompiles", f"/runs/{RUN}/report.html"):
        text = get(path)
        table = text[text.index("Recompile causes</caption>") :]
        sources = re.findall(
            r"<code>L\[&#39;x(\d+)&#39;\]</code>", table[: table.index("</table>")]
        )
        assert sources == [str(number) for number in range(MAX_CAUSES + 4, 4, -1)], path
        assert f"The first {MAX_CAUSES}." in table, path


def test_a_long_chain_is_cut_alike(get: Callable[..., str], store: sqlite3.Connection) -> None:
    count = MAX_STEPS + 15
    add_observed_run(store, compile_count=count, recompile_count=count - 1)
    function_id = add_function(store)
    for number in range(count):
        add_compile(
            store, number, function_id, **({"recompiled_from": f"0/{number - 1}"} if number else {})
        )
    ends = [*range(MAX_STEPS // 4), *range(MAX_STEPS // 4 + 15, count)]
    for path in (f"/runs/{RUN}?tab=recompiles", f"/runs/{RUN}/report.html"):
        text = get(path)
        chain = text[text.index('<ol class="chain">') :]
        chain = chain[: chain.index("</ol>")]
        ids = re.findall(r'class="chain__head"><(?:a|span) class="mono"[^>]*>0/(\d+)<', chain)
        assert [int(number) for number in ids] == ends, path
        assert "15 steps not shown" in chain, path
        # A recompile that torch gave no reason for is no first compile.
        assert chain.count("recompiled, without a reason from torch") == len(ends) - 1, path


def test_a_compile_without_an_end_is_called_the_same_while_the_run_goes_on(
    get: Callable[..., str], store: sqlite3.Connection
) -> None:
    add_observed_run(store, "running", compile_count=1)
    key = add_compile(store, 0, add_function(store), outcome="started")
    values = {
        "process_id": PROCESS,
        "compile_key": key,
        "compile_id": "0/0",
        "error_type": "E",
        "time_us": START_US,
    }
    insert(store, "failures", run_id=RUN, sequence=3, **values)
    for path in (
        f"/runs/{RUN}?tab=compiles",
        f"/runs/{RUN}?tab=failures",
        f"/runs/{RUN}/report.html",
    ):
        text = get(path)
        assert ">started</span>" in text, path
        assert "not finished" not in text, path


def test_what_could_be_recorded_is_told_alike(
    get: Callable[..., str], store: sqlite3.Connection
) -> None:
    add_observed_run(store, compile_count=1)
    for path in (f"/runs/{RUN}?tab=processes", f"/runs/{RUN}/report.html"):
        text = get(path)
        assert "All capabilities" in text, path
        assert "Not recordable" not in text, path


def test_lines_with_shape_guards_are_told_alike(
    get: Callable[..., str], store: sqlite3.Connection
) -> None:
    add_observed_run(store, compile_count=1)
    key = add_compile(store, 0, add_function(store))
    for number, (file, source_line) in enumerate(
        (("train.py", "if x.size(0) > 3:"), ("<string>", None))
    ):
        values = {
            "file": file,
            "line": 3,
            "source_line": source_line,
            "expression": "s0 > 3",
            "detail": pack("{}"),
        }
        ids = {
            "run_id": RUN,
            "process_id": PROCESS,
            "sequence": 10 + number,
            "compile_key": key,
            "compile_id": "0/0",
        }
        insert(store, "symbols", kind="guarded", symbol="s0", time_us=START_US, **ids, **values)
    for path in (f"/runs/{RUN}/shapes", f"/runs/{RUN}/report.html"):
        text = get(path)
        table = text[text.index("Lines by shape guards</caption>") :]
        counts = re.findall(r'data-label="Compiles">([^<]*)</td>', table[: table.index("</table>")])
        # Compiles overlap where torch names no line of the user's.
        assert sorted(counts) == ["1", "at least 1"], path


def test_versions_that_a_log_has_are_on_every_screen(
    explored_client: FlaskClient, explored: Path
) -> None:
    runs = explored_client.get("/api/v1/runs?name=zoo_recompiles").get_json()["data"]
    (run_id,) = [run["id"] for run in runs]
    assert (
        explored_client.get(f"/api/v1/runs/{run_id}").get_json()["data"]["triton_version"]
        == "3.6.0"
    )
    for page in (f"/runs/{run_id}?tab=environment", f"/runs/{run_id}/report.html"):
        text = " ".join(re.sub(r"<[^>]*>", " ", explored_client.get(page).text).split())
        assert (
            "torch 2.11.0+cu130" in text and "CUDA of torch 13.0" in text and "triton 3.6.0" in text
        )
    assert (
        "torch 2.11.0+cu130 · CUDA 13.0 · triton 3.6.0"
        in explored_client.get(f"/runs/{run_id}/report.md").text
    )
    summary = summarize(str(explored), run_id)
    assert summary and "torch 2.11.0+cu130, CUDA 13.0, triton 3.6.0; " in summary.text()


@pytest.mark.parametrize(
    ("source", "torch_version", "device"),
    [
        ("import", "2.11.0+cu130", None),
        ("import", "2.13.0+cpu", "CPU"),
        ("live", "2.11.0+cu130", "CPU"),
    ],
)
def test_an_imported_log_that_names_no_gpu_ran_on_a_cpu_only_if_its_torch_has_no_cuda(
    client: FlaskClient,
    store: sqlite3.Connection,
    database: Path,
    source: str,
    torch_version: str,
    device: str | None,
) -> None:
    no_gpu: dict[str, Any] = {"gpu_name": None, "gpu_count": 0, "facts": "{}"}
    add_run(
        store,
        RUN,
        source=source,
        torch_version=torch_version,
        **no_gpu,
        totals={"compile_count": 1},
    )
    store.commit()
    page = client.get(f"/runs/{RUN}?tab=environment").text
    assert ("No GPU was visible to this run" in page) == (device == "CPU")
    summary = summarize(str(database), RUN)
    assert summary is not None and summary.device.startswith(f"{device or 'device not recorded'} (")


def test_what_a_trial_measured_is_said_everywhere(
    get: Callable[..., str], store: sqlite3.Connection, database: Path
) -> None:
    add_observed_run(store, compile_count=1, recompile_count=1, compile_us=10**6)
    add_recompiles(store, 1)
    (cause,) = load_causes(store, RUN)
    trial = Trial(
        id="X",
        run_id=RUN,
        base_run_id=None,
        new_run_id=None,
        fix_id=cause.fixes[0].fix.id,
        cause_fingerprint=cause.fingerprint,
        title="Take `print` out",
        patch=None,
        settings=cause.fixes[0].settings,
        outcome="improved",
        summary="recompiles 1 → 0",
        started_us=START_US,
        ended_us=START_US,
        result={"metrics": [{"name": "compile_s", "base": 5.0, "new": 4.0}]},
    )
    save_trial(store, trial)
    for path in (f"/runs/{RUN}", f"/runs/{RUN}/report.html", f"/runs/{RUN}/report.md"):
        assert "compile time 5.00 s → 4.00 s, verified 2026-" in get(path), path
    summary = summarize(str(database), RUN)
    assert summary and ": Take print out: recompiles 1 → 0" in summary.causes[0].note
