"""The outcome of an experiment, passed from the child process to the bench command as JSON. Needs
no torch.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from compileboard.collectors.contract.redaction import redact_line, redact_source
from compileboard.collectors.contract.values import clean

RESULT = "result.json"  # Written into the folder of the measuring process.


@dataclass
class ExperimentOutcome:
    status: str = "measured"
    reason: str | None = None
    accuracy: str | None = None
    values: dict[str, float] = field(default_factory=dict)
    repeats: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    message: str | None = None
    traceback: str | None = None
    batch_size: int | None = None
    hardware: str | None = None
    started_us: int = 0
    duration_us: int = 0

    def dump(self) -> str:
        return json.dumps(asdict(self))


def describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip()


def without_source(outcome: ExperimentOutcome) -> ExperimentOutcome:
    facts = redact_source(outcome.facts)
    export = facts.get("export")
    if isinstance(export, dict) and export.get("source"):
        export["source"] = redact_line(export["source"])
    message, text = redact_source(outcome.message), redact_source(outcome.traceback)
    return replace(outcome, facts=facts, message=message, traceback=text)


def load_outcome(text: str) -> ExperimentOutcome:
    return ExperimentOutcome(**clean(json.loads(text)))


# In a fresh process, including the compiler's own start: upstream's compilation_latency.
FIRST = "first_compilation_latency"


@dataclass(frozen=True)
class CompileTime:
    value: str
    samples: str


COLD = CompileTime("compilation_latency", "cold_compile_s")
EXPORT = CompileTime("export_latency", "export_s")
LOAD = CompileTime("load_latency", "load_s")
FIRST_CALL = "first_call_latency"  # Whether it was compiled or loaded from a cache.
SECOND = CompileTime("second_process_latency", "second_process_s")
WARM = CompileTime("warm_compilation_latency", "warm_compile_s")


def add_samples(outcome: ExperimentOutcome, what: CompileTime, samples_s: Sequence[float]) -> None:
    if samples_s:
        outcome.repeats[what.samples] = list(samples_s)
        outcome.values[what.value] = median(samples_s)


class Stages:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self.name = "start"
        self._began_s = time.monotonic() - (_age_s() or 0.0)

    def begin(self, name: str) -> None:
        self._close()
        self.name = name
        (self.folder / "stage").write_text(name)

    def durations(self) -> dict[str, float]:
        self._close()
        return {name: round(value, 3) for name, value in self.seconds.items()}

    def _close(self) -> None:
        now_s = time.monotonic()
        self.seconds[self.name] = self.seconds.get(self.name, 0.0) + now_s - self._began_s
        self._began_s = now_s


def _age_s() -> float | None:
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
