"""Tasks that begin as forks of one process that has imported torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.bench.execution import isolation
from compileboard.collectors.bench.execution.fork_server import ForkServer, is_forkable
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.suites.user import BUILD
from tests.tools.observed import ROOT, Workplace

pytestmark = pytest.mark.torch

PLANTED = ROOT / "tests" / "data" / "bench" / "planted.py"


def make_task(model: str, **changes: Any) -> Task:
    settings = BenchSettings(backend="export", **{"timeout_s": 200.0, **changes})
    return Task("export", ModelRef("local", model, BUILD, f"path:{PLANTED},model:{model}", batch_size=4), settings)


def run(server: ForkServer, tmp_path: Path, task: Task, name: str = "task") -> isolation.TaskOutcome:
    environment = Workplace(tmp_path).environ(COMPILEBOARD_TASK=name)
    return isolation.run_task(task, tmp_path / name, environment, cwd=str(ROOT), beat=lambda: None, server=server)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    def start_anew(*arguments: str) -> list[str]:
        raise AssertionError("a process was started where a fork was to be made")

    monkeypatch.setattr(isolation, "shared_command", start_anew)
    with contextlib.closing(ForkServer()) as server:
        yield server


def test_each_task_is_a_fork_with_an_end_and_output_of_its_own(server: ForkServer, tmp_path: Path) -> None:
    fine = run(server, tmp_path, make_task("Fine"), "fine").outcome
    crashed = run(server, tmp_path, make_task("Crashes"), "crashed").outcome
    late = run(server, tmp_path, make_task("Hangs", timeout_s=20.0), "late").outcome
    again = run(server, tmp_path, make_task("Fine", dynamic_batch_only=True), "again").outcome
    assert (fine.accuracy, again.accuracy, late.reason) == ("pass", "pass", "timeout")
    assert again.facts["export"]["dynamic_dimension_count"] == 1
    assert (crashed.reason, "killed by SIGABRT" in str(crashed.message)) == ("eager_1st_run_fail", True)
    assert str(crashed.traceback).startswith("about to crash\n")


def test_where_torch_cannot_be_imported_the_task_begins_by_itself_and_tells(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('this torch is broken')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with contextlib.closing(ForkServer()) as server:
        folder = tmp_path / "task"
        done = isolation.run_task(
            make_task("Fine"), folder, environment, cwd=str(ROOT), beat=lambda: None, server=server
        )
    assert (done.outcome.status, done.outcome.reason) == ("failed", "infra_error")
    assert "this torch is broken" in str(done.outcome.message)


@pytest.mark.parametrize(
    ("experiment", "changes", "is_to_be_forked"),
    [
        ("export", {}, True),
        ("performance", {}, False),  # it measures a process's memory
        ("accuracy", {"device": "cuda"}, False),
        ("accuracy", {"no_stack_room": True}, False),
        ("accuracy", {"mode": "training", "ddp": True}, False),
    ],
)
def test_what_is_measured_decides_what_is_forked(
    experiment: str, changes: dict[str, Any], is_to_be_forked: bool
) -> None:
    task = replace(make_task("Fine", **changes), experiment=experiment)
    assert is_forkable(task) is is_to_be_forked
