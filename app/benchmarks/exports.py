"""Results outside torch.compile: exported programs, packages and distributed runs."""

from __future__ import annotations

import math
import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

from compileboard.app.benchmarks.labels import describe_experiment, describe_status, split_backend
from compileboard.app.benchmarks.matrix import describe_result
from compileboard.app.benchmarks.run_queries import get_result_parts
from compileboard.app.benchmarks.series import SEPARATOR, ModelSeries, label_fields
from compileboard.app.core.fields import Count
from compileboard.collectors.store.results import EXPORTS, ExperimentResult

OpenRun = Callable[[str], sqlite3.Connection]  # the detail of a run
EXPORTED = (*EXPORTS, "caching_precompile")
MOST_RESULTS = 40
_BUILT_BY_NAME = ("builtin", "torchvision", "timm", "transformers")  # suites of bench


def choose_model(command: str | None, suite: str, model: str) -> str | None:
    words = _split(command or "")
    file = next(
        (value for word, value in pairwise(words) if word == "--only" and ":" in value), None
    )
    if file is not None:
        return f"--only {shlex.quote(file)}"
    return f"--suite {suite} --only {shlex.quote(model)}" if suite in _BUILT_BY_NAME else None


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quotation mark without its other
        return []


@dataclass(frozen=True)
class ExportFailure:
    """Where an export failed; unknown values are null."""

    stage: Annotated[str | None, "`export`, `compile`, `load` or `run`."]
    error: Annotated[str | None, "The exception's class."]
    message: Annotated[str | None, "Its text."]
    operator: Annotated[str | None, "The operator that it was raised for."]
    line: Annotated[str | None, "The line of the model: `file.py:12`."]
    source: Annotated[str | None, "That line's text."]


@dataclass(frozen=True)
class DraftFailure:
    """An assumption that a draft export made."""

    kind: Annotated[str | None, "Kind of failure: `DATA_DEPENDENT_ERROR`."]
    message: Annotated[str | None, "What it is."]
    line: Annotated[str | None, "The line of the model."]


@dataclass(frozen=True)
class DraftReport:
    """What `draft_export` reports of a model that cannot be exported."""

    is_sound: Annotated[bool | None, "Whether the draft is right for any input."]
    failures: Annotated[Sequence[DraftFailure], "What it took for granted."]
    seconds: Annotated[float | None, "How long it took. Seconds."]


@dataclass(frozen=True)
class BatchCheck:
    """The result of a package with a batch size other than it was exported with."""

    batch_size: Annotated[Count | None, "The other batch size."]
    checked: Annotated[str | None, "With the input check: `refused`, `right` or `wrong`."]
    checked_message: Annotated[str | None, "Its message."]
    unchecked: Annotated[str | None, "Without it, as programs run it."]
    unchecked_message: Annotated[str | None, "Its message."]


@dataclass(frozen=True)
class ExportedResult:
    """The newest result of one way to export or precompile a model."""

    id: Annotated[int, "Number of the result in this database."]
    model: Annotated[str, "The model's name."]
    experiment: Annotated[str, "The experiment: `export`, `aot_inductor`."]
    configuration: Annotated[str, "The configuration."]
    run_id: Annotated[str, "The run that it is of."]
    status: Annotated[str, "What became of it."]
    state: Annotated[str, "The same in words."]
    kind: Annotated[str, "How it is coloured: `good`, `bad`, `warn` or `quiet`."]
    speedup: Annotated[float | None, "Median eager latency ÷ median latency of what was made."]
    speedup_low: Annotated[float | None, "Lower end of its 95% interval."]
    speedup_high: Annotated[float | None, "Upper end of its 95% interval."]
    export_latency_s: Annotated[float | None, "Time of torch.export alone. Seconds."]
    compilation_latency_s: Annotated[
        float | None, "Time until what was made can be called. Seconds."
    ]
    load_latency_s: Annotated[float | None, "Load time. Seconds."]
    second_process_latency_s: Annotated[float | None, "First call in a second process. Seconds."]
    package_bytes: Annotated[float | None, "Size of the package."]
    output_error: Annotated[float | None, "Largest relative error of the output against eager."]
    node_count: Annotated[Count | None, "Nodes of the exported graph."]
    failure: Annotated[ExportFailure | None, "Where it failed."]
    draft: Annotated[DraftReport | None, "What a draft export reports."]
    batch_check: Annotated[BatchCheck | None, "What another batch gives."]

    @property
    def label(self) -> str:
        return describe_experiment(self.experiment)


@dataclass(frozen=True)
class RankResult:
    """What one rank measured."""

    rank: Annotated[Count, "The rank."]
    latency_ms: Annotated[float | None, "Median latency compiled. Milliseconds."]
    eager_latency_ms: Annotated[float | None, "Median latency in eager mode. Milliseconds."]
    peak_gb: Annotated[float | None, "Peak memory. GB of 10^9 bytes."]
    graphs: Annotated[Count | None, "Graphs."]
    graph_breaks: Annotated[Count | None, "Graph breaks."]
    splits: Annotated[Count | None, "Graphs that DDPOptimizer split."]
    collectives: Annotated[Count | None, "Collectives."]


@dataclass(frozen=True)
class DistributedResult:
    """The newest result of a model on several ranks, by parallelism and number of ranks."""

    model: Annotated[str, "The model's name."]
    way: Annotated[str, "How: `ddp, ddp_optimizer`, `fsdp2`."]
    line: Annotated[
        str,
        (
            "The way, and what tells its configuration from the model's others in it, but for the "
            "ranks."
        ),
    ]
    world_size: Annotated[Count, "Ranks."]
    configuration: Annotated[str, "The configuration."]
    run_id: Annotated[str, "The run that it is of."]
    status: Annotated[str, "What became of it."]
    state: Annotated[str, "The same in words."]
    kind: Annotated[str, "How it is coloured: `good`, `bad`, `warn` or `quiet`."]
    accuracy: Annotated[str | None, "State of the accuracy check beside the timing, in words."]
    message: Annotated[str | None, "The exception's own line."]
    latency_ms: Annotated[float | None, "Latency of the slowest rank. Milliseconds."]
    one_process_latency_ms: Annotated[float | None, "Latency of one process. Milliseconds."]
    scaling_efficiency: Annotated[
        float | None, "Samples a second of all ranks ÷ ranks × those of one process."
    ]
    gradient_error: Annotated[
        float | None, "Largest relative error of gradients against one process."
    ]
    bucket_count: Annotated[Count | None, "Buckets of gradients."]
    eager_modules: Annotated[
        Sequence[str], "Modules that run eagerly within DDP: dynamo compiled no frame of them."
    ]
    ranks: Annotated[Sequence[RankResult], "Each rank."]


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
        for result, one_series in chosen[:MOST_RESULTS]
    ]


def build_distributed(
    open_run: OpenRun, series: Iterable[ModelSeries], suite: str
) -> list[DistributedResult]:
    several = [
        one_series
        for one_series in series
        if one_series.fields["suite"] == suite and one_series.fields["world_size"] > 1
    ]
    results = [_make_distributed(open_run, one_series) for one_series in several[:MOST_RESULTS]]
    return sorted(
        _name_lines(results), key=lambda result: (result.way, result.line, result.world_size)
    )


def _name_lines(results: Sequence[DistributedResult]) -> Iterator[DistributedResult]:
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
    export = _mapping(facts.get("export"))
    state = describe_result(result) if result.status != "skipped" else describe_status(result)
    numbers = (
        "speedup",
        "speedup_low",
        "speedup_high",
        "export_latency_s",
        "compilation_latency_s",
        "load_latency_s",
        "second_process_latency_s",
        "package_bytes",
        "output_error",
    )
    failed = result.status == "failed"
    return ExportedResult(
        id=result.id,
        model=result.model,
        experiment=result.experiment,
        configuration=configuration,
        run_id=result.run_id,
        status=result.status,
        state=state.word,
        kind=state.kind,
        **{name: getattr(result, name) for name in numbers},
        node_count=_count(export.get("node_count")),
        failure=_make_failure(export, result.message) if failed else None,
        draft=_make_draft(export["draft"]) if isinstance(export.get("draft"), dict) else None,
        batch_check=_make_check(facts["batch_check"])
        if isinstance(facts.get("batch_check"), dict)
        else None,
    )


def _make_failure(export: Mapping[str, Any], message: str | None) -> ExportFailure:
    names = ("stage", "error", "operator", "line", "source")
    texts = {name: _text(export.get(name)) for name in names}
    return ExportFailure(**texts, message=_text(export.get("message")) or _text(message))


def _make_draft(draft: Mapping[str, Any]) -> DraftReport:
    failures = [
        DraftFailure(**{name: _text(failure.get(name)) for name in ("kind", "message", "line")})
        for failure in _mappings(draft.get("failures"))
    ]
    sound = draft.get("is_sound")
    return DraftReport(
        sound if isinstance(sound, bool) else None, failures, _number(draft.get("seconds"))
    )


def _make_check(check: Mapping[str, Any]) -> BatchCheck:
    sides = {name: _mapping(check.get(name)) for name in ("checked", "unchecked")}
    return BatchCheck(
        batch_size=_count(check.get("batch_size")),
        **{name: _text(side.get("status")) for name, side in sides.items()},
        **{f"{name}_message": _text(side.get("message")) for name, side in sides.items()},
    )


def _make_distributed(open_run: OpenRun, series: ModelSeries) -> DistributedResult:
    timed, judged = _find_newest(series, "performance"), _find_newest(series, "accuracy")
    result = timed or judged or series.points[-1].parts[0]
    checked = judged if judged is not None and judged is not result else None
    facts = _read_facts(open_run, result)
    how, answer = _mapping(facts.get("distributed")), None
    if checked is not None:
        how = {**_mapping(_read_facts(open_run, checked).get("distributed")), **how}
        answer = describe_result(checked)
    state = describe_result(result)
    ranks = [
        _make_rank(rank, row)
        for row in _mappings(facts.get("ranks"))
        if (rank := _count(row.get("rank"))) is not None
    ]
    return DistributedResult(
        model=result.model,
        way=", ".join(_list_ways(how, series.fields["backend"] or "")) or "not recorded",
        line=label_fields(series.fields | {"world_size": 1}),
        world_size=result.world_size,
        configuration=series.label,
        run_id=result.run_id,
        status=result.status,
        state=state.word,
        kind=answer.kind if answer is not None and answer.kind == "bad" else state.kind,
        accuracy=None if answer is None else answer.word,
        message=result.message or (None if checked is None else checked.message),
        latency_ms=result.abs_latency_ms,
        one_process_latency_ms=_number(how.get("one_process_latency_ms")),
        scaling_efficiency=result.scaling_efficiency,
        gradient_error=_number(how.get("gradient_error")),
        bucket_count=_count(how.get("bucket_count")),
        eager_modules=_texts(how.get("eager_modules")),
        ranks=sorted(ranks, key=lambda row: row.rank),
    )


def _list_ways(how: Mapping[str, Any], backend: str) -> list[str]:
    ways = list(dict.fromkeys(text for name in ("kind", "mode") if (text := _text(how.get(name)))))
    named = [
        part.split("=")
        for part in split_backend(backend)
        if part == "fsdp2" or part.startswith("ddp=")
    ]
    return ways or (named[0] if named else [])


def _make_rank(rank: int, row: Mapping[str, Any]) -> RankResult:
    latency_ms, eager_latency_ms, peak_gb = (
        _number(row.get(name)) for name in ("latency_ms", "eager_latency_ms", "peak_gb")
    )
    counts = {
        name: _count(row.get(name)) for name in ("graphs", "graph_breaks", "splits", "collectives")
    }
    return RankResult(rank, latency_ms, eager_latency_ms, peak_gb, **counts)


def _read_facts(open_run: OpenRun, result: ExperimentResult) -> Mapping[str, Any]:
    parts = get_result_parts(open_run(result.run_id), result.id)
    return {} if parts is None else parts.facts


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    return [part for part in value if isinstance(part, str)] if isinstance(value, list) else []


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    is_number = (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    )
    return float(value) if is_number else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None
