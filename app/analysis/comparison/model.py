"""What is compared and what comes of it, as plain values. Base is what was, new is what is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from compileboard.app.analysis.metrics import Metric
from compileboard.app.queries.fields import TimeUs
from compileboard.app.queries.fleet.comparison import FunctionCost
from compileboard.app.schema import one_of, published
from compileboard.collectors.contract.verdicts import Verdict, is_wrong_answer

# What tells two series apart. Another machine makes other numbers of the same model; the others make another model.
MODEL_FIELDS = ("suite", "model", "mode", "dtype", "backend", "dynamic", "batch_size", "world_size")
MACHINE_FIELDS = ("device", "hardware")
Key = tuple[Any, ...]
MetricDelta = Verdict[Metric]


@dataclass(frozen=True)
class ModelResult:
    """One side's result of one series. A metric that was not measured is not in `values`, and never 0.

    Units: repeats are in the order in which they were measured; eager and compiled are ms, the others as named.
    """

    series: Mapping[str, Any]  # MODEL_FIELDS and MACHINE_FIELDS
    status: str  # measured | failed | skipped | not_run
    values: Mapping[str, float]
    reason: str | None = None
    accuracy: str | None = None
    interval: tuple[float, float] | None = None  # of the speedup
    repeats: Mapping[str, Sequence[float]] = field(default_factory=dict)  # eager, compiled, samples
    run_id: str | None = None
    experiments: tuple[str, ...] = ()  # that it is made of; none where that is not known

    @cached_property
    def key(self) -> Key:
        """Return what makes it the same model, measured the same way."""
        return tuple(self.series.get(name) for name in MODEL_FIELDS)

    @cached_property
    def machine(self) -> Key:
        """Return what it ran on."""
        return tuple(self.series.get(name) for name in MACHINE_FIELDS)

    @property
    def model(self) -> str:
        """Return the model's name."""
        return str(self.series["model"])

    @property
    def is_wrong(self) -> bool:
        """Return whether its answer is known to be wrong."""
        return is_wrong_answer(self.accuracy)


@dataclass(frozen=True)
class DistinctItem:
    """A distinct graph break or cause of recompiles; `model` is a ModelResult's key where the task has one."""

    fingerprint: str
    model: Key | None
    reason: str
    count: int
    kind: str | None = None  # torch's id of a graph break, the category of a guard
    function: str | None = None
    file: str | None = None
    line: int | None = None
    experiment: str | None = None  # whose task had it, where that is known


@dataclass(frozen=True)
class ComparedRun:
    """A run of it."""

    id: Annotated[str, "Its id."]
    name: Annotated[str, "What it is called."]
    started_us: Annotated[TimeUs, "When it started."]
    state: Annotated[str, "Its state."]
    shown_state: Annotated[str, "`state`, or `interrupted?` for a running one whose recorder fell silent."]
    commit: Annotated[str | None, "Its commit."]
    branch: Annotated[str | None, "Its branch."]
    subject: Annotated[str | None, "The commit's subject."]


@dataclass(frozen=True)
class CompareSide:
    """One side. `breaks` and `causes` are None where nothing could have recorded them."""

    asked: str  # what the address or the command said
    title: str
    runs: tuple[ComparedRun, ...] = ()
    entries: tuple[ModelResult, ...] = ()
    breaks: tuple[DistinctItem, ...] | None = None
    causes: tuple[DistinctItem, ...] | None = None
    functions: tuple[FunctionCost, ...] = ()
    totals: Mapping[str, float] = field(default_factory=dict)  # of its runs, summed
    environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    config: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # (module, name) -> value, default

    @property
    def kind(self) -> str:
        """Return how the side was named: torch, commit, branch, baseline or run."""
        word, colon, _rest = self.asked.partition(":")
        return word if colon else "run"


@dataclass(frozen=True)
class ModelPair:
    """A model that both sides measured."""

    base: ModelResult
    new: ModelResult
    deltas: Mapping[str, MetricDelta]
    accuracy: str = ""  # broke | fixed | "" where the verdict about its answers did not change
    warning: str = ""

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self.new.model


@dataclass(frozen=True)
class Excluded:
    """A model of both sides that is not compared, with the reason; `kind` is bad where new lost it."""

    base: ModelResult
    new: ModelResult
    reason: str
    kind: str  # good | bad | quiet

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self.new.model


@dataclass(frozen=True)
class MetricSum:
    """One metric over the models that have it on both sides.

    A timed or weighed metric is a geometric mean, a count a sum; `change` is new relative to base. `overall` is None
    where there is no mean.
    """

    metric: Metric
    count: int
    base: float | None
    new: float | None
    change: float | None
    overall: MetricDelta | None
    verdicts: Mapping[str, int]
    methods: Mapping[str, int]


@dataclass(frozen=True)
class DistinctChange:
    """A distinct break or cause on both sides; `word` is new, resolved, worse, less or unchanged."""

    what: DistinctItem
    model: str | None
    base_count: int
    new_count: int
    word: str


@dataclass(frozen=True)
class DistinctDiff:
    """All changes of one kind, or in `lacks` why there is nothing to compare."""

    changes: tuple[DistinctChange, ...]
    lacks: str = ""
    left_out: int = 0  # of models that only one side has

    def count(self, word: str) -> int:
        """Count the changes with one word."""
        return sum(change.word == word for change in self.changes)


@dataclass(frozen=True)
class EnvironmentDifference:
    """One thing of the surroundings."""

    name: Annotated[str, "What it is."]
    base: Annotated[tuple[str, ...], "Base's values."]
    new: Annotated[tuple[str, ...], "New's values."]
    weight: Annotated[str, one_of(("refuses", "warns", "intended", "differs", "same")), "What that means."]


@dataclass(frozen=True)
class ChangedSetting:
    """A setting that differs from torch's default on a side."""

    module: Annotated[str, "Its module."]
    name: Annotated[str, "Its name."]
    default: Annotated[str, "torch's default."]
    base: Annotated[str | None, "Base's value, null for the default."]
    new: Annotated[str | None, "New's value, null for the default."]

    @property
    @published
    def differs(self) -> Annotated[bool, "Whether the sides differ."]:
        """Return whether the sides differ in it."""
        return self.base != self.new


@dataclass(frozen=True)
class Comparison:
    """A whole comparison of two sides."""

    base: CompareSide
    new: CompareSide
    anyway: bool
    pairs: tuple[ModelPair, ...]
    only_base: tuple[ModelResult, ...]
    only_new: tuple[ModelResult, ...]
    excluded: tuple[Excluded, ...]
    sums: tuple[MetricSum, ...]
    breaks: DistinctDiff
    causes: DistinctDiff
    totals: tuple[MetricDelta, ...]
    functions: tuple[tuple[FunctionCost | None, FunctionCost | None], ...]
    environment: tuple[EnvironmentDifference, ...]
    settings: tuple[ChangedSetting, ...]
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_unmatched(self) -> bool:
        """Return whether both sides measured models, and none of them alike."""
        return bool(self.base.entries and self.new.entries) and not (self.pairs or self.excluded)

    def sum_of(self, name: str) -> MetricSum | None:
        """Return one metric over all models; None where no model has it on both sides."""
        return next((metric_sum for metric_sum in self.sums if metric_sum.metric.name == name), None)
