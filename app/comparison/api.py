"""API of comparisons: two sides, two compiles, checks and stored baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.artifacts.model import (
    SHOWN_ROWS,
    ArtifactDiffLine,
    ArtifactPair,
    list_diff_lines,
)
from compileboard.app.artifacts.run_queries import ArtifactRow
from compileboard.app.benchmarks.series import SeriesFields
from compileboard.app.checks.decision import Check, build_check
from compileboard.app.checks.model import CannotCompare, RuleOptions
from compileboard.app.checks.upstream_csv import is_file, list_flaky
from compileboard.app.comparison.baselines import BaselineRow, load_baseline
from compileboard.app.comparison.baselines import get_baseline as find_stored
from compileboard.app.comparison.baselines import list_baselines as list_stored
from compileboard.app.comparison.compare import build_default_comparison
from compileboard.app.comparison.compiles import (
    FORM,
    ComparedFact,
    NoSuchCompile,
    compare_compiles,
    find_compile,
)
from compileboard.app.comparison.model import (
    ComparedReasons,
    ComparedSetting,
    ComparedSide,
    EnvironmentDifference,
)
from compileboard.app.comparison.queries import DistinctItem, DistinctReason, FunctionCost
from compileboard.app.comparison.sides import FORMS
from compileboard.app.comparison.summary import ComparisonSummary, comparison_row
from compileboard.app.compiles.run_queries import CompileRow
from compileboard.app.core.api import PageQuery, operation, refuse
from compileboard.app.core.db import get_clock, get_reader, get_store
from compileboard.app.core.fields import Count, RunId
from compileboard.app.core.page import FilterError, Page
from compileboard.app.core.parameters import (
    BackendName,
    DeviceName,
    DtypeName,
    ModeName,
    Parameter,
    SuiteName,
)
from compileboard.app.core.schema import Keywords, one_of
from compileboard.app.guards.model import GuardChange
from compileboard.collectors.contract.verdicts import LABELS, METHODS
from compileboard.collectors.store.payloads import GuardNode
from compileboard.collectors.store.results import fill


@dataclass(frozen=True)
class Change:
    base: Annotated[float | None, "Base, in the unit of the metric's name."]
    new: Annotated[float | None, "New, in the unit of the metric's name."]
    change: Annotated[float | None, "New ÷ base − 1; null where base is not above 0."]


@dataclass(frozen=True)
class NamedSeries(SeriesFields):
    model: Annotated[str, "The model's name."]


@dataclass(frozen=True)
class CompareDelta(Change):
    """One metric on both sides."""

    verdict: Annotated[
        str,
        one_of(LABELS),
        "`eager`: eager mode moved; `wrong`: wrong answer; `negligible`: within 5%, compile times "
        "10%; `noise`: no clear difference; `single`: one sample a side, not judged.",
    ]
    method: Annotated[
        str,
        one_of(METHODS),
        "What decided: 95% `intervals`, `repeats` (Mann–Whitney U), `samples` that lie apart, a "
        "`threshold` or a `count`.",
    ]
    detail: Annotated[str, "What the method found, in words and numbers."]
    basis: Annotated[
        str, "What the verdict rests on: the samples a side, and how far they scatter."
    ]
    p_value: Annotated[float | None, "p-value of the Mann–Whitney U test."]
    ratio_low: Annotated[float | None, "Lower bound of new ÷ base."]
    ratio_high: Annotated[float | None, "Upper bound of new ÷ base."]


@dataclass(frozen=True)
class MetricMean(Change):
    """One metric over the models that have it on both sides."""

    metric: Annotated[str, "Name of the metric."]
    label: Annotated[str, "Label of the metric."]
    unit: Annotated[
        str,
        "Its unit: with `%` values are shares of one, with `MB` bytes; empty for a count.",
    ]
    direction: Annotated[
        str, one_of(("up_is_good", "down_is_good", "neutral")), "The better direction."
    ]
    mean: Annotated[str, one_of(("sum", "geometric mean")), "How base and new were computed."]
    count: Annotated[Count, "Models in it; a wrong answer counts in no mean."]
    verdict: Annotated[
        str | None,
        one_of(LABELS),
        "Verdict on the change over all models; null without a mean.",
    ]
    basis: Annotated[
        str | None, "What the verdict on the mean rests on: how many of its models moved."
    ]
    verdicts: Annotated[dict[str, Count], "Models by verdict."]
    methods: Annotated[dict[str, Count], "Models by method of the verdict."]


@dataclass(frozen=True)
class PairedSeries(NamedSeries):
    base_run_id: Annotated[
        str | None, "The run that base's result is of; null for a stored baseline's."
    ]
    new_run_id: Annotated[
        str | None, "The run that new's result is of; null for a stored baseline's."
    ]


@dataclass(frozen=True)
class ComparedModel(PairedSeries):
    """A model that both sides measured."""

    base_accuracy: Annotated[str | None, "Upstream's verdict on base."]
    new_accuracy: Annotated[str | None, "Upstream's verdict in new."]
    accuracy_change: Annotated[
        str | None, one_of(("broke", "fixed")), "Whether its answers became wrong or right."
    ]
    warning: Annotated[str | None, "Reasons to doubt its numbers."]
    metrics: Annotated[dict[str, CompareDelta], "The model's metrics by name."]


@dataclass(frozen=True)
class UnpairedModel(NamedSeries):
    """A model that only one side measured."""

    run_id: Annotated[str | None, "The run that its result is of."]
    status: Annotated[str, "The model's outcome."]
    reason: Annotated[str | None, "Why it failed or was not run."]


@dataclass(frozen=True)
class ExcludedModel(PairedSeries):
    """A model that is not compared."""

    reason: Annotated[str, "Why it is not compared."]


@dataclass(frozen=True)
class ComparedFunction:
    """A function's counts and compile time on both sides."""

    file: Annotated[str, "File of the function."]
    function: Annotated[str, "Name of the function."]
    base: Annotated[
        FunctionCost | None, "Its counts and compile time in base; null if base lacks it."
    ]
    new: Annotated[FunctionCost | None, "Its counts and compile time in new; null if new lacks it."]


@dataclass(frozen=True)
class ComparisonJson:
    """What changed from base to new, over the data that both sides have."""

    base: Annotated[ComparedSide, "The side that is compared with."]
    new: Annotated[ComparedSide, "The side that is judged."]
    anyway: Annotated[bool, "Whether numbers across machines are compared as well."]
    refused: Annotated[list[str], "Reasons why the numbers are not comparable."]
    warnings: Annotated[list[str], "Reasons to doubt the numbers."]
    common_count: Annotated[Count, "Models that both sides measured."]
    metrics: Annotated[list[MetricMean], "Means of each metric on both sides."]
    models: Annotated[list[ComparedModel], "Models that both sides measured, by name."]
    only_base: Annotated[list[UnpairedModel], "Models that only base has."]
    only_new: Annotated[list[UnpairedModel], "Models that only new has."]
    excluded: Annotated[
        list[ExcludedModel], "Models that both sides know and that are not compared."
    ]
    graph_breaks: Annotated[ComparedReasons, "Graph breaks by reason."]
    recompile_causes: Annotated[ComparedReasons, "Recompiles by cause."]
    rerecording_reasons: Annotated[ComparedReasons, "Re-recorded CUDA graphs by reason."]
    totals: Annotated[
        dict[str, CompareDelta], "Whole runs; empty where the sides have other runs or models."
    ]
    functions: Annotated[
        list[ComparedFunction], "Functions, the largest change of compile time first."
    ]
    environment: Annotated[
        list[EnvironmentDifference], "Hardware and versions that differ between the sides."
    ]
    settings: Annotated[list[ComparedSetting], "Configuration, what differs first."]
    summary: Annotated[ComparisonSummary, "What changed, in a sentence and by model."]


@dataclass(frozen=True)
class BaselineReason(DistinctReason):
    """A graph break, recompile cause or reason for CUDA graph re-recording in a baseline."""

    count: Annotated[
        Count, "Graph breaks, recompiles or re-recordings in the baseline for this reason."
    ]
    result: Annotated[str | None, "The result whose process had it; null where that is not known."]


@dataclass(frozen=True)
class KeptResult:
    """A model's result in a baseline."""

    model: Annotated[str, "The model's name."]
    series: Annotated[dict[str, Any], "Suite, mode, dtype and so on."]
    values: Annotated[dict[str, Any], "The measured values, by upstream's column names."]


@dataclass(frozen=True)
class BaselineDetail(BaselineRow):
    """A stored baseline with its content."""

    environment: Annotated[dict[str, str], "What speeds depend on: the hardware, torch's version."]
    results: Annotated[list[KeptResult], "Results of the models that the baseline was made from."]
    graph_breaks: Annotated[list[BaselineReason] | None, "Graph breaks. null where not recorded."]
    recompile_causes: Annotated[
        list[BaselineReason] | None, "Causes of recompiles; null where none could be recorded."
    ]
    rerecording_reasons: Annotated[
        list[BaselineReason] | None,
        "Reasons to record CUDA graphs again; null where no CUDA graph was recorded.",
    ]


@dataclass(frozen=True)
class CheckQuery:
    run: Annotated[str | None, "A run's id or its beginning, or `latest`."] = None
    baseline: Annotated[
        str | None,
        "What to compare with: a run, a commit, a stored baseline, `latest` or `previous`.",
    ] = None
    rule: Annotated[
        str | None, "A rule's name, or names with commas between; `default` where it is not given."
    ] = None
    environment: Annotated[
        bool, Parameter(choices=("any",)), "`any`: compare speeds across another GPU or torch too."
    ] = False
    suite: SuiteName = None
    mode: ModeName = None
    dtype: DtypeName = None
    device: DeviceName = None
    backend: BackendName = None
    dynamic: Annotated[
        bool | None,
        Parameter(choices=("yes", "no"), expected="yes or no"),
        Keywords(pattern="^(yes|no)?$"),
        "`yes`: with dynamic shapes; `no`: without.",
    ] = None
    batch_size: Annotated[
        int | None, Parameter(expected="a whole number"), "Inputs in one batch."
    ] = None
    world_size: Annotated[
        int | None, Parameter(expected="a whole number"), "Ranks that it ran on."
    ] = None
    model: Annotated[str | None, "A model's exact name."] = None


_SERIES = ("suite", "mode", "dtype", "device", "backend", "dynamic", "batch_size", "world_size")


@operation("/baselines")
def list_baselines(page: PageQuery) -> Page[BaselineRow]:
    """List stored baselines, by name."""
    return list_stored(get_reader(), page.cursor, page.limit)


@operation("/baselines/<path:baseline_name>")
def get_baseline(baseline_name: str) -> BaselineDetail:
    """Return one stored baseline with its content."""
    stored = find_stored(get_reader(), baseline_name)
    if stored is None:
        refuse(f"There is no baseline {baseline_name[:80]}; /api/v1/baselines lists them.")
    try:
        side = load_baseline(stored.body, stored.name)
    except CannotCompare as error:
        refuse(f"{error}.")
    contents = {
        "environment": side.environment,
        "results": [KeptResult(row.name, dict(row.series), dict(row.cells)) for row in side.rows],
        "graph_breaks": _list_distinct(side.breaks),
        "recompile_causes": _list_distinct(side.causes),
        "rerecording_reasons": _list_distinct(side.rerecordings),
    }
    return fill(BaselineDetail, vars(stored) | contents)


def _list_distinct(items: Iterable[DistinctItem] | None) -> list[BaselineReason] | None:
    return (
        None
        if items is None
        else [fill(BaselineReason, vars(item) | {"result": item.model}) for item in items]
    )


@operation("/check")
def get_check(query: CheckQuery) -> Check:
    """Check a run against a baseline under rules, as `compileboard check` does. The response is 400
    if the sides cannot be compared.
    """
    asked = query.run or "latest"
    for name, value in (("run", asked), ("baseline", query.baseline)):
        if value and is_file(value):  # clients must not read the server's files
            raise FilterError(
                f"{name}: {value[:80]!r} is a file; the API compares what is in the database"
            )
    names = [word for word in (query.rule or "").split(",") if word]
    series = {name: value for name in _SERIES if (value := getattr(query, name)) is not None}
    try:
        return build_check(
            get_store,
            get_clock(),
            run=asked,
            baseline=query.baseline or None,
            rules=names,
            choices=series,
            models=[query.model] if query.model else [],
            options=RuleOptions(flaky=list_flaky()),
            allow_environment_change=query.environment,
        ).report
    except FilterError as error:
        raise FilterError(f"could not compare: {error}") from None


@dataclass(frozen=True)
class SidesQuery:
    base: Annotated[str | None, f"The base side: {FORMS}. Default: the run before new."] = None
    new: Annotated[str | None, f"The new side: {FORMS}. Default: the newest benchmark."] = None
    anyway: Annotated[
        bool,
        Parameter(choices=("1",), expected="1, the one value that it has"),
        "`1`: compare numbers across machines too.",
    ] = False
    suite: SuiteName = None


@operation("/compare")
def get_comparison(sides: SidesQuery) -> ComparisonJson:
    """Return what changed from base to new: every metric of every model with its verdict, graph
    breaks, recompiles.
    """
    screen = build_default_comparison(
        get_store(), get_clock(), sides.base, sides.new, anyway=sides.anyway, suite=sides.suite
    )
    if screen is None:
        refuse("There is nothing to compare with: name both sides, base and new.")
    return ComparisonJson(**comparison_row(screen.comparison))


_COMPILE = Parameter(most=500, expected=FORM, is_required=True)


@dataclass(frozen=True)
class CompilesQuery:
    a: Annotated[str, _COMPILE, f"A compile: {FORM}."] = ""
    b: Annotated[str, _COMPILE, f"The compile to compare it with: {FORM}."] = ""


@dataclass(frozen=True)
class CompileSide:
    """A compile of the comparison, with its run."""

    run_id: RunId
    run_name: Annotated[str, "The run's name."]
    compile: Annotated[CompileRow, "The compile that was named."]


@dataclass(frozen=True)
class ArtifactComparison:
    """Two artifacts of one kind. Guards are compared one by one, other texts by lines."""

    a: Annotated[ArtifactRow, "The artifact of `a`."]
    b: Annotated[ArtifactRow, "The artifact of `b`."]
    is_same: Annotated[bool, "Whether they are the same but for addresses and object ids."]
    remark: Annotated[str, "What was not compared, and why. Empty without one."]
    changed_count: Annotated[Count | None, "Guards or lines that changed; null if not compared."]
    added_count: Annotated[Count | None, "Guards or lines that only `b` has."]
    removed_count: Annotated[Count | None, "Guards or lines that only `a` has."]
    lines: Annotated[Sequence[ArtifactDiffLine], f"The first {SHOWN_ROWS} rows; none of guards."]
    added: Annotated[Sequence[GuardNode], f"The first {SHOWN_ROWS} guards only in `b`."]
    removed: Annotated[Sequence[GuardNode], f"The first {SHOWN_ROWS} guards only in `a`."]
    changed: Annotated[Sequence[GuardChange], f"The first {SHOWN_ROWS} guards that changed."]


@dataclass(frozen=True)
class ArtifactsComparison:
    """The artifacts of one kind of both compiles."""

    key: Annotated[str, one_of(("guards", "graph", "code")), "Kind of artifact."]
    pairs: Annotated[Sequence[ArtifactComparison], "Pairs of artifacts that both have a text."]
    only_a: Annotated[
        Sequence[ArtifactRow], "Those of `a` with no counterpart, or with a text missing."
    ]
    only_b: Annotated[
        Sequence[ArtifactRow], "Those of `b` with no counterpart, or with a text missing."
    ]


@dataclass(frozen=True)
class CompileComparisonJson:
    """Two compiles side by side."""

    a: Annotated[CompileSide, "The compile that `a` names."]
    b: Annotated[CompileSide, "The compile that `b` names."]
    is_same_compile: Annotated[bool, "Whether both are one compile."]
    facts: Annotated[Sequence[ComparedFact], "Runs, compiles and phases, fact by fact."]
    artifacts: Annotated[Sequence[ArtifactsComparison], "Guards, graph and generated code."]


@operation("/compare/compiles")
def get_compile_comparison(query: CompilesQuery) -> CompileComparisonJson:
    """Return two compiles side by side, of one run or of two: facts, phases, guards, graph and
    generated code.
    """
    store = get_store()
    try:
        a, b = (find_compile(store, name, getattr(query, name)) for name in ("a", "b"))
    except NoSuchCompile as error:
        refuse(str(error))
    comparison = compare_compiles(store, a, b)
    return CompileComparisonJson(
        a=CompileSide(a.run.id, a.run.shown_name, a.compile),
        b=CompileSide(b.run.id, b.run.shown_name, b.compile),
        is_same_compile=comparison.is_same_compile,
        facts=comparison.facts,
        artifacts=[
            ArtifactsComparison(
                section.key, [_describe_pair(pair) for pair in section.pairs], *section.alone
            )
            for section in comparison.sections
        ],
    )


def _describe_pair(pair: ArtifactPair) -> ArtifactComparison:
    guards, texts = pair.guards, pair.diff
    diff = texts.diff if texts else None
    if guards is not None:
        counts = [len(nodes) for nodes in (guards.changed, guards.added, guards.removed)]
    else:
        counts = [diff.changed_count, diff.added_count, diff.removed_count] if diff else []
    changed, added, removed = counts or (None, None, None)
    return ArtifactComparison(
        a=pair.a,
        b=pair.b,
        is_same=pair.is_same,
        remark=texts.remark if texts else "",
        changed_count=changed,
        added_count=added,
        removed_count=removed,
        lines=list_diff_lines(diff) if diff else [],
        added=guards.added[:SHOWN_ROWS] if guards else (),
        removed=guards.removed[:SHOWN_ROWS] if guards else (),
        changed=guards.changed[:SHOWN_ROWS] if guards else (),
    )
