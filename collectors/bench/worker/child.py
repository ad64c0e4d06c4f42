"""One experiment of one model in a process of its own: `bench` starts it and reads the result it leaves.

Whatever the model does here (crash, hang, exhaust memory, write to the screen) is this process's end and not bench's.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from compileboard.collectors.bench.experiments import find
from compileboard.collectors.bench.plan.tasks import Task, read_task
from compileboard.collectors.bench.worker.outcome import RESULT, ExperimentOutcome, Stages
from compileboard.collectors.runs.garbage import search_imports, without_collections
from compileboard.collectors.runs.program import end_with
from compileboard.collectors.stack_room import call_with_room, widen_backward

if TYPE_CHECKING:
    from compileboard.collectors.bench.worker.workbench import Workbench


def start(parent: str, folder: str) -> None:
    """Run the task of a folder as the child of a process."""
    end_with(int(parent))
    main(folder)


def main(folder_name: str) -> None:
    """Run the task of a folder, write its result there, and end this process."""
    folder = Path(folder_name)
    stages = Stages(folder)
    task = read_task(folder)
    try:
        outcome = _measure(task, folder, stages)
    except BaseException as error:
        outcome = failure(error)
    write_result(folder, outcome, stages)
    leave()


def write_result(folder: Path, outcome: ExperimentOutcome, stages: Stages) -> None:
    """Leave a result where the process that started this one reads it."""
    outcome.facts["stages_s"] = stages.durations()
    temporary = folder / f"{RESULT}.part"
    temporary.write_text(outcome.dump(), encoding="utf-8")
    os.replace(temporary, folder / RESULT)


def _measure(task: Task, folder: Path, stages: Stages) -> ExperimentOutcome:
    if task.settings.is_distributed:
        from compileboard.collectors.bench.distributed.launcher import launch

        return launch(task, folder, stages)
    import_torch(task, stages)
    from compileboard.collectors.bench.worker.workbench import Workbench

    return run_experiment(task, Workbench(task.ref, task.settings, stages))


def import_torch(task: Task, stages: Stages) -> None:
    """Import torch and set it up for a task."""
    from compileboard.collectors.bench.worker.torch_setup import arrange, prepare_environment

    prepare_environment(task)  # before torch is imported: it reads some of it then
    with without_collections():
        stages.begin("import torch")  # of a fork, it has been
        import torch._dynamo.testing  # noqa: F401

        stages.begin("import the harness")
        arrange(task)


def run_experiment(task: Task, bench: Workbench) -> ExperimentOutcome:
    """Load the model and do with it what the task's experiment does."""
    bench.load()
    # What follows is timed as in anybody's process. It writes to every object: a fork copies the pages now, not then.
    search_imports()
    module = import_module(find(task.experiment).module)
    has_room = not task.settings.no_stack_room
    if has_room:
        widen_backward()
    try:
        outcome: ExperimentOutcome = call_with_room(module.run, bench) if has_room else module.run(bench)
    except Exception as error:  # whatever a model does is its status
        return bench.describe(failure(error))
    return bench.describe(outcome)


def failure(error: BaseException) -> ExperimentOutcome:
    """Return the outcome that an error means, in upstream's words."""
    from compileboard.collectors.bench.plan.models import NotAvailable

    reason = getattr(error, "reason", None)
    cause = error.__cause__ if reason is not None and error.__cause__ is not None else error
    text = "".join(traceback.format_exception(cause))
    message = f"{type(cause).__name__}: {cause}".strip()
    if isinstance(cause, NotAvailable):
        return ExperimentOutcome(status="skipped", reason=str(cause))
    if isinstance(cause, ModuleNotFoundError) and reason == "model_fail_to_load":
        return ExperimentOutcome(
            status="skipped", reason=f"{cause.name} is not installed", message=message, traceback=text
        )
    return ExperimentOutcome(status="failed", reason=reason or "infra_error", message=message, traceback=text)


def remove_hooks() -> None:
    """Uninstall the hooks, where they are in this process: what follows is not observed."""
    hooks = sys.modules.get("_compileboard.observe.hooks")
    if hooks is not None:
        hooks.uninstall_hooks()


def unobserved() -> contextlib.AbstractContextManager[None]:
    """Return a context in which the hooks, where they are in this process, record nothing."""
    hooks: Any = sys.modules.get("_compileboard.observe.hooks")
    installed = hooks.current() if hooks is not None else None
    paused: contextlib.AbstractContextManager[None] = installed.paused() if installed else contextlib.nullcontext()
    return paused


def leave() -> NoReturn:
    """End at once. torch's own end takes seconds (its compile workers, the GPU's memory), and nothing waits for it."""
    remove_hooks()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
