"""The two sides of a check: a run, a stored baseline or files, with their open incidents."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from compileboard.app.benchmarks.run_queries import list_measured
from compileboard.app.checks.model import CannotCompare, OpenIncident, RuleInput, Side
from compileboard.app.checks.pairing import (
    FIELDS,
    TIE_BREAKERS,
    merge_distinct,
    name_configuration,
)
from compileboard.app.comparison import queries as comparison
from compileboard.app.comparison.baselines import get_baseline, load_baseline
from compileboard.app.comparison.model import ModelResult, format_names, make_result, read_accuracy
from compileboard.app.comparison.queries import choose_samples, load_repeats
from compileboard.app.comparison.sides import find_run, find_word, format_baseline_names
from compileboard.app.core.format import format_plural
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.store import Store
from compileboard.app.incidents.model import SeriesChange
from compileboard.app.incidents.queries import (
    ACTIVE,
    IncidentFilter,
    get_detection,
    list_changes_of,
    list_incidents,
)
from compileboard.app.runs.rows import RunRow
from compileboard.collectors.contract.result_columns import STORED
from compileboard.collectors.store.results import ExperimentResult, ResultRow, merge_with_parts

PREFIX = "baseline:"
MOST = 1000  # Results of one suite.


def load_expected(store: Store, clock: RecorderClock, text: str, run: RunRow | None) -> Side:
    """Load the side to compare a run with: `latest`, `previous`, a stored baseline, a run or a
    commit.

    Raises FilterError unless exactly one matches.
    """
    if text in ("latest", "previous"):
        if run is None:
            raise CannotCompare(
                f"`{text}` needs a run of the database, but a CSV is being checked: "
                "name its baseline"
            )
        return load_run(store, clock, find_word(store.engine, clock, text, run))
    name = text.removeprefix(PREFIX)
    stored = get_baseline(store.board, name)
    if stored is not None:
        return load_baseline(stored.body, f"baseline {stored.name}")
    if text.startswith(PREFIX):
        raise CannotCompare(
            f"there is no stored baseline {name[:80]!r}; "
            f"known: {format_baseline_names(store.board)}; "
            "`compileboard baseline save` keeps one"
        )
    other = find_run(store.board, store.engine, clock, text, run)
    if other is None:
        raise CannotCompare(
            f"{text[:80]!r} is not a run, commit or stored baseline of this database, nor a file "
            "that ends in .csv; "
            "`compileboard-collect list` lists the runs, `compileboard baseline list` the baselines"
        )
    return load_run(store, clock, other)


def load_incidents(
    reader: sqlite3.Connection, run: RunRow, rows: Sequence[RuleInput]
) -> tuple[OpenIncident, ...] | None:
    """List the open, unacknowledged incidents of a run's series; None if detection has not run
    since it ended.
    """
    detection = get_detection(reader)
    if detection is None or detection.finished_us < (run.ended_us or run.started_us):
        return None
    incidents: list[OpenIncident] = []
    for suite in sorted({str(row.series.get("suite") or "") for row in rows}):
        selection = IncidentFilter(state=ACTIVE, status="open", direction="worse", suite=suite)
        stored = {
            incident.id: incident for incident in list_incidents(reader, selection, limit=MOST).rows
        }
        keys: dict[str, dict[str, None]] = {}
        for change in list_changes_of(reader, stored):
            if (
                change.direction == "worse"
                and change.state != "withdrawn"
                and not change.recovered_run_id
            ):
                keys.setdefault(str(change.incident_id), {}).update(
                    dict.fromkeys(_find_keys(change, run, rows))
                )
        incidents += [OpenIncident(tuple(own), stored[id_]) for id_, own in keys.items() if own]
    return tuple(incidents)


def _find_keys(change: SeriesChange, run: RunRow, rows: Iterable[RuleInput]) -> tuple[str, ...]:
    if change.first_us > run.started_us or (
        change.branch and run.git_branch and change.branch != run.git_branch
    ):
        return ()
    alike = [row for row in rows if all(_matches_change(row, name, change) for name in FIELDS)]
    if change.subject == "model" and change.kind != "vanished":
        alike = [
            row
            for row in alike
            if row.name == change.model
            and all(_matches_change(row, name, change) for name in TIE_BREAKERS)
        ]
    return tuple(row.key for row in alike)


def _matches_change(row: RuleInput, name: str, change: SeriesChange) -> bool:
    ours, theirs = row.series.get(name) or None, getattr(change, name) or None
    return ours is None or theirs is None or ours == theirs


# Experiments that check accuracy count too: upstream's counters come from the accuracy file.
_NUMBERS = (
    *(
        "speedup",
        "speedup_low",
        "speedup_high",
        "abs_latency_ms",
        "eager_latency_ms",
        "compilation_latency_s",
    ),
    *("compression_ratio", "eager_peak_mem_gb", "dynamo_peak_mem_gb"),
    *("export_latency_s", "load_latency_s", "second_process_latency_s", "package_bytes"),
    *("scaling_efficiency", "quantized_error"),
)
_COUNTS = (
    "graph_breaks",
    "calls_captured",
    "unique_graphs",
    "unique_graph_breaks",
    "fallbacks_to_eager",
    "recompiles",
)
_JUDGE = "accuracy"
_EXPECTED = "expected_"  # experiments expected by a file, not measured


def load_run(store: Store, clock: RecorderClock, run: RunRow) -> Side:
    reader = store.open_run(run.id)
    repeats = load_repeats(reader, [run.id])
    counts = comparison.list_instruction_counts(reader, run.id)
    expected = comparison.list_expected(reader, run.id)
    rows: list[RuleInput] = []
    results: list[ModelResult] = []
    tasks: dict[str, str] = {}
    for merged, parts in merge_with_parts(list_measured(reader, run.id)):
        row = _make_row(_fill_in_gpu_name(merged, run), parts, counts, expected)
        samples = choose_samples(parts, repeats)
        rows.append(replace(row, repeats=samples))
        results.append(make_result(merged, parts[0], samples))
        tasks |= dict.fromkeys(merged.tasks, row.key)
    distinct = {
        name: merge_distinct(
            replace(item, model=tasks.get(task or ""))
            for task, item in comparison.list_task_distinct(reader, sql, run.id)
        )
        for name, sql in comparison.DISTINCT.items()
    }
    was_observed = bool(comparison.count_observed(reader, run.id))
    return Side(
        title=f"run {run.id}"
        + (" (still running)" if clock.is_running(run.state, run.heartbeat_us) else ""),
        rows=tuple(rows),
        **comparison.drop_unrecorded(distinct, was_observed, bool(run.cudagraph_recording_count)),
        environment=_name_hardware(rows)
        | ({"torch": run.torch_version} if run.torch_version else {}),
        results=tuple(results),
        incidents=load_incidents(store.board, run, rows),
        name=run.shown_name,
        commit=(run.git_commit or "")[:7],
        failure=_describe_failure(run),
    )


def _describe_failure(run: RunRow) -> str:
    if run.signal:
        return f"was ended by {run.signal}"
    return f"ended with exit code {run.exit_code}" if run.exit_code else ""


def _fill_in_gpu_name(merged: ResultRow, run: RunRow) -> ResultRow:
    is_unnamed = merged.device == "cuda" and not merged.hardware and run.gpu_name
    return replace(merged, hardware=run.gpu_name) if is_unnamed else merged


def _name_hardware(rows: Iterable[RuleInput]) -> dict[str, str]:
    names = [
        row.series.get("hardware") or ("CPU" if row.series.get("device") == "cpu" else None)
        for row in rows
    ]
    return (
        {"hardware": ", ".join(sorted(map(str, set(names))))} if names and None not in names else {}
    )


def _make_row(
    merged: ResultRow,
    parts: Iterable[ExperimentResult],
    counts: Mapping[int, Mapping[str, float]],
    expected: Mapping[int, Mapping[str, Any]],
) -> RuleInput:
    results = tuple(parts)
    series = {name: getattr(merged, name) for name in (*FIELDS, *TIE_BREAKERS)}
    key = name_configuration(merged.model, series)
    if all(
        result.experiment.startswith(_EXPECTED) for result in results
    ):  # as `read_table` reads the file
        return RuleInput(
            merged.model,
            {name: value for part in results for name, value in expected[part.id].items()},
            series,
            key,
        )
    judge = next((result for result in results if result.experiment == _JUDGE), None)
    # Only of the leading experiment: a wrong answer is up to the accuracy rule.
    cells: dict[str, Any] = {"status": results[0].status, "reason": results[0].reason}
    cells |= {STORED[name].upstream: getattr(merged, name) for name in _NUMBERS}
    for name in _COUNTS:
        of_judge = None if judge is None else getattr(judge, name)
        cells[name] = getattr(merged, name) if of_judge is None else of_judge
    cells["accuracy"] = read_accuracy(merged)
    if judge is None:
        cells["ran"] = "pass" if merged.status == "measured" else merged.reason or merged.status
    for part in results:
        cells |= {} if part.experiment.startswith(_EXPECTED) else counts.get(part.id, {})
    return RuleInput(
        merged.model, {name: cell for name, cell in cells.items() if cell is not None}, series, key
    )


def select_results(side: Side, choices: Mapping[str, Any], models: Iterable[str]) -> Side:
    """Return the side with the chosen rows only. Rows of a bare CSV have no fields and always
    match.

    Raises CannotCompare if no row is left.
    """
    names = set(models)
    rows = [
        row
        for row in side.rows
        if not row.series or all(_has_value(row, *item) for item in choices.items())
    ]
    if side.rows and not rows:
        asked = ", ".join(
            f"{name_field(field)} {_format_choice(value)}" for field, value in choices.items()
        )
        there = "; ".join(f"{name_field(field)} {_list_values(side, field)}" for field in choices)
        raise CannotCompare(
            f"{asked} leaves none of {side.title}'s {format_plural(len(side.rows), 'result')}; "
            f"they have {there}"
        )
    chosen = tuple(row for row in rows if not names or row.name in names)
    if len(chosen) == len(side.rows):
        return side
    others = {name: value for name, value in side.environment.items() if name != "hardware"}
    keys = {row.key for row in chosen}
    results = tuple(result for row, result in zip(side.rows, side.results) if row.key in keys)
    return replace(side, rows=chosen, results=results, environment=_name_hardware(chosen) | others)


def select_from_both(
    actual: Side, expected: Side | None, choices: Mapping[str, Any], models: Iterable[str]
) -> tuple[Side, Side | None, list[str]]:
    """Select from both sides; also return warnings about the selection.

    Raises CannotCompare if nothing is left, or a model is on neither side.
    """
    names = list(models)
    sides = [select_results(side, choices, ()) for side in (actual, expected) if side is not None]
    known = set[str]().union(*(side.names() for side in sides))
    for name in names:
        if name not in known:
            titles = " nor ".join(dict.fromkeys(side.title for side in sides))
            some = format_names(sorted(known), 5)
            raise CannotCompare(
                f"there is no model {name[:80]!r} in {titles}; there are {some or 'none'}"
            )
    fields = ", ".join(map(name_field, choices))
    notes = [
        f"{side.title} says no {fields}: all of its rows are compared"
        for side in sides
        if choices and side.rows and not any(row.series for row in side.rows)
    ]
    chosen = [select_results(side, {}, names) for side in sides]
    return chosen[0], chosen[1] if expected is not None else None, notes


def name_field(field: str) -> str:
    return field.replace("_", " ")


def _has_value(row: RuleInput, field: str, value: Any) -> bool:
    own = row.series.get(field)
    return bool(own) == value if isinstance(value, bool) else str(own) == str(value)


def _format_choice(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)[:80]


def _list_values(side: Side, field: str) -> str:
    values = {row.series.get(field) for row in side.rows}
    words = {
        _format_choice(bool(value))
        if field == "dynamic"
        else "unknown"
        if value is None
        else str(value)
        for value in values
    }
    return ", ".join(sorted(words)[:5])
