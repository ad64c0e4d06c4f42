"""A child that leaves no result still has an outcome: from how far it was and how it ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from compileboard.collectors.bench.execution import task_process as isolation
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.record.program import end_group
from tests.tools.killing import running
from tests.tools.observed import wait_for

REF = ModelRef("local", "Net", "nowhere:build")


def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, timeout_s: float = 30.0
) -> ExperimentOutcome:
    """Run a program in the child's place; it gets the task's folder as its last argument."""
    monkeypatch.setattr(
        "compileboard.start.SHARED",
        f"import os, pathlib, sys, time; here = pathlib.Path(sys.argv[-1])\n{program}",
    )
    task = Task("performance", REF, BenchSettings(timeout_s=timeout_s))
    return isolation.run_task(task, tmp_path / "task", {}, cwd=None, beat=lambda: None)


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        ("load", "model_fail_to_load"),
        ("eager", "eager_1st_run_fail"),
        ("compile", "fail_to_run"),
        ("", "infra_error"),
    ],
)
def test_a_crash_is_named_after_the_stage_it_came_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, reason: str
) -> None:
    note = f"(here / 'stage').write_text({stage!r}); " if stage else ""
    done = run(
        tmp_path, monkeypatch, f"{note}print('last words', flush=True); os.kill(os.getpid(), 11)"
    )
    assert (done.status, done.reason) == ("failed", reason)
    assert "killed by SIGSEGV" in str(done.message)
    assert done.traceback == "last words\n"


def test_a_hang_is_a_timeout_and_everything_it_started_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import subprocess
child = subprocess.Popen(['sleep', '60'])
(here / 'pid').write_text(str(child.pid))
(here / 'stage').write_text('compile')
time.sleep(60)
"""
    done = run(tmp_path, monkeypatch, program, 3.0)
    assert done.reason == "timeout"
    assert "within 3 s; it was stopped in stage 'compile'" in str(done.message)
    pid = int((tmp_path / "task" / "pid").read_text())
    wait_for(lambda: not running(pid))  # a killed process is gone when the machine has time for it


def test_a_result_counts_whatever_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '{"status": "measured", "values": {"speedup": 2.0}}'
    done = run(
        tmp_path, monkeypatch, f"(here / 'result.json').write_text('''{text}'''); sys.exit(7)"
    )
    assert done.values == {"speedup": 2.0}


def test_a_child_outlives_neither_ctrl_c_nor_our_own_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        if (tmp_path / "task" / "pid").exists():
            raise KeyboardInterrupt

    program = (
        "(here / 'part').write_text(str(os.getpid())); (here / 'part').rename(here / 'pid'); "
        "time.sleep(60)"
    )
    monkeypatch.setattr(
        "compileboard.start.SHARED",
        f"import os, pathlib, sys, time; here = pathlib.Path(sys.argv[-1])\n{program}",
    )
    with pytest.raises(KeyboardInterrupt):
        isolation.run_task(
            Task("performance", REF, BenchSettings()),
            tmp_path / "task",
            {},
            cwd=None,
            beat=interrupt,
        )
    assert not Path("/proc", (tmp_path / "task" / "pid").read_text()).exists()


def test_a_second_ctrl_c_ends_the_patience_and_the_child() -> None:
    class Impatient(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout is not None:
                raise KeyboardInterrupt
            return super().wait()

    stubborn = ["sh", "-c", "trap '' TERM; echo ready; exec sleep 60"]
    with Impatient(stubborn, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        with pytest.raises(KeyboardInterrupt):
            end_group(child)
        assert child.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_child_ends_with_a_parent_that_is_killed() -> None:
    end_with = (
        "import os; from compileboard.collectors.record.program import end_with; "
        "end_with(os.getppid())"
    )
    child = f"{end_with}; print(os.getpid(), flush=True); import time; time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        pid = started.stdout.readline().strip()
        assert Path("/proc", pid).exists()
        started.kill()
        assert started.stdout.read() == "", "the pipe closes when the child is gone, too"


def test_a_folder_that_cannot_be_made_is_the_tasks_own_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "0001"
    done = isolation.run_task(
        Task("performance", REF, BenchSettings()), folder, {}, cwd=None, beat=lambda: None
    )
    assert (done.status, done.reason) == ("failed", "infra_error")
    assert str(folder) in str(done.message)
