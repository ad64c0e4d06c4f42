"""Summary metrics of a suite, and how they changed between two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from compileboard.app.benchmarks.labels import describe_accuracy, describe_status
from compileboard.app.benchmarks.metrics import MODEL_OF, SUMMARY_METRICS, Metric, format_value
from compileboard.app.benchmarks.trend_queries import (
    MAX_RUNS,
    ModelSet,
    StoredSummary,
    TrendFilter,
    find_newest_summary,
    list_eligible_summaries,
    list_timed_runs,
)
from compileboard.app.comparison.model import MODEL_FIELDS
from compileboard.app.comparison.pairs import match
from compileboard.app.core.engine import Engine
from compileboard.app.core.newest import RecorderClock, list_running_ids
from compileboard.collectors.contract.verdicts import Verdict, decide_overall, find_noise
from compileboard.collectors.store.results import ResultRow
from compileboard.collectors.store.rollups import (
    Number,
    SuiteDefinition,
    count_passed,
    filter_models,
    geomean,
)

# What makes two results comparable; hardware is part of the environment.
_KEY = (*MODEL_FIELDS, "device")
# Differences of shares are in points, of mean counts as they are.
_PLAIN = frozenset({"pass_ratio", "graph_breaks_per_model", "recompiles_per_model"})
_ABSENT = frozenset({"skipped", "not_run"})


@dataclass(frozen=True)
class SummaryDelta:
    """A summary metric of two runs over their common models; None if there are none.

    `noise` is the 95% error of the logarithm of new ÷ base. `latency` is new ÷ base of the compiled
    latency.
    """

    metric: Metric
    base: float | None
    new: float | None
    model_count: int
    noise: float | None = None
    latency: float | None = None
    verdicts: Mapping[str, int] | None = None

    @property
    def text(self) -> str:
        """Format the change: `+2.1%`, `−1.5 points`, `+0.25`; '' if unknown."""
        if self.base is None or self.new is None:
            return ""
        change = self.new - self.base
        if self.metric.name == "pass_ratio":
            return _use_minus_sign(f"{100 * change:.1f} points")
        if self.metric.name in _PLAIN or not self.base:
            return _use_minus_sign(format_value(self.metric, change))
        return _use_minus_sign(f"{100 * change / self.base:.1f}%")

    @property
    def word(self) -> str:
        return self.verdict.label if self.verdict else "not comparable"

    @cached_property
    def verdict(self) -> Verdict[Metric] | None:
        if self.base is None or self.new is None:
            return None
        metric = replace(self.metric, kind="count") if self.metric.name in _PLAIN else self.metric
        return decide_overall(
            metric, self.base, self.new, self.verdicts, self.noise, latency=self.latency
        )


def _use_minus_sign(text: str) -> str:
    plain = text.replace("−", "-")
    if not plain.strip("-+0. ×%points"):
        return "±" + plain.lstrip("-")
    return "+" + text if not plain.startswith("-") else plain.replace("-", "−", 1)


def filter_set(rows: Sequence[ResultRow], of: ModelSet) -> list[ResultRow]:
    wanted = of.fields.items()
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted)]


def format_number(metric: Metric, value: float | None, definition: SuiteDefinition) -> str:
    if value is None:
        return (
            "not checked"
            if metric.name == "pass_ratio" and not definition.has_pass_rate
            else "not measured"
        )
    return format_value(metric, value)


def compare(
    base: Sequence[ResultRow],
    new: Sequence[ResultRow],
    definition: SuiteDefinition,
    verdicts: Mapping[str, Mapping[str, int]] | None = None,
) -> list[SummaryDelta]:
    """Compare both sides over their common models. Pass rates leave out skipped and missing
    results.
    """
    common, _only_base, _only_new = _match_models(filter_models(base), filter_models(new))
    deltas = [_compare_one(metric, common, definition) for metric in SUMMARY_METRICS]
    if verdicts is None:
        return deltas
    return [
        replace(delta, verdicts=verdicts.get(MODEL_OF.get(delta.metric.name, delta.metric.name)))
        for delta in deltas
    ]


def _compare_one(
    metric: Metric, common: Sequence[tuple[ResultRow, ResultRow]], definition: SuiteDefinition
) -> SummaryDelta:
    if metric.name == "pass_ratio":
        there = [pair for pair in common if not {result.status for result in pair} & _ABSENT]
        counts = [count_passed(rows, definition) for rows in _split_pairs(there)]
        base, new = (None if count is None or not there else count / len(there) for count in counts)
        return SummaryDelta(metric, base, new, len(there))
    number = definition.numbers.get(metric.name)
    if number is None:
        return SummaryDelta(metric, None, None, 0)
    pairs = [pair for pair in common if all(number.get(result) is not None for result in pair)]
    base, new = map(number.sum_up, _split_pairs(pairs))
    if metric.name != "geomean_speedup":
        return SummaryDelta(metric, base, new, len(pairs))
    return SummaryDelta(
        metric, base, new, len(pairs), _find_noise(pairs, number), _compare_latency(pairs)
    )


def _compare_latency(pairs: Sequence[tuple[ResultRow, ResultRow]]) -> float | None:
    times = [(base_row.abs_latency_ms, new_row.abs_latency_ms) for base_row, new_row in pairs]
    ratios = [new / base for base, new in times if base and new and min(base, new) > 0]
    return geomean(ratios) if len(ratios) == len(pairs) else None


def _find_noise(pairs: Sequence[tuple[ResultRow, ResultRow]], number: Number) -> float | None:
    rows = list(chain.from_iterable(pairs))
    if any(number.get(row) != row.speedup for row in rows):
        return None
    intervals = ((row.speedup_low, row.speedup_high) for row in rows)
    return find_noise(
        [None if low is None or high is None else (low, high) for low, high in intervals]
    )


def _split_pairs(
    pairs: Sequence[tuple[ResultRow, ResultRow]],
) -> tuple[list[ResultRow], list[ResultRow]]:
    return [base for base, _new in pairs], [new for _base, new in pairs]


def _match_models(
    base: Sequence[ResultRow], new: Sequence[ResultRow]
) -> tuple[list[tuple[ResultRow, ResultRow]], list[ResultRow], list[ResultRow]]:
    (same, more, other_batch), only_base, only_new = match(base, new, _KEY, getattr)
    apart_base, apart_new = _split_pairs(other_batch)
    return [*same, *more], [*only_base, *apart_base], [*only_new, *apart_new]


@dataclass(frozen=True)
class ModelFailure:
    row: ResultRow
    word: str
    base: str | None
    new: str | None


def list_failures(base: Sequence[ResultRow], new: Sequence[ResultRow]) -> list[ModelFailure]:
    both, only_base, only_new = _match_models(base, new)
    pairs = [*both, *((row, None) for row in only_base), *((None, row) for row in only_new)]
    failures = []
    for before, after in pairs:
        was, now = _format_failure(before), _format_failure(after)
        row = after or before
        if row is not None and now is not None:
            failures.append(ModelFailure(row, "still" if was is not None else "new", was, now))
        elif (
            row is not None and was is not None and after is not None and after.status == "measured"
        ):
            failures.append(ModelFailure(row, "resolved", was, None))
    order = ("new", "resolved", "still")
    return sorted(
        failures,
        key=lambda model_failure: (
            order.index(model_failure.word),
            model_failure.row.model.lower(),
            model_failure.row.batch_size or 0,
        ),
    )


def _format_failure(row: ResultRow | None) -> str | None:
    if row is None:
        return None
    if row.status == "failed":
        return describe_status(row).word
    verdict = None if row.accuracy is None else describe_accuracy(row.accuracy)
    return verdict.word if verdict is not None and verdict.kind == "bad" else None


@dataclass(frozen=True)
class SummarizedRuns:
    definition: SuiteDefinition
    summaries: Sequence[StoredSummary]
    newest: StoredSummary
    running: frozenset[str]
    timed: frozenset[str]

    @property
    def newest_summaries(self) -> list[StoredSummary]:
        return [summary for summary in self.summaries if summary.run_id == self.newest.run_id]

    def find_newest_before(self, position: int) -> StoredSummary | None:
        older = [summary for summary in self.summaries[position:] if summary.run_id in self.timed]
        return find_newest_summary(older, self.timed, self.running)


def summarize_runs(
    engine: Engine,
    selected: TrendFilter,
    definition: str | None,
    clock: RecorderClock,
    limit: int = MAX_RUNS,
) -> SummarizedRuns | None:
    by, summaries = list_eligible_summaries(engine, selected, definition, limit)
    running = list_running_ids(engine, clock)
    timed = frozenset(list_timed_runs(engine, selected))
    newest = find_newest_summary(summaries, timed, running)
    return SummarizedRuns(by, summaries, newest, running, timed) if newest else None
