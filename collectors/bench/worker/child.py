"""Run one experiment of one model in a process of its own; `bench` starts it and reads its result.

A crash, hang, or exhausted memory ends only this process. On Linux it may be a fork of a process
that has imported torch (`serve`). That process calls nothing in torch, because with running threads
it could not be forked safely.
"""

from __future__ import annotations

import os
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from compileboard.collectors.bench.experiments import load_experiment
from compileboard.collectors.bench.plan.models import NotAvailable
from compileboard.collectors.bench.plan.tasks import Task, read_task
from compileboard.collectors.bench.worker.outcome import (
    RESULT,
    ExperimentOutcome,
    Stages,
    describe_error,
)
from compileboard.collectors.bench.worker.torch_setup import prepare_environment
from compileboard.collectors.record.garbage import search_imports, without_collections
from compileboard.collectors.record.program import end_with
from compileboard.collectors.record.spool import replace_file
from compileboard.collectors.stack_room import call_with_room, widen_backward
from compileboard.start import shared_command

if TYPE_CHECKING:
    from compileboard.collectors.bench.worker.workbench import Workbench


def start(parent: str, folder_name: str) -> None:
    end_with(int(parent))
    folder = Path(folder_name)
    stages = Stages(folder)
    write_result(folder, _measure_whole(folder, stages), stages)
    exit_now()


def repeat(parent: str, folder_name: str) -> None:
    """Run a task as a program of its own, and print its outcome: `try` compares two of them."""
    end_with(int(parent))
    folder = Path(folder_name)
    outcome = _measure_whole(folder, Stages(folder))
    words = (outcome.status, outcome.accuracy, outcome.reason)
    sys.stdout.write(": ".join(filter(None, words)) + "\n")
    if outcome.status == "failed":
        sys.stderr.write(f"{outcome.traceback or outcome.message}\n")
    exit_now(exit_code=int(outcome.status == "failed"))


def _measure_whole(folder: Path, stages: Stages) -> ExperimentOutcome:
    try:
        return _measure(read_task(folder), folder, stages)
    except BaseException as error:
        return failure(error)


def write_result(folder: Path, outcome: ExperimentOutcome, stages: Stages) -> None:
    outcome.facts["stages_s"] = stages.durations()
    replace_file(folder / RESULT, outcome.dump())


def _measure(task: Task, folder: Path, stages: Stages) -> ExperimentOutcome:
    if task.settings.is_distributed:
        from compileboard.collectors.bench.distributed.launcher import launch

        return launch(task, folder, stages)
    import_torch(task, stages)
    from compileboard.collectors.bench.worker.workbench import Workbench

    return run_experiment(task, Workbench(task.ref, task.settings, stages))


def import_torch(task: Task, stages: Stages) -> None:
    from compileboard.collectors.bench.worker.torch_setup import (
        configure_torch,
        prepare_environment,
    )

    prepare_environment(task)  # before torch is imported, which reads some of it
    with without_collections():
        stages.begin("import torch")  # already done in a fork
        import torch._dynamo.testing  # noqa: F401

        stages.begin("import the harness")
        configure_torch(task)


def run_experiment(task: Task, bench: Workbench) -> ExperimentOutcome:
    bench.stage("load")
    bench.load()
    # Copy a fork's shared pages now, by writing to every object, so that the timed part is as in
    # any process.
    search_imports()
    run = load_experiment(task.experiment)
    has_room = not task.settings.no_stack_room
    if has_room:
        widen_backward()
    try:
        outcome: ExperimentOutcome = call_with_room(run, bench) if has_room else run(bench)
    except Exception as error:  # any failure of a model is its status
        return bench.describe(failure(error))
    return bench.describe(outcome)


def failure(error: BaseException) -> ExperimentOutcome:
    reason = getattr(error, "reason", None)
    cause = error.__cause__ if reason is not None and error.__cause__ is not None else error
    text = "".join(traceback.format_exception(cause))
    message = describe_error(cause)
    if isinstance(cause, NotAvailable):
        return ExperimentOutcome(status="skipped", reason=str(cause))
    if isinstance(cause, ModuleNotFoundError) and reason == "model_fail_to_load":
        return ExperimentOutcome(
            status="skipped",
            reason=f"{cause.name} is not installed",
            message=message,
            traceback=text,
        )
    return ExperimentOutcome(
        status="failed", reason=reason or "infra_error", message=message, traceback=text
    )


def installed_hooks() -> Any:
    """Return the hooks that observe this process, None if there are none."""
    hooks = sys.modules.get("_compileboard.observe.hooks")
    return hooks.current() if hooks is not None else None


def remove_hooks() -> None:
    if installed_hooks():
        sys.modules["_compileboard.observe.hooks"].uninstall_hooks()


def exit_now(exit_code: int = 0) -> NoReturn:
    """Exit immediately. torch's shutdown (compile workers, GPU memory) takes seconds, and nothing
    depends on it.
    """
    remove_hooks()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def serve(parent: str, descriptor: str) -> None:
    end_with(int(parent))
    connection = Connection(int(descriptor))
    prepare_environment()
    with without_collections():
        import torch._dynamo.testing  # noqa: F401

    if not _forks_safely():
        return
    server = os.getpid()
    connection.send(server)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            _run_forked(request, server, connection)
        connection.send(pid)
        _, status = os.waitpid(pid, 0)
        connection.send(os.waitstatus_to_exitcode(status))


def _forks_safely() -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) == 1


def _run_forked(request: dict[str, Any], server: int, connection: Connection) -> NoReturn:
    try:
        connection.close()
        os.setsid()
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        for descriptor, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
            os.dup2(file, descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.orig_argv = shared_command(f"{__name__}:start", str(server), request["folder"])
        sys.argv = ["-c", str(server), request["folder"]]
        if hooks := installed_hooks():
            hooks.spool.parent_id = None  # the server is not a process of the program
        start(str(server), request["folder"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)
