"""A suite over a period: its newest run, the change since the start, and the events in between."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from typing import Any, NamedTuple

from compileboard.app.benchmarks.run_queries import list_results
from compileboard.app.benchmarks.series import label_fields
from compileboard.app.benchmarks.summaries import (
    ModelFailure,
    SummaryDelta,
    filter_set,
    list_failures,
    summarize_runs,
)
from compileboard.app.benchmarks.summaries import compare as compare_headlines
from compileboard.app.benchmarks.trend_lines import Axis, build_axis
from compileboard.app.benchmarks.trend_queries import (
    MAX_RUNS,
    ModelSet,
    StoredSummary,
    TrendFilter,
    TrendRun,
    list_sets,
    list_summaries,
    list_timed_runs,
    list_trend_runs,
)
from compileboard.app.comparison.differences import compare
from compileboard.app.comparison.load import load_side
from compileboard.app.comparison.model import ComparedSide, Comparison
from compileboard.app.comparison.sides import find_side
from compileboard.app.comparison.summary import COLUMNS as COMPARED_COLUMNS
from compileboard.app.comparison.summary import list_lines
from compileboard.app.comparison.verdict import (
    PageVerdict,
    VerdictFacts,
    decide_verdict,
)
from compileboard.app.core.engine import Engine
from compileboard.app.core.format import format_plural, format_time, format_times
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.page import FilterError
from compileboard.app.core.run_cache import cached_for_run
from compileboard.app.core.schema import get_row
from compileboard.app.core.store import Store
from compileboard.app.incidents.model import Incident, SeriesChange
from compileboard.app.incidents.queries import (
    NOT_IGNORED,
    IncidentFilter,
    list_changes_of,
    list_incidents,
)
from compileboard.collectors.contract.records import list_types
from compileboard.collectors.store.incident_triage import SERIES
from compileboard.collectors.store.results import ResultRow
from compileboard.collectors.store.rollups import NUMBERS, SET, SuiteDefinition

DAY_US = 86_400_000_000
DEFAULT_LAST = "30d"
_UNITS_US = {"h": 3_600_000_000, "d": DAY_US, "w": 7 * DAY_US}
_LENGTH = re.compile(r"([0-9]{1,6})([hdw])")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EXPECTED = (
    "a day as 2026-10-01 or today, a time in UTC as 2026-10-01T06:00, or how long ago as 36h, "
    "30d or 12w"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Period:
    """From `since_us` to before `until_us`.

    Units: microseconds since the epoch.
    """

    since_us: int
    until_us: int

    @property
    def is_days(self) -> bool:
        return not self.since_us % DAY_US and not self.until_us % DAY_US

    @property
    def days(self) -> tuple[str, str]:
        return format_time(self.since_us)[:10], format_time(self.until_us - 1)[:10]

    @property
    def text(self) -> str:
        if self.is_days:
            return " to ".join(self.days)
        return " to ".join(format_times(self.since_us, self.until_us))


def read_period(since: str | None, until: str | None, duration: str | None, now_us: int) -> Period:
    """Parse a period. It ends at `until` (including that day), else now, and begins at `since`, or
    `duration` before its end.

    Raises FilterError for an invalid time, or an end that is not after the beginning.
    """
    if since and duration:
        raise FilterError(
            f"last: {duration[:40]!r} and since={since[:40]!r} both set the start of the period; "
            "give one"
        )
    end = _read_moment("until", until, now_us, ends=True) if until else now_us
    if since:
        begin = _read_moment("since", since, now_us, ends=False)
    else:
        begin = end - read_length("last", duration or DEFAULT_LAST)
    if begin >= end:
        raise FilterError(
            f"since: it begins at {format_time(begin)}, which is not before its end, "
            f"{format_time(end)}"
        )
    return Period(begin, end)


def read_length(name: str, text: str) -> int:
    """Parse a duration such as 36h, 30d or 12w into microseconds.

    Raises FilterError for an invalid one.
    """
    match = _LENGTH.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise FilterError(
            f"{name}: {text[:40]!r} is not a duration; expected a number of hours, days or "
            "weeks, such as 12w"
        )
    return int(match[1]) * _UNITS_US[match[2]]


def _read_moment(name: str, text: str, now_us: int, *, ends: bool) -> int:
    text = text.strip()
    if _LENGTH.fullmatch(text):
        return now_us - read_length(name, text)
    if text == "today":
        return now_us // DAY_US * DAY_US + (DAY_US if ends else 0)
    try:
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        raise FilterError(f"{name}: {text[:40]!r} is not a time; expected {_EXPECTED}") from None
    moment = moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment
    time_us = (moment - _EPOCH) // timedelta(microseconds=1)
    return time_us + DAY_US if ends and _DAY.fullmatch(text) else time_us


INCIDENT_COUNT = 1_000
# Rows per list in a report for people; JSON, CSV and Parquet have all.
REPORT_ROWS = {
    "moved": 50,
    "runs": 200,
    "failures": 200,
    "commits": 200,
    "incidents": 100,
    "changes": 50,
}
_MAX_BEFORE = 40  # runs before the period, or at its start, that may be the base


@dataclass(frozen=True)
class SuiteHeadline:
    base: float | None
    new: float | None
    delta: SummaryDelta


@dataclass(frozen=True)
class SuiteCommit:
    run: TrendRun  # its first run
    run_count: int


@dataclass(frozen=True)
class SuiteScreen:
    """A suite over a period; `base` and the comparison are None if no other run has a model of
    `new`.

    `summaries` (newest first) and `runs` (oldest first) are those of the period, preceded in time
    by `base` if it is older.
    """

    period: Period
    chosen: ModelSet
    others: tuple[ModelSet, ...]
    branch: str | None
    definition: SuiteDefinition
    summaries: tuple[StoredSummary, ...]
    runs: tuple[TrendRun, ...]
    axis: Axis
    base: StoredSummary | None
    new: StoredSummary
    headlines: tuple[SuiteHeadline, ...]
    comparison: Comparison | None
    failures: tuple[ModelFailure, ...]
    commits: tuple[SuiteCommit, ...]
    incidents: tuple[Incident, ...]
    changes: tuple[SeriesChange, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.chosen.suite}: {label_fields(self.chosen.fields)}"

    @property
    def is_base_before(self) -> bool:
        return self.base is not None and self.base.started_us < self.period.since_us

    @property
    def run_count(self) -> int:
        return len(self.runs) - self.is_base_before

    @cached_property
    def verdict(self) -> PageVerdict:
        active = [
            incident
            for incident in self.incidents
            if incident.state in ("open", "unconfirmed") and incident.direction == "worse"
        ]
        return decide_verdict(
            VerdictFacts(
                incidents=sorted(active, key=lambda incident: incident.severity),
                failing=[failure.row.model for failure in self.failures if failure.new is not None],
                model_count=self.new.total_count,
                run_count=self.run_count,
                newest_us=self.new.started_us,
                now_us=self.new.started_us,
            )
        )

    def find_run(self, run_id: str) -> TrendRun:
        return next(run for run in self.runs if run.id == run_id)


def build_suite(
    store: Store,
    asked: TrendFilter,
    period: Period,
    clock: RecorderClock,
    definition: str | None = None,
) -> SuiteScreen:
    """Build a suite's page for a period, for the selected configuration that was measured last."""
    during = replace(asked, since_us=period.since_us, until_us=period.until_us)
    engine = store.engine
    chosen, others = _choose_configuration(engine, asked, during, period)
    summed = summarize_runs(engine, during.narrow(chosen), definition, clock)
    assert summed is not None  # _choose_configuration found a run of it in the period
    formula, within, new = summed.definition, summed.summaries, summed.newest
    timed = list_timed_runs(engine, asked.narrow(chosen))
    rows = _read_rows(store, new, chosen)
    before = list_summaries(
        engine, replace(asked, until_us=period.since_us).narrow(chosen), formula.name, _MAX_BEFORE
    )
    base, base_rows = _find_base(
        store,
        [summary for summary in (*before, *_find_older(within, new)) if summary.run_id in timed],
        rows,
        chosen,
    )
    comparison = _compare_runs(store, clock, base, new, chosen) if base else None
    summaries = [*within, base] if base in before and base is not None else within
    run_ids = [summary.run_id for summary in summaries]
    runs = list_trend_runs(engine, run_ids, alive_since_us=clock.alive_since_us)
    axis = build_axis(runs, "date")
    incidents, changes = _list_incidents(store.board, chosen, asked.branch, period)
    return SuiteScreen(
        period=period,
        chosen=chosen,
        others=tuple(others),
        branch=asked.branch,
        definition=formula,
        summaries=tuple(summaries),
        runs=tuple(runs),
        axis=axis,
        base=base,
        new=new,
        headlines=_compare_headlines(base, new, base_rows, rows, formula, comparison),
        comparison=comparison,
        failures=tuple(list_failures(base_rows, rows)),
        commits=tuple(_list_commits(runs, period)),
        incidents=incidents,
        changes=changes,
        notes=tuple(_list_notes(axis, chosen, others, len(within))),
    )


def _read_rows(store: Store, of: StoredSummary, chosen: ModelSet) -> list[ResultRow]:
    return filter_set(cached_for_run(store.open_run(of.run_id), of.run_id, list_results), chosen)


def _find_base(
    store: Store, offered: Iterable[StoredSummary], rows: Sequence[ResultRow], chosen: ModelSet
) -> tuple[StoredSummary | None, list[ResultRow]]:
    models = {row.model for row in rows}
    for summary in offered:
        base_rows = _read_rows(store, summary, chosen)
        if any(row.model in models for row in base_rows):
            return summary, base_rows
    return None, []


def _find_older(within: Sequence[StoredSummary], new: StoredSummary) -> list[StoredSummary]:
    return [summary for summary in reversed(within) if summary.started_us < new.started_us][
        :_MAX_BEFORE
    ]


def _choose_configuration(
    engine: Engine, selection: TrendFilter, during: TrendFilter, period: Period
) -> tuple[ModelSet, list[ModelSet]]:
    sets = list_sets(engine)
    suites = list(dict.fromkeys(model_set.suite for model_set in sets))
    if selection.suite not in suites:
        known = (
            ", ".join(repr(suite) for suite in suites[:20])
            or "none yet; `compileboard-collect bench` measures one"
        )
        raise FilterError(
            f"suite: there is no suite {(selection.suite or '')[:80]!r} in this database; "
            f"known: {known}"
        )
    fitting = [model_set for model_set in sets if selection.includes(model_set)]
    if not fitting:
        own = [
            label_fields(model_set.fields)
            for model_set in sets
            if model_set.suite == selection.suite
        ]
        raise FilterError(
            f"suite: {selection.suite!r} was never measured like this; it was as "
            f"{'; '.join(own[:20])}"
        )
    measured = {
        tuple(summary.set.fields.values()) for summary in list_summaries(engine, during, "hud")
    }
    present = [model_set for model_set in fitting if tuple(model_set.fields.values()) in measured]
    if not present:
        raise FilterError(_format_empty(engine, selection, period))
    return present[0], present[1:]


def _format_empty(engine: Engine, selection: TrendFilter, period: Period) -> str:
    on = f" on branch {selection.branch!r}" if selection.branch else ""
    runs = list_summaries(engine, selection, "hud")
    if not runs:
        return f"branch: no run of suite {selection.suite!r} is{on}"
    between = (
        f"its runs{on} are of {format_time(runs[-1].started_us)[:10]} to "
        f"{format_time(runs[0].started_us)[:10]}"
    )
    return f"since: suite {selection.suite!r} has no run{on} from {period.text} (UTC); {between}"


def _compare_headlines(
    base: StoredSummary | None,
    new: StoredSummary,
    before: Sequence[ResultRow],
    after: Sequence[ResultRow],
    definition: SuiteDefinition,
    comparison: Comparison | None,
) -> tuple[SuiteHeadline, ...]:
    verdicts = (
        {total.metric.name: total.verdicts for total in comparison.sums} if comparison else None
    )
    deltas = compare_headlines(before, after, definition, verdicts)
    return tuple(
        SuiteHeadline(
            getattr(base, delta.metric.name, None), getattr(new, delta.metric.name), delta
        )
        for delta in deltas
    )


def _compare_runs(
    store: Store,
    clock: RecorderClock,
    base: StoredSummary,
    new: StoredSummary,
    chosen: ModelSet,
) -> Comparison:
    sides = [
        load_side(store, clock, find_side(store.board, store.engine, clock, summary.run_id, name))
        for name, summary in (("base", base), ("new", new))
    ]
    return compare(_filter_to_set(sides[0], chosen), _filter_to_set(sides[1], chosen))


def _filter_to_set(side: ComparedSide, chosen: ModelSet) -> ComparedSide:
    entries = tuple(
        entry
        for entry in side.entries
        if all(entry.series.get(name) == value for name, value in chosen.fields.items())
    )
    keys = {entry.key for entry in entries}
    return side.choose(entries, lambda item: item.model is None or item.model in keys)


def _list_commits(runs: Iterable[TrendRun], period: Period) -> list[SuiteCommit]:
    runs_by_commit: dict[str, list[TrendRun]] = {}
    for run in runs:
        if run.git_commit:
            runs_by_commit.setdefault(run.git_commit, []).append(run)
    return [
        SuiteCommit(of[0], len(of))
        for of in runs_by_commit.values()
        if of[0].started_us >= period.since_us
    ]


def _list_incidents(
    reader: sqlite3.Connection, chosen: ModelSet, branch: str | None, period: Period
) -> tuple[tuple[Incident, ...], tuple[SeriesChange, ...]]:
    selection = IncidentFilter(
        suite=chosen.suite,
        branch=branch,
        since_us=period.since_us,
        before_us=period.until_us,
        status=NOT_IGNORED,
    )
    listed = list_incidents(reader, selection, limit=INCIDENT_COUNT).rows
    incidents = [incident for incident in listed if incident.state != "withdrawn"]
    changes = [
        change
        for change in list_changes_of(reader, [incident.id for incident in incidents])
        if change.state != "withdrawn"
        and (change.subject == "runs" or change.has_fields(chosen.fields))
    ]
    own = {change.incident_id for change in changes}
    return tuple(incident for incident in incidents if incident.id in own), tuple(changes)


def _list_notes(
    axis: Axis, chosen: ModelSet, others: Sequence[ModelSet], count: int
) -> Iterable[str]:
    yield from axis.notes
    if count == MAX_RUNS:
        yield f"the period has more runs than {MAX_RUNS}: these are the newest"
    if others:
        differing = [
            name
            for name in SET[1:]
            if any(getattr(model_set, name) != getattr(chosen, name) for model_set in others)
        ]
        options = ", ".join(name.replace("_", " ") for name in differing)
        ways = "; ".join(label_fields(model_set.fields) for model_set in others[:8]) + (
            "; …" if len(others) > 8 else ""
        )
        yield (
            f"the suite was measured in {format_plural(len(others), 'other configuration')} in "
            f"this period ({ways}). "
            f"Shown is the newest; name the {options} to choose another"
        )


Row = dict[str, Any]
# Column types other than text: int, float, bool, or time in µs since the epoch.
Types = Mapping[str, str]
_RUN = tuple(name for name in TrendRun.__dataclass_fields__ if name != "id")
_CHANGE = tuple(name for name in SeriesChange.__dataclass_fields__ if name != "evidence")
_INCIDENT = (
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
    "measured_as",
    "first_us",
    "recovered_us",
    "found_us",
    "confirmed_us",
    "noticed_us",
    "changed_us",
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


def _list_failures(suite: SuiteScreen) -> Iterator[Row]:
    for failure in suite.failures:
        yield {name: getattr(failure.row, name) for name in SERIES} | {
            "word": failure.word,
            "base": failure.base,
            "new": failure.new,
        }


def _list_distinct(name: str, suite: SuiteScreen) -> Iterable[Row]:
    return map(get_row, getattr(suite.comparison, name).changes if suite.comparison else ())


def _list_environment(suite: SuiteScreen) -> Iterator[Row]:
    for change in suite.axis.changes:
        for what, before, now in change.parts:
            started = {"run_id": change.run.id, "started_us": change.run.started_us}
            yield started | {"what": what, "before": before, "now": now}


def _list_commit_rows(suite: SuiteScreen) -> Iterator[Row]:
    for commit in suite.commits:
        yield {
            "hash": commit.run.git_commit,
            "subject": commit.run.git_subject,
            "branch": commit.run.git_branch,
            "first_run_id": commit.run.id,
            "first_us": commit.run.started_us,
            "run_count": commit.run_count,
        }


def _list_incident_rows(suite: SuiteScreen) -> Iterator[Row]:
    for incident in suite.incidents:
        runs = {
            f"{name}_run_id": getattr(getattr(incident, name), "run_id", None)
            for name in _INCIDENT_RUNS
        }
        cause = {"cause": incident.cause.text if incident.cause else None}
        yield {name: getattr(incident, name) for name in _INCIDENT} | runs | cause


def _list_changes(suite: SuiteScreen) -> Iterator[Row]:
    for change in suite.changes:
        yield {"sentence": change.sentence} | {name: getattr(change, name) for name in _CHANGE}


_DISTINCT_TABLES = {
    "graph_breaks": "breaks",
    "recompile_causes": "causes",
    "rerecording_reasons": "rerecordings",
}
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
_COUNTED = {"line": "int", "base_count": "int", "new_count": "int"}
_SHARES = ("base", "new", "change", "p_value", "ratio_low", "ratio_high")
SUITE_TABLES: dict[str, SuiteTable] = {
    "runs": SuiteTable(
        ("run_id", "side", "is_in_period", *_RUN, "definition", "pass_ratio", *NUMBERS),
        {**list_types("runs", "run_summaries"), "is_in_period": "bool", "pass_ratio": "float"},
        _list_runs,
    ),
    "headlines": SuiteTable(
        (
            "metric",
            "label",
            "unit",
            "direction",
            "definition",
            "base_run_id",
            "new_run_id",
            "base",
            "new",
            "common_model_count",
            "common_base",
            "common_new",
            "verdict",
        ),
        {
            "common_model_count": "int",
            **dict.fromkeys(("base", "new", "common_base", "common_new"), "float"),
        },
        _list_headlines,
    ),
    "models": SuiteTable(
        COMPARED_COLUMNS,
        {**_SERIES_TYPES, **dict.fromkeys(_SHARES, "float")},
        lambda suite: list_lines(suite.comparison) if suite.comparison else (),
    ),
    "failures": SuiteTable((*SERIES, "word", "base", "new"), _SERIES_TYPES, _list_failures),
    **{
        table: SuiteTable(_DISTINCT, _COUNTED, partial(_list_distinct, name))
        for table, name in _DISTINCT_TABLES.items()
    },
    "environment": SuiteTable(
        ("run_id", "started_us", "what", "before", "now"),
        {"started_us": "moment"},
        _list_environment,
    ),
    "commits": SuiteTable(
        ("hash", "subject", "branch", "first_run_id", "first_us", "run_count"),
        {"first_us": "moment", "run_count": "int"},
        _list_commit_rows,
    ),
    "incidents": SuiteTable(
        (*_INCIDENT, *(f"{name}_run_id" for name in _INCIDENT_RUNS), "cause"),
        list_types("incidents"),
        _list_incident_rows,
    ),
    "changes": SuiteTable(
        ("sentence", *_CHANGE),
        list_types("series_changes"),
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
            table: getattr(compared, name).not_compared
            if compared
            else "no other run measured one of these models"
            for table, name in _DISTINCT_TABLES.items()
        },
    } | {name: list(table.list(suite)) for name, table in SUITE_TABLES.items()}
