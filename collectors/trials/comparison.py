"""Compare executions of a program with and without a fix. Differences within noise do not count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from compileboard.collectors.contract.verdicts import ComparedMetric, Measurement, Verdict, decide
from compileboard.collectors.fixes.titles import describe_slower
from compileboard.collectors.record.program import read_tail
from compileboard.collectors.store.dashboard import Outcome
from compileboard.collectors.trials.execution import STDERR, Execution, pick_step
from compileboard.collectors.trials.outputs import Output, OutputComparison, compare_outputs

COUNTS = (
    ComparedMetric("graph_break_count", "Graph breaks", "down_is_good", "count"),
    ComparedMetric("recompile_count", "Recompiles", "down_is_good", "count"),
    ComparedMetric("recompile_limit_count", "Recompile limits reached", "down_is_good", "count"),
    ComparedMetric("failure_count", "Failures", "down_is_good", "count"),
    ComparedMetric(
        "cudagraph_rerecording_count", "CUDA graphs recorded again", "down_is_good", "count"
    ),
    ComparedMetric("cudagraph_skip_count", "CUDA graphs not used", "down_is_good", "count"),
)
COMPILE_TIME = ComparedMetric("compile_s", "Compile time", "down_is_good")
STEP = ComparedMetric("abs_latency_ms", "Step", "down_is_good")
_ALWAYS = ("graph_break_count", "recompile_count")
_NOUNS = {
    "graph_break_count": "breaks",
    "recompile_count": "recompiles",
    "recompile_limit_count": "recompile limits",
    "failure_count": "failures",
    "cudagraph_rerecording_count": "CUDA graphs recorded again",
    "cudagraph_skip_count": "CUDA graphs not used",
}


@dataclass(frozen=True)
class TrialResult:
    """A trial's result. `missing` says why the fix had no effect, `failure` is the exception of the
    fixed program.
    """

    verdicts: tuple[Verdict[ComparedMetric], ...]
    output: OutputComparison
    step_name: str | None
    missing: str | None
    failure: str | None
    failure_text: str
    is_interrupted: bool
    base_failure: str | None = None
    is_step_changed: bool = False  # the fix changed what is compiled for the step's function
    step_ms: tuple[list[float], list[float]] = ([], [])  # Step times by execution, base and new.
    step_count: int = 0  # Calls of the step's function in an execution.
    is_mended: bool = False  # it ends well with the fix alone: its output is not compared

    @property
    def outcome(self) -> Outcome:
        if self.is_interrupted:
            return "interrupted"
        if self.failure is not None:
            return "failed"
        if self.missing is not None:
            return "not_applied"
        if not self.output.is_equal and not self.is_mended:
            return "different"
        words = {verdict.word for verdict in self.verdicts}
        if "worse" in words:
            return "worse"
        return "improved" if "better" in words and not self.is_unclear else "unchanged"

    @property
    def is_unclear(self) -> bool:
        """Return whether there are only fewer recompiles, and the one measured execution compiled
        longer: a dynamic graph may cost more than it saves.
        """
        better = {verdict.metric.name for verdict in self.verdicts if verdict.word == "better"}
        return better == {"recompile_count"} and any(
            verdict.metric is COMPILE_TIME
            and verdict.word == "single"
            and verdict.new > verdict.base
            for verdict in self.verdicts
        )

    @property
    def slower(self) -> list[str]:
        """Return the times that grew by more than noise: ["compile time 12% more"]."""
        return list(self._words_by_text)

    @property
    def _words_by_text(self) -> dict[str, str]:
        texts = {
            describe_slower(verdict.metric.name, verdict.change, verdict.word): verdict.word
            for verdict in self.verdicts
            if verdict.metric is not STEP or self.is_step_changed
        }
        return {text: word for text, word in texts.items() if text}

    @property
    def is_slower(self) -> bool:
        """Return whether its times grew, and by more than what all of its steps saved."""
        return bool(self.slower) and self._saved_s <= 0

    @property
    def _saved_s(self) -> float:
        saved_s = 0.0
        for verdict in self.verdicts:
            if verdict.metric is COMPILE_TIME:
                saved_s += verdict.base - verdict.new
            elif verdict.metric is STEP and self.is_step_changed and verdict.word != "noise":
                saved_s += (verdict.base - verdict.new) / 1e3 * self.step_count
        return saved_s

    @property
    def needs_repeats(self) -> bool:
        """Return whether a fix that has fewer breaks or recompiles took longer in one execution."""
        is_single = "single" in self._words_by_text.values()
        return self.is_unclear or (self.outcome == "improved" and is_single)

    @property
    def summary(self) -> str:
        """Return the trial on one line: 7 breaks → 0, recompiles 4 → 1, output equal, compile 12.1
        → 4.0 s.
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
        parts.append("the program ends well with it" if self.is_mended else self.output.word)
        for verdict, noun in (
            (verdict, _TIMES.get(verdict.metric.name)) for verdict in self.verdicts
        ):
            if noun:
                parts.append(f"{noun} {' → '.join(format_change(verdict))}")
        slower = self.slower if self.outcome == "improved" else []
        return ": ".join([", ".join(parts), *filter(None, [", ".join(slower)])])

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
                "is_reordered": self.output.is_reordered,
                "value_count": self.output.value_count,
                "call_count": self.output.call_count,
                "backward_count": self.output.backward_count,
                "line_count": self.output.line_count,
            },
            "failure": self.failure,
            "missing": self.missing,
            "base_failure": self.base_failure,
            "step": self.step_name,
            "is_step_changed": self.is_step_changed,
            "step_ms": self.step_ms,
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
    """Compare two sides: the counts of all executions, the output of the first new one, and the
    times from one `try` command.
    """
    if not base or not new or any(side.exit.is_interrupted for side in (*base, *new)):
        return TrialResult((), OutputComparison(), None, None, None, "", is_interrupted=True)
    first, other = base[0], new[0]
    failure = None
    bad = next((execution for execution in new if not execution.has_ended_well), None)
    if bad is not None and first.has_ended_well:
        failure = f"{bad.describe_failure()} ({bad.exit_text})"
    output = compare_outputs([Output.of(execution) for execution in base], Output.of(other))
    timed = pick_timed(base, new)
    step_name, is_changed = pick_step(*([e.calls for e in side] for side in timed))
    verdicts = [_count(metric, base, new) for metric in COUNTS]
    verdicts = [v for v in verdicts if v.metric.name in _ALWAYS or v.base or v.new]
    compile_s = [[execution.counts.compile_us / 1e6 for execution in side] for side in timed]
    if all(side and side[0] for side in compile_s):
        verdicts.append(_compare_samples(COMPILE_TIME, *compile_s))
    step_ms: tuple[list[float], list[float]] = ([], [])
    if step_name is not None:
        step_ms = _steps(timed[0], step_name), _steps(timed[1], step_name)
        verdicts.append(_compare_samples(STEP, *step_ms))
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
        is_step_changed=is_changed,
        is_mended=not first.has_ended_well and all(side.has_ended_well for side in new),
        step_ms=step_ms,
        step_count=_count_steps(timed[1], step_name),
    )


def pick_timed(
    base: Sequence[Execution], new: Sequence[Execution]
) -> tuple[list[Execution], list[Execution]]:
    """Return both sides' executions from the `try` command that ran the most of each; empty if none
    ran both sides. Times from different commands are not comparable, since the load differs.
    """
    sides: list[tuple[list[Execution], list[Execution]]] = [([], [])]
    for invocation in sorted({execution.invocation for execution in new}):
        old, came = (
            [execution for execution in side if execution.invocation == invocation]
            for side in (base, new)
        )
        if old:
            sides.append((old, came))
    return max(reversed(sides), key=lambda sides: min(map(len, sides)))


def _count(
    metric: ComparedMetric, base: Sequence[Execution], new: Sequence[Execution]
) -> Verdict[ComparedMetric]:
    """Compare counts. A count that varies between executions is judged only if the ranges of both
    sides do not overlap.
    """
    old, came = (
        [float(getattr(execution.counts, metric.name)) for execution in side]
        for side in (base, new)
    )
    verdict = decide(metric, Measurement(median(old)), Measurement(median(came)))
    is_apart = max(old) < min(came) or max(came) < min(old)
    return verdict if is_apart or verdict.base == verdict.new else replace(verdict, word="noise")


def _compare_samples(
    metric: ComparedMetric, base: list[float], new: list[float]
) -> Verdict[ComparedMetric]:
    return decide(
        metric, Measurement(median(base), None, base), Measurement(median(new), None, new)
    )


def _steps(side: Sequence[Execution], name: str) -> list[float]:
    """Return the median step time of each execution in ms.

    There is one number per execution, because times vary more between processes than within one.
    """
    return [median(execution.calls[0].list_steps()[name]) / 1000 for execution in side]


def _count_steps(side: Sequence[Execution], name: str | None) -> int:
    return side[0].calls[0].count_frames()[name][0] if name is not None else 0


def format_change(verdict: Verdict[ComparedMetric]) -> tuple[str, str]:
    """Return both values as text, with the unit only after the second: 12.1, 4.0 s."""
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
