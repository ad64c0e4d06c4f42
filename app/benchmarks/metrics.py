"""The list of metrics, with their units and which direction is better."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from compileboard.app.core.format import NOT_RECORDED, format_count, format_number
from compileboard.collectors.contract.result_columns import STORED
from compileboard.collectors.store.results import ResultRow

Direction = Literal["up_is_good", "down_is_good", "neutral"]


@dataclass(frozen=True)
class TrendMetric:
    """The metric of a trend: its name, label and unit, and which direction is better."""

    name: Annotated[str, "Name of the metric."]
    label: Annotated[str, "Label of the metric."]
    unit: Annotated[
        str, "Its unit; a `%` is written as a share of one, `MB` as bytes; empty for a count."
    ]
    direction: Annotated[Direction, "The better direction."]


@dataclass(frozen=True)
class Metric(TrendMetric):
    """One metric. `name` is a field of ResultRow, or of SuiteSummary for SUMMARY_METRICS.

    `decimals` of None is four significant figures.
    """

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
    def suffix(self) -> str:
        return self.unit if self.unit in ("×", "%", "") else f" {self.unit}"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in (self.name, self.low, self.high) if name)


_SOURCES = {
    "harness": "the performance experiment",
    "counters": "torch's counters, as the harness read them",
    "hooks": "the hooks",
    "exports": "the export and precompile experiments",
    "quantization": "the quantization experiment",
}


def read_metrics(text: str) -> tuple[Metric, ...]:
    """Parse metrics, one per line.

    The fields are name, label, unit, better, decimals (0 for counts), source, meaning, and the
    columns of an interval. An empty unit is that of the result's column.
    """
    metrics = []
    for line in text.strip().replace("\n  ", " ").splitlines():
        name, label, unit, better, decimals, source, meaning, *interval = line.split("|")
        metrics.append(
            Metric(
                name,
                label,
                unit or (STORED[name].unit if name in STORED else ""),
                {"up": "up_is_good", "down": "down_is_good"}.get(better, "neutral"),  # type: ignore[arg-type]
                int(decimals) if decimals else None,
                "count" if decimals == "0" else "value",
                _SOURCES.get(source, source),
                meaning,
                *interval,
            )
        )
    return tuple(metrics)


# output_error and quantized_eager_error: rounding of another order of operations; within the
# tolerance neither direction is better. calls_captured: more may mean more of the model in graphs,
# or the same part captured again.
METRICS = read_metrics("""
speedup|Speedup||up|3|harness|median eager ÷ median compiled latency|speedup_low|speedup_high
abs_latency_ms|Latency||down||harness|median, compiled
eager_latency_ms|Eager latency||down||harness|median, eager
compilation_latency_s|Compile time||down||harness|with cold caches
warm_compilation_latency_s|Warm compile time||down||harness|with warm caches
compression_ratio|Peak memory ratio||up|3|harness|peak eager ÷ peak compiled
dynamo_peak_mem_gb|Peak memory||down||harness|compiled, GB of 10⁹ bytes
eager_peak_mem_gb|Eager peak memory||down||harness|GB of 10⁹ bytes
cache_lookup_latency_us|Cache lookup||down||--profile-dynamo-cache-lookup|dynamo's, of each call
export_latency_s|Export time||down||exports|torch.export alone
load_latency_s|Load time||down||exports|of the package, or the precompiled code
second_process_latency_s|First call in a second process||down||exports|with what the first process
  left
package_bytes|Package size||down||exports|the loaded file, MB of 10⁶ bytes
scaling_efficiency|Scaling efficiency||up|1|--ddp and --fsdp|samples per second of all ranks ÷ ranks
  × those of one process
output_error|Output error||neutral||exports|largest relative error against eager
quantized_error|Quantized error||down||quantization|relative error against eager in float32
quantized_eager_error|Quantized error against eager||neutral||quantization|compiled quantized
  against eager quantized
graph_breaks|Graph breaks||down|0|counters|times a graph was broken
unique_graph_breaks|Graph break reasons||down|0|counters|as torch's counters tell them apart
recompiles|Recompiles||down|0|hooks|recompiles
calls_captured|Operations captured||neutral|0|counters|in the captured graphs
unique_graphs|Graphs||neutral|0|counters|captured graphs
fallbacks_to_eager|Fallbacks to eager||down|0|counters|frames left to eager
autograd_captures|Autograd captures||neutral|0|counters|by compiled autograd
autograd_compiles|Autograd compiles||neutral|0|counters|by compiled autograd
cudagraph_skips|CUDA graph skips||down|0|counters|CUDA graphs not used
""")
_MEANS = ("load_latency_s", "package_bytes", "scaling_efficiency", "quantized_error")
# Of a suite; app.benchmarks.summaries defines how each is computed.
SUMMARY_METRICS = (
    *read_metrics("""
pass_ratio|Pass rate|%|up|1|accuracy and speedup|models that pass, of all
geomean_speedup|Geomean speedup|×|up|3|harness|over the models
compilation_latency_s|Compile time|s|down||harness|mean of the models, cold
abs_latency_ms|Latency|ms|down||harness|mean of the models, compiled
compression_ratio|Peak memory ratio|×|up|3|harness|peak eager ÷ peak compiled, over the models
dynamo_peak_mem_gb|Peak memory|GB|down||harness|mean of the models, compiled
graph_breaks_per_model|Graph breaks per model||down||counters|mean of the models that were counted
recompiles_per_model|Recompiles per model||down||hooks|mean of the models that were counted
"""),
    *(
        replace(metric, meaning=f"mean of the models: {metric.meaning}")
        for metric in METRICS
        if metric.name in _MEANS
    ),
)
# Of a model, for incidents: 1 if it is right, 0 if it failed or is wrong.
(PASSES,) = read_metrics("passes|Passes||up|0|the harness|1 is measured and right, 0 is failed")
# Of any observed run: columns of app.benchmarks.series_queries.
RUN_METRICS = read_metrics("""
compile_s|Compile time|s|down||hooks|all compiles of a run
compile_count|Compiles||down|0|hooks|of a run
recompile_count|Recompiles||down|0|hooks|of a run
graph_break_count|Graph breaks||down|0|hooks|of a run
recompile_limit_count|Recompile limits||down|0|hooks|frames given up
cudagraph_rerecording_count|CUDA graphs recorded again||down|0|hooks|of a run
""")
# A model's metric that a suite's number aggregates, if its name differs.
MODEL_OF = {
    "geomean_speedup": "speedup",
    "graph_breaks_per_model": "graph_breaks",
    "recompiles_per_model": "recompiles",
}
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
    return text + metric.suffix


def format_short(metric: Metric, value: float) -> str:
    """Format with three significant figures and the unit, for a headline: `4.47×`, `8.39 s`,
    `98.2%`.
    """
    number = value * metric.factor
    text = (
        f"{number:,.0f}" if float(number).is_integer() or abs(number) >= 1000 else f"{number:.3g}"
    )
    return text.replace("-", "−") + metric.suffix
