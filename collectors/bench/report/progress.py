"""Progress of a bench run on stderr, one line per task."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping
from typing import Any

from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.contract.result_columns import STORE_NAMES
from compileboard.collectors.contract.verdicts import (
    COMPARED,
    ComparedMetric,
    SideValues,
    Verdict,
    judge_sides,
)
from compileboard.collectors.terminal.run_summary import printable
from compileboard.collectors.terminal.values import count_text, first_line

REASONS = {
    "OOM": "out of memory",
    "timeout": "timed out",
    "fail_to_run": "the compiled model failed",
    "fail_accuracy": "wrong result",
    "eager_1st_run_fail": "the model itself fails",
    "eager_2nd_run_fail": "the model itself fails the second time",
    "eager_1st_run_OOM": "the model itself runs out of memory",
    "eager_2nd_run_OOM": "the model itself runs out of memory the second time",
    "eager_two_runs_differ": "two eager runs differ",
    "model_fail_to_load": "the model could not be built",
    "infra_error": "the harness failed",
}


BESIDE = {
    "scaling_efficiency": "scaling efficiency {:.3f}",
    "cache_lookup_latency": "cache lookup {:.0f} µs",
    "second_process_latency": "second process {:.2f} s",
}
NOISY = 0.10  # a spread of the repeats worth mentioning
MAX_EAGER = 3  # modules named in a result's line
LOW, HIGH = "speedup_low", "speedup_high"


class Progress:
    def __init__(self, total: int, *, quiet: bool) -> None:
        self.total = total
        self.done = 0
        self.quiet = quiet
        self.live = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self.began_s = time.monotonic()

    def begin(self, task: Task) -> None:
        if self.live:
            left = self._format_time_left()
            text = (
                f"[{self.done + 1}/{self.total}] {task.ref.name} {task.experiment}, "
                f"{task.asked.device}{left}"
            )
            sys.stderr.write(f"\r\x1b[K{printable(text)} …")
            sys.stderr.flush()

    def end(self, result: BenchMeasured, *, explain: bool) -> None:
        self.done += 1
        if self.quiet:
            return
        took = f"{(result.duration_us or 0) / 1e6:6.1f} s"
        head = (
            f"[{self.done}/{self.total}] {result.device:4} {result.mode:9} {result.model:28} "
            f"{result.experiment:17}"
        )
        text = f"{printable(head)} {took}  {printable(describe(result))}"
        sys.stderr.write(f"\r\x1b[K{text}\n" if self.live else f"{text}\n")
        if explain and result.status == "measured":
            sys.stderr.write(f"    {describe_graphs(result)}\n")
        if "timing" in result.facts:
            sys.stderr.write(f"    TIMING: {describe_phases(result)}\n")
        if "call_counts" in result.facts:
            counts = " | ".join(
                f"{name}:{count}" for name, count in result.facts["call_counts"].items()
            )
            sys.stderr.write(
                f"    STATS: call_* op count: {result.facts['op_count']} | {printable(counts)}\n"
            )
        sys.stderr.flush()

    def interrupt(self) -> None:
        if self.live:
            sys.stderr.write("\n")

    def _format_time_left(self) -> str:
        if not self.done:
            return ""
        left_s = (time.monotonic() - self.began_s) / self.done * (self.total - self.done)
        return (
            f", about {left_s / 60:.0f} min left" if left_s > 90 else f", about {left_s:.0f} s left"
        )


def describe(result: BenchMeasured) -> str:
    if result.status != "measured":
        reason = REASONS.get(result.reason or "", result.reason or "")
        words = "wrong result" if result.reason == "fail_accuracy" else f"{result.status}: {reason}"
        return f"{words} ({first_line(result.message)})" if result.message else words
    values = result.values
    beside = "".join(
        f", {words.format(values[name])}" for name, words in BESIDE.items() if name in values
    )
    beside += _describe_eager(result.facts.get("distributed", {}))
    if "speedup" not in values:
        return result.accuracy + beside if result.accuracy else _list_numbers(values)
    text = f"{result.accuracy}, " if result.accuracy else ""
    text += speedup_text(values)
    if LOW not in values:
        text += (
            f", {count_text(len(result.repeats.get('eager', [])), 'repeat')}: too few to tell "
            "an interval"
        )
    elif is_unclear(values):
        text += " no clear difference"
    noise = max(values.get("eager_noise", 0.0), values.get("compiled_noise", 0.0))
    if noise > NOISY:
        text += f", noisy: repeats spread by {noise:.0%}"
    if "baseline" in values:
        text += (
            f", {values['baseline']:.3f}x in the baseline [{values['speedup_vs_baseline']:.3f}x]"
        )
        text += f": {judge_against_baseline(result).text}"
    return text + beside


def speedup_text(values: Mapping[str, float]) -> str:
    interval = f" [{values[LOW]:.3f}, {values[HIGH]:.3f}]" if LOW in values else ""
    return f"{values['speedup']:.3f}x{interval}"


def is_unclear(values: Mapping[str, float]) -> bool:
    """Return whether a speedup's interval contains 1."""
    return LOW in values and values[LOW] <= 1.0 <= values[HIGH]


def name_result(result: BenchMeasured) -> str:
    """Return a result's model, followed by its experiment unless that is the usual one."""
    if result.experiment == "performance":
        return result.model
    return f"{result.model} ({result.experiment})"


def _describe_eager(distributed: Mapping[str, Any]) -> str:
    """List the first modules of which dynamo compiled no frame."""
    count: int = distributed.get("eager_module_count", 0)
    names = ", ".join(distributed.get("eager_modules", ())[:MAX_EAGER])
    more = " …" if count > MAX_EAGER else ""
    return f", {count_text(count, 'module')} not compiled: {names}{more}" if count else ""


def judge_against_baseline(
    result: BenchMeasured, wrong: Collection[tuple[str, str]] = ()
) -> Verdict[ComparedMetric]:
    speedup = next(metric for metric in COMPARED if metric.name == "speedup")
    baseline = SideValues({"speedup": result.values["baseline"]})
    return judge_sides([speedup], baseline, read_side(result, wrong))["speedup"]


def read_side(result: BenchMeasured, wrong: Collection[tuple[str, str]] = ()) -> SideValues:
    values = {STORE_NAMES.get(name, name): value for name, value in result.values.items()}
    interval = (values[LOW], values[HIGH]) if LOW in values else None
    return SideValues(values, interval, result.repeats, (result.suite, result.model) in wrong)


def _list_numbers(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in list(values.items())[:4])


def describe_graphs(result: BenchMeasured) -> str:
    counts = result.values
    if "unique_graphs" not in counts:
        return f"{result.experiment}: graphs, ops and graph breaks not counted"
    return (
        f"Dynamo produced {counts['unique_graphs']:.0f} graphs covering "
        f"{counts['calls_captured']:.0f} ops with {counts['graph_breaks']:.0f} graph breaks "
        f"({counts['unique_graph_breaks']:.0f} unique)"
    )


def describe_phases(result: BenchMeasured) -> str:
    phases: dict[str, float] = dict(result.facts["timing"])
    return " ".join(
        f"{name}:{spent_s:.3f}"
        for name, spent_s in sorted(phases.items(), key=lambda item: -item[1])
    )
