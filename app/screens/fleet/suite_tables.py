"""The tables of a suite over a period, as JSON, CSV and Parquet contain them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from compileboard.app.analysis.comparison.model import DistinctDiff
from compileboard.app.analysis.comparison.rows import COLUMNS as COMPARED_COLUMNS
from compileboard.app.analysis.comparison.rows import list_lines
from compileboard.app.analysis.incidents.messages import describe_series_change
from compileboard.app.queries.dashboard.series_changes import SeriesChange
from compileboard.app.queries.fleet.trends import TrendRun
from compileboard.app.screens.fleet.suite import SuiteScreen
from compileboard.collectors.store.rollups.summaries import NUMBERS

Row = dict[str, Any]
# What a column holds, where it is not text: int, float, bool, or a moment in µs since the epoch.
Types = Mapping[str, str]
_RUN = tuple(name for name in TrendRun.__dataclass_fields__ if name != "id")
_SERIES = (
    "suite",
    "model",
    "mode",
    "dtype",
    "device",
    "hardware",
    "backend",
    "dynamic",
    "batch_size",
    "world_size",
)
_CHANGE = tuple(name for name in SeriesChange.__dataclass_fields__ if name != "evidence")
_INCIDENT = (
    *(
        "id",
        "title",
        "direction",
        "state",
        "status",
        "owner",
        "reason",
        "suite",
        "branch",
        "severity",
        "change_count",
    ),
    *(
        "measured_as",
        "first_us",
        "recovered_us",
        "found_us",
        "confirmed_us",
        "noticed_us",
        "changed_us",
    ),
)
_INCIDENT_RUNS = ("last_good", "first_bad", "recovered")
_SERIES_TYPES = {"dynamic": "bool", "batch_size": "int", "world_size": "int"}


class SuiteTable(NamedTuple):
    columns: Sequence[str]
    types: Types
    list: Callable[[SuiteScreen], Iterable[Row]]


def _list_headlines(suite: SuiteScreen) -> Iterator[Row]:
    for headline in suite.headlines:
        metric, delta = headline.delta.metric, headline.delta
        yield {
            "metric": metric.name,
            "label": metric.label,
            "unit": metric.unit,
            "direction": metric.direction,
            "definition": suite.definition.name,
            "base_run_id": suite.base.run_id if suite.base else None,
            "new_run_id": suite.new.run_id,
            "base": headline.base,
            "new": headline.new,
            "common_model_count": delta.model_count,
            "common_base": delta.base,
            "common_new": delta.new,
            "verdict": delta.word if suite.base else None,
        }


def _list_runs(suite: SuiteScreen) -> Iterator[Row]:
    summaries = {summary.run_id: summary for summary in suite.summaries}
    base = suite.base.run_id if suite.base else None
    for run in suite.runs:
        summary = summaries[run.id]
        side = "base" if run.id == base else "new" if run.id == suite.new.run_id else None
        numbers = {name: getattr(summary, name) for name in NUMBERS}
        yield (
            {
                "run_id": run.id,
                "side": side,
                "is_in_period": run.started_us >= suite.period.since_us,
            }
            | {name: getattr(run, name) for name in _RUN}
            | {"definition": suite.definition.name, "pass_ratio": summary.pass_ratio}
            | numbers
        )


def _list_models(suite: SuiteScreen) -> Iterable[Row]:
    return list_lines(suite.comparison) if suite.comparison else ()


def _list_failures(suite: SuiteScreen) -> Iterator[Row]:
    for failure in suite.failures:
        yield {name: getattr(failure.row, name) for name in _SERIES} | {
            "word": failure.word,
            "base": failure.base,
            "new": failure.new,
        }


def _list_distinct(diff: DistinctDiff | None) -> Iterator[Row]:
    for change in diff.changes if diff else ():
        row = {
            name: getattr(change.what, name)
            for name in ("fingerprint", "kind", "reason", "function", "file", "line")
        }
        yield row | {
            "model": change.model,
            "word": change.word,
            "base_count": change.base_count,
            "new_count": change.new_count,
        }


def _list_breaks(suite: SuiteScreen) -> Iterator[Row]:
    return _list_distinct(suite.comparison.breaks if suite.comparison else None)


def _list_causes(suite: SuiteScreen) -> Iterator[Row]:
    return _list_distinct(suite.comparison.causes if suite.comparison else None)


def _list_environment(suite: SuiteScreen) -> Iterator[Row]:
    for change in suite.axis.changes:
        for what, before, now in change.parts:
            started = {"run_id": change.run.id, "started_us": change.run.started_us}
            yield started | {"what": what, "before": before, "now": now}


def _list_commits(suite: SuiteScreen) -> Iterator[Row]:
    for commit in suite.commits:
        first = {
            "first_run_id": commit.run.id,
            "first_us": commit.run.started_us,
            "run_count": commit.run_count,
        }
        yield {"hash": commit.hash, "subject": commit.subject, "branch": commit.branch} | first


def _list_incidents(suite: SuiteScreen) -> Iterator[Row]:
    for incident in suite.incidents:
        runs = {
            f"{name}_run_id": getattr(getattr(incident, name), "run_id", None)
            for name in _INCIDENT_RUNS
        }
        cause = {"cause": incident.cause.text if incident.cause else None}
        yield {name: getattr(incident, name) for name in _INCIDENT} | runs | cause


def _list_changes(suite: SuiteScreen) -> Iterator[Row]:
    for change in suite.changes:
        yield {"sentence": describe_series_change(change)} | {
            name: getattr(change, name) for name in _CHANGE
        }


_MOMENTS = ("first_us", "recovered_us", "found_us", "confirmed_us", "noticed_us", "changed_us")
_DISTINCT = (
    "word",
    "model",
    "kind",
    "reason",
    "function",
    "file",
    "line",
    "base_count",
    "new_count",
    "fingerprint",
)
_COUNTS = {name: "int" if name.endswith("_count") else "float" for name in NUMBERS}
_COUNTED = {"line": "int", "base_count": "int", "new_count": "int"}
_SHARES = ("base", "new", "change", "p_value", "ratio_low", "ratio_high")
SUITE_TABLES: dict[str, SuiteTable] = {
    "runs": SuiteTable(
        ("run_id", "side", "is_in_period", *_RUN, "definition", "pass_ratio", *NUMBERS),
        {
            "is_in_period": "bool",
            "git_dirty": "bool",
            "started_us": "moment",
            "pass_ratio": "float",
            **_COUNTS,
        },
        _list_runs,
    ),
    "headlines": SuiteTable(
        (
            *(
                "metric",
                "label",
                "unit",
                "direction",
                "definition",
                "base_run_id",
                "new_run_id",
                "base",
                "new",
            ),
            *("common_model_count", "common_base", "common_new", "verdict"),
        ),
        {
            "common_model_count": "int",
            **dict.fromkeys(("base", "new", "common_base", "common_new"), "float"),
        },
        _list_headlines,
    ),
    "models": SuiteTable(
        COMPARED_COLUMNS, {**_SERIES_TYPES, **dict.fromkeys(_SHARES, "float")}, _list_models
    ),
    "failures": SuiteTable((*_SERIES, "word", "base", "new"), _SERIES_TYPES, _list_failures),
    "graph_breaks": SuiteTable(_DISTINCT, _COUNTED, _list_breaks),
    "recompile_causes": SuiteTable(_DISTINCT, _COUNTED, _list_causes),
    "environment": SuiteTable(
        ("run_id", "started_us", "what", "before", "now"),
        {"started_us": "moment"},
        _list_environment,
    ),
    "commits": SuiteTable(
        ("hash", "subject", "branch", "first_run_id", "first_us", "run_count"),
        {"first_us": "moment", "run_count": "int"},
        _list_commits,
    ),
    "incidents": SuiteTable(
        (*_INCIDENT, *(f"{name}_run_id" for name in _INCIDENT_RUNS), "cause"),
        {"severity": "int", "change_count": "int", **dict.fromkeys(_MOMENTS, "moment")},
        _list_incidents,
    ),
    "changes": SuiteTable(
        ("sentence", *_CHANGE),
        {
            **_SERIES_TYPES,
            **dict.fromkeys(("before_value", "after_value", "relative", "p_value"), "float"),
            **dict.fromkeys((name for name in _MOMENTS if name in _CHANGE), "moment"),
        },
        _list_changes,
    ),
}


def suite_period_row(suite: SuiteScreen) -> Row:
    compared = suite.comparison
    return {
        "suite": suite.chosen.suite,
        "set": suite.chosen.fields,
        "branch": suite.branch,
        "verdict": asdict(suite.verdict),
        "period": {"since_us": suite.period.since_us, "until_us": suite.period.until_us},
        "definition": suite.definition.name,
        "base_run_id": suite.base.run_id if suite.base else None,
        "is_base_before_period": suite.is_base_before,
        "new_run_id": suite.new.run_id,
        "run_count": suite.run_count,
        "other_sets": [model_set.fields for model_set in suite.others],
        "notes": list(suite.notes),
        "warnings": [*compared.refused, *compared.warnings] if compared else [],
        "differing_settings": [asdict(setting) for setting in compared.settings if setting.differs]
        if compared
        else [],
        "not_compared": {
            "graph_breaks": compared.breaks.lacks or None
            if compared
            else "no other run measured one of these models",
            "recompile_causes": compared.causes.lacks or None
            if compared
            else "no other run measured one of these models",
        },
    } | {name: list(table.list(suite)) for name, table in SUITE_TABLES.items()}
