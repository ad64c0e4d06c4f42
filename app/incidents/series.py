"""Read the series for detection as arrays: models, suites and observed runs, in order of
commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from compileboard.app.benchmarks.commit_order import Parents, order_commits
from compileboard.app.benchmarks.metrics import (
    BY_NAME,
    METRICS,
    PASSES,
    RUN_METRICS,
    SUMMARY_BY_NAME,
    SUMMARY_METRICS,
    Metric,
)
from compileboard.app.benchmarks.series_queries import (
    ModelPoints,
    SeriesRun,
    list_model_points,
    list_run_points,
    list_suite_points,
)
from compileboard.app.benchmarks.trend_queries import find_usual_count, is_incomplete
from compileboard.app.core.engine import Engine
from compileboard.app.core.run_cache import cached_ancestry
from compileboard.app.incidents.change_points import Floats
from compileboard.app.incidents.model import judge_pass
from compileboard.collectors.contract.verdicts import MEMORIES, SPEEDS, is_wrong_answer
from compileboard.collectors.store.incident_triage import SERIES
from compileboard.collectors.store.results import TIMING
from compileboard.collectors.store.rollups import HUD, SET, SUMMARIZE_PERF


def rank_runs(engine: Engine, runs: Sequence[SeriesRun]) -> Mapping[str, int]:
    """Return the rank of each run in its branch; an older commit that is measured later keeps its
    place.
    """
    commits = {run.commit for run in runs if run.commit}
    parents = cached_ancestry(engine, sorted(commits))
    branches: dict[str, list[SeriesRun]] = {}
    for run in runs:
        branches.setdefault(run.branch, []).append(run)
    return {
        run.id: rank
        for members in branches.values()
        for rank, run in enumerate(_sort_branch(members, parents))
    }


def _sort_branch(runs: Sequence[SeriesRun], parents: Parents) -> Sequence[SeriesRun]:
    seen: dict[str, int] = {}
    for run in runs:
        if not run.commit or run.commit not in parents:
            return runs
        seen.setdefault(run.commit, run.started_us)
    order = order_commits(seen, parents)
    if order.unknown or order.histories > 1:
        return runs
    return sorted(runs, key=lambda run: (order.positions[run.commit or ""], run.started_us, run.id))


SeriesKey = tuple[Any, ...]
Row = TypeVar("Row")
PASS_RATIO = SUMMARY_BY_NAME["pass_ratio"]
MIN_POINTS = 5
_NUMBERS = tuple(metric.name for metric in METRICS)
_MEASURED = np.array(
    [metric.kind == "value" for metric in METRICS]
)  # it does not show wrong answers
_INTERVAL_TO_ERROR = 2 * 1.96  # standard errors in a 95% interval of a normal distribution
_USUAL_SHARE = 0.8  # A run with a smaller share of its suite's usual models does not count.
_FEW_MODELS = 3
_CUT = frozenset({"killed", "interrupted", "failed"})
# What summarize_perf has instead of the HUD's numbers without accuracy checks; the counts are the
# same.
_WITHOUT_ACCURACY = tuple(metric.name for metric in SUMMARY_METRICS if metric.name != "pass_ratio")
_EMPTY_KEY: dict[str, Any] = dict.fromkeys(SERIES, "") | {
    "dynamic": 0,
    "batch_size": 0,
    "world_size": 0,
}


@dataclass(frozen=True)
class MeasuredRuns:
    """The runs of one branch that measured a series or a suite, the oldest first."""

    subject: str
    configuration: Mapping[str, Any]
    metric: Metric
    runs: Sequence[SeriesRun]

    @property
    def branch(self) -> str:
        return self.runs[0].branch

    @property
    def run_ids(self) -> list[str]:
        return [run.id for run in self.runs]

    @property
    def key(self) -> SeriesKey:
        return (
            self.subject,
            *(self.configuration[name] for name in SERIES),
            self.branch,
            self.metric.name,
        )

    @property
    def suite_key(self) -> SeriesKey:
        return (*(self.configuration[name] for name in SET), self.branch)


@dataclass(frozen=True)
class Series(MeasuredRuns):
    """Values of one metric over the runs of a branch; NaN where a run has no measurement.

    For a speed or peak memory, `beside` holds the related metrics of the same runs, which show
    whether a change comes from eager mode.
    """

    values: Floats
    errors: Floats | None = None
    beside: Mapping[str, Floats] = field(default_factory=dict)


class RunOrder:
    def __init__(self, runs: Iterable[SeriesRun], ranks: Mapping[str, int]) -> None:
        self.runs = {run.id: run for run in runs if run.state != "running"}
        self.ranks = {run_id: ranks[run_id] for run_id in self.runs}
        self.counts = Counter(run.branch for run in self.runs.values())

    def sort(self, run_ids: Iterable[str]) -> list[SeriesRun]:
        return [self.runs[run_id] for run_id in sorted(run_ids, key=self.ranks.__getitem__)]

    def split(
        self, rows: Iterable[Row], get_run_id: Callable[[Row], str]
    ) -> Iterator[tuple[list[SeriesRun], list[Row]]]:
        """Yield the ended runs of each branch, oldest first, with their rows."""
        of_branch: dict[str, list[tuple[SeriesRun, Row]]] = {}
        for row in rows:
            run = self.runs.get(get_run_id(row))
            if run is not None:
                of_branch.setdefault(run.branch, []).append((run, row))
        for pairs in of_branch.values():
            pairs.sort(key=lambda pair: self.ranks[pair[0].id])
            yield [run for run, _row in pairs], [row for _run, row in pairs]


def read_model_series(
    engine: Engine,
    order: RunOrder,
    series_ids: Sequence[int] | None = None,
    run_ids: Sequence[str] | None = None,
) -> Iterator[tuple[int, list[Series], list[MeasuredRuns]]]:
    for points in list_model_points(engine, _NUMBERS, series_ids, run_ids):
        passes = _judge(points)
        yield (
            points.series_id,
            _make_model_series(points, passes, order),
            [
                MeasuredRuns("model", points.key, PASSES, runs)
                for runs, _ids in order.split(passes, str)
            ],
        )


def _make_model_series(
    points: ModelPoints, passes: Mapping[str, float], order: RunOrder
) -> list[Series]:
    series = []
    wrong = {run_id for run_id, _status, accuracy in points.statuses if is_wrong_answer(accuracy)}
    for runs, rows in order.split(points.rows, itemgetter(1)):
        judged = np.array([passes.get(run.id, np.nan) for run in runs])
        series.append(Series("model", points.key, PASSES, runs, judged))
        if len(runs) < MIN_POINTS:
            continue
        numbers: Floats = np.array([row[2:] for row in rows], dtype=np.float64)
        errors = (numbers[:, 1] - numbers[:, 0]) / _INTERVAL_TO_ERROR
        columns = numbers[:, 2:]
        if points.experiment not in TIMING:  # in an accuracy file this column means something else
            columns[:, _NUMBERS.index("compilation_latency_s")] = np.nan
        columns[np.array([run.id in wrong for run in runs])[:, None] & _MEASURED] = np.nan
        beside = [
            {name: columns[:, _NUMBERS.index(name)] for name in names}
            for names in (SPEEDS, MEMORIES)
        ]
        for metric, values in zip(METRICS, columns.T):
            if np.count_nonzero(np.isfinite(values)) >= MIN_POINTS:
                own = errors if metric.low and np.isfinite(errors).any() else None
                others = next((group for group in beside if metric.name in group), {})
                series.append(Series("model", points.key, metric, runs, values, own, others))
    second_process = BY_NAME["second_process_latency_s"]
    for runs, latencies in order.split(points.second_processes, itemgetter(0)):
        values = np.array([latency_s for _run_id, latency_s in latencies], dtype=np.float64)
        if np.count_nonzero(np.isfinite(values)) >= MIN_POINTS:
            series.append(Series("model", points.key, second_process, runs, values))
    return series


def _judge(points: ModelPoints) -> dict[str, float]:
    passes: dict[str, float] = {}
    for run_id, status, accuracy in points.statuses:
        passed = judge_pass(status, accuracy)
        if passed is not None:
            passes[run_id] = min(passes.get(run_id, passed), passed)
    return passes


def find_suite_runs(measured_runs: Iterable[MeasuredRuns]) -> dict[SeriesKey, set[str]]:
    """Return the runs of each suite that measured most of its usual models; other runs do not
    count.
    """
    counts: dict[SeriesKey, Counter[str]] = {}
    for measured in measured_runs:
        counts.setdefault(measured.suite_key, Counter()).update(measured.run_ids)
    suite_runs = {}
    for suite_key, by_run in counts.items():
        usual = float(np.median(list(by_run.values())))
        # With few models, one that stopped already exceeds the share.
        least = min(_USUAL_SHARE * usual, usual - 1 if usual >= _FEW_MODELS else usual)
        suite_runs[suite_key] = {run_id for run_id, count in by_run.items() if count >= least}
    return suite_runs


def merge_suites(measured_runs: Iterable[MeasuredRuns], order: RunOrder) -> list[MeasuredRuns]:
    suites: dict[SeriesKey, set[str]] = {}
    for measured in measured_runs:
        suites.setdefault(measured.suite_key, set()).update(measured.run_ids)
    return [
        MeasuredRuns("suite", _EMPTY_KEY | dict(zip(SET, key)), PASS_RATIO, order.sort(run_ids))
        for key, run_ids in suites.items()
    ]


def read_suite_series(
    engine: Engine, order: RunOrder, suites: Sequence[str] | None = None
) -> Iterator[Series]:
    """Yield each suite's series by the HUD's definition, or by summarize_perf's if the suite has no
    accuracy checks.
    """
    judged: set[SeriesKey] = set()
    for definition, names in ((HUD, None), (SUMMARIZE_PERF, _WITHOUT_ACCURACY)):
        for of_set, summaries in list_suite_points(engine, definition.name, suites):
            suite = tuple(of_set.values())
            known = (
                summary[name]
                for summary in summaries
                for name in ("geomean_speedup", "passed_count")
            )
            if definition is HUD and any(number is not None for number in known):
                judged.add(suite)
            if (definition is HUD) != (suite in judged):
                continue
            configuration = _EMPTY_KEY | of_set
            for runs, rows in order.split(summaries, itemgetter("run_id")):
                usual = float(np.median([row["total_count"] for row in rows]))
                whole = [
                    (run, row)
                    for run, row in zip(runs, rows)
                    if row["total_count"] >= _USUAL_SHARE * usual
                ]
                if len(whole) >= MIN_POINTS:
                    yield from _make_suite_series(configuration, whole, names)


def _make_suite_series(
    configuration: Mapping[str, Any],
    whole: Sequence[tuple[SeriesRun, Mapping[str, Any]]],
    names: Sequence[str] | None,
) -> Iterator[Series]:
    runs, summaries = [run for run, _row in whole], [row for _run, row in whole]
    usual = find_usual_count([summary["measured_count"] for summary in summaries])
    # A mean that lost models is a different mean.
    lacks = [
        summary["measured_count"] < _USUAL_SHARE * usual
        or is_incomplete(summary["measured_count"], summary["failed_count"], usual)
        for summary in summaries
    ]
    for metric in SUMMARY_METRICS:
        if names is not None and metric.name not in names:
            continue
        values = np.array(
            [_get_summary(summary, metric.name) for summary in summaries], dtype=np.float64
        )
        if metric.name != "pass_ratio":
            values[np.array(lacks)] = np.nan
        if np.count_nonzero(np.isfinite(values)) >= MIN_POINTS:
            yield Series("suite", configuration, metric, runs, values)


def _get_summary(summary: Mapping[str, Any], name: str) -> float | None:
    if name == "pass_ratio":
        passed, total = summary["passed_count"], summary["total_count"]
        return None if passed is None or not total else float(passed) / float(total)
    value: float | None = summary[name]
    return value


def read_run_series(
    engine: Engine, order: RunOrder, names: Sequence[str] | None = None
) -> Iterator[Series]:
    for program, totals in list_run_points(engine, names):
        for runs, rows in order.split(totals, itemgetter("id")):
            if len(runs) < MIN_POINTS:
                continue
            # A program that was interrupted did less: its totals are not comparable.
            is_cut = np.array([run.state in _CUT for run in runs])
            for metric in RUN_METRICS:
                values = np.array([row[metric.name] for row in rows], dtype=np.float64)
                values[is_cut] = np.nan
                yield Series("runs", _EMPTY_KEY | program, metric, runs, values)
