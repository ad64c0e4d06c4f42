"""The axis and the points of trends: over time, commits or versions of torch, with limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from compileboard.app.benchmarks.commit_order import CommitOrder, Parents, order_commits
from compileboard.app.benchmarks.labels import describe_status
from compileboard.app.benchmarks.metrics import (
    BY_NAME,
    MODEL_OF,
    SUMMARY_BY_NAME,
    Metric,
    get_value,
)
from compileboard.app.benchmarks.trend_queries import StoredSummary, TrendRun
from compileboard.app.core.page import FilterError
from compileboard.app.core.schema import PRIVATE
from compileboard.app.reasons.queries import HistoryPoint
from compileboard.collectors.store.results import ResultRow

AXES = (("date", "date"), ("commit", "commit"), ("torch", "torch version"))
Status = Literal["measured", "failed", "skipped", "not_run", "absent"]
# Watched environment fields: label, and field of a run.
ENVIRONMENT = (
    ("GPU", "gpu_name"),
    ("driver", "driver_version"),
    ("torch", "torch_version"),
    ("triton", "triton_version"),
    ("Python", "python_version"),  # even a patch release matters: docs/stack-cliff.md
)
MAX_POINTS = 750
_DAY_US = 86_400_000_000
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class TrendPoint:
    run_id: Annotated[str, "`id` of the run that the point is of."]
    value: Annotated[float | None, "The value; null where none was measured."]
    low: Annotated[float | None, "Lower bound of its 95% interval."] = None
    high: Annotated[float | None, "Upper bound of its 95% interval."] = None
    status: Status = "measured"
    reason: Annotated[str | None, "Reason for a missing value."] = None
    # Remarks on the value.
    note: str | None = field(default=None, metadata=PRIVATE)
    # Drawn as a cross, not as part of the line.
    is_incomplete: Annotated[
        bool, "Whether usually measured models failed: the value is of the others."
    ] = False

    @property
    def drawn(self) -> float | None:
        return None if self.is_incomplete else self.value


@dataclass(frozen=True)
class TrendLine:
    label: str
    points: Sequence[TrendPoint]

    @property
    def has_points(self) -> bool:
        return any(point.value is not None or point.status == "failed" for point in self.points)


def pad(line: TrendLine, run_ids: Sequence[str]) -> TrendLine:
    known = {point.run_id for point in line.points}
    absent = [
        TrendPoint(run_id, None, status="absent", reason="no result")
        for run_id in run_ids
        if run_id not in known
    ]
    return replace(line, points=[*line.points, *absent])


@dataclass(frozen=True)
class EnvironmentChange:
    run: TrendRun
    parts: tuple[tuple[str, str, str], ...]

    @property
    def label(self) -> str:
        return ", ".join(
            now if word == "GPU" else f"{word} {now}" for word, _before, now in self.parts
        )


@dataclass(frozen=True)
class Axis:
    """The runs of all points in order, and the position of each.

    Units: positions are milliseconds since the epoch on an axis of dates, else 0, 1, 2, …
    """

    name: str
    runs: Sequence[TrendRun]
    positions: Sequence[int]
    ticks: Sequence[tuple[int, str]]
    changes: Sequence[EnvironmentChange]
    notes: Sequence[str]


def build_axis(
    runs: Sequence[TrendRun], name: str, max_count: int = MAX_POINTS, parents: Parents | None = None
) -> Axis:
    """Order runs along an axis; too many are reduced to the last of each day, then of each week."""
    known = sorted(runs, key=lambda run: (run.started_us, run.id))
    shown, notes = _drop_unplaced(known, name)
    shown, note = thin_runs(shown, max_count)
    notes += [note] if note else []
    if name == "date":
        return Axis(
            name, shown, [run.started_us // 1000 for run in shown], (), find_changes(shown), notes
        )
    keys: dict[str, Any] = {run.id: version_sort_key(run.torch_version) for run in shown}
    if name == "commit":
        order = _order_commits(shown, parents or {})
        keys = {run.id: order.positions[run.git_commit or ""] for run in shown}
        notes += _format_unknown(shown, order)
    shown = sorted(shown, key=lambda run: (keys[run.id], run.started_us, run.id))
    positions = list(range(len(shown)))
    label_of: Callable[[TrendRun], str] = (
        _short_commit if name == "commit" else lambda run: run.torch_version or ""
    )
    firsts = [
        index
        for index in positions
        if index == 0 or label_of(shown[index]) != label_of(shown[index - 1])
    ]
    ticks = [(index, label_of(shown[index])) for index in firsts[:: max(len(firsts) // 8, 1)]]
    return Axis(name, shown, positions, ticks, find_changes(shown), notes)


def _drop_unplaced(runs: Sequence[TrendRun], name: str) -> tuple[list[TrendRun], list[str]]:
    if name == "date":
        return list(runs), []
    placed = [run for run in runs if (run.git_commit if name == "commit" else run.torch_version)]
    missing = len(runs) - len(placed)
    what = "commit" if name == "commit" else "version of torch"
    return placed, [
        f"{missing} {'run has' if missing == 1 else 'runs have'} no recorded {what}"
    ] if missing else []


def _short_commit(run: TrendRun) -> str:
    return (run.git_commit or "")[:8]


def _order_commits(runs: Sequence[TrendRun], parents: Parents) -> CommitOrder:
    seen_us: dict[str, int] = {}
    for run in runs:
        seen_us.setdefault(run.git_commit or "", run.started_us)
    return order_commits(seen_us, parents)


def _format_unknown(runs: Sequence[TrendRun], order: CommitOrder) -> list[str]:
    notes = []
    count = sum(run.git_commit in order.unknown for run in runs)
    if count:
        whose = (
            "1 run's commit"
            if count == 1
            else f"the commits of {'all' if count == len(runs) else count} runs"
        )
        notes.append(
            f"The history before {whose} is not recorded, so the time of its first run places it; "
            "compileboard-collect commits adds a repository's history"
        )
    if order.histories > 1:
        notes.append(
            f"These runs are of {order.histories} stretches of history, and the commits "
            "between them are not known; "
            "their commits' times say which comes first"
        )
    return notes


def version_sort_key(text: str | None) -> tuple[tuple[int, ...], int, str]:
    """Sort key for versions: 2.9.1 before 2.10.0, and 2.10.0.dev20260101 before 2.10.0."""
    release, _plus, _local = (text or "").partition("+")
    numbers = re.match(r"\d+(?:\.\d+)*", release)
    rest = release[numbers.end() :] if numbers else release
    parts = tuple(int(match) for match in _NUMBER.findall(numbers[0])) if numbers else ()
    while parts and not parts[-1]:
        parts = parts[:-1]
    return parts, 0 if rest else 1, text or ""


def thin_runs(runs: Sequence[TrendRun], max_count: int) -> tuple[list[TrendRun], str | None]:
    """Return at most `max_count` runs, and a sentence about those left out, or None if none are.

    Of more runs, the last of each day is kept, else the last of each week.
    """
    if len(runs) <= max_count:
        return list(runs), None
    shown = list(runs)
    for days, word in ((1, "day"), (7, "week")):
        last = {run.started_us // (days * _DAY_US): run for run in runs}
        shown = list(last.values())
        if len(shown) <= max_count:
            return (
                shown,
                f"{len(runs)} runs are more than a chart shows: these are the last of each {word}",
            )
    return (
        shown[-max_count:],
        f"{len(runs)} runs are more than a chart shows: these are the last of each of "
        f"{max_count} weeks",
    )


def find_changes(runs: Sequence[TrendRun]) -> list[EnvironmentChange]:
    """List environment changes; an unrecorded value counts as unchanged."""
    known: dict[str, str] = {}
    changes = []
    for run in runs:
        parts = []
        for word, name in ENVIRONMENT:
            now = getattr(run, name)
            if now is None:
                continue
            if known.get(word, now) != now:
                parts.append((word, known[word], now))
            known[word] = now
        if parts:
            changes.append(EnvironmentChange(run, tuple(parts)))
    return changes


def describe_run(run: TrendRun) -> str:
    commit = _short_commit(run) + (" (dirty)" if run.git_dirty else "") if run.git_commit else ""
    subject = (run.git_subject or "")[:70]
    torch = f"torch {run.torch_version}" if run.torch_version else "torch not recorded"
    triton = f"triton {run.triton_version}" if run.triton_version else ""
    python = f"Python {run.python_version}" if run.python_version else ""
    driver = f"driver {run.driver_version}" if run.driver_version else ""
    state = "" if run.state in ("finished", "imported") else f" ({run.state})"
    lines = (
        (" ".join(part for part in (commit, subject) if part) or "commit not recorded") + state,
        " · ".join(part for part in (torch, triton, python) if part),
        " · ".join(part for part in (run.gpu_name or "no GPU", driver) if part),
    )
    return "\n".join(lines)


_SUMMARY_OF = {model: name for name, model in MODEL_OF.items()}
CHOICES = ("pass_ratio", *BY_NAME)


def find_metric(name: str, *, of_suite: bool) -> Metric | None:
    """Return a metric of suites (`of_suite`) or of models by name; None if only the other kind has
    it.

    A name that the two kinds spell differently is accepted in both spellings. Raises FilterError
    for an unknown name.
    """
    if name not in BY_NAME and name not in SUMMARY_BY_NAME:
        known = ", ".join(dict.fromkeys((*BY_NAME, *SUMMARY_BY_NAME)))
        raise FilterError(f"metric: {name[:40]!r} is not one of {known}")
    if of_suite:
        return SUMMARY_BY_NAME.get(_SUMMARY_OF.get(name, name))
    return BY_NAME.get(MODEL_OF.get(name, name))


def resolve_choice(name: str) -> str | None:
    choice = MODEL_OF.get(name, name)
    return choice if choice in CHOICES else None


def read_choices(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(MODEL_OF.get(name, name) for name in names))


def build_suite_line(
    metric: Metric, summaries: Sequence[StoredSummary], label: str = "the suite"
) -> TrendLine:
    return TrendLine(label, [_make_summary_point(metric, summary) for summary in summaries])


def _make_summary_point(metric: Metric, summary: StoredSummary) -> TrendPoint:
    value: float | None = getattr(summary, metric.name)
    if summary.measured_count:
        # Failed models are in no mean: a suite that loses its worst model is not better.
        note = (
            f"{summary.failed_count} of {summary.total_count} models failed"
            if summary.failed_count
            else None
        )
        is_incomplete = summary.is_incomplete and value is not None and metric.name != "pass_ratio"
        return TrendPoint(summary.run_id, value, note=note, is_incomplete=is_incomplete)
    status: Status = "failed" if summary.failed_count else "skipped"
    reason = f"{summary.failed_count} of {summary.total_count} models failed, none was measured"
    return TrendPoint(
        summary.run_id,
        value,
        status=status,
        reason=reason if summary.failed_count else "no model was measured",
    )


def build_model_lines(metric: Metric, rows: Sequence[ResultRow]) -> list[TrendLine]:
    rows_by_line: dict[tuple[str, Any], list[ResultRow]] = {}
    for row in rows:
        rows_by_line.setdefault((row.model, row.batch_size), []).append(row)
    many = {
        model
        for model, _size in rows_by_line
        if sum(model == other for other, _other_size in rows_by_line) > 1
    }
    lines = []
    for (model, size), members in sorted(
        rows_by_line.items(), key=lambda pair: (pair[0][0], pair[0][1] or 0)
    ):
        label = f"{model}, batch {size}" if model in many and size else model
        lines.append(TrendLine(label, [_make_row_point(metric, result) for result in members]))
    return lines


def _make_row_point(metric: Metric, row: ResultRow) -> TrendPoint:
    low = getattr(row, metric.low) if metric.low else None
    high = getattr(row, metric.high) if metric.high else None
    status: Status = row.status if row.status in ("failed", "skipped", "not_run") else "measured"  # type: ignore[assignment]
    reason = None if status == "measured" else describe_status(row).word
    return TrendPoint(row.run_id, get_value(metric, row), low, high, status, reason)


def build_count_line(label: str, points: Sequence[HistoryPoint]) -> TrendLine:
    return TrendLine(label, [TrendPoint(point.run_id, point.count) for point in points])
