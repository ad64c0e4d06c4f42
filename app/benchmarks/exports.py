"""Results of exported and precompiled models, and of models on several ranks."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

from compileboard.app.benchmarks.labels import describe_experiment, describe_status, split_backend
from compileboard.app.benchmarks.matrix import describe_result
from compileboard.app.benchmarks.run_queries import get_result_parts
from compileboard.app.benchmarks.series import SEPARATOR, ModelSeries, label_fields
from compileboard.app.core.fields import Count
from compileboard.app.core.rows import read_facts
from compileboard.collectors.contract.values import fit_json
from compileboard.collectors.store.results import EXPORTS, ExperimentResult, fill

OpenRun = Callable[[str], sqlite3.Connection]  # opens the detail of a run
EXPORTED = (*EXPORTS, "caching_precompile")
MAX_RESULTS = 40
_BUILT_BY_NAME = ("builtin", "torchvision", "timm", "transformers")  # suites that bench builds


def choose_model(command: str | None, suite: str, model: str) -> str | None:
    words = _split_command(command or "")
    file = next(
        (value for word, value in pairwise(words) if word == "--only" and ":" in value), None
    )
    if file is not None:
        return f"--only {shlex.quote(file)}"
    return f"--suite {suite} --only {shlex.quote(model)}" if suite in _BUILT_BY_NAME else None


def _split_command(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an unclosed quotation mark
        return []


@dataclass(frozen=True)
class ExportFailure:
    """The step at which an export failed, and the error; unknown values are null."""

    stage: Annotated[str | None, "`export`, `compile`, `load` or `run`."]
    error: Annotated[str | None, "The exception's class."]
    message: Annotated[str | None, "Text of the exception."]
    operator: Annotated[str | None, "The operator that it was raised for."]
    line: Annotated[str | None, "The line of the model: `file.py:12`."]
    source: Annotated[str | None, "That line's text."]


@dataclass(frozen=True)
class DraftFailure:
    """An assumption that a draft export made."""

    kind: Annotated[str | None, "Kind of failure: `DATA_DEPENDENT_ERROR`."]
    message: Annotated[str | None, "Description of the failure."]
    line: Annotated[str | None, "The line of the model."]


@dataclass(frozen=True)
class DraftReport:
    """What `draft_export` reports about a model that cannot be exported."""

    is_sound: Annotated[bool | None, "Whether the draft is valid for any input."]
    failures: Annotated[Sequence[DraftFailure], "Assumptions that the draft export made."]
    seconds: Annotated[float | None, "How long it took. Seconds."]


@dataclass(frozen=True)
class BatchCheck:
    """The result of running a package with another batch size than it was exported with."""

    batch_size: Annotated[Count | None, "The other batch size."]
    checked: Annotated[str | None, "With the input check: `refused`, `right` or `wrong`."]
    checked_message: Annotated[str | None, "Message of the checked run."]
    unchecked: Annotated[str | None, "Without the input check, as programs run it."]
    unchecked_message: Annotated[str | None, "Message of the unchecked run."]


@dataclass(frozen=True)
class ExportedResult:
    """The newest result of one way to export or precompile a model."""

    tables = ("results", "series")

    id: int
    model: str
    experiment: str
    configuration: Annotated[str, "Its mode, dtype, backend and shapes."]
    run_id: str
    status: str
    state: Annotated[str, "The result in words."]
    kind: Annotated[str, "Its tone: `good`, `bad`, `warn` or `quiet`."]
    speedup: Annotated[float | None, "Median eager latency ÷ median latency of the export."]
    speedup_low: float | None
    speedup_high: float | None
    export_latency_s: float | None
    compilation_latency_s: Annotated[float | None, "Time until the export can be called. Seconds."]
    load_latency_s: float | None
    second_process_latency_s: float | None
    package_bytes: float | None
    output_error: float | None
    node_count: Annotated[Count | None, "Nodes of the exported graph."]
    failure: Annotated[ExportFailure | None, "Where exporting or loading it failed."]
    draft: Annotated[DraftReport | None, "What a draft export reports."]
    batch_check: Annotated[BatchCheck | None, "The result with another batch."]

    @property
    def label(self) -> str:
        return describe_experiment(self.experiment)


@dataclass(frozen=True)
class RankResult:
    """Latency, memory and counts of one rank."""

    rank: Annotated[Count, "Number of the process among the ranks."]
    latency_ms: Annotated[float | None, "Median latency compiled. Milliseconds."]
    eager_latency_ms: Annotated[float | None, "Median latency in eager mode. Milliseconds."]
    peak_gb: Annotated[float | None, "Peak memory. GB of 10^9 bytes."]
    graphs: Annotated[Count | None, "Graphs that it compiled."]
    graph_breaks: Annotated[Count | None, "Graph breaks in its compiles."]
    splits: Annotated[Count | None, "Graphs that DDPOptimizer split."]
    collectives: Annotated[Count | None, "Collectives that one step of it calls."]


@dataclass(frozen=True)
class DistributedResult:
    """The newest result of a model on several ranks, by parallelism and number of ranks."""

    tables = ("results", "series")

    model: str
    way: Annotated[str, "Kind of parallelism: `ddp, ddp_optimizer`, `fsdp2`."]
    line: Annotated[
        str,
        (
            "The parallelism, and what distinguishes its configuration from others, but for the "
            "ranks."
        ),
    ]
    world_size: int
    configuration: Annotated[str, "Its mode, dtype, backend and shapes."]
    run_id: str
    status: str
    state: Annotated[str, "The result in words."]
    kind: Annotated[str, "Its tone: `good`, `bad`, `warn` or `quiet`."]
    accuracy: Annotated[str | None, "State of the accuracy check beside the timing, in words."]
    message: str | None
    latency_ms: Annotated[float | None, "Latency of the slowest rank. Milliseconds."]
    one_process_latency_ms: Annotated[float | None, "Latency of one process. Milliseconds."]
    scaling_efficiency: float | None
    gradient_error: Annotated[
        float | None, "Largest relative error of gradients against one process."
    ]
    bucket_count: Annotated[Count | None, "Buckets in which DDP reduces gradients."]
    eager_modules: Annotated[
        Sequence[str], "Modules that run eagerly within DDP: dynamo compiled no frame of them."
    ]
    ranks: Annotated[Sequence[RankResult], "Measurements of every rank, in their order."]


def build_exports(
    open_run: OpenRun, series: Iterable[ModelSeries], suite: str
) -> list[ExportedResult]:
    chosen = [
        (result, one_series)
        for one_series in series
        if one_series.fields["suite"] == suite
        for name in EXPORTED
        if (result := _find_newest(one_series, name)) is not None
    ]
    chosen.sort(key=lambda pair: (EXPORTED.index(pair[0].experiment), -pair[0].time_us))
    return [
        _make_export(open_run, result, one_series.label)
        for result, one_series in chosen[:MAX_RESULTS]
    ]


def build_distributed(
    open_run: OpenRun, series: Iterable[ModelSeries], suite: str
) -> list[DistributedResult]:
    several = [
        one_series
        for one_series in series
        if one_series.fields["suite"] == suite and one_series.fields["world_size"] > 1
    ]
    results = [_make_distributed(open_run, one_series) for one_series in several[:MAX_RESULTS]]
    return sorted(
        _shorten_line_labels(results),
        key=lambda result: (result.way, result.line, result.world_size),
    )


def _shorten_line_labels(results: Sequence[DistributedResult]) -> Iterator[DistributedResult]:
    parts = [result.line.split(SEPARATOR) for result in results]
    for result, own in zip(results, parts):
        others = [line for other, line in zip(results, parts) if other.way == result.way]
        apart = [part for part in own if any(part not in line for line in others)]
        yield replace(
            result, line=f"{result.way}: {SEPARATOR.join(apart)}" if apart else result.way
        )


def _find_newest(series: ModelSeries, experiment: str) -> ExperimentResult | None:
    parts = (part for point in reversed(series.points) for part in point.parts)
    return next((part for part in parts if part.experiment == experiment), None)


def _make_export(open_run: OpenRun, result: ExperimentResult, configuration: str) -> ExportedResult:
    facts = _read_facts(open_run, result)
    export, check = _as_dict(facts.get("export")), _as_dict(facts.get("batch_check"))
    look = describe_result(result) if result.status != "skipped" else describe_status(result)
    draft = _as_dict(export.get("draft"))
    made = {
        "configuration": configuration,
        "state": look.word,
        "kind": look.kind,
        "node_count": fit_json(int, export.get("node_count")),
        "failure": None,
        "draft": None,
        "batch_check": None,
    }
    if result.status == "failed":
        message = export.get("message") or result.message
        made["failure"] = read_facts(ExportFailure, export | {"message": message})
    if draft:
        failures = [read_facts(DraftFailure, entry) for entry in _list_dicts(draft.get("failures"))]
        made["draft"] = read_facts(DraftReport, draft, failures=failures)
    if check:
        sides = {name: _as_dict(check.get(name)) for name in ("checked", "unchecked")}
        statuses = {name: side.get("status") for name, side in sides.items()}
        messages = {f"{name}_message": side.get("message") for name, side in sides.items()}
        made["batch_check"] = read_facts(BatchCheck, check | statuses | messages)
    return fill(ExportedResult, vars(result) | made)


class _Distribution(NamedTuple):
    kind: str | None
    mode: str | None
    one_process_latency_ms: float | None
    gradient_error: float | None
    bucket_count: int | None
    eager_modules: list[str] | None


def _make_distributed(open_run: OpenRun, series: ModelSeries) -> DistributedResult:
    timed, judged = _find_newest(series, "performance"), _find_newest(series, "accuracy")
    result = timed or judged or series.points[-1].parts[0]
    checked = judged if judged is not result else None
    facts, beside = _read_facts(open_run, result), {}
    answer = None
    if checked is not None:
        beside = _as_dict(_read_facts(open_run, checked).get("distributed"))
        answer = describe_result(checked)
    how = read_facts(_Distribution, beside | _as_dict(facts.get("distributed")))
    look = describe_result(result)
    ranks = [read_facts(RankResult, row) for row in _list_dicts(facts.get("ranks"))]
    made = {
        "way": _describe_parallelism(how, series.fields["backend"] or "") or "not recorded",
        "line": label_fields(series.fields | {"world_size": 1}),
        "configuration": series.label,
        "state": look.word,
        "kind": answer.kind if answer is not None and answer.kind == "bad" else look.kind,
        "accuracy": None if answer is None else answer.word,
        "message": result.message or (None if checked is None else checked.message),
        "latency_ms": result.abs_latency_ms,
        "eager_modules": how.eager_modules or [],
        "ranks": sorted((row for row in ranks if row.rank is not None), key=lambda row: row.rank),
    }
    return fill(DistributedResult, vars(result) | how._asdict() | made)


def _describe_parallelism(how: _Distribution, backend: str) -> str:
    named = [
        part.replace("=", ", ", 1)
        for part in split_backend(backend)
        if part == "fsdp2" or part.startswith("ddp=")
    ]
    ways = dict.fromkeys(filter(None, (how.kind, how.mode)))
    return ", ".join(ways) or "".join(named[:1])


def _read_facts(open_run: OpenRun, result: ExperimentResult) -> dict[str, Any]:
    parts = get_result_parts(open_run(result.run_id), result.id)
    return {} if parts is None else parts.facts


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list_dicts(value: Any) -> list[dict[str, Any]]:
    return fit_json(list[dict[str, Any]], value) or []
