"""What a trial asks of the processes that it starts: patched files, settings, and where to write what calls returned.

Imported in the observed process: the standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

PLAN_VARIABLE = "COMPILEBOARD_TRIAL"
PLAN_NAME = "plan.json"
CALLS_PREFIX, NOTES_PREFIX = "calls-", "notes-"  # a file of each a process, JSON lines
LOADED, SETTING_FAILED, SETTING_APPLIED = "loaded", "setting_failed", "setting_applied"  # kinds of notes


@dataclass(frozen=True)
class TrialPlan:
    """What one execution of a program gets. Both sides of a trial have one; the base's patches nothing."""

    folder: str  # where each process writes its calls and notes
    files: Mapping[str, str] = field(default_factory=dict)  # real path of a source file -> its patched copy
    settings: tuple[str, ...] = ()  # statements to run after the program's own import of torch
    probe_folder: str = ""  # where inductor's test of the processor is kept for both sides

    def write(self) -> Path:
        """Write the plan into its folder; return the file's path."""
        path = Path(self.folder, PLAN_NAME)
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


def read_plan(path: str) -> TrialPlan:
    """Read a plan that `write` wrote."""
    with open(path, encoding="utf-8") as file:
        body = json.load(file)
    return TrialPlan(**{**body, "settings": tuple(body["settings"])})
