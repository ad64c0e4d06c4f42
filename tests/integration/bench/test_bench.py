"""`bench` on real models: records of those that work and of those that fail in every way."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.bench.plan.settings import list_torch_variables
from compileboard.collectors.contract.events import load_event
from compileboard.collectors.store.codec import unpack
from tests.tools.observed import ROOT, Workplace

pytestmark = pytest.mark.torch

PLANTED = ROOT / "tests" / "data" / "bench" / "planted.py"
QUICK = ["--quick", "--backend", "aot_eager", "--device", "cpu"]


def bench(workplace: Workplace, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "compileboard.collectors",
        "bench",
        "--db",
        str(workplace.database),
        *QUICK,
        *words,
    ]
    return subprocess.run(
        command,
        env=workplace.environ(**workplace.forks()),
        cwd=workplace.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )


def label(workplace: Workplace, backend: str = "aot_eager") -> str:
    """Return the label of a quick run in this environment."""
    return "_".join([backend, "quick", *list_torch_variables(workplace.environ())])


def rows(workplace: Workplace, query: str) -> list[dict[str, Any]]:
    connection = sqlite3.connect(workplace.database)
    connection.row_factory = sqlite3.Row
    with connection:
        records = [dict(row) for row in connection.execute(query)]
    connection.close()
    return records


@pytest.fixture(scope="module")
def planted(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Workplace, subprocess.CompletedProcess[str]]:
    """Measure every planted model once, by the experiments that a test looks at: each is a
    process.
    """
    workplace = Workplace(tmp_path_factory.mktemp("planted"))
    only = ["--only", f"path:{PLANTED}", "--timeout", "120"]
    both, judged = "^(Fine|Breaks|Leaves)$", "^(WrongAnswer|Unsteady)$"
    done = bench(workplace, *only, "--performance", "--accuracy", "-k", both, "--tag", "nightly")
    rest = bench(workplace, *only, "--performance", "-x", f"{both}|{judged}|Hangs|Marked")
    assert rest.returncode == 0, "one is skipped, which is no failure"
    wrong = bench(workplace, *only, "--accuracy", "-k", judged)
    assert "failed (fail_accuracy: wrong result): WrongAnswer (accuracy)" in wrong.stdout
    return workplace, done


def result(planted: Any, model: str, experiment: str) -> dict[str, Any]:
    query = f"""
    select results.*, series.batch_size, series.backend, series.hardware
    from results join series on series.id = series_id
    where model = '{model}' and experiment = '{experiment}'
    """
    (row,) = rows(planted[0], query)
    return row


def test_what_works_is_measured_whole(planted: Any) -> None:
    row = result(planted, "Fine", "performance")
    assert row["status"] == "measured"
    assert row["speedup"] == pytest.approx(row["eager_latency_ms"] / row["abs_latency_ms"])
    assert (row["unique_graphs"], row["graph_breaks"], row["recompiles"]) == (1, 0, 0)
    assert row["compilation_latency_s"] > 0 and row["eager_peak_mem_gb"] > 0
    assert (row["batch_size"], row["backend"]) == (4, label(planted[0]))
    assert result(planted, "Fine", "accuracy")["accuracy"] == "pass"


def test_a_result_tells_whether_its_process_is_a_fork(planted: Any) -> None:
    bodies = rows(planted[0], "select body from events where kind = 'bench_measured'")
    events = [load_event(unpack(row["body"])) for row in bodies]
    forked = {
        event.experiment: "forked" in event.facts for event in events if event.model == "Fine"
    }
    assert forked == {"performance": False, "accuracy": sys.platform == "linux"}


def test_repeats_are_kept_in_their_order(planted: Any) -> None:
    repeat_rows = rows(
        planted[0],
        (
            "select name, body from result_repeats where result_id = "
            f"{result(planted, 'Fine', 'performance')['id']}"
        ),
    )
    repeats = {row["name"]: json.loads(unpack(row["body"])) for row in repeat_rows}
    once = {"eager_peak_gb": 1, "compiled_peak_gb": 1, "cold_compile_s": 1}
    assert {name: len(values) for name, values in repeats.items()} == {
        "eager": 3,
        "compiled": 3,
        **once,
    }


def test_breaks_hang_on_the_result_they_came_with(planted: Any) -> None:
    assert result(planted, "Breaks", "performance")["graph_breaks"] >= 1
    query = """
    select processes.task, processes.parent_id, count(*) as breaks
    from graph_breaks join processes on processes.id = graph_breaks.process_id
    group by processes.task
    """
    broken = rows(planted[0], query)
    assert {row["task"] for row in broken} >= {"local/Breaks/performance", "local/Breaks/accuracy"}
    assert {row["parent_id"] for row in broken} == {None}, (
        "what forks them is no process of the run"
    )


@pytest.mark.parametrize(
    ("model", "experiment", "status", "reason"),
    [
        ("WrongAnswer", "accuracy", "failed", "fail_accuracy"),
        ("Unsteady", "accuracy", "failed", "eager_two_runs_differ"),
        ("EagerFails", "performance", "failed", "eager_1st_run_fail"),
        ("SaysOddBytes", "performance", "failed", "eager_1st_run_fail"),
        ("Leaves", "performance", "failed", "eager_1st_run_fail"),
        ("Leaves", "accuracy", "failed", "eager_1st_run_fail"),
        ("LeavesWhenBuilt", "performance", "failed", "model_fail_to_load"),
        ("RunsOutOfMemory", "performance", "failed", "eager_1st_run_OOM"),
        ("Crashes", "performance", "failed", "eager_1st_run_fail"),
        ("CannotBeBuilt", "performance", "failed", "model_fail_to_load"),
        ("NeedsALibrary", "performance", "skipped", "a_library_that_is_not_there is not installed"),
    ],
)
def test_a_failure_is_the_models_own_status(
    planted: Any, model: str, experiment: str, status: str, reason: str
) -> None:
    row = result(planted, model, experiment)
    assert (row["status"], row["reason"]) == (status, reason)
    assert row["speedup"] is None, "a failure is no measurement"
    assert row["message"]


def test_a_traceback_is_kept_and_a_crash_says_what_it_printed(planted: Any) -> None:
    assert "RuntimeError: the model's own <b>mistake</b>" in unpack(
        result(planted, "EagerFails", "performance")["traceback"]
    )
    crash = result(planted, "Crashes", "performance")
    assert "killed by SIGABRT in stage 'eager'" in crash["message"]
    assert "about to crash" in unpack(crash["traceback"])


def test_the_summary_names_what_failed_and_why(planted: Any) -> None:
    done = planted[1]
    assert done.returncode == 0, done.stderr
    assert "pass_rate=" in done.stdout and "gmean=" in done.stdout
    run = rows(planted[0], "select state, source, suite, name from runs order by started_us")[0]
    assert run == {"state": "finished", "source": "bench", "suite": "local", "name": "bench local"}
    assert {"key": "tag", "value": "nightly"} in rows(planted[0], "select key, value from run_tags")


@pytest.mark.nightly
def test_the_command_of_a_result_measures_it_again(planted: Any) -> None:
    words = result(planted, "Fine", "performance")["command"].split()
    workplace = planted[0]
    before = len(rows(workplace, "select id from runs"))
    words = ["-m", "compileboard.collectors", *words[words.index("bench") :]]
    done = subprocess.run(
        [sys.executable, *words, "--db", workplace.database],
        env=workplace.environ(**workplace.forks()),
        cwd=workplace.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(rows(workplace, "select id from runs")) == before + 1
    again = rows(
        workplace,
        "select series_id from results where experiment = 'performance' order by id desc limit 1",
    )
    assert again == [{"series_id": result(planted, "Fine", "accuracy")["series_id"]}]


def test_a_hang_is_a_timeout(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    done = bench(workplace, "--only", f"path:{PLANTED},class:Hangs", "--timeout", "4")
    assert done.returncode == 1, "all that was asked for failed"
    (row,) = rows(workplace, "select status, reason, message from results")
    assert (row["status"], row["reason"]) == ("failed", "timeout")
    assert "within 4 s" in row["message"]


def test_ctrl_c_keeps_what_is_finished_and_resume_goes_on(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    only = ["--only", f"path:{PLANTED}", "-k", "Fine|Hangs"]
    command = [
        sys.executable,
        "-m",
        "collectors",
        "bench",
        "--db",
        str(workplace.database),
        *QUICK,
        *only,
        "--timeout",
        "40",
    ]
    with subprocess.Popen(
        command,
        env=workplace.environ(**workplace.forks()),
        cwd=workplace.folder,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stderr is not None
        for line in started.stderr:
            if " Fine " in line:  # the next one hangs
                time.sleep(0.2)
                os.kill(started.pid, signal.SIGINT)
                break
        output = started.stderr.read()
    assert started.returncode == 130
    assert "--resume" in output
    assert [row["state"] for row in rows(workplace, "select state from runs")] == ["interrupted"]
    assert rows(workplace, "select status from results") == [{"status": "measured"}]
    done = bench(workplace, *only, "--timeout", "4", "--resume")
    assert done.returncode == 0, "one was measured before"
    assert "of 1 model\n" in done.stdout, "the summary is of the whole run"
    assert [row["state"] for row in rows(workplace, "select state from runs")] == ["finished"]
    assert [row["reason"] for row in rows(workplace, "select reason from results order by id")] == [
        None,
        "timeout",
    ]
    assert bench(workplace, *only, "--channels-last", "--resume").returncode == 2, (
        "other settings are another run"
    )


def test_what_cannot_be_asked_for_is_said_and_records_nothing(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    done = bench(workplace, "-k", "no-such-model")
    assert done.returncode == 2
    assert "no model of builtin is chosen" in done.stderr
    assert not workplace.database.exists()
