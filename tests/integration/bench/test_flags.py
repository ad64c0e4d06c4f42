"""Flags of `bench` over several processes, runs or files: warm start, files, another branch."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.bench.plan.models import read_batch_sizes
from compileboard.collectors.formats.reader import read_results
from tests.integration.bench.test_bench import PLANTED, label, rows
from tests.tools.observed import Workplace, wait_for
from tests.tools.repository import commit, git

pytestmark = pytest.mark.torch

NETS = """
import time
import torch
from torch import nn
from width import WIDTH

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.layer(x)

    def get_example_inputs(self):
        return (torch.randn(4, WIDTH),)

class Hangs(Net):
    def forward(self, x):
        time.sleep(600)
"""


def bench(workplace: Workplace, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "compileboard.collectors",
        "bench",
        "--db",
        str(workplace.database),
        "--backend",
        "eager",
    ]
    return subprocess.Popen(
        [*command, "--quick", "--device", "cpu", *words],
        env=workplace.environ(**workplace.forks()),
        cwd=cwd or workplace.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workplace, str, str]:
    """Measure one model with a graph break, with every flag that leaves something behind."""
    workplace = Workplace(tmp_path_factory.mktemp("whole"))
    workplace.write("dev,name,batch_size,speedup\ncpu,Breaks,4,2.0\n", "before.csv")
    leaves = [
        "--output-directory",
        "out",
        "--dump-raw-metrics",
        "--log-graph-breaks",
        "--export-profiler-trace",
    ]
    told = [
        "--timing",
        "--baseline",
        "before.csv",
        "--warm-start-latency",
        "--only",
        f"path:{PLANTED},class:Breaks",
    ]
    with bench(workplace, *leaves, *told) as process:
        out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    return workplace, out, err


@pytest.mark.nightly
def test_a_warm_start_is_a_second_process_that_the_result_does_not_count(whole: Any) -> None:
    workplace, _, _ = whole
    [row] = rows(workplace, "select * from results")
    assert row["warm_compilation_latency_s"] > 0
    assert "each in a process of its own" in row["facts"]
    tasks = [
        other_row["task"]
        for other_row in rows(
            workplace, "select task from processes where task is not null order by task"
        )
    ]
    assert tasks == ["local/Breaks/performance", "local/Breaks/performance/warm_start"]
    assert (row["graph_breaks"], row["recompiles"]) == (2, 0)


def test_the_baseline_and_the_time_report_are_stored_and_said(whole: Any) -> None:
    workplace, out, err = whole
    values = {
        row["name"]: row["value"]
        for row in rows(workplace, "select name, value from result_values")
    }
    [row] = rows(workplace, "select speedup from results")
    assert values["baseline"] == 2.0 and values["speedup_vs_baseline"] == pytest.approx(
        row["speedup"] / 2
    )
    assert "2.000x in the baseline" in err and "speedup_vs_baseline" in out
    assert "TIMING: " in err and "entire_frame_compile:" in err
    assert re.search(
        r"STATS: call_\* op count: [1-9]\d* \| .*FakeTensorMode\.__torch_dispatch__:[1-9]", err
    )


def test_the_summary_lists_each_distinct_break_once(whole: Any) -> None:
    _, out, _ = whole
    listed = out[out.index("distinct graph breaks: 1") :].splitlines()
    assert (
        listed[1].startswith("  GB")
        and listed[2].endswith("2 times in Breaks")
        and "planted.py:" in listed[2]
    )


def test_the_files_are_upstreams(whole: Any) -> None:
    workplace, _, err = whole
    folder = workplace.folder / "out"
    names = {path.name for path in folder.iterdir()}
    with_flags = label(workplace, "eager").replace("eager_quick", "eager_warm_start_quick")
    stem = f"{with_flags}_local_float32_inference_cpu_performance"
    assert names >= {
        f"{stem}.csv",
        f"{stem}.json",
        f"{stem}_graph_breaks.csv",
        f"{stem}-raw_timings-Breaks-cpu.npy",
    }
    assert f"{with_flags}_Breaks_profile.json" in names, "the profiler's trace"
    [result] = read_results(f"{stem}.csv", (folder / f"{stem}.csv").read_bytes()).results
    assert (result.model, result.suite, result.values["graph_breaks"]) == ("Breaks", "local", 2)
    assert "files in upstream's formats written to out" in err


@pytest.fixture
def repository(workplace: Workplace) -> Path:
    """Make a checkout with a branch `before`, whose layers are narrower, and a change that is not
    committed.
    """
    folder = workplace.folder / "repository"
    workplace.write(NETS, "repository/nets.py")
    workplace.write("WIDTH = 16\n", "repository/width.py")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "nets.py", "width.py")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "branch", "before")
    workplace.write("WIDTH = 32\n", "repository/width.py")
    return folder


@pytest.mark.nightly
def test_another_branch_is_measured_beside_the_checkout(
    workplace: Workplace, repository: Path
) -> None:
    words = ["--only", f"path:{repository}/nets.py,class:Net", "--diff-branch", "before"]
    commit(repository, "two")
    status = git(repository, "status", "--porcelain", "-uno")
    with bench(workplace, *words, cwd=repository) as process:
        out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    tagged = (
        "run_tags join runs on runs.id = run_id join commits on hash = git_commit where key = "
        "'diff_branch'"
    )
    runs = rows(workplace, f"select git_dirty, value as part, hash, parent_hash from {tagged}")
    assert sorted((run["part"], run["git_dirty"]) for run in runs) == [("base", 0), ("new", 1)]
    commits = {run["part"]: run for run in runs}
    assert (
        commits["base"]["hash"]
        == commits["new"]["parent_hash"]
        == git(repository, "rev-parse", "before")
    )
    table = out[out.index("base before (") :]
    assert (
        "speedup base → new" in table
        and "1 model over all metrics: " in table
        and "3 samples a side" in table
    )
    commands = {row["command"] for row in rows(workplace, "select command from results")}
    assert len(commands) == 1 and f"path:{repository}/nets.py" in commands.pop()
    left = (
        git(repository, "status", "--porcelain", "-uno"),
        len(git(repository, "worktree", "list").splitlines()),
    )
    assert left == (status, 1)


@pytest.mark.nightly
def test_ctrl_c_removes_the_worktree(workplace: Workplace, repository: Path) -> None:
    words = ["--only", f"path:{repository}/nets.py,class:Hangs", "--diff-branch", "before"]
    with bench(workplace, *words, cwd=repository) as process:
        wait_for(
            lambda: (
                len(git(repository, "worktree", "list").splitlines()) == 2 and _has_child(workplace)
            ),
            60,
        )
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def _has_child(workplace: Workplace) -> bool:
    return any(workplace.home.glob("spool/*/bench/*/stage"))


@pytest.mark.nightly
def test_a_file_beside_the_numbers_that_cannot_be_written_is_a_fact_of_the_result(
    tmp_path: Path,
) -> None:
    workplace = Workplace(tmp_path)
    in_the_way = workplace.folder / "out" / f"{label(workplace, 'eager')}_Fine_profile.json"
    in_the_way.mkdir(parents=True)
    (in_the_way / "file").touch()
    told = [
        "--export-profiler-trace",
        "--output-directory",
        "out",
        "--only",
        f"path:{PLANTED},class:Fine",
    ]
    with bench(workplace, *told) as process:
        _, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    [row] = rows(workplace, "select status, facts from results")
    assert row["status"] == "measured"
    assert json.loads(row["facts"])["artifact_error"].startswith("profiler trace: ")


def test_a_pasted_line_of_upstreams_ci_leaves_its_files(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    ci = [
        "--ci",
        "--accuracy",
        "--timing",
        "--explain",
        "--inference",
        "--float32",
        "--cold_start_latency",
    ]
    told = [
        "--output",
        "reports/inference_vcs.csv",
        "-v",
        "--print-memory",
        "--no-translation-validation",
    ]
    with bench(workplace, *ci, *told, "--only", f"path:{PLANTED},class:Breaks") as process:
        _, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    names = {
        path.name for path in (workplace.folder / "reports").iterdir() if path.suffix != ".log"
    }
    breaks = {"inference_vcs_graph_breaks.csv", "inference_vcs_graph_breaks_deduped.csv"}
    assert names == {"inference_vcs.csv", "inference_vcs.json", *breaks}
    header, row = (workplace.folder / "reports" / "inference_vcs.csv").read_text().splitlines()
    assert header.startswith("dev,name,batch_size,accuracy,calls_captured") and row.startswith(
        "cpu,Breaks,4,pass,"
    )
    [log] = (workplace.folder / "reports").glob("*_ci_*_Breaks_accuracy.log")
    assert "torch/_dynamo/" in log.read_text()


def test_a_step_is_written_as_the_operators_that_it_calls(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    told = ["--log-operator-inputs", "--training", "--output-directory", "out", "--disable-output"]
    with bench(workplace, *told, "--only", f"path:{PLANTED},class:Fine") as process:
        _, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    assert [path.name for path in (workplace.folder / "out").iterdir()] == ["Fine_training.txt"]
    text = (workplace.folder / "out" / "Fine_training.txt").read_text()
    addmm = "cnt: 1, ((T([16], f32), T([4, 16], f32), T([16, 16], f32, stride=(1, 16))), {})"
    assert f"Operator: aten.addmm.default\n{addmm}\n" in text and "aten.mm.default" in text
    values = {
        row["name"]: row["value"]
        for row in rows(workplace, "select name, value from result_values")
    }
    assert (
        values["operators"] == text.count("Operator: ")
        and values["operator_calls"] >= values["operators"]
    )


@pytest.mark.nightly
def test_what_has_no_table_is_written_without_an_output(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    with bench(
        workplace,
        "--find-batch-sizes",
        "--recompile-profiler",
        "--only",
        f"path:{PLANTED},model:Breaks",
    ) as process:
        _, err = process.communicate(timeout=280)
    assert process.returncode == 0 and "2 files in upstream's formats written to ." in err, err
    assert read_batch_sizes(str(workplace.folder / "batch_sizes.csv")) == {"Breaks": 1024}
    [row] = csv.DictReader(
        (workplace.folder / "recompile_profiler_log.csv").read_text().splitlines(keepends=True)
    )
    assert (
        row["model"] == "Breaks" and "× Failed to trace builtin operator" in row["profiler report"]
    )
    assert "size mismatch at index 0. expected 4, actual 3" in row["profiler report"]


@pytest.mark.nightly
def test_operators_are_written_beside_the_output(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    told = [
        "--log-operator-inputs",
        "--performance",
        "--output",
        "ops/x.csv",
        "--only",
        f"path:{PLANTED},class:Fine",
    ]
    with bench(workplace, *told) as process:
        _, err = process.communicate(timeout=280)
    assert process.returncode == 0 and "--performance is left out" in err, err
    assert [path.name for path in (workplace.folder / "ops").iterdir()] == ["Fine_eval.txt"], (
        "nothing has a table"
    )
