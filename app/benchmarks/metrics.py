"""The list of metrics, with their units and which direction is better."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from compileboard.app.core.format import NOT_RECORDED, format_count, format_number
from compileboard.collectors.contract.result_columns import STORED
from compileboard.collectors.store.results import ResultRow

Direction = Literal["up_is_good", "down_is_good", "neutral"]
_HARNESS = "the performance experiment"
_COUNTERS = "torch's counters, as the harness read them"
_HOOKS = "the hooks"
_EXPORTS = "the export and precompile experiments"
_QUANTIZATION = "the quantization experiment"


@dataclass(frozen=True)
class Metric:
    """One metric. `name` is a field of ResultRow, or of SuiteSummary for SUMMARY_METRICS.

    `decimals` of None is four significant figures.
    """

    name: str
    label: str
    unit: str
    direction: Direction
    decimals: int | None
    kind: Literal["value", "count"]
    source: str
    meaning: str
    low: str | None = None
    high: str | None = None

    @property
    def factor(self) -> float:
        return {"%": 100, "MB": 1e-6}.get(self.unit, 1)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in (self.name, self.low, self.high) if name)


def _of_result(
    name: str,
    label: str,
    direction: Direction,
    source: str,
    meaning: str,
    decimals: int | None = None,
    low: str | None = None,
    high: str | None = None,
) -> Metric:
    column = STORED[name]
    if column.is_count:
        return Metric(name, label, column.unit, direction, 0, "count", source, meaning)
    return Metric(
        name, label, column.unit, direction, decimals, "value", source, meaning, low, high
    )


METRICS = (
    _of_result(
        "speedup",
        "Speedup",
        "up_is_good",
        _HARNESS,
        "median eager ÷ median compiled latency",
        decimals=3,
        low="speedup_low",
        high="speedup_high",
    ),
    _of_result("abs_latency_ms", "Latency", "down_is_good", _HARNESS, "median, compiled"),
    _of_result("eager_latency_ms", "Eager latency", "down_is_good", _HARNESS, "median, eager"),
    _of_result(
        "compilation_latency_s", "Compile time", "down_is_good", _HARNESS, "with cold caches"
    ),
    _of_result(
        "warm_compilation_latency_s",
        "Warm compile time",
        "down_is_good",
        _HARNESS,
        "with warm caches",
    ),
    _of_result(
        "compression_ratio",
        "Peak memory ratio",
        "up_is_good",
        _HARNESS,
        "peak eager ÷ peak compiled",
        3,
    ),
    _of_result(
        "dynamo_peak_mem_gb", "Peak memory", "down_is_good", _HARNESS, "compiled, GB of 10⁹ bytes"
    ),
    _of_result(
        "eager_peak_mem_gb", "Eager peak memory", "down_is_good", _HARNESS, "GB of 10⁹ bytes"
    ),
    _of_result(
        "cache_lookup_latency_us",
        "Cache lookup",
        "down_is_good",
        "--profile-dynamo-cache-lookup",
        "dynamo's, of each call",
    ),
    _of_result("export_latency_s", "Export time", "down_is_good", _EXPORTS, "torch.export alone"),
    _of_result(
        "load_latency_s",
        "Load time",
        "down_is_good",
        _EXPORTS,
        "of the package, or the precompiled code",
    ),
    _of_result(
        "second_process_latency_s",
        "First call in a second process",
        "down_is_good",
        _EXPORTS,
        "with what the first process left",
    ),
    _of_result(
        "package_bytes",
        "Package size",
        "down_is_good",
        _EXPORTS,
        "the loaded file, MB of 10⁶ bytes",
    ),
    _of_result(
        "scaling_efficiency",
        "Scaling efficiency",
        "up_is_good",
        "--ddp and --fsdp",
        "samples per second of all ranks ÷ ranks × those of one process",
        decimals=1,
    ),
    # The rounding of another order of operations: within the tolerance neither more nor less is
    # better.
    _of_result(
        "output_error", "Output error", "neutral", _EXPORTS, "largest relative error against eager"
    ),
    _of_result(
        "quantized_error",
        "Quantized error",
        "down_is_good",
        _QUANTIZATION,
        "relative error against eager in float32",
    ),
    _of_result(
        "quantized_eager_error",
        "Quantized error against eager",
        "neutral",
        _QUANTIZATION,
        "compiled quantized against eager quantized",
    ),
    _of_result(
        "graph_breaks", "Graph breaks", "down_is_good", _COUNTERS, "times a graph was broken"
    ),
    _of_result(
        "unique_graph_breaks",
        "Graph break reasons",
        "down_is_good",
        _COUNTERS,
        "as torch's counters tell them apart",
    ),
    _of_result("recompiles", "Recompiles", "down_is_good", _HOOKS, "recompiles"),
    # More may be more of the model in graphs, or the same part of it captured again.
    _of_result(
        "calls_captured", "Operations captured", "neutral", _COUNTERS, "in the captured graphs"
    ),
    _of_result("unique_graphs", "Graphs", "neutral", _COUNTERS, "captured graphs"),
    _of_result(
        "fallbacks_to_eager",
        "Fallbacks to eager",
        "down_is_good",
        _COUNTERS,
        "frames left to eager",
    ),
    _of_result(
        "autograd_captures", "Autograd captures", "neutral", _COUNTERS, "by compiled autograd"
    ),
    _of_result(
        "autograd_compiles", "Autograd compiles", "neutral", _COUNTERS, "by compiled autograd"
    ),
    _of_result(
        "cudagraph_skips", "CUDA graph skips", "down_is_good", _COUNTERS, "CUDA graphs not used"
    ),
)
# Of a suite; how each counts is its definition's (app.benchmarks.summaries).
_MEANS = ("load_latency_s", "package_bytes", "scaling_efficiency", "quantized_error")
SUMMARY_METRICS = (
    Metric(
        "pass_ratio",
        "Pass rate",
        "%",
        "up_is_good",
        1,
        "value",
        "accuracy and speedup",
        "models that pass, of all",
    ),
    Metric(
        "geomean_speedup",
        "Geomean speedup",
        "×",
        "up_is_good",
        3,
        "value",
        _HARNESS,
        "over the models",
    ),
    Metric(
        "compilation_latency_s",
        "Compile time",
        "s",
        "down_is_good",
        None,
        "value",
        _HARNESS,
        "mean of the models, cold",
    ),
    Metric(
        "abs_latency_ms",
        "Latency",
        "ms",
        "down_is_good",
        None,
        "value",
        _HARNESS,
        "mean of the models, compiled",
    ),
    Metric(
        "compression_ratio",
        "Peak memory ratio",
        "×",
        "up_is_good",
        3,
        "value",
        _HARNESS,
        "peak eager ÷ peak compiled, over the models",
    ),
    Metric(
        "dynamo_peak_mem_gb",
        "Peak memory",
        "GB",
        "down_is_good",
        None,
        "value",
        _HARNESS,
        "mean of the models, compiled",
    ),
    Metric(
        "graph_breaks_per_model",
        "Graph breaks per model",
        "",
        "down_is_good",
        None,
        "value",
        _COUNTERS,
        "mean of the models that were counted",
    ),
    Metric(
        "recompiles_per_model",
        "Recompiles per model",
        "",
        "down_is_good",
        None,
        "value",
        _HOOKS,
        "mean of the models that were counted",
    ),
    *(
        replace(metric, meaning=f"mean of the models: {metric.meaning}")
        for metric in METRICS
        if metric.name in _MEANS
    ),
)
# Of a model, for incidents: 1 where it was measured and is right, 0 where it failed or is wrong.
PASSES = Metric(
    "passes",
    "Passes",
    "",
    "up_is_good",
    0,
    "count",
    "the harness",
    "1 is measured and right, 0 is failed",
)
# Of a run that was observed, whatever it ran: columns of app.benchmarks.series_queries.
RUN_METRICS = (
    Metric(
        "compile_s",
        "Compile time",
        "s",
        "down_is_good",
        None,
        "value",
        _HOOKS,
        "all compiles of a run",
    ),
    Metric("compile_count", "Compiles", "", "down_is_good", 0, "count", _HOOKS, "of a run"),
    Metric("recompile_count", "Recompiles", "", "down_is_good", 0, "count", _HOOKS, "of a run"),
    Metric("graph_break_count", "Graph breaks", "", "down_is_good", 0, "count", _HOOKS, "of a run"),
    Metric(
        "recompile_limit_count",
        "Recompile limits",
        "",
        "down_is_good",
        0,
        "count",
        _HOOKS,
        "frames given up",
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}
SUMMARY_BY_NAME = {metric.name: metric for metric in SUMMARY_METRICS}


def get_value(metric: Metric, row: ResultRow) -> float | int | None:
    value: float | int | None = getattr(row, metric.name)
    return value


def format_value(metric: Metric, value: float | None) -> str:
    """Format with the unit: `1.234×`, `12.34 ms`, `98.2%`; a signed metric keeps its sign."""
    if value is None:
        return NOT_RECORDED
    number = value * metric.factor
    if metric.decimals is None:
        text = (
            format_count(number) if abs(number) >= 1000 else format_number(number).replace("-", "−")
        )
    elif metric.decimals == 0:
        text = format_count(number)
    else:
        text = f"{number:,.{metric.decimals}f}".replace("-", "−")
    return text + (metric.unit if metric.unit in ("×", "%", "") else f" {metric.unit}")


def format_short(metric: Metric, value: float) -> str:
    """Format with three significant figures and the unit, for a headline: `4.47×`, `8.39 s`,
    `98.2%`.
    """
    number = value * metric.factor
    text = (
        f"{number:,.0f}" if float(number).is_integer() or abs(number) >= 1000 else f"{number:.3g}"
    )
    return text.replace("-", "−") + (
        metric.unit if metric.unit in ("×", "%", "") else f" {metric.unit}"
    )
