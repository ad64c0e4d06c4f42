"""Tasks that begin as forks of one process that has imported torch."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compileboard.collectors.bench.execution import task_process as isolation
from compileboard.collectors.bench.execution.task_process import ForkServer, is_forkable, read_stage
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.suites.user import BUILD
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.contract.events import BenchMeasured, load_event
from compileboard.collectors.record import program
from compileboard.collectors.store.codec import unpack
from compileboard.start import shared_command
from tests.tools.killing import running
from tests.tools.observed import ROOT, Workplace

pytestmark = pytest.mark.torch

PLANTED = ROOT / "tests" / "data" / "bench" / "planted.py"


TELLING = """
import os
import sys
import torch

class Tells(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError(f"cache={torch._inductor.config.fx_graph_cache} "
                           f"server={os.getppid()} cwd={os.getcwd()} "
                           f"task={os.environ['COMPILEBOARD_TASK']} "
                           f"added={os.environ.get('ADDED')} "
                           f"words={sys.orig_argv[4:]}")

    def get_example_inputs(self):
        return (torch.randn(4, 4),)
"""


def make_task(model: str, **changes: Any) -> Task:
    settings = BenchSettings(backend="export", **{"timeout_s": 200.0, **changes})
    return Task(
        "export",
        ModelRef("local", model, BUILD, f"path:{PLANTED},model:{model}", batch_size=4),
        settings,
    )


def run(server: ForkServer, tmp_path: Path, task: Task, name: str = "task") -> ExperimentOutcome:
    workplace = Workplace(tmp_path)
    environment = workplace.environ(COMPILEBOARD_TASK=name, **workplace.forks())
    return isolation.run_task(
        task, tmp_path / name, environment, cwd=str(ROOT), beat=lambda: None, server=server
    )


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    def start_anew(start: str, *arguments: str) -> list[str]:
        assert "child:start" not in start, "a process was started where a fork was to be made"
        return shared_command(start, *arguments)

    monkeypatch.setattr(isolation, "shared_command", start_anew)
    with contextlib.closing(ForkServer(tmp_path / "fork_server")) as server:
        yield server


def test_each_task_is_a_fork_with_an_end_and_output_of_its_own(
    server: ForkServer, tmp_path: Path
) -> None:
    fine = run(server, tmp_path, make_task("Fine"), "fine")
    crashed = run(server, tmp_path, make_task("Crashes"), "crashed")
    late = run(server, tmp_path, make_task("Hangs", timeout_s=4.0), "late")
    searched = run(server, tmp_path, make_task("NeedsCollections"), "searched")
    again = run(server, tmp_path, make_task("Fine", dynamic_batch_only=True), "again")
    assert (fine.accuracy, searched.accuracy, again.accuracy, late.reason) == (
        "pass",
        "pass",
        "pass",
        "timeout",
    )
    assert again.facts["export"]["dynamic_dimension_count"] == 1
    assert (crashed.reason, "killed by SIGABRT" in str(crashed.message)) == (
        "eager_1st_run_fail",
        True,
    )
    assert str(crashed.traceback).startswith("about to crash\n")


LATER_EXPORT = """
import os, time
import torch
import compileboard
exported = []

class Hangs(torch.nn.Linear):
    def forward(self, x):
        if torch.compiler.is_compiling() and self not in exported:
            exported.append(self)
        if len(exported) > 2:
            self.end()
        return super().forward(x)

    def end(self):
        time.sleep(600)

class Aborts(Hangs):
    def end(self):
        os.abort()

class Raises(Hangs):
    def end(self):
        raise ValueError("the third export")

@compileboard.bench.model(name="Hangs", batch_size=4)
def hangs(batch_size):
    return Hangs(4, 4), (torch.ones(batch_size, 4),)

@compileboard.bench.model(name="Aborts", batch_size=4)
def aborts(batch_size):
    return Aborts(4, 4), (torch.ones(batch_size, 4),)

@compileboard.bench.model(name="Raises", batch_size=4)
def raises(batch_size):
    return Raises(4, 4), (torch.ones(batch_size, 4),)
"""


NOT_ENDED = "it did not end: a crash, or the time limit"


@pytest.mark.parametrize(
    ("model", "error"),
    [("Hangs", NOT_ENDED), ("Aborts", NOT_ENDED), ("Raises", "ValueError: the third export")],
)
def test_the_first_export_counts_where_a_later_one_fails(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, error: str
) -> None:
    def end_time() -> None:
        if read_stage(tmp_path / "task") == "export again":
            monkeypatch.setattr(
                program, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 1000)
            )

    workplace = Workplace(tmp_path)
    (tmp_path / "later.py").write_text(LATER_EXPORT)
    ref = ModelRef("local", model, BUILD, f"path:{tmp_path}/later.py,model:{model}", batch_size=4)
    task, environment = (
        replace(make_task("Fine"), ref=ref),
        workplace.environ(COMPILEBOARD_TASK="task", **workplace.forks()),
    )
    beat = end_time if model == "Hangs" else lambda: None
    done = isolation.run_task(
        task, tmp_path / "task", environment, cwd=str(ROOT), beat=beat, server=server
    )
    assert (done.status, done.accuracy, done.batch_size, done.repeats) == (
        "measured",
        "pass",
        4,
        {},
    )
    assert round(done.values["export_latency"], 3) == done.facts["export"]["first_export_s"] > 0
    assert done.facts["export"]["export_again_error"] == error


@pytest.mark.nightly
@pytest.mark.real_start
def test_what_torch_makes_while_it_is_imported_is_in_the_servers_folder(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    run(server, tmp_path, make_task("CannotBeBuilt"))
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.nightly
@pytest.mark.real_start
def test_a_run_goes_on_while_the_server_imports_torch_which_is_no_time_of_a_task(
    tmp_path: Path,
) -> None:
    beaten = tmp_path / "beaten"
    waits = (
        f"while 'serve' in str(sys.orig_argv) and not os.path.exists({str(beaten)!r}): "
        "time.sleep(0.1)"
    )
    (tmp_path / "sitecustomize.py").write_text(f"import os, sys, time\n{waits}\n")
    environment = {**Workplace(tmp_path).environ(), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}

    def beat() -> None:
        if not beaten.exists():
            beaten.write_text(str(time.time_ns() // 1000))

    with contextlib.closing(ForkServer(tmp_path / "fork_server")) as server:
        task = make_task("Hangs", timeout_s=4.0)
        done = isolation.run_task(
            task, tmp_path / "task", environment, cwd=str(ROOT), beat=beat, server=server
        )
    assert (done.reason, done.facts) == ("timeout", {"forked": True})
    assert done.started_us > int(beaten.read_text())


def tell(
    server: ForkServer, tmp_path: Path, name: str, cwd: Path, **changes: str
) -> dict[str, str]:
    """Return what a task's process knows of itself."""
    path, environment = (
        tmp_path / "telling.py",
        Workplace(tmp_path).environ(COMPILEBOARD_TASK=name, **changes),
    )
    path.write_text(TELLING)
    task = replace(
        make_task("Tells"), ref=ModelRef("local", "Tells", BUILD, f"path:{path},class:Tells")
    )
    done = isolation.run_task(
        task, tmp_path / name, environment, cwd=str(cwd), beat=lambda: None, server=server
    )
    told = dict(word.split("=", 1) for word in str(done.message).split()[1:] if "=" in word)
    return {
        **told,
        "forked": str(done.facts.get("forked", False)),
        "message": str(done.message),
    }


@pytest.mark.real_start
def test_a_fork_has_a_folder_an_environment_and_a_command_of_its_own(
    server: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    first, second = tell(server, tmp_path, "one", tmp_path), tell(server, tmp_path, "two", tmp_path)
    other = tell(server, tmp_path, "three", tmp_path / "other")
    assert (first["task"], second["task"], other["cwd"]) == ("one", "two", str(tmp_path / "other"))
    assert first["server"] == second["server"] != other["server"], (
        "a server of another folder is another one"
    )
    assert "worker.child:start" in first["message"] and str(tmp_path / "one") in first["message"]


@pytest.mark.nightly
@pytest.mark.real_start
def test_another_environment_begins_another_server(server: ForkServer, tmp_path: Path) -> None:
    first, second = (
        tell(server, tmp_path, "one", tmp_path),
        tell(server, tmp_path, "two", tmp_path, ADDED="word"),
    )
    assert (first["added"], second["added"]) == ("None", "word")
    assert first["server"] != second["server"] and not running(int(first["server"]))


@pytest.mark.nightly
@pytest.mark.real_start
def test_an_output_that_cannot_be_written_is_said_of_a_fork_too(
    server: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "task" / "output.txt").mkdir(parents=True)
    done = run(server, tmp_path, make_task("Fine"))
    assert (done.reason, str(tmp_path / "task") in str(done.message)) == (
        "infra_error",
        True,
    )
    assert "its process cannot be started" in str(done.message)


@pytest.mark.nightly
@pytest.mark.real_start
def test_where_the_server_has_died_a_task_begins_by_itself(tmp_path: Path) -> None:
    with contextlib.closing(ForkServer(tmp_path / "fork_server")) as server:
        first = tell(server, tmp_path, "one", tmp_path)
        os.kill(int(first["server"]), signal.SIGKILL)
        second = tell(server, tmp_path, "two", tmp_path)
    assert (first["forked"], second["forked"], second["task"]) == ("True", "False", "two")
    assert int(second["server"]) == os.getpid()


@pytest.mark.nightly
@pytest.mark.real_start
def test_where_torch_cannot_be_imported_the_task_begins_by_itself_and_tells(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('this torch is broken')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with contextlib.closing(ForkServer(tmp_path / "fork_server")) as server:
        folder = tmp_path / "task"
        done = isolation.run_task(
            make_task("Fine"), folder, environment, cwd=str(ROOT), beat=lambda: None, server=server
        )
    assert (done.status, done.reason) == ("failed", "infra_error")
    assert "this torch is broken" in str(done.message)


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


@pytest.mark.nightly
@pytest.mark.real_start
def test_a_setting_of_inductor_reaches_a_fork(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    path = workplace.write(TELLING, "telling.py")
    words = [
        "--accuracy",
        "--backend",
        "inductor",
        "--device",
        "cpu",
        "--inductor-config",
        "fx_graph_cache=False",
    ]
    workplace.collect(
        "bench", "--db", workplace.database, *words, "--only", f"path:{path},class:Tells"
    )
    (row,) = workplace.rows("select body from events where kind = 'bench_measured'")
    result = load_event(unpack(row["body"]))
    assert isinstance(result, BenchMeasured) and result.facts["forked"]
    assert "cache=False" in str(result.message)
