"""How a measuring process ended: its result, or its last stage and output. No torch."""

from __future__ import annotations

import signal
from pathlib import Path

from compileboard.collectors.bench.worker.outcome import RESULT, ExperimentOutcome, load_outcome
from compileboard.collectors.runs.program import signal_name

OUTPUT = "output.txt"
TAIL_BYTES = 20_000
# What a process that dies in a stage has failed at, in upstream's words.
DIED = {
    "load": "model_fail_to_load",
    "reference": "eager_1st_run_fail",
    "eager": "eager_1st_run_fail",
    "compile": "fail_to_run",
    "export": "fail_to_run",
    "draft": "fail_to_run",
    "load package": "fail_to_run",
    "another batch": "fail_to_run",
    "run": "fail_to_run",
    "measure": "fail_to_run",
    "compare": "fail_to_run",
}


def read_result(folder: Path) -> ExperimentOutcome | None:
    try:
        return load_outcome((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return None


def outcome_of_late(folder: Path, timeout_s: float) -> ExperimentOutcome:
    message = f"no result within {timeout_s:g} s; it was stopped in stage {read_stage(folder)!r}"
    return ExperimentOutcome(
        status="failed", reason="timeout", message=message, traceback=read_tail(folder)
    )


def outcome_of_killed(folder: Path, code: int) -> ExperimentOutcome:
    stage = read_stage(folder)
    ended = f"killed by {signal_name(-code)}" if code < 0 else f"it ended with exit code {code}"
    if -code == signal.SIGKILL:
        ended += " (the machine's memory may have run out)"
    reason = DIED.get(stage, "infra_error")
    message = f"{ended} in stage {stage!r}"
    return ExperimentOutcome(
        status="failed", reason=reason, message=message, traceback=read_tail(folder)
    )


def read_stage(folder: Path) -> str:
    return _read(folder / "stage") or "start"


def read_tail(folder: Path) -> str | None:
    tails = [(path.parent.name, _read(path)[-TAIL_BYTES:]) for path in list_outputs(folder)]
    texts = [
        text if not number else f"{name}:\n{text}"
        for number, (name, text) in enumerate(tails)
        if text
    ]
    return "\n".join(texts) or None


def list_outputs(folder: Path) -> list[Path]:
    return [
        folder / OUTPUT,
        *sorted(folder.glob(f"rank*/{OUTPUT}"), key=lambda path: int(path.parent.name[4:])),
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
