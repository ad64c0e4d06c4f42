"""The plan of a trial for the processes it starts.

This module needs only the standard library, because it is imported in the observed process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

PLAN_VARIABLE = "COMPILEBOARD_TRIAL"
PLAN_NAME = "plan.json"
CALLS_PREFIX, NOTES_PREFIX = "calls-", "notes-"  # a file of each a process, JSON lines
LOADED, SETTING_FAILED, SETTING_APPLIED = (
    "loaded",
    "setting_failed",
    "setting_applied",
)  # kinds of notes


@dataclass(frozen=True)
class TrialPlan:
    folder: str  # Each process writes its calls and notes here.
    files: Mapping[str, str] = field(
        default_factory=dict
    )  # real path of a source file -> its patched copy
    settings: tuple[str, ...] = ()  # statements to run after the program's own import of torch
    probe_folder: str = ""  # Keeps inductor's test of the processor for both sides.

    def write(self) -> Path:
        path = Path(self.folder, PLAN_NAME)
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


def read_plan(path: str) -> TrialPlan:
    with open(path, encoding="utf-8") as file:
        body = json.load(file)
    return TrialPlan(**{**body, "settings": tuple(body["settings"])})
