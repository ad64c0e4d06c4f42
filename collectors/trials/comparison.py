"""Compare the program with and without a fix, beyond noise."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import Any

from compileboard.collectors.contract.verdicts import ComparedMetric, Measurement, Verdict, decide
from compileboard.collectors.record.program import read_tail
from compileboard.collectors.store.dashboard import Outcome
from compileboard.collectors.trials.execution import (
    STDERR,
    STDOUT,
    Call,
    Execution,
    ProcessCalls,
    pick_step,
)

# Relative to the number, and to the largest one of its tensor. Source: torch.testing.assert_close's
# defaults are 1.3e-6, 1e-3 and 1.6e-2; float32 has a margin for fused reductions.
TOLERANCES = {"float64": 1e-7, "complex128": 1e-7, "float16": 2e-3, "bfloat16": 2e-2}
TOLERANCE = 1e-4  # float32 and Python's numbers, most of which were float32
PRINTED_TOLERANCE = 1e-3
MOST_LINES = 100_000
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_TIME = re.compile(
    r"\d[\d.,]*\s?(?:ns|us|µs|ms|s|sec|secs|seconds|min|minutes|it/s|s/it|steps/s|samples/s|tokens/s)\b"
    r"|\d{1,4}[-:]\d{2}[-:]\d{2}(?:[.,]\d+)?|0x[0-9a-fA-F]+|/tmp/\S+"
)


@dataclass(frozen=True)
class OutputComparison:
    """The comparison and first difference of each kind.

    `missing_line_count` lines are no longer printed, if nothing else differs. Differing calls that
    used random numbers are not compared.
    """

    value_count: int = 0
    call_count: int = 0
    line_count: int = 0
    difference: str | None = None
    printed_difference: str | None = None
    missing_line_count: int = 0
    random_call_count: int = 0

    @property
    def is_equal(self) -> bool:
        return self.difference is None and self.printed_difference is None

    @property
    def has_same_results(self) -> bool:
        prints_less = self.missing_line_count > 0 and self.call_count > 0
        return self.is_equal or (self.difference is None and prints_less)

    @property
    def word(self) -> str:
        if self.difference is not None:
            return "output differs"
        if self.printed_difference is None:
            return "output equal"
        if self.has_same_results:
            return f"values equal, {_count_values(self.missing_line_count, 'printed line')} fewer"
        return "printed lines differ"

    def describe(self) -> str:
        parts = ["exit code"]
        if self.call_count:
            parts.append(
                f"{_count_values(self.value_count, 'value')} of "
                f"{_count_values(self.call_count, 'compiled call')}"
            )
        if self.line_count:
            parts.append(_count_values(self.line_count, "printed line"))
        random = f"; {_count_values(self.random_call_count, 'call')} with random numbers left out"
        compared = ", ".join(parts) + (random if self.random_call_count else "")
        if self.is_equal:
            return f"equal: {compared}"
        first = f"{self.difference or self.printed_difference} (compared: {compared})"
        return f"{self.word}: {first}" if self.has_same_results else f"differs: {first}"


def _count_values(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def compare_outputs(
    exits: tuple[str, str],
    calls: tuple[Sequence[ProcessCalls], Sequence[ProcessCalls]],
    printed: tuple[Iterable[str], Iterable[str]],
) -> OutputComparison:
    value_count = call_count = random_count = 0
    difference = None if exits[0] == exits[1] else f"{exits[0]} → {exits[1]}"
    for base, new in zip(*calls):
        by_number = {call.number: call for call in new.calls}
        for call in base.calls:
            other = by_number.get(call.number)
            if call.values is None or other is None or other.values is None:
                continue
            differs = compare_values(call, other)
            if differs is not None and (call.is_random or other.is_random):
                random_count += 1
                continue
            call_count += 1
            value_count += len(call.values)
            difference = difference or differs
        if base.call_count != new.call_count and not difference:
            difference = f"{base.call_count} compiled calls → {new.call_count}"
    if len(calls[0]) != len(calls[1]) and not difference:
        difference = f"{len(calls[0])} processes with compiled calls → {len(calls[1])}"
    line_count, printed_difference, missing_count = compare_lines(*printed)
    return OutputComparison(
        value_count,
        call_count,
        line_count,
        difference,
        printed_difference,
        missing_count,
        random_count,
    )


def compare_values(base: Call, new: Call) -> str | None:
    if base.name != new.name:
        return f"compiled call {base.number + 1} is {base.name} → {new.name}"
    where = f"compiled call {base.number + 1} ({base.name})"
    for old, leaf in zip_longest(base.values or (), new.values or ()):
        if old is None or leaf is None or old[0] != leaf[0]:
            return f"{where} returned {_path(old)} → {_path(leaf)}"
        if difference := _compare_leaves(old[1:], leaf[1:]):
            return f"{where} returned {_path(old)}: {difference}"
    return None


def _path(leaf: Sequence[Any] | None) -> str:
    return "nothing there" if leaf is None else f"result{leaf[0]}"


def _compare_leaves(base: Sequence[Any], new: Sequence[Any]) -> str | None:
    kinds = base[0], new[0]
    if kinds[0] in ("tensor", "number") and kinds[1] in ("tensor", "number"):
        # A number that became a tensor without dimensions is the same value.
        if _shape(base) != _shape(new):
            return f"shape {_shape(base)} → {_shape(new)}"
        if kinds == ("tensor", "tensor") and base[1] != new[1]:
            return f"{base[1]} → {new[1]}"
        tolerance = max(_tolerance(base), _tolerance(new))
        extent = max((abs(v) for v in base[2] if math.isfinite(v)), default=0.0)
        return _compare_numbers([*base[2], *_sums(base)], [*new[2], *_sums(new)], tolerance, extent)
    if kinds == ("other", "other") or kinds == ("cut", "cut"):
        return None if base[1] == new[1] else f"{base[1]} → {new[1]}"
    return None if list(base) == list(new) else f"{base[-1]} → {new[-1]}"


def _shape(leaf: Sequence[Any]) -> list[int]:
    return list(leaf[3]) if leaf[0] == "tensor" else []


def _sums(leaf: Sequence[Any]) -> list[float]:
    return list(leaf[4]) if leaf[0] == "tensor" else []


def _tolerance(leaf: Sequence[Any]) -> float:
    is_exact = leaf[1] in ("bool", "str") or leaf[1].startswith(("int", "uint"))
    return 0.0 if is_exact else TOLERANCES.get(leaf[1], TOLERANCE)


def _compare_numbers(
    base: Sequence[float], new: Sequence[float], tolerance: float, extent: float
) -> str | None:
    for old, number in zip(base, new):
        if old == number or (math.isnan(old) and math.isnan(number)):
            continue
        if not math.isclose(old, number, rel_tol=tolerance, abs_tol=tolerance * extent):
            return f"{old:.6g} → {number:.6g}"
    return None


def compare_lines(base: Iterable[str], new: Iterable[str]) -> tuple[int, str | None, int]:
    """Return the number of compared lines, the first difference, and the number of missing lines.

    Ignores numbers' last digits, times, addresses, temporary paths and order.
    """
    old_lines, new_lines = _read_lines(base), _read_lines(new)
    differing = [
        (number, old, line)
        for number, (old, line) in enumerate(zip_longest(old_lines, new_lines), 1)
        if not _are_alike(old, line)
    ]
    count = max(len(old_lines), len(new_lines))
    if not differing:
        return count, None, 0
    old_counts, new_counts = _normalise(old_lines), _normalise(new_lines)
    if old_counts == new_counts:
        return count, None, 0
    missing_count = 0 if new_counts - old_counts else sum((old_counts - new_counts).values())
    number, old, line = differing[0]
    return count, f"printed line {number}: {_quote(old)} → {_quote(line)}", missing_count


def _read_lines(lines: Iterable[str]) -> list[str]:
    return [line.rstrip() for line, _ in zip(lines, range(MOST_LINES))]


def _normalise(lines: Iterable[str]) -> Counter[str]:
    return Counter(
        _NUMBER.sub(lambda number: f"{float(number[0]):.3g}", _TIME.sub("", line))
        for line in lines
        if line
    )


def _are_alike(base: str | None, new: str | None) -> bool:
    if base == new:
        return True
    if base is None or new is None:
        return False
    base, new = _TIME.sub("", base), _TIME.sub("", new)
    if _NUMBER.sub("#", base) != _NUMBER.sub("#", new):
        return False
    return all(
        math.isclose(float(old), float(number), rel_tol=PRINTED_TOLERANCE, abs_tol=1e-6)
        for old, number in zip(_NUMBER.findall(base), _NUMBER.findall(new))
    )


def _quote(line: str | None) -> str:
    return "not there" if line is None else repr(line[:120])


COUNTS = (
    ComparedMetric("graph_break_count", "Graph breaks", "down_is_good", "count"),
    ComparedMetric("recompile_count", "Recompiles", "down_is_good", "count"),
    ComparedMetric("recompile_limit_count", "Recompile limits reached", "down_is_good", "count"),
    ComparedMetric("failure_count", "Failures", "down_is_good", "count"),
)
COMPILE_TIME = ComparedMetric("compile_s", "Compile time", "down_is_good")
STEP = ComparedMetric("abs_latency_ms", "Step", "down_is_good")
_ALWAYS = ("graph_break_count", "recompile_count")
_NOUNS = {
    "graph_break_count": "breaks",
    "recompile_count": "recompiles",
    "recompile_limit_count": "recompile limits",
    "failure_count": "failures",
}


@dataclass(frozen=True)
class TrialResult:
    """A trial's result; `missing` says why the fix was not used, `failure` what the fixed program
    raised.
    """

    verdicts: tuple[Verdict[ComparedMetric], ...]
    output: OutputComparison
    step_name: str | None
    missing: str | None
    failure: str | None
    failure_text: str
    is_interrupted: bool
    base_failure: str | None = None

    @property
    def outcome(self) -> Outcome:
        if self.is_interrupted:
            return "interrupted"
        if self.failure is not None:
            return "failed"
        if self.missing is not None:
            return "not_applied"
        if not self.output.has_same_results:
            return "different"
        words = {verdict.word for verdict in self.verdicts}
        return "worse" if "worse" in words else "improved" if "better" in words else "unchanged"

    @property
    def summary(self) -> str:
        """The trial on one line: 7 breaks → 0, recompiles 4 → 1, output equal, compile 12.1 → 4.0
        s.
        """
        if self.is_interrupted:
            return "interrupted"
        if self.failure is not None:
            return f"the program fails with the fix: {self.failure}"
        if self.missing is not None:
            return f"not applied: {self.missing}"
        parts = []
        for verdict in self.verdicts:
            base, new = format_change(verdict)
            name = verdict.metric.name
            if name == "graph_break_count":
                parts.append(f"{base} {'break' if base == '1' else 'breaks'} → {new}")
            elif name in _NOUNS:
                parts.append(f"{_NOUNS[name]} {base} → {new}")
        parts.append(self.output.word)
        for verdict, noun in (
            (verdict, _TIMES.get(verdict.metric.name)) for verdict in self.verdicts
        ):
            if noun:
                parts.append(f"{noun} {' → '.join(format_change(verdict))}")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "metrics": [
                {
                    "name": verdict.metric.name,
                    "label": self.label(verdict),
                    "base": verdict.base,
                    "new": verdict.new,
                    "change": verdict.change,
                    "word": verdict.word,
                    "basis": verdict.basis,
                    "text": " → ".join(format_change(verdict)),
                }
                for verdict in self.verdicts
            ],
            "output": {
                "is_equal": self.output.is_equal,
                "text": self.output.describe(),
                "difference": self.output.difference,
                "printed_difference": self.output.printed_difference,
                "value_count": self.output.value_count,
                "call_count": self.output.call_count,
                "line_count": self.output.line_count,
            },
            "failure": self.failure,
            "missing": self.missing,
            "base_failure": self.base_failure,
            "step": self.step_name,
        }

    def label(self, verdict: Verdict[ComparedMetric]) -> str:
        return f"Step ({self.step_name})" if verdict.metric is STEP else verdict.metric.label


_TIMES = {COMPILE_TIME.name: "compile", STEP.name: "step"}


def compare_executions(
    base: Sequence[Execution],
    new: Sequence[Execution],
    files: Mapping[str, str],
    settings: tuple[str, ...],
) -> TrialResult:
    """Compare all executions of both sides; values and printed lines only of the first ones."""
    if not base or not new or any(side.exit.is_interrupted for side in (*base, *new)):
        return TrialResult((), OutputComparison(), None, None, None, "", is_interrupted=True)
    first, other = base[0], new[0]
    failure = None
    bad = next((execution for execution in new if not execution.has_ended_well), None)
    if bad is not None and first.has_ended_well:
        failure = f"{bad.describe_failure()} ({bad.exit_text})"
    exits, calls = (first.exit_text, other.exit_text), (first.calls, other.calls)
    with ExitStack() as stack:
        old_lines, new_lines = (
            stack.enter_context((side.folder / STDOUT).open(encoding="utf-8", errors="replace"))
            for side in (first, other)
        )
        output = compare_outputs(exits, calls, (old_lines, new_lines))
    step_name = pick_step([execution.calls for execution in (*base, *new)])
    verdicts = [_count(metric, first, other) for metric in COUNTS]
    verdicts = [v for v in verdicts if v.metric.name in _ALWAYS or v.base or v.new]
    if first.counts.compile_us and other.counts.compile_us:
        verdicts.append(
            _compare_samples(
                COMPILE_TIME,
                *(
                    [execution.counts.compile_us / 1e6 for execution in side]
                    for side in (base, new)
                ),
            )
        )
    if step_name is not None:
        verdicts.append(_compare_samples(STEP, *(_steps(side, step_name) for side in (base, new))))
    return TrialResult(
        tuple(verdicts),
        output,
        step_name,
        other.find_missing(files, settings),
        failure,
        read_tail(bad.folder / STDERR) if bad is not None else "",
        is_interrupted=False,
        base_failure=None
        if first.has_ended_well
        else f"{first.describe_failure()} ({first.exit_text})",
    )


def _count(metric: ComparedMetric, base: Execution, new: Execution) -> Verdict[ComparedMetric]:
    values = [float(getattr(side.counts, metric.name)) for side in (base, new)]
    return decide(metric, Measurement(values[0]), Measurement(values[1]))


def _compare_samples(
    metric: ComparedMetric, base: list[float], new: list[float]
) -> Verdict[ComparedMetric]:
    return decide(
        metric, Measurement(median(base), None, base), Measurement(median(new), None, new)
    )


def _steps(side: Sequence[Execution], name: str) -> list[float]:
    """Return one time per execution in ms: starts vary more than calls."""
    return [median(execution.calls[0].list_steps()[name]) / 1000 for execution in side]


def format_change(verdict: Verdict[ComparedMetric]) -> tuple[str, str]:
    """Return both values as text, the unit only on the second: 12.1, 4.0 s."""
    if verdict.metric.kind == "count":
        return f"{verdict.base:,.0f}", f"{verdict.new:,.0f}"
    scale = 1.0 if verdict.metric is COMPILE_TIME else 1e-3  # to seconds
    base, new = verdict.base * scale, verdict.new * scale
    factor, unit = next(
        ((factor, unit) for limit, factor, unit in _UNITS if max(base, new) >= limit), (1e6, "µs")
    )
    return _number(base * factor), f"{_number(new * factor)} {unit}"


_UNITS = ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
