"""Undo what is said to save recompiles, in programs whose arguments and state vary at random.

    python -m benchmarks.fixes.steady_sets [--seeds 30]

Each program has two to five things that vary between its calls. It is recorded once; then it runs
again with every combination of them held at its first value, and the recompiles that are left are
counted. `programs` counts those whose predicted set saves, for each number of things held, as many
recompiles as the best combination.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from benchmarks.common import Row, print_table
from compileboard.collectors.contract.events import Recompiled
from compileboard.collectors.fixes.cache_entries import to_recorded
from compileboard.collectors.fixes.causes import Variation, choose_recompile_causes
from compileboard.collectors.fixes.fix import RecordedCompile
from compileboard.collectors.observe.failed_guards import FailedGuards
from compileboard.collectors.record.in_process import watch

CALLS = 8  # a limit would hide what comes after the eighth recompile
SCALE = 1.0


class Settings:
    def __init__(self) -> None:
        self.temperature = 1.0


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.settings = Settings()
        self.calls = 0
        self.mode = "a"
        self.table = {"weight": 1}

    def forward(
        self,
        x: torch.Tensor,
        parts: list[float],
        mask: torch.Tensor | None,
        offset: int,
        y: torch.Tensor,
    ) -> torch.Tensor:
        x = self.linear(x) * (self.calls + 1) * self.settings.temperature * SCALE
        if self.mode == "a":
            x = x + 1
        for part in parts:
            x = x + part
        if mask is not None:
            x = x * mask
        return x[:, : 1 + offset] * self.table["weight"] + y.sum()


def _set(
    target: Callable[[Model], object], name: str
) -> Callable[[Model, dict[str, Any], Any], None]:
    return lambda model, _inputs, value: setattr(target(model), name, value)


def _give(name: str, make: Callable[[Any], Any]) -> Callable[[Model, dict[str, Any], Any], None]:
    def give(_model: Model, inputs: dict[str, Any], value: Any) -> None:
        inputs[name] = make(value)

    return give


def _set_scale(_model: Model, _inputs: dict[str, Any], value: float) -> None:
    globals()["SCALE"] = value


def _set_weight(model: Model, _inputs: dict[str, Any], value: int) -> None:
    model.table["weight"] = value


# What varies -> its values, and how a call gets one.
VARIED: dict[str, tuple[Sequence[Any], Callable[[Model, dict[str, Any], Any], None]]] = {
    "self.calls": (range(20), _set(lambda model: model, "calls")),
    "self.mode": ("abc", _set(lambda model: model, "mode")),
    "self.settings.temperature": (
        (1.0, 2.0, 3.0),
        _set(lambda model: model.settings, "temperature"),
    ),
    "self.table['weight']": (range(4), _set_weight),
    "G['SCALE']": ((1.0, 0.5), _set_scale),
    "parts": (range(4), _give("parts", lambda count: [1.0] * count)),
    "mask": ((False, True), _give("mask", lambda given: torch.ones(1) if given else None)),
    "offset": (range(4), _give("offset", int)),
    "x": ((2, 3, 5), _give("x", lambda size: torch.ones(size, 4))),
    "y": ((2, 3, 5), _give("y", torch.ones)),
    "grad_mode": ((True, False), lambda _model, inputs, value: inputs.update(grad=value)),
}


@dataclass(frozen=True)
class Program:
    """What varies, and its value at each call."""

    schedule: dict[str, list[Any]]
    dynamic: bool | None

    def run(self, steady: Collection[str] = ()) -> list[Recompiled]:
        torch.manual_seed(0)
        model = Model().eval()
        with watch() as seen:
            compiled = torch.compile(model, backend="eager", dynamic=self.dynamic)
            for call in range(CALLS):
                inputs: dict[str, Any] = {
                    "x": torch.ones(2, 4),
                    "parts": [1.0],
                    "mask": None,
                    "offset": 1,
                    "y": torch.ones(2),
                    "grad": True,
                }
                for name, values in self.schedule.items():
                    VARIED[name][1](model, inputs, values[0 if name in steady else call])
                with torch.set_grad_enabled(inputs.pop("grad")):
                    compiled(**inputs)
        _set_scale(model, {}, 1.0)
        return seen.recompiles


def make_program(seed: int) -> Program:
    chosen = random.Random(seed)
    names = chosen.sample(sorted(VARIED), chosen.randint(2, 5))
    schedule = {}
    for name in names:
        values = VARIED[name][0]
        every = chosen.choice((1, 1, 2, 3, 4))
        if chosen.random() < 0.5:
            schedule[name] = [values[(call // every) % len(values)] for call in range(CALLS)]
        else:
            schedule[name] = [chosen.choice(values) for _call in range(CALLS)]
    return Program(schedule, chosen.choice((False, False, None)))


def predict(events: Sequence[Recompiled]) -> Variation | None:
    frame = []
    for event in events:
        row = RecordedCompile(
            event.sequence, event.process_id, event.compile_id or "", (0, 0), "forward", None, 1,
            None, "compiled", 1, 0, True,
        )  # fmt: skip
        frame.append((to_recorded(event, row.key, None, "forward"), row))
    saved = choose_recompile_causes(frame)
    return saved[0].variation if saved else None


def judge(program: Program) -> tuple[bool, str]:
    """Return whether each predicted set is as good as the best, and both in words."""
    events = program.run()
    variation = predict(events)
    left = {
        steady: len(program.run(steady))
        for size in range(len(program.schedule) + 1)
        for steady in combinations(sorted(program.schedule), size)
    }
    is_right, most, lines = True, 0, []
    for size in range(1, len(program.schedule) + 1):
        best = max(len(events) - count for steady, count in left.items() if len(steady) == size)
        sets = [s for s in variation.sets if len(s.sources) == size] if variation else []
        if best > most or sets:
            for said in sets:
                measured = len(events) - left.get(said.sources, len(events) + 1)
                is_right &= said.saved_count == measured
                lines.append(f"{said.sources} predicted {said.saved_count}, measured {measured}")
            is_right &= best in {most, *(said.saved_count for said in sets)}
            lines.append(f"best of {size}: {best}")
        most = max(most, best)
    return is_right, f"{len(events)} recompiles, {program.dynamic=}; " + "; ".join(lines)


def time_reading(spent_ms: list[float], are_whole: list[bool]) -> None:
    """Append each look at a recompile's guards: its CPU time, and whether it saw all of them."""
    read = FailedGuards.read

    def timed(self: FailedGuards) -> list[list[Any]] | None:
        began = time.thread_time()
        found = read(self)
        spent_ms.append(1e3 * (time.thread_time() - began))
        are_whole.append(found is not None and all(is_whole for _id, is_whole, _failed in found))
        return found

    FailedGuards.read = timed  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=30)
    options = parser.parse_args()
    right, spent_ms, are_whole = 0, list[float](), list[bool]()
    time_reading(spent_ms, are_whole)
    for seed in range(options.seeds):
        is_right, words = judge(make_program(seed))
        right += is_right
        if not is_right:
            print(f"seed {seed}: {words}", file=sys.stderr)
    row = Row("programs", str(right), str(options.seeds), f"{right / options.seeds:.2f}", "1.00")
    cost = Row(
        "ms of CPU a recompile: median, most",
        f"{statistics.median(spent_ms):.2f}, {max(spent_ms):.2f}",
        reach="5",
    )
    read = Row(
        "recompiles read whole", str(sum(are_whole)), str(len(are_whole)),
        f"{sum(are_whole) / len(are_whole):.2f}", "1.00",
    )  # fmt: skip
    print_table("top sets are those of brute force", [row, cost, read])


if __name__ == "__main__":
    main()
