"""Changes of a series (steps, drift, failures, an end), matched with the stored ones."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from compileboard.app.benchmarks.metrics import PASSES
from compileboard.app.incidents.change_points import (
    ChangePoint,
    Ints,
    detect_change_points,
    may_have_change,
    prepare,
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
from compileboard.app.incidents.series import MeasuredRuns, Series, SeriesKey, make_series_key
from compileboard.collectors.contract.verdicts import COMPARED, SideValues, direct, judge_sides
from compileboard.collectors.store.incidents import SERIES

_SETTLED_COUNT = 20
_DETECTED_COUNT = 2  # a step may be found with so many points after it, noise may ask for more
_MOST_TRIED = 10
_ENOUGH_DRIFT_POINTS = 10


@dataclass(frozen=True)
class DetectedChange:
    subject: str
    configuration: Mapping[str, Any]
    branch: str
    metric: str
    kind: str
    direction: str
    before_value: float | None
    after_value: float | None
    relative: float | None
    p_value: float | None
    before_run_id: str | None
    first_run_id: str
    low_run_id: str
    high_run_id: str
    recovered_run_id: str | None
    confirming_run_id: (
        str | None
    )  # that still shows it after it could be found; None while it is unconfirmed
    before_count: int
    after_count: int
    # Between which runs it ended, where it rather seems to be over.
    may_be_back: tuple[str, str] | None = None

    @property
    def key(self) -> SeriesKey:
        return make_series_key(self.subject, self.configuration, self.branch, self.metric)


def needs_rescan(
    series: Series, stored: Sequence[SeriesChange], ranks: Mapping[str, int], *, is_cut: bool
) -> bool:
    """Return True if the newest points may contain a new change, so that the series has to be
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
    start = next(
        (index for index, run_id in enumerate(series.run_ids) if ranks[run_id] >= newest), 0
    )
    values = series.values[start:]
    finite = values[np.isfinite(values)]
    if len(finite) >= _SETTLED_COUNT and series.metric is not PASSES:
        if finite.min() == finite.max():
            return False
        clean = prepare(values, None if series.errors is None else series.errors[start:])
        if clean is None or not may_have_change(clean.series, clean.sigma):
            return False
    horizon = ranks[series.run_ids[min(_SETTLED_COUNT, len(series.run_ids) - 1)]] if is_cut else -1
    return _change_keys(detect(series), ranks, horizon) != _change_keys(
        (change for change in stored if change.state != "withdrawn"), ranks, horizon
    )


def _change_keys(
    changes: Iterable[DetectedChange | SeriesChange], ranks: Mapping[str, int], horizon: int
) -> set[tuple[str, ...]]:
    keys = set()
    for change in changes:
        runs = (change.first_run_id, change.recovered_run_id, *(change.may_be_back or ()))
        late = [run_id or "" for run_id in runs]
        late = [run_id if ranks.get(run_id, -1) > horizon else "" for run_id in late]
        if change.kind != "vanished" and any(late):
            keys.add((change.kind, change.direction, *late))
    return keys


def detect(series: Series) -> list[DetectedChange]:
    """Return the changes of a series: steps in both directions, also recovered ones, and slow
    drift.

    A step that takes back an earlier one is that one's recovery, and no change of its own.
    """
    finite = series.values[np.isfinite(series.values)]
    if len(finite) < 2 or np.all(finite == finite[0]):
        return []
    if series.metric is PASSES:
        return _detect_failures(series)
    level_changes = find_changes(series.values, series.errors)
    detected = [
        _from_change_point(series, step) for step in level_changes.steps if step.recovers is None
    ]
    if level_changes.drift is not None:
        detected.append(_from_drift(series, level_changes.drift))
    return detected


def _detect_failures(series: Series) -> list[DetectedChange]:
    """One passing run recovers a failure: whether a model compiles is no matter of noise."""
    known = [int(position) for position in np.flatnonzero(np.isfinite(series.values))]
    changes: list[DetectedChange] = []
    starts = [
        at
        for at in range(1, len(known))
        if series.values[known[at]] != series.values[known[at - 1]]
    ]
    for number, start in enumerate(starts):
        is_worse = series.values[known[start]] == 0
        if not is_worse and number:
            continue  # the recovery of the one before
        end = starts[number + 1] if number + 1 < len(starts) else None
        first = series.run_ids[known[start]]
        changes.append(
            DetectedChange(
                subject=series.subject,
                configuration=series.configuration,
                branch=series.branch,
                metric=series.metric.name,
                kind="step",
                direction="worse" if is_worse else "better",
                before_value=1.0 if is_worse else 0.0,
                after_value=0.0 if is_worse else 1.0,
                relative=-1.0 if is_worse else None,
                p_value=None,
                before_run_id=series.run_ids[known[start - 1]],
                first_run_id=first,
                low_run_id=first,
                high_run_id=first,
                recovered_run_id=series.run_ids[known[end]]
                if end is not None and is_worse
                else None,
                confirming_run_id=first,
                before_count=start - (starts[number - 1] if number else 0),
                after_count=(len(known) if end is None else end) - start,
            )
        )
    return changes


def detect_stopped(
    measured_runs: MeasuredRuns, suite_runs: Set[str], ranks: Mapping[str, int]
) -> DetectedChange | None:
    limits = OF_MODEL if measured_runs.subject == "model" else OF_SUITE
    runs = sorted(suite_runs, key=lambda run_id: ranks[run_id])
    measured_ids = [run_id for run_id in measured_runs.run_ids if run_id in suite_runs]
    if not measured_ids or ranks[measured_ids[-1]] >= ranks[runs[-1]]:
        return None
    times, suite_times = (
        [ranks[run_id] for run_id in measured_ids],
        [ranks[run_id] for run_id in runs],
    )
    if ranks[measured_runs.run_ids[-1]] > ranks[measured_ids[-1]] or not is_stopped(
        times, suite_times, limits
    ):
        return None
    missed = [run_id for run_id in runs if ranks[run_id] > times[-1]]
    return DetectedChange(
        subject=measured_runs.subject,
        configuration=measured_runs.configuration,
        branch=measured_runs.branch,
        metric=measured_runs.metric,
        kind="vanished",
        direction="worse",
        before_value=None,
        after_value=None,
        relative=None,
        p_value=None,
        before_run_id=measured_ids[-1],
        first_run_id=missed[0],
        low_run_id=missed[0],
        high_run_id=missed[0],
        recovered_run_id=None,
        confirming_run_id=runs[-1] if is_stopped(times, suite_times[:-1], limits) else None,
        before_count=len(measured_ids),
        after_count=len(missed),
    )


def _from_change_point(series: Series, step: ChangePoint) -> DetectedChange:
    return DetectedChange(
        **_shared_fields(series, step),
        kind="step",
        before_run_id=series.run_ids[step.low - 1],
        first_run_id=series.run_ids[step.index],
        low_run_id=series.run_ids[step.low],
        high_run_id=series.run_ids[step.high],
        recovered_run_id=None if step.recovered_at is None else series.run_ids[step.recovered_at],
        confirming_run_id=_find_confirming(series, step),
        before_count=step.before_count,
        after_count=step.after_count,
        may_be_back=step.may_be_back
        and (series.run_ids[step.may_be_back[0]], series.run_ids[step.may_be_back[1]]),
    )


def _from_drift(series: Series, drift: Drift) -> DetectedChange:
    finite = np.flatnonzero(np.isfinite(series.values))
    later = finite[finite > drift.start]
    return DetectedChange(
        **_shared_fields(series, drift),
        kind="drift",
        before_run_id=series.run_ids[drift.start],
        first_run_id=series.run_ids[drift.end],
        low_run_id=series.run_ids[int(later[0])],
        high_run_id=series.run_ids[drift.end],
        recovered_run_id=None if drift.recovered_at is None else series.run_ids[drift.recovered_at],
        confirming_run_id=series.run_ids[int(finite[-1])]
        if _drifted_before(series, finite)
        else None,
        before_count=int(np.count_nonzero(finite <= drift.start)),
        after_count=int(np.count_nonzero(finite >= drift.end)),
    )


def _find_confirming(series: Series, step: ChangePoint) -> str | None:
    finite = np.flatnonzero(np.isfinite(series.values))
    at = int(np.searchsorted(finite, step.index))
    ends = range(at + _DETECTED_COUNT - 1, len(finite) - 1)
    tried = (
        *ends[:_MOST_TRIED],
        *ends[_MOST_TRIED:][-1:],
    )  # noise may hide it for long, and then all is asked
    end = next((end for end in tried if _is_detectable(series, step, int(finite[end]))), None)
    return None if end is None else series.run_ids[int(finite[end + 1])]


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


def _direct(series: Series, change: ChangePoint | Drift) -> str:
    if series.speeds and isinstance(change, ChangePoint):
        known = np.flatnonzero(np.isfinite(series.values))
        at = int(np.searchsorted(known, change.index))
        levels = known[max(0, at - change.before_count) : at], known[at : at + change.after_count]
        before, after = (_find_medians(series, positions) for positions in levels)
        verdict = judge_sides(COMPARED, before, after).get(series.metric.name)
        if verdict is not None and verdict.word == "eager":
            return "changed"
    return direct(series.metric, change.before, change.after)


def _find_medians(series: Series, positions: Ints) -> SideValues:
    levels = {
        name: values[positions][np.isfinite(values[positions])]
        for name, values in series.speeds.items()
    }
    return SideValues(
        {name: float(np.median(level)) for name, level in levels.items() if len(level)}
    )


def _shared_fields(series: Series, change_point: ChangePoint | Drift) -> dict[str, Any]:
    return {
        "subject": series.subject,
        "configuration": series.configuration,
        "branch": series.branch,
        "metric": series.metric.name,
        "direction": _direct(series, change_point),
        "before_value": change_point.before,
        "after_value": change_point.after,
        "relative": change_point.relative,
        "p_value": change_point.p_value,
    }


_ID_BYTES = 10


def key_of(change: SeriesChange) -> SeriesKey:
    return make_series_key(
        change.subject,
        {name: getattr(change, name) for name in SERIES},
        change.branch,
        change.metric,
    )


def match(
    detected: Sequence[DetectedChange], stored: Iterable[SeriesChange], ranks: Mapping[str, int]
) -> tuple[list[tuple[str, DetectedChange, SeriesChange | None]], list[SeriesChange]]:
    """Match detected changes of one series with stored ids; also return stored ones that were not
    detected again.

    A match has the same kind and direction and a touching range of runs, the nearest first.
    """
    candidates = list(stored)
    left, taken = (
        [candidate for candidate in candidates if candidate.first_run_id in ranks],
        {candidate.id for candidate in candidates},
    )
    matched: list[tuple[str, DetectedChange, SeriesChange | None]] = []
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
        matched.append((best.id if best else _make_unique_id(change, taken), change, best))
    return matched, left


def _make_unique_id(change: DetectedChange, taken: set[str]) -> str:
    unique_id = next(id_ for again in count() if (id_ := make_id(change, again)) not in taken)
    taken.add(unique_id)
    return unique_id


def make_id(change: DetectedChange, again: int = 0) -> str:
    """Return a new change's id, the same whenever it is detected anew."""
    identity = json.dumps(
        [
            *change.key,
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


def _matches(change: DetectedChange, stored: SeriesChange, ranks: Mapping[str, int]) -> bool:
    if (change.kind, change.direction) != (stored.kind, stored.direction):
        return False
    if change.kind == "vanished":
        return change.first_run_id == stored.first_run_id
    low, high = ranks[change.low_run_id], ranks[change.high_run_id]
    stored_low = ranks.get(stored.low_run_id or "", ranks[stored.first_run_id])
    stored_high = ranks.get(stored.high_run_id or "", ranks[stored.first_run_id])
    return stored_low <= high and low <= stored_high
