"""Compare two runs, commits, branches, torch versions or baselines."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from compileboard.app.benchmarks.queries import filter_newest
from compileboard.app.benchmarks.run_queries import list_measured
from compileboard.app.checks.model import Side
from compileboard.app.checks.sides import load_baseline
from compileboard.app.checks.tables import CannotCompare
from compileboard.app.comparison import queries
from compileboard.app.comparison.baselines import Baseline, list_baselines
from compileboard.app.comparison.differences import compare
from compileboard.app.comparison.model import (
    GROUPS,
    CompareSide,
    Comparison,
    Key,
    ModelResult,
)
from compileboard.app.comparison.pairs import describe_entry, list_shown
from compileboard.app.comparison.queries import DistinctItem, list_function_sums
from compileboard.app.comparison.side_model import (
    drop_programs,
    filter_suite,
    format_timing,
    label_run,
    make_result,
    merge_settings,
    name_side,
    sum_totals,
)
from compileboard.app.comparison.sides import NamedSide, find_default, find_side, name_runs
from compileboard.app.comparison.summary import ComparisonSummary, summarize
from compileboard.app.comparison.table import (
    DEFAULT_ORDER,
    ComparisonHeadline,
    TableSelection,
    choose,
    list_headlines,
)
from compileboard.app.core.engine import Engine
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.page import FilterError
from compileboard.app.core.store import Store, group_runs
from compileboard.app.incidents.queries import list_worst_incidents
from compileboard.app.runs.run_queries import RunDetail
from compileboard.collectors.store.results import ExperimentResult, ResultRow, merge_with_parts

LoadedResult = tuple[ResultRow, tuple[ExperimentResult, ...], ModelResult]


@dataclass(frozen=True)
class ComparisonScreen:
    comparison: Comparison

    @cached_property
    def summary(self) -> ComparisonSummary:
        return summarize(self.comparison)

    @cached_property
    def headlines(self) -> tuple[ComparisonHeadline, ...]:
        return tuple(list_headlines(self.comparison))

    @cached_property
    def parts(self) -> tuple[tuple[str, TableSelection], ...]:
        known = {total.metric.name for total in self.comparison.sums}
        groups = [(key, label) for key, (label, names) in GROUPS.items() if known & set(names)]
        return tuple(
            (label, choose(self.comparison, key, DEFAULT_ORDER, at > 0))
            for at, (key, label) in enumerate(groups)
        )

    @cached_property
    def _shown(self) -> list[str]:
        return list_shown((*self.comparison.base.entries, *self.comparison.new.entries))

    def describe(self, entry: ModelResult) -> str:
        return describe_entry(entry, self._shown)


def build_comparison(
    store: Store,
    clock: RecorderClock,
    base: str,
    new: str,
    *,
    anyway: bool = False,
    suite: str | None = None,
) -> ComparisonScreen:
    """Compare two named sides, `latest` and `previous` included.

    Raises FilterError if a side does not exist or neither has the suite.
    """
    named = name_runs(store.board, store.engine, clock, base, new)
    return ComparisonScreen(read_comparison(store, clock, *named, anyway=anyway, suite=suite))


def build_default_comparison(
    store: Store,
    clock: RecorderClock,
    base: str | None,
    new: str | None,
    *,
    anyway: bool = False,
    suite: str | None = None,
) -> ComparisonScreen | None:
    """Compare like `build_comparison`; a missing side is the newest benchmark, or the one before
    it.

    Returns None if there is nothing to compare with.
    """
    both = find_default(store.board, store.engine, clock, base or None, new or None)
    return (
        build_comparison(store, clock, *both, anyway=anyway, suite=suite or None) if both else None
    )


def read_comparison(
    store: Store,
    clock: RecorderClock,
    base: str,
    new: str,
    *,
    anyway: bool = False,
    suite: str | None = None,
) -> Comparison:
    texts = (("base", base), ("new", new))
    named = [find_side(store.board, store.engine, clock, text, name) for name, text in texts]
    sides, warnings = zip(*(drop_programs(*both) for both in zip(named, named[::-1])))
    before, after = (_load_named(store, clock, side, suite) for side in sides)
    if suite and not (before.entries or after.entries):
        raise FilterError(
            f"suite: neither {base[:80]} nor {new[:80]} has a result of suite {suite[:80]!r}"
        )
    comparison = compare(before, after, anyway)
    return replace(comparison, warnings=(*comparison.warnings, *filter(None, warnings)))


def _load_named(
    store: Store, clock: RecorderClock, named: NamedSide, suite: str | None
) -> CompareSide:
    if not suite:
        return load_side(store, clock, named)
    # The runs that measured the suite; all where none did, of which then nothing is left.
    runs = tuple(
        run
        for run in named.runs
        if any(row.suite == suite for row in _list_measured(store, run.run.id))
    )
    return filter_suite(load_side(store, clock, replace(named, runs=runs or named.runs)), suite)


def load_side(store: Store, clock: RecorderClock, named: NamedSide) -> CompareSide:
    """Raises FilterError if a newer CompileBoard wrote the baseline."""
    return (
        _load_baseline(named.asked, named.baseline)
        if named.baseline
        else _load_runs(store, clock, named)
    )


def _list_measured(store: Store, run_id: str) -> list[ExperimentResult]:
    return list_measured(store.open_run(run_id), run_id)


def _load_parts(store: Store, run_ids: Sequence[str]) -> list[LoadedResult]:
    merged = merge_with_parts(
        filter_newest(result for run_id in run_ids for result in _list_measured(store, run_id))
    )
    repeats: dict[int, dict[str, list[float]]] = {}
    for reader, ids in group_runs(store, run_ids) if merged else ():
        repeats |= queries.load_repeats(reader, ids)
    return [
        (row, parts, make_result(row, parts[0], queries.choose_samples(parts, repeats)))
        for row, parts in merged
    ]


def _load_runs(store: Store, clock: RecorderClock, named: NamedSide) -> CompareSide:
    ids = [detail.run.id for detail in named.runs]
    loaded = _load_parts(store, ids)
    parts = [(part, result.key) for _row, parts, result in loaded for part in parts]
    tasks = {(part.run_id, part.task): (key, part.experiment) for part, key in parts if part.task}
    observed = any(queries.count_observed(store.board, run_id) for run_id in ids)
    breaks = _load_distinct(store, ids, tasks, queries.BREAKS_SQL)
    causes = _load_distinct(store, ids, tasks, queries.CAUSES_SQL)
    return CompareSide(
        asked=named.asked,
        title=name_side(named),
        runs=tuple(label_run(detail, clock) for detail in named.runs),
        entries=tuple(result for _row, _parts, result in loaded),
        breaks=breaks if breaks or observed else None,
        causes=causes if causes or observed else None,
        functions=tuple(list_function_sums(store.engine, ids)),
        totals=sum_totals(named.runs) if observed else {},
        environment=_load_environment(store, named.runs, [row for row, _parts, _result in loaded]),
        config=merge_settings(_list_changed(store, ids)),
    )


def _list_changed(store: Store, run_ids: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    changed = (
        settings
        for reader, group in group_runs(store, run_ids)
        for settings in queries.list_changed(reader, group)
    )
    return sorted(dict(changed).items(), key=lambda pair: pair[0])


def _load_distinct(
    store: Store, run_ids: Iterable[str], tasks: Mapping[tuple[str, str], tuple[Key, str]], sql: str
) -> tuple[DistinctItem, ...]:
    """`tasks` are the model and the experiment of each run's tasks."""
    return tuple(
        replace(item, model=model, experiment=experiment)
        for run_id in run_ids
        for task, item in queries.list_task_distinct(store.open_run(run_id), sql, run_id)
        for model, experiment in (tasks.get((run_id, task or ""), (None, None)),)
        # Else a newer result stands for what this task measured.
        if task is None or model is not None
    )


def _load_environment(
    store: Store, runs: Sequence[RunDetail], rows: Sequence[ResultRow]
) -> dict[str, tuple[str, ...]]:
    ids = [detail.run.id for detail in runs]
    versions = queries.list_versions(store.board, ids)
    timings = (
        timing
        for reader, group in group_runs(store, ids)
        for timing in queries.list_timing(reader, group)
    )
    drivers = (gpu.get("driver_version") for detail in runs for gpu in detail.gpus)
    values_by_field: dict[str, Iterable[str | None]] = {
        "device": (row.device for row in rows),
        "hardware": [row.hardware for row in rows]
        or [detail.run.gpu_name or "CPU" for detail in runs],
        "torch": versions.torch or [detail.run.torch_version for detail in runs],
        "triton": versions.triton,
        "cuda": versions.cuda or [detail.run.cuda_version for detail in runs],
        "driver": (None if driver is None else str(driver) for driver in drivers),
        "timing": (format_timing(settings) for settings in timings),
        "python": versions.python or [detail.run.python_version for detail in runs],
        "host": (detail.run.host for detail in runs),
    }
    return {
        name: tuple(sorted({value for value in values if value}))
        for name, values in values_by_field.items()
    }


def _load_baseline(asked: str, stored: Baseline) -> CompareSide:
    side = _read_baseline(stored)
    keys = {row.key: result.key for row, result in zip(side.rows, side.results)}
    return CompareSide(
        asked=asked,
        title=side.title,
        entries=side.results,
        breaks=_assign_stored(side.breaks, keys),
        causes=_assign_stored(side.causes, keys),
        environment={
            name: tuple(str(value).split(", ")) for name, value in side.environment.items() if value
        },
    )


def _read_baseline(stored: Baseline) -> Side:
    try:
        return load_baseline(stored.body, f"baseline {stored.name}")
    except CannotCompare as error:
        raise FilterError(str(error)) from None


def _assign_stored(
    items: Iterable[DistinctItem] | None, keys: Mapping[str, Key]
) -> tuple[DistinctItem, ...] | None:
    return (
        None
        if items is None
        else tuple(replace(item, model=keys.get(item.model or "")) for item in items)
    )


MOST_OF_A_KIND = 3


@dataclass(frozen=True)
class ProposedPair:
    kind: str
    base: str
    new: str
    base_title: str
    new_title: str


def list_proposals(
    reader: sqlite3.Connection, engine: Engine, clock: RecorderClock
) -> list[ProposedPair]:
    pairs = {(base, new): kind for kind, base, new in _list_pairs(reader, engine, clock)}
    proposals = []
    for (base, new), kind in pairs.items():
        try:
            sides = [find_side(reader, engine, clock, side, "side") for side in (base, new)]
        except FilterError:  # its run was deleted
            continue
        titles = [
            f"baseline {side.baseline.name}" if side.baseline else name_side(side) for side in sides
        ]
        proposals.append(ProposedPair(kind, base, new, *titles))
    return proposals


def _list_pairs(
    reader: sqlite3.Connection, engine: Engine, clock: RecorderClock
) -> Iterator[tuple[str, str, str]]:
    default = find_default(reader, engine, clock, None, None)
    if default:
        yield "Newest run and the one before", *default
        for baseline in list_baselines(reader, limit=MOST_OF_A_KIND).rows:
            yield (
                f"Newest run and baseline {baseline.name}",
                f"baseline:{baseline.name}",
                default[1],
            )
    for incident in list_worst_incidents(reader, MOST_OF_A_KIND):
        if incident.last_good_run_id:
            title = f"Before and after: {incident.title}"
            yield title, incident.last_good_run_id, incident.first_bad_run_id
