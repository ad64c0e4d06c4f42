"""Apply a trial in this process: patched sources, settings, fixed seeds, recorded calls."""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

from .compiled_calls import CallRecorder
from .source_overlay import install_overlay
from .trial_plan import (
    LOADED,
    NOTES_PREFIX,
    PLAN_VARIABLE,
    SETTING_APPLIED,
    SETTING_FAILED,
    TrialPlan,
    read_plan,
)

SEED = 0  # programs without a seed of their own draw the same numbers on both sides
_COMPILE_WORKER = os.path.join("torch", "_inductor", "compile_worker")


class ProcessTrial:
    def __init__(self, plan: TrialPlan) -> None:
        self.plan = plan
        self.recorder = CallRecorder(plan.folder, plan.probe_folder)

    def start(self) -> None:
        random.seed(SEED)
        if self.plan.files:
            install_overlay(self.plan.files, lambda path: self.note(LOADED, path))

    def after_torch(self) -> None:
        torch = sys.modules["torch"]
        if any(_COMPILE_WORKER in word for word in getattr(sys, "orig_argv", ())):
            return  # one of torch's own processes, which compiles kernels
        torch.manual_seed(SEED)
        self.recorder.watch(torch)
        names = {"torch": torch}  # Shared, because one statement may import what the next one uses.
        for statement in self.plan.settings:
            try:
                exec(statement, names)  # noqa: S102  the fix that the person asked to try
                self.note(SETTING_APPLIED, statement)
            except Exception as error:
                self.note(SETTING_FAILED, f"{statement}: {type(error).__name__}: {error}")

    def after_numpy(self) -> None:
        sys.modules["numpy"].random.seed(SEED)

    def note(self, kind: str, text: str) -> None:
        try:
            with open(
                os.path.join(self.plan.folder, f"{NOTES_PREFIX}{os.getpid()}"),
                "a",
                encoding="utf-8",
            ) as file:
                file.write(json.dumps([kind, text]) + "\n")
        except OSError:
            pass


def start_trial() -> dict[str, Any]:
    trial = ProcessTrial(read_plan(os.environ[PLAN_VARIABLE]))
    trial.start()
    return {"torch": trial.after_torch, "numpy": trial.after_numpy}
