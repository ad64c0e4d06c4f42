"""Schemas of summaries and trends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flask import request

from compileboard.app.analysis.metrics import Metric
from compileboard.app.analysis.models.summaries import list_eligible_sets
from compileboard.app.analysis.rows import plain_row
from compileboard.app.analysis.trends.commit_order import Parents
from compileboard.app.analysis.trends.lines import (
    AXES,
    ENVIRONMENT,
    TrendLine,
    build_count_line,
    build_model_lines,
    build_suite_line,
    find_metric,
    lay_out,
)
from compileboard.app.api.answers import Answer, Operation, find_run, read_word, refuse
from compileboard.app.api.fleet.models import SERIES
from compileboard.app.api.parameters import SETS
from compileboard.app.api.schema import Schema, array_of, count, decimal, flag, maybe, record, text, time_us, word
from compileboard.app.db import get_reader
from compileboard.app.queries.fleet.series import count_guard_failures, count_runs
from compileboard.app.queries.fleet.trends import (
    MOST_RUNS,
    ModelSet,
    StoredSummary,
    TrendFilter,
    TrendRun,
    list_model_rows,
    list_trend_runs,
    read_choice,
    read_ids,
    read_last,
    read_trend_filter,
)
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run_cache import cached_ancestry
from compileboard.collectors.contract.categories import CATEGORIES
from compileboard.collectors.store.rollups.summaries import DEFINITIONS, Definition

_SET = {name: schema for name, schema in SERIES.items() if name != "batch_size"}
_RUN = {
    "name": text("The run's title, or its name."),
    "state": text("The run's state."),
    "started_us": time_us("When it started."),
    "git_commit": maybe(text("Its commit.")),
    "git_branch": maybe(text("Its branch.")),
    "git_subject": maybe(text("The first line of the commit's message.")),
    "git_dirty": maybe(flag("Whether files differed from the commit.")),
    "torch_version": maybe(text("Its version of torch.")),
    "gpu_name": maybe(text("Its GPU.")),
    "driver_version": maybe(text("The GPU driver's version.")),
    "triton_version": maybe(text("Its version of triton.")),
    "python_version": maybe(text("Its version of Python.")),
}


def _mean(said: str) -> Schema:
    return maybe(decimal(said))


SUMMARY = record(
    "What a run's benchmark results come to, by one definition.",
    run=record("The run.", id=text("Its id."), **_RUN),
    definition=record(
        "How it counts.",
        name=word("Its name.", DEFINITIONS),
        label=text("Whose it is."),
        pass_rate=text("What its pass rate is."),
        geomean=text("What its geomean is over."),
    ),
    summaries=array_of(
        record(
            "What the models that were measured alike come to. null is what was not measured, and never 0.",
            **_SET,
            total_count=count("Models."),
            measured_count=count("Models that were measured."),
            failed_count=count("Models that failed."),
            passed_count=maybe(count("Models that pass; null where nothing tells.")),
            pass_ratio=_mean("Models that pass ÷ models."),
            speedup_count=count("Models that the geomean is over."),
            geomean_speedup=_mean("Geometric mean of the speedups."),
            compilation_latency_s=_mean("Mean compile time, cold. Seconds."),
            abs_latency_ms=_mean("Mean latency, compiled. Milliseconds."),
            compression_ratio=_mean("Peak memory eager ÷ compiled, over the models."),
            dynamo_peak_mem_gb=_mean("Mean peak memory, compiled. GB of 10^9 bytes."),
            graph_breaks_per_model=_mean("Mean of the models that were counted; alike by every definition."),
            recompiles_per_model=_mean("Mean of the models that were counted; alike by every definition."),
            is_incomplete=flag("Whether models failed that a usual run measures: its means are of the others."),
        ),
        "One for each suite, mode, dtype, device, hardware, backend, dynamic or not, and world size.",
    ),
)
TREND = record(
    "A metric over time.",
    metric=record(
        "What is drawn.",
        name=text("Its name."),
        label=text("Its name in words."),
        unit=text("Its unit; a `%` is written as a share of one; empty for a count."),
        direction=word("Which way is better.", ("up_is_good", "down_is_good", "neutral")),
    ),
    axis=word("What the points are ordered by.", [name for name, _label in AXES]),
    definition=maybe(word("By which definition a suite was summed up.", DEFINITIONS)),
    notes=array_of({"type": "string"}, "What is left out, in words."),
    series=array_of(
        record(
            "Points that can be compared with each other.",
            label=text("What it is of."),
            **{name: schema if isinstance(schema["type"], list) else maybe(schema) for name, schema in _SET.items()},
            model=maybe(text("The model; null for a suite.")),
            points=array_of(
                record(
                    "One run. A point that is missing is not there; nothing is interpolated.",
                    run_id=text("The run."),
                    **_RUN,
                    environment_changes=array_of(
                        word("What differs from the point before, in time.", [name for name, _field in ENVIRONMENT]),
                        "What of the environment is new at this point.",
                    ),
                    value=_mean("The value; null where none was measured."),
                    low=_mean("Where its 95 % interval begins."),
                    high=_mean("Where its 95 % interval ends."),
                    status=word("What became of it.", ("measured", "failed", "skipped", "not_run")),
                    reason=maybe(text("Why it has no value.")),
                    is_incomplete=flag("Whether models failed that a usual run measures: the value is of the others."),
                ),
                "In the order of the axis.",
            ),
        ),
        "The newest first.",
    ),
)
SCHEMAS: dict[str, Schema] = {"Summary": SUMMARY, "Trend": TREND}


_COUNTED = {"function": "Recompiles", "break": "Graph breaks", "category": "Guard failures"}


def get_summary() -> Answer:
    """Return what the newest run that fits comes to."""
    wanted = read_trend_filter(request.args)
    run_id, commit, torch = (read_word(name) for name in ("run", "commit", "torch"))
    if run_id:
        find_run(run_id)
    narrowed = TrendFilter(**vars(wanted) | {"run": run_id, "commit": commit, "torch": torch})
    said, found = _list_summaries(narrowed)
    if not found:
        refuse("No run has benchmark results like these; /api/v1/models lists what was measured.")
    newest = [it for it in found if it.run_id == found[0].run_id]
    (run,) = list_trend_runs(get_reader(), [newest[0].run_id])
    return Answer({
        "run": plain_row(run),
        "definition": {name: getattr(said, name) for name in ("name", "label", "pass_rate", "geomean")},
        "summaries": [_summary_row(it) for it in newest],
    })  # fmt: skip


def _summary_row(it: StoredSummary) -> dict[str, Any]:
    row = plain_row(it) | it.set.fields | {"pass_ratio": it.pass_ratio}
    return {name: value for name, value in row.items() if name not in ("set", "run_id", "started_us")}


def get_trend() -> Answer:
    """Return a metric over time: of suites, of a model, or of what is counted in every run."""
    axis = read_choice(request.args, "axis", [name for name, _label in AXES], "date")
    _text, last = read_last(request.args)
    counted = [name for name in _COUNTED if request.args.get(name)]
    if len(counted) > 1:
        raise FilterError(f"{' and '.join(counted)}: at most one of these at once")
    wanted = read_trend_filter(request.args)
    definition = None
    if counted:
        metric, series = _count(counted[0], wanted, last)
    else:
        said, summaries = _list_summaries(wanted)
        definition = None if read_word("model") else said.name
        metric, series = _measure(wanted, last, summaries)
    body: dict[str, Any] = {"metric": metric, "axis": axis, "definition": definition}
    found = list_trend_runs(get_reader(), [it.run_id for line, _fields in series for it in line.points])
    runs = {it.id: it for it in found if wanted.branch in (None, it.git_branch)}
    parents = cached_ancestry(get_reader(), [it.git_commit for it in runs.values()]) if axis == "commit" else {}
    drawn = [_build_line(line, fields, axis, runs, parents) for line, fields in series]
    notes = list(dict.fromkeys(note for _row, notes in drawn for note in notes))
    return Answer(body | {"series": [row for row, _notes in drawn], "notes": notes})


def _list_summaries(wanted: TrendFilter) -> tuple[Definition, list[StoredSummary]]:
    """List summaries by what is asked for or, as the pages do, if nothing is, by a definition that has numbers."""
    asked = DEFINITIONS[read_choice(request.args, "definition", DEFINITIONS, "hud")]
    return list_eligible_sets(get_reader(), wanted, asked, MOST_RUNS, named=bool(request.args.get("definition")))


def _measure(
    wanted: TrendFilter, last: int, summaries: Sequence[StoredSummary]
) -> tuple[dict[str, Any], list[tuple[TrendLine, dict[str, Any]]]]:
    model = read_word("model")
    name = read_word("metric") or "speedup"
    metric = find_metric(name, of_suite=model is None)
    if metric is None:
        raise FilterError(f"metric: {'a model' if model else 'a suite'} has no {name[:40]}")
    reader = get_reader()
    sets: dict[ModelSet, list[StoredSummary]] = {}
    for it in summaries:
        sets.setdefault(it.set, []).append(it)
    series = []
    for one, members in sets.items():
        if model is None:
            series.append((build_suite_line(metric, members[:last]), one.fields | {"model": None}))
            continue
        narrowed = TrendFilter(**vars(wanted.narrow(one)) | {"since_us": members[:last][-1].started_us})
        lines = build_model_lines(metric, list_model_rows(reader, narrowed, [model], metric.columns))
        series += [(line, one.fields | {"model": model}) for line in lines]
    return _describe(metric), series


def _count(kind: str, wanted: TrendFilter, last: int) -> tuple[dict[str, Any], list[tuple[TrendLine, dict[str, Any]]]]:
    text = request.args[kind]
    label = _COUNTED[kind]
    if kind == "category":
        known = {it.name: it for it in CATEGORIES}
        if text not in known:
            raise FilterError(f"category: {text[:40]!r} is not one of {', '.join(known)}")
        points = count_guard_failures(get_reader(), text, wanted.suite, newest=last)
        line = build_count_line(known[text].label, points)
    else:
        (thing_id,) = read_ids(kind, [text])
        found = count_runs(get_reader(), kind, thing_id, newest=last)
        if found is None:
            refuse(f"There is no {'function' if kind == 'function' else 'distinct graph break'} {thing_id}.")
        line = build_count_line(found.label, found.points)
    metric = {"name": kind, "label": label, "unit": "", "direction": "down_is_good"}
    return metric, [(line, dict.fromkeys(("model", *ModelSet.__dataclass_fields__)) | {"suite": wanted.suite})]


def _describe(metric: Metric) -> dict[str, Any]:
    return {name: getattr(metric, name) for name in ("name", "label", "unit", "direction")}


def _build_line(
    line: TrendLine, fields: dict[str, Any], axis: str, runs: Mapping[str, TrendRun], parents: Parents
) -> tuple[dict[str, Any], Sequence[str]]:
    """Write one line with its runs in the order of the axis."""
    own = {it.run_id: runs[it.run_id] for it in line.points if it.run_id in runs}
    laid = lay_out(list(own.values()), axis, most=len(own), parents=parents)
    changed = {it.run.id: [word for word, _before, _now in it.parts] for it in laid.changes}
    values = {it.run_id: it for it in line.points}
    points = []
    for run in laid.runs:
        it = values[run.id]
        said = {name: getattr(it, name) for name in ("value", "low", "high", "status", "reason", "is_incomplete")}
        points.append({"run_id": run.id, **_place(run), "environment_changes": changed.get(run.id, []), **said})
    kept = {name: value for name, value in fields.items() if not name.endswith(("_count", "_us"))}
    return {"label": line.label, **kept, "points": points}, laid.notes


def _place(run: Any) -> dict[str, Any]:
    row = plain_row(run)
    del row["id"]
    return row


OPERATIONS = (
    Operation(
        "/summary",
        get_summary,
        "Summary",
        False,
        "What a run's benchmark results come to: of `run`, or of the newest run of a commit, branch or torch version.",
        ("run_summary", "commit", "torch", "definition", *SETS),
    ),
    Operation(
        "/trend",
        get_trend,
        "Trend",
        False,
        "A metric over the newest runs: of every suite that fits, of one model, or counted of a function, a distinct "
        "graph break or a kind of guard.",
        ("metric", "model", "function_trend", "break", "category", "definition", "axis", "last", *SETS),
    ),
)
