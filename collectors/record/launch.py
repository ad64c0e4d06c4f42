"""Record beside a program: `collectors run -- COMMAND`. Whatever fails here is said and stays our own matter."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from compileboard.collectors.record.command import default_name
from compileboard.collectors.record.facts import program_folder
from compileboard.collectors.record.manifest import Manifest
from compileboard.collectors.record.opening import (
    current_folder,
    describe_run,
    joined_run_id,
    kept_words,
    make_spool,
    spool_folder,
)
from compileboard.collectors.record.program import Outcome, signal_name
from compileboard.collectors.record.recorder import Recorder
from compileboard.collectors.record.recording import Recording

INJECT = Path(__file__).resolve().parent.parent / "observe" / "inject"
TRACE_NAME = "trace"


@dataclass
class Request:
    """Say what to run and how to record it."""

    command: list[str]
    database: str = "compileboard.db"
    name: str | None = None
    suite: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    level: str = "light"
    keep_source: bool = True
    capture_env: tuple[str, ...] = ()
    quiet: bool = False
    stack_room: bool = False


def prepare(request: Request, environment: Mapping[str, str], cwd: str | None) -> tuple[Path, Manifest]:
    """Describe the run and make its spool folder; what of it cannot be asked for is a trouble of the run.

    Raises: StoreError if there can be no spool.
    """
    joined, troubles = None, []
    try:
        joined = joined_run_id(environment)
    except ValueError as error:
        troubles.append(["bad_fact", f"{error}; the run has an id of its own"])
    manifest = describe_run(
        environment,
        argv=request.command,
        cwd=cwd,
        code_folder=lambda: program_folder(request.command, cwd or os.curdir),
        capture_env=request.capture_env,
        run_id=joined,
        database=os.path.abspath(request.database),
        name=request.name or default_name(kept_words(request.command, keep_source=request.keep_source)),
        troubles=troubles,
        suite=request.suite,
        tags=request.tags,
        level=request.level,
        keep_source=request.keep_source,
    )
    manifest.stack_room = request.stack_room
    folder = spool_folder(manifest, environment, shared=joined is not None)
    own = environment.get("TORCH_TRACE")  # the user's: left as it is, and read as well
    manifest.trace_folder = os.path.abspath(own) if own else None
    if request.level == "full" and not own:
        manifest.trace_folder = str(folder / TRACE_NAME)
    make_spool(folder, manifest)
    return folder, manifest


def child_environment(request: Request, environment: Mapping[str, str], run_id: str, folder: Path) -> dict[str, str]:
    """Return the program's environment: the caller's, and what arms the hooks."""
    entries = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry != str(INJECT)]
    path = os.pathsep.join([str(INJECT), *(entries if any(entries) else [])])
    child = {
        **environment,
        "PYTHONPATH": path,
        "COMPILEBOARD_RUN_ID": run_id,
        "COMPILEBOARD_SPOOL": str(folder),
        "COMPILEBOARD_DB": os.path.abspath(request.database),
        "COMPILEBOARD_LEVEL": request.level,
        "COMPILEBOARD_NO_SOURCE": "" if request.keep_source else "1",
        "COMPILEBOARD_CAPTURE_ENV": ",".join(request.capture_env),
        "COMPILEBOARD_STACK_ROOM": "1" if request.stack_room else "",
    }
    if request.level == "full":
        child.setdefault("TORCH_TRACE", str(folder / TRACE_NAME))
    return child


class Launch:
    """Record a program from before its start to after its end. Nothing but the constructor raises."""

    def __init__(self, request: Request, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        folder, self.manifest = prepare(request, environment, current_folder())
        for _, trouble in self.manifest.troubles:
            say(trouble)
        self.recording = Recording(folder, self.manifest, say)
        self.recording.try_open()
        self.environment = child_environment(request, environment, self.manifest.run_id, folder)

    def step(self, show_progress: Callable[[Recorder], None] | None) -> None:
        """Record what is there."""
        self.recording.step(show_progress)

    def end(self, outcome: Outcome) -> None:
        """Record how the program ended."""
        if outcome.signal_number is not None:
            self.recording.end("killed", signal=signal_name(outcome.signal_number))
        else:
            self.recording.end("finished" if outcome.exit_code == 0 else "failed", exit_code=outcome.exit_code)
