"""Detect the changes of a series (steps, drift, failures, an end), and match them with the stored
ones.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import count

import numpy as np

from compileboard.app.benchmarks.metrics import PASSES
from compileboard.app.benchmarks.series_queries import SeriesRun
from compileboard.app.incidents.change_points import (
    ChangePoint,
    Ints,
    detect_change_points,
    may_have_change,
    scale_series,
)
from compileboard.app.incidents.drift import (
    OF_MODEL,
    OF_SUITE,
    Drift,
    detect_drift,
    find_changes,
    is_stopped,
)
from compileboard.app.incidents.model import SeriesChange
from compileboard.app.incidents.series import MeasuredRuns, RunOrder, Series
from compileboard.collectors.contract.verdicts import (
    COMPARED,
    MEMORIES,
    Measurement,
    decide,
    explain_by_eager,
    find_direction,
)

_SETTLED_COUNT = 20
_DETECTED_COUNT = 2  # a step may be found with so many points after it; noise may require more
_MAX_TRIED = 10
_ENOUGH_DRIFT_POINTS = 10


def needs_rescan(
    series: Series, stored: Sequence[SeriesChange], ranks: Mapping[str, int], *, is_cut: bool
) -> bool:
    """Return whether the newest points may contain a new change, so that the series has to be
    scanned.
    """
    if any(change.state == "unconfirmed" for change in stored):
        return True
    cuts = [
        ranks[id_]
        for change in stored
        for id_ in (change.first_run_id, change.recovered_run_id)
        if id_ and id_ in ranks
    ]
    newest = max(cuts, default=-1)
    start = next((index for index, run in enumerate(series.runs) if ranks[run.id] >= newest), 0)
    values = series.values[start:]
    finite = values[np.isfinite(values)]
    if len(finite) >= _SETTLED_COUNT and series.metric is not PASSES:
        if finite.min() == finite.max():
            return False
        clean = scale_series(values, None if series.errors is None else series.errors[start:])
        if clean is None or not may_have_change(clean.series, clean.sigma):
            return False
    horizon = ranks[series.runs[min(_SETTLED_COUNT, len(series.runs) - 1)].id] if is_cut else -1
    return _change_keys(detect_changes(series), ranks, horizon) != _change_keys(
        (change for change in stored if change.state != "withdrawn"), ranks, horizon
    )


def _change_keys(
    changes: Iterable[SeriesChange], ranks: Mapping[str, int], horizon: int
) -> set[tuple[str, ...]]:
    keys = set()
    for change in changes:
        runs = (change.first_run_id, change.recovered_run_id, *(change.may_be_back or ()))
        late = [run_id or "" for run_id in runs]
        late = [run_id if ranks.get(run_id, -1) > horizon else "" for run_id in late]
        if change.kind != "vanished" and any(late):
            keys.add((change.kind, change.direction, *late))
    return keys


def detect_changes(series: Series) -> list[SeriesChange]:
    """Return the changes of a series: steps in both directions, including recovered ones, and slow
    drift.

    A step that reverses an earlier one is the recovery of that one, not a change.
    """
    finite = series.values[np.isfinite(series.values)]
    if len(finite) < 2 or np.all(finite == finite[0]):
        return []
    if series.metric is PASSES:
        return _detect_failures(series)
    level_changes = find_changes(series.values, series.errors)
    detected = [
        _make_step_change(series, step) for step in level_changes.steps if step.recovers is None
    ]
    if level_changes.drift is not None:
        detected.append(_make_drift_change(series, level_changes.drift))
    return detected


def _detect_failures(series: Series) -> list[SeriesChange]:
    """Return each change between passing and failing. One passing run ends a failure, because
    compiling is not noisy.
    """
    known = [int(position) for position in np.flatnonzero(np.isfinite(series.values))]
    changes: list[SeriesChange] = []
    starts = [
        at
        for at in range(1, len(known))
        if series.values[known[at]] != series.values[known[at - 1]]
    ]
    for number, start in enumerate(starts):
        is_worse = series.values[known[start]] == 0
        if not is_worse and number:
            continue  # the recovery of the previous one
        end = starts[number + 1] if number + 1 < len(starts) else None
        first = series.runs[known[start]]
        changes.append(
            _make_change(
                series,
                "step",
                "worse" if is_worse else "better",
                before=series.runs[known[start - 1]],
                first=first,
                recovered=series.runs[known[end]] if end is not None and is_worse else None,
                confirming=first,
                points=(
                    start - (starts[number - 1] if number else 0),
                    (len(known) if end is None else end) - start,
                ),
                levels=(1.0, 0.0, -1.0, None) if is_worse else (0.0, 1.0, None, None),
            )
        )
    return changes


def detect_stopped(
    measured: MeasuredRuns, suite_runs: Set[str], order: RunOrder
) -> SeriesChange | None:
    limits = OF_MODEL if measured.subject == "model" else OF_SUITE
    ranks, suite = order.ranks, order.sort(suite_runs)
    own = [run for run in measured.runs if run.id in suite_runs]
    if not own or ranks[own[-1].id] >= ranks[suite[-1].id]:
        return None
    times, suite_times = ([ranks[run.id] for run in runs] for runs in (own, suite))
    if ranks[measured.runs[-1].id] > times[-1] or not is_stopped(times, suite_times, limits):
        return None
    missed = [run for run in suite if ranks[run.id] > times[-1]]
    return _make_change(
        measured,
        "vanished",
        "worse",
        before=own[-1],
        first=missed[0],
        confirming=suite[-1] if is_stopped(times, suite_times[:-1], limits) else None,
        points=(len(own), len(missed)),
    )


def _make_step_change(series: Series, step: ChangePoint) -> SeriesChange:
    runs, back = series.runs, step.may_be_back
    return _make_change(
        series,
        "step",
        _find_direction(series, step),
        before=runs[step.low - 1],
        first=runs[step.index],
        low=runs[step.low],
        high=runs[step.high],
        recovered=None if step.recovered_at is None else runs[step.recovered_at],
        confirming=_find_confirming(series, step),
        points=(step.before_count, step.after_count),
        may_be_back=back and (runs[back[0]].id, runs[back[1]].id),
        levels=(step.before, step.after, step.relative, step.p_value),
    )


def _make_drift_change(series: Series, drift: Drift) -> SeriesChange:
    runs, finite = series.runs, np.flatnonzero(np.isfinite(series.values))
    return _make_change(
        series,
        "drift",
        _find_direction(series, drift),
        before=runs[drift.start],
        first=runs[drift.end],
        low=runs[int(finite[finite > drift.start][0])],
        recovered=None if drift.recovered_at is None else runs[drift.recovered_at],
        confirming=runs[int(finite[-1])] if _drifted_before(series, finite) else None,
        points=(
            int(np.count_nonzero(finite <= drift.start)),
            int(np.count_nonzero(finite >= drift.end)),
        ),
        levels=(drift.before, drift.after, drift.relative, drift.p_value),
    )


def _make_change(
    series: MeasuredRuns,
    kind: str,
    direction: str,
    *,
    before: SeriesRun,
    first: SeriesRun,
    low: SeriesRun | None = None,
    high: SeriesRun | None = None,
    recovered: SeriesRun | None = None,
    confirming: SeriesRun | None,
    points: tuple[int, int],
    may_be_back: tuple[str, str] | None = None,
    levels: Sequence[float | None] = (None, None, None, None),
) -> SeriesChange:
    """Make a change that is not stored yet: without an id, and with part of its evidence.

    `confirming` is the run that still shows it after it could be found, None while unconfirmed;
    `levels` are the values before and after, the relative size, and the p-value.
    """
    before_value, after_value, relative, p_value = levels
    return SeriesChange(
        **series.configuration,
        id="",
        kind=kind,
        direction=direction,
        state="unconfirmed" if confirming is None else "confirmed",
        subject=series.subject,
        branch=series.branch,
        metric=series.metric.name,
        before_value=before_value,
        after_value=after_value,
        relative=relative,
        p_value=p_value,
        before_run_id=before.id,
        first_run_id=first.id,
        low_run_id=(low or first).id,
        high_run_id=(high or first).id,
        recovered_run_id=recovered.id if recovered else None,
        first_us=first.started_us,
        found_us=0,
        confirmed_us=confirming.started_us if confirming else None,
        noticed_us=None,
        changed_us=0,
        incident_id=None,
        evidence={
            "points": {"before": points[0], "after": points[1]},
            "may_be_back": may_be_back,
        },
    )


def _find_confirming(series: Series, step: ChangePoint) -> SeriesRun | None:
    finite = np.flatnonzero(np.isfinite(series.values))
    at = int(np.searchsorted(finite, step.index))
    ends = range(at + _DETECTED_COUNT - 1, len(finite) - 1)
    tried = (
        *ends[:_MAX_TRIED],
        *ends[_MAX_TRIED:][-1:],
    )  # noise may hide it for long, so all runs are checked
    end = next((end for end in tried if _is_detectable(series, step, int(finite[end]))), None)
    return None if end is None else series.runs[int(finite[end + 1])]


def _is_detectable(series: Series, step: ChangePoint, newest: int) -> bool:
    errors = None if series.errors is None else series.errors[: newest + 1]
    before = detect_change_points(series.values[: newest + 1], errors)
    is_up = step.after > step.before
    return any(
        (change_point.after > change_point.before) == is_up
        and change_point.low <= step.high
        and step.low <= change_point.high
        for change_point in before
    )


def _drifted_before(series: Series, finite: Ints) -> bool:
    if len(finite) <= _ENOUGH_DRIFT_POINTS:
        return False
    newest = int(finite[-1])
    return (
        detect_drift(
            series.values[:newest], None if series.errors is None else series.errors[:newest]
        )
        is not None
    )


def _find_direction(series: Series, change: ChangePoint | Drift) -> str:
    if series.beside and isinstance(change, ChangePoint):
        known = np.flatnonzero(np.isfinite(series.values))
        at = int(np.searchsorted(known, change.index))
        levels = known[max(0, at - change.before_count) : at], known[at : at + change.after_count]
        before, after = (_find_medians(series, positions) for positions in levels)
        # Peak memory hardly scatters, so eager mode has to explain only half of the step.
        is_memory = series.metric.name in MEMORIES and change.before > 0
        threshold = abs(change.after / change.before - 1) / 2 if is_memory else None
        verdicts = {
            metric.name: decide(metric, before[metric.name], after[metric.name], threshold)
            for metric in COMPARED
            if metric.name in before and metric.name in after
        }
        if explain_by_eager(verdicts)[series.metric.name].word == "eager":
            return "changed"
    return find_direction(series.metric, change.before, change.after)


def _find_medians(series: Series, positions: Ints) -> dict[str, Measurement]:
    levels = {
        name: values[positions][np.isfinite(values[positions])]
        for name, values in series.beside.items()
    }
    return {
        name: Measurement(float(np.median(level)), samples=None)
        for name, level in levels.items()
        if len(level)
    }


_ID_BYTES = 10


def match(
    detected: Sequence[SeriesChange], stored: Iterable[SeriesChange], ranks: Mapping[str, int]
) -> tuple[list[tuple[SeriesChange, SeriesChange | None]], list[SeriesChange]]:
    """Return the changes of one series, each with its id and matching stored change, and the stored
    changes that were not detected again.

    A match has the same kind and direction and an adjacent or overlapping range of runs; the
    nearest is chosen.
    """
    candidates = list(stored)
    left, taken = (
        [candidate for candidate in candidates if candidate.first_run_id in ranks],
        {candidate.id for candidate in candidates},
    )
    matched: list[tuple[SeriesChange, SeriesChange | None]] = []
    for change in detected:
        near = [candidate for candidate in left if _matches(change, candidate, ranks)]
        best = min(
            near,
            key=lambda candidate: (
                abs(ranks[candidate.first_run_id] - ranks[change.first_run_id]),
                candidate.id,
            ),
            default=None,
        )
        if best is not None:
            left.remove(best)
        own_id = best.id if best else _make_unique_id(change, taken)
        matched.append((replace(change, id=own_id), best))
    return matched, left


def _make_unique_id(change: SeriesChange, taken: set[str]) -> str:
    unique_id = next(id_ for again in count() if (id_ := make_id(change, again)) not in taken)
    taken.add(unique_id)
    return unique_id


def make_id(change: SeriesChange, again: int = 0) -> str:
    """Return a new change's id, the same on every detection."""
    identity = json.dumps(
        [
            *(int(part) if isinstance(part, bool) else part for part in change.key),
            change.kind,
            change.direction,
            change.first_run_id,
            *([again] if again else []),
        ],
        separators=(",", ":"),
    )
    digest = hashlib.blake2b(
        identity.encode("utf-8", "surrogatepass"), digest_size=_ID_BYTES
    ).digest()
    return base64.b32encode(digest).decode().lower()


def _matches(change: SeriesChange, stored: SeriesChange, ranks: Mapping[str, int]) -> bool:
    if (change.kind, change.direction) != (stored.kind, stored.direction):
        return False
    if change.kind == "vanished":
        return change.first_run_id == stored.first_run_id
    low, high = ranks[change.low_run_id or ""], ranks[change.high_run_id or ""]
    stored_low = ranks.get(stored.low_run_id or "", ranks[stored.first_run_id])
    stored_high = ranks.get(stored.high_run_id or "", ranks[stored.first_run_id])
    return stored_low <= high and low <= stored_high
