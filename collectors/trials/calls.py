"""Read the compiled calls and notes that a trial's processes wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compileboard.collectors.observe.trial_plan import CALLS_PREFIX, NOTES_PREFIX

WARM_UP_CALLS = (
    2  # after each call that compiled: allocations, autotuning, recording of CUDA graphs
)
FEWEST_CALLS = 3


@dataclass(frozen=True)
class Call:
    number: int
    name: str
    took_us: float
    has_compiled: bool
    is_random: bool
    values: list[list[Any]] | None


@dataclass(frozen=True)
class ProcessCalls:
    rank: str | None
    start_ns: int
    calls: list[Call]

    @property
    def call_count(self) -> int:
        return len(self.calls)

    def list_steps(self) -> dict[str, list[float]]:
        """Return times of calls without a compile, by name, skipping warm-up if enough remain."""
        warm: dict[str, list[float]] = {}
        settled: dict[str, list[float]] = {}
        since_compile: dict[str, int] = {}
        for call in self.calls:
            if call.has_compiled:
                since_compile[call.name] = 0
                continue
            since_compile[call.name] = since_compile.get(call.name, 0) + 1
            warm.setdefault(call.name, []).append(call.took_us)
            if since_compile[call.name] > WARM_UP_CALLS:
                settled.setdefault(call.name, []).append(call.took_us)
        return {
            name: settled[name] if len(settled.get(name, ())) >= FEWEST_CALLS else times
            for name, times in warm.items()
        }


def read_calls(folder: Path) -> list[ProcessCalls]:
    processes = []
    for path in folder.glob(f"{CALLS_PREFIX}*"):
        lines = list(_read_lines(path))
        if lines:
            head, *bodies = lines
            calls = [_to_call(body) for body in bodies if "call" in body]
            processes.append(ProcessCalls(head.get("rank"), int(head.get("start_ns", 0)), calls))
    return sorted(processes, key=lambda process: (int(process.rank or 0), process.start_ns))


def _to_call(body: dict[str, Any]) -> Call:
    return Call(
        body["call"],
        body["name"],
        body["us"],
        body.get("compiled", False),
        body.get("random", False),
        body.get("value"),
    )


def read_notes(folder: Path) -> list[tuple[str, str]]:
    notes = [tuple(note) for path in folder.glob(f"{NOTES_PREFIX}*") for note in _read_lines(path)]
    return list(dict.fromkeys(notes))


def _read_lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                continue


def pick_step(sides: Sequence[Sequence[ProcessCalls]]) -> str | None:
    """Return the most time-consuming callable that all sides called without compiling, or None."""
    totals: list[dict[str, float]] = []
    for processes in sides:
        side: dict[str, float] = {}
        for process in processes[:1]:  # ranks wait for each other: the first one's times are theirs
            for name, times in process.list_steps().items():
                if len(times) >= FEWEST_CALLS:
                    side[name] = sum(times)
        totals.append(side)
    common = [name for name in totals[0] if all(name in side for side in totals)] if totals else []
    return max(common, key=lambda name: totals[0][name], default=None)
