"""One experiment of one model in a process of its own: `bench` starts it and reads the result it leaves.

Whatever the model does here (crash, hang, exhaust memory, write to the screen) is this process's end and not bench's.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from collectors.bench.models import ModelRef
from collectors.bench.outcome import Outcome
from collectors.bench.settings import Settings, load_settings

TASK, RESULT = "task.json", "result.json"


@dataclass(frozen=True)
class Task:
    """Say what a child is to do."""

    experiment: str
    ref: ModelRef
    settings: Settings

    def write(self, folder: Path) -> None:
        """Leave the task where the child finds it."""
        body = {"experiment": self.experiment, "ref": self.ref.__dict__, "settings": self.settings.dump()}
        (folder / TASK).write_text(json.dumps(body), encoding="utf-8")


def read_task(folder: Path) -> Task:
    """Read the task of a folder."""
    body = json.loads((folder / TASK).read_text(encoding="utf-8"))
    return Task(body["experiment"], ModelRef(**body["ref"]), load_settings(body["settings"]))


def main(folder_name: str) -> int:
    """Do the task of a folder and leave its result there."""
    folder = Path(folder_name)
    task = read_task(folder)
    try:
        outcome = _measure(task, folder)
    except BaseException as error:
        outcome = failure(error)
    temporary = folder / f"{RESULT}.part"
    temporary.write_text(outcome.dump(), encoding="utf-8")
    os.replace(temporary, folder / RESULT)
    return 0


def _measure(task: Task, folder: Path) -> Outcome:
    from collectors.bench.surroundings import arrange, prepare_environment

    prepare_environment(task)  # before torch is imported: it reads some of it then
    from collectors.bench.workbench import Workbench

    arrange(task)
    bench = Workbench(task.ref, task.settings, folder)
    bench.load()
    module = importlib.import_module(f"collectors.bench.experiments.{task.experiment}")
    try:
        outcome: Outcome = module.run(bench)
    except Exception as error:
        return bench.describe(failure(error))
    return bench.describe(outcome)


def failure(error: BaseException) -> Outcome:
    """Say what a failure means, in upstream's words."""
    from collectors.bench.suites.missing import NotAvailable

    reason = getattr(error, "reason", None)
    cause = error.__cause__ if type(error).__name__ == "StageFailed" and error.__cause__ is not None else error
    text = "".join(traceback.format_exception(cause))
    message = f"{type(cause).__name__}: {cause}".strip()
    if isinstance(cause, NotAvailable):
        return Outcome(status="skipped", reason=str(cause))
    if isinstance(cause, ModuleNotFoundError) and reason == "model_fail_to_load":
        return Outcome(status="skipped", reason=f"{cause.name} is not installed", message=message, traceback=text)
    return Outcome(status="failed", reason=reason or "infra_error", message=message, traceback=text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
