"""Data types of a comparison. The base is the reference with which the new side is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any

from compileboard.app.benchmarks.metrics import BY_NAME, Metric, read_metrics
from compileboard.app.comparison.queries import DISTINCT, DistinctItem, DistinctReason, FunctionCost
from compileboard.app.core.fields import Count, TimeUs
from compileboard.app.core.schema import PRIVATE, one_of, published
from compileboard.collectors.contract.verdicts import Verdict, is_wrong_answer
from compileboard.collectors.store.results import ExperimentResult, ResultRow

# What distinguishes two series. Another machine gives other numbers for the same model; any other
# field makes it another model.
MODEL_FIELDS = ("suite", "model", "mode", "dtype", "backend", "dynamic", "batch_size", "world_size")
MACHINE_FIELDS = ("device", "hardware")
Key = tuple[Any, ...]
MetricDelta = Verdict[Metric]


@dataclass(frozen=True)
class ModelResult:
    """One side's result of one series. A metric that was not measured is missing from `values`,
    never 0.

    Units: eager and compiled are ms, the others as named.
    """

    series: Mapping[str, Any]  # MODEL_FIELDS and MACHINE_FIELDS
    status: str  # measured | failed | skipped | not_run
    values: Mapping[str, float]
    reason: str | None = None
    accuracy: str | None = None
    interval: tuple[float, float] | None = None  # The interval of the speedup.
    repeats: Mapping[str, Sequence[float]] = field(default_factory=dict)  # eager, compiled, samples
    run_id: str | None = None
    experiments: tuple[str, ...] = ()  # The experiments combined in the row; empty if unknown.

    @cached_property
    def key(self) -> Key:
        return tuple(self.series.get(name) for name in MODEL_FIELDS)

    @cached_property
    def machine(self) -> Key:
        return tuple(self.series.get(name) for name in MACHINE_FIELDS)

    @property
    def model(self) -> str:
        return str(self.series["model"])

    @property
    def is_wrong(self) -> bool:
        return is_wrong_answer(self.accuracy)


@dataclass(frozen=True)
class ComparedRun:
    """A run of one side."""

    id: Annotated[str, "Id of the run."]
    name: Annotated[str, "Name of the run."]
    started_us: Annotated[TimeUs, "When it started."]
    state: Annotated[str, "State of the run."]
    shown_state: Annotated[
        str, "`state`, or `interrupted?` for a running one whose recorder fell silent."
    ]
    commit: Annotated[str | None, "Commit of the run."]
    branch: Annotated[str | None, "Branch of the run."]
    subject: Annotated[str | None, "The commit's subject."]


private = partial(field, metadata=PRIVATE)


@dataclass(frozen=True)
class ComparedSide:
    """One side of a comparison."""

    asked: Annotated[str, "The text that it was requested by."]
    title: Annotated[str, "Name of the side."]
    runs: Annotated[
        tuple[ComparedRun, ...], "Its runs, the newest first; none of a stored baseline."
    ] = ()
    entries: tuple[ModelResult, ...] = private(default=())
    breaks: tuple[DistinctItem, ...] | None = private(default=None)
    causes: tuple[DistinctItem, ...] | None = private(default=None)
    rerecordings: tuple[DistinctItem, ...] | None = private(default=None)
    functions: tuple[FunctionCost, ...] = private(default=())
    totals: Mapping[str, float] = private(default_factory=dict)  # Sums over its runs.
    environment: Mapping[str, tuple[str, ...]] = private(default_factory=dict)
    # (module, name) -> value, default
    config: Mapping[tuple[str, str], tuple[str, str]] = private(default_factory=dict)

    @property
    def kind(self) -> str:
        word, colon, _rest = self.asked.partition(":")
        return word if colon else "run"

    def choose(
        self, entries: tuple[ModelResult, ...], keeps: Callable[[DistinctItem], bool]
    ) -> ComparedSide:
        distinct: dict[str, Any] = {
            name: None if (items := getattr(self, name)) is None else tuple(filter(keeps, items))
            for name in DISTINCT
        }
        return replace(self, entries=entries, **distinct)


@dataclass(frozen=True)
class ModelPair:
    base: ModelResult
    new: ModelResult
    deltas: Mapping[str, MetricDelta]
    accuracy: str = ""  # broke | fixed | "" if the accuracy verdict did not change
    warning: str = ""

    @property
    def model(self) -> str:
        return self.new.model


@dataclass(frozen=True)
class ExcludedEntry:
    base: ModelResult
    new: ModelResult
    reason: str
    kind: str  # good | bad | quiet

    @property
    def model(self) -> str:
        return self.new.model


@dataclass(frozen=True)
class MetricSum:
    """One metric over the models of both sides: a geometric mean of times or sizes, or a sum of
    counts.
    """

    metric: Metric
    count: int
    base: float | None
    new: float | None
    change: float | None
    overall: MetricDelta | None
    verdicts: Mapping[str, int]
    methods: Mapping[str, int]


WORDS = {
    "new": ("new", "bad"),
    "worse": ("more often", "bad"),
    "resolved": ("resolved", "good"),
    "less": ("less often", "good"),
    "by_design": ("by design", "quiet"),
    "unchanged": ("unchanged", "quiet"),
}


@dataclass(frozen=True)
class ReasonChange(DistinctReason):
    """One distinct graph break, recompile cause or reason for CUDA graph re-recording."""

    model: Annotated[str | None, "The model that had it, null where only the whole side is known."]
    word: Annotated[
        str,
        one_of(WORDS),
        "`worse` is more often, `less` less often, `by_design` a change with `is_by_design`.",
    ]
    base_count: Annotated[Count, "Occurrences in base."]
    new_count: Annotated[Count, "Occurrences in new."]
    key: Key | None = field(default=None, metadata=PRIVATE)  # The model's key.


@dataclass(frozen=True)
class ComparedReasons:
    """Graph breaks, recompile causes or reasons for CUDA graph re-recording."""

    not_compared: Annotated[str | None, "Why they are not compared."]
    left_out_count: Annotated[Count, "Those of models or experiments that only one side has."]
    changes: Annotated[tuple[ReasonChange, ...], "New ones first."]

    def count(self, word: str) -> int:
        return sum(change.word == word for change in self.changes)


@dataclass(frozen=True)
class EnvironmentDifference:
    """One difference between the environments of both sides."""

    name: Annotated[str, "Name of the property, such as the GPU."]
    base: Annotated[tuple[str, ...], "Values that runs of the base have."]
    new: Annotated[tuple[str, ...], "Values that runs of the new side have."]
    weight: Annotated[
        str,
        one_of(("refuses", "warns", "intended", "differs", "same")),
        "`refuses`: numbers are not compared; `warns`: only with care; `intended`: it is what is "
        "compared; `differs`: does not matter; `same`: equal, or not known of one side.",
    ]


@dataclass(frozen=True)
class ComparedSetting:
    """A setting that differs from torch's default on a side."""

    module: Annotated[str, "Module of the setting."]
    name: Annotated[str, "Name of the setting."]
    default: Annotated[str, "torch's default."]
    base: Annotated[str | None, "Base's value, null for the default."]
    new: Annotated[str | None, "New's value, null for the default."]

    @property
    @published
    def differs(self) -> Annotated[bool, "Whether the sides differ."]:
        return self.base != self.new


@dataclass(frozen=True)
class PairedModels:
    """Models that both sides measured, and why others are left out."""

    pairs: tuple[ModelPair, ...]
    only_base: tuple[ModelResult, ...]
    only_new: tuple[ModelResult, ...]
    excluded: tuple[ExcludedEntry, ...]


@dataclass(frozen=True)
class Comparison(PairedModels):
    base: ComparedSide
    new: ComparedSide
    anyway: bool
    sums: tuple[MetricSum, ...]
    breaks: ComparedReasons
    causes: ComparedReasons
    rerecordings: ComparedReasons
    totals: tuple[MetricDelta, ...]
    functions: tuple[tuple[FunctionCost | None, FunctionCost | None], ...]
    environment: tuple[EnvironmentDifference, ...]
    settings: tuple[ComparedSetting, ...]
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def has_rerecordings(self) -> bool:
        return bool(self.base.rerecordings or self.new.rerecordings)

    @property
    def is_unmatched(self) -> bool:
        return bool(self.base.entries and self.new.entries) and not (self.pairs or self.excluded)

    def sum_of(self, name: str) -> MetricSum | None:
        return next(
            (metric_sum for metric_sum in self.sums if metric_sum.metric.name == name), None
        )


# Key, label and the metrics' names; the first of a group is drawn.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "speed": ("Speed", ("speedup", "abs_latency_ms", "eager_latency_ms")),
    "compile": (
        "Compile time",
        ("compilation_latency_s", "warm_compilation_latency_s", "cache_lookup_latency_us"),
    ),
    "memory": ("Memory", ("dynamo_peak_mem_gb", "compression_ratio", "eager_peak_mem_gb")),
    "packages": (
        "Packages and ranks",
        (
            "package_bytes",
            "export_latency_s",
            "load_latency_s",
            "second_process_latency_s",
            "scaling_efficiency",
            "quantized_error",
        ),
    ),
    "graphs": (
        "Graphs and breaks",
        (
            "graph_breaks",
            "recompiles",
            "unique_graph_breaks",
            "unique_graphs",
            "calls_captured",
            "fallbacks_to_eager",
            "cudagraph_skips",
        ),
    ),
}
COMPARED = tuple(BY_NAME[name] for _label, names in GROUPS.values() for name in names)
# Of whole runs, with and without a benchmark.
TOTALS = read_metrics("""
compile_s|Compile time|s|down||torch|all compilation records
compile_count|Compiles|||0|torch|compiled functions
graph_break_count|Graph breaks||down|0|torch|events
recompile_count|Recompiles||down|0|torch|events
recompile_limit_count|Recompile limit reached||down|0|torch|functions that fell back to eager
failure_count|Failures||down|0|torch|of compiles, and of compiled code
cache_miss_count|Cache misses||down|0|torch|cache lookups without a hit
cudagraph_rerecording_count|CUDA graphs recorded again||down|0|torch|no other graph fitted
""")


def format_names(names: Sequence[str], max_count: int = 3) -> str:
    """Format as `a, b, c and 2 more`."""
    more = f" and {len(names) - max_count} more" if len(names) > max_count else ""
    return ", ".join(names[:max_count]) + more


def group_of(name: str) -> str:
    return next(key for key, (_label, names) in GROUPS.items() if name in names)


KINDS = {"worse": "bad", "better": "good", "changed": "warn"} | dict.fromkeys(
    ("eager", "wrong", "negligible", "noise", "single", "same"), "quiet"
)
# For an accuracy that changed: the word and its kind.
ACCURACY_CHANGES = {"broke": ("now wrong", "bad"), "fixed": ("now right", "good")}


def make_result(
    row: ResultRow, lead: ExperimentResult, repeats: Mapping[str, Sequence[float]]
) -> ModelResult:
    values = {metric.name: getattr(row, metric.name) for metric in COMPARED}
    return ModelResult(
        series={name: getattr(row, name) for name in (*MODEL_FIELDS, *MACHINE_FIELDS)},
        status=lead.status,  # timings are compared even if the answer is wrong
        values={name: value for name, value in values.items() if value is not None},
        reason=lead.reason,
        accuracy=read_accuracy(row),
        interval=make_interval(row.speedup_low, row.speedup_high),
        repeats=repeats,
        run_id=row.run_id,
        experiments=row.experiments,
    )


def read_accuracy(row: ResultRow) -> str | None:
    failure = row.judge.reason if row.judge is not None and row.judge.status == "failed" else None
    return row.accuracy or failure


def make_interval(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)
