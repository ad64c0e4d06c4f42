"""Changes detected in a series (steps, drift, an end), and which stored finding each of them is."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from compileboard.app.analysis.regression.change_points import ChangePoint, detect_change_points, may_have_change
from compileboard.app.analysis.regression.drift import OF_MODEL, OF_SUITE, Drift, detect_drift, find_changes, is_stopped
from compileboard.app.analysis.regression.noise import Ints, prepare
from compileboard.app.incidents.series import MeasuredRuns, Series, make_series_key
from compileboard.app.queries.dashboard.incidents import SeriesChange
from compileboard.collectors.contract.verdicts import COMPARED, SideValues, direct, judge_sides
from compileboard.collectors.store.dashboard.series_changes import SERIES

_SETTLED_COUNT = 20  # as in app.analysis.steps
_DETECTED_COUNT = 2  # a step may be found with so many points after it, noise may ask for more
_MOST_TRIED = 10
_ENOUGH_DRIFT_POINTS = 10


@dataclass(frozen=True)
class DetectedChange:
    """Hold a change of a series by the runs that it lies between; Finding says what each field is."""

    subject: str
    key: Mapping[str, Any]
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
    confirming_run_id: str | None  # that still shows it after it could be found; None while it is suspected
    before_count: int
    after_count: int

    @property
    def place(self) -> tuple[Any, ...]:
        """Return what the series is told by."""
        return make_series_key(self.subject, self.key, self.branch, self.metric)


def needs_rescan(line: Series, kept: Sequence[SeriesChange], order: Mapping[str, int], *, is_cut: bool) -> bool:
    """Say whether a line's newest points may say anything new, so that all of it is to be looked at.

    What is known of it has to be settled: then only what came after its newest change of level can be new. A line that
    `is_cut` begins in the middle of its series.
    """
    if any(change.state == "suspected" for change in kept):
        return True
    cuts = [order[id_] for one in kept for id_ in (one.first_run_id, one.recovered_run_id) if id_ and id_ in order]
    newest = max(cuts, default=-1)
    start = next((place for place, run_id in enumerate(line.run_ids) if order[run_id] >= newest), 0)
    values = line.values[start:]
    known = values[np.isfinite(values)]
    if len(known) >= _SETTLED_COUNT:
        if known.min() == known.max():
            return False
        series = prepare(values, None if line.errors is None else line.errors[start:])
        if series is None or not may_have_change(series.series, series.sigma):
            return False
    horizon = order[line.run_ids[min(_SETTLED_COUNT, len(line.run_ids) - 1)]] if is_cut else -1
    return _change_keys(detect(line), order, horizon) != _change_keys(
        (change for change in kept if change.state != "withdrawn"), order, horizon
    )


def _change_keys(
    found: Iterable[DetectedChange | SeriesChange], order: Mapping[str, int], horizon: int
) -> set[tuple[str, ...]]:
    """Tell changes by what of them lies beyond a place: nearer to a line's cut they cannot be found again."""
    told = set()
    for change in found:
        late = [run_id or "" for run_id in (change.first_run_id, change.recovered_run_id)]
        late = [run_id if order.get(run_id, -1) > horizon else "" for run_id in late]
        if change.kind != "vanished" and any(late):
            told.add((change.kind, change.direction, *late))
    return told


def detect(line: Series) -> list[DetectedChange]:
    """Return what a line did: steps in both directions, those that recovered too, and slow drift.

    A step that takes back an earlier one is that one's recovery, and no finding of its own.
    """
    known = line.values[np.isfinite(line.values)]
    if len(known) < 2 or np.all(known == known[0]):
        return []
    changes = find_changes(line.values, line.errors)
    found = [_from_change_point(line, step) for step in changes.steps if step.recovers is None]
    if changes.drift is not None:
        found.append(_from_drift(line, changes.drift))
    return found


def detect_stopped(
    measured_runs: MeasuredRuns, suite_runs: Set[str], order: Mapping[str, int]
) -> DetectedChange | None:
    """Return that a model stopped while its suite, or a suite while the others, went on; None where it did not."""
    habit = OF_MODEL if measured_runs.subject == "model" else OF_SUITE
    runs = sorted(suite_runs, key=lambda run_id: order[run_id])
    there = [run_id for run_id in measured_runs.run_ids if run_id in suite_runs]
    if not there or order[there[-1]] >= order[runs[-1]]:
        return None
    times, suite_times = [order[run_id] for run_id in there], [order[run_id] for run_id in runs]
    if order[measured_runs.run_ids[-1]] > order[there[-1]] or not is_stopped(times, suite_times, habit):
        return None
    missed = [run_id for run_id in runs if order[run_id] > times[-1]]
    return DetectedChange(
        subject=measured_runs.subject,
        key=measured_runs.key,
        branch=measured_runs.branch,
        metric=measured_runs.metric,
        kind="vanished",
        direction="worse",
        before_value=None,
        after_value=None,
        relative=None,
        p_value=None,
        before_run_id=there[-1],
        first_run_id=missed[0],
        low_run_id=missed[0],
        high_run_id=missed[0],
        recovered_run_id=None,
        confirming_run_id=runs[-1] if is_stopped(times, suite_times[:-1], habit) else None,
        before_count=len(there),
        after_count=len(missed),
    )


def _from_change_point(line: Series, step: ChangePoint) -> DetectedChange:
    return DetectedChange(
        **_shared_fields(line, step),
        kind="step",
        before_run_id=line.run_ids[step.low - 1],
        first_run_id=line.run_ids[step.index],
        low_run_id=line.run_ids[step.low],
        high_run_id=line.run_ids[step.high],
        recovered_run_id=None if step.recovered_at is None else line.run_ids[step.recovered_at],
        confirming_run_id=_find_confirming(line, step),
        before_count=step.before_count,
        after_count=step.after_count,
    )


def _from_drift(line: Series, drift: Drift) -> DetectedChange:
    finite = np.flatnonzero(np.isfinite(line.values))
    later = finite[finite > drift.start]
    return DetectedChange(
        **_shared_fields(line, drift),
        kind="drift",
        before_run_id=line.run_ids[drift.start],
        first_run_id=line.run_ids[drift.end],
        low_run_id=line.run_ids[int(later[0])],
        high_run_id=line.run_ids[drift.end],
        recovered_run_id=None,
        confirming_run_id=line.run_ids[int(finite[-1])] if _drifted_before(line, finite) else None,
        before_count=int(np.count_nonzero(finite <= drift.start)),
        after_count=int(np.count_nonzero(finite >= drift.end)),
    )


def _find_confirming(line: Series, step: ChangePoint) -> str | None:
    """Return the run that still showed a step after it could first be found; None where none did yet."""
    finite = np.flatnonzero(np.isfinite(line.values))
    at = int(np.searchsorted(finite, step.index))
    ends = range(at + _DETECTED_COUNT - 1, len(finite) - 1)
    tried = (*ends[:_MOST_TRIED], *ends[_MOST_TRIED:][-1:])  # noise may hide it for long, and then all is asked
    end = next((end for end in tried if _is_detectable(line, step, int(finite[end]))), None)
    return None if end is None else line.run_ids[int(finite[end + 1])]


def _is_detectable(line: Series, step: ChangePoint, newest: int) -> bool:
    """Say whether a step could be found when a point was the newest."""
    errors = None if line.errors is None else line.errors[: newest + 1]
    before = detect_change_points(line.values[: newest + 1], errors)
    is_up = step.after > step.before
    return any(
        (change_point.after > change_point.before) == is_up
        and change_point.low <= step.high
        and step.low <= change_point.high
        for change_point in before
    )


def _drifted_before(line: Series, finite: Ints) -> bool:
    """Say whether the drift was there without the newest run."""
    if len(finite) <= _ENOUGH_DRIFT_POINTS:
        return False
    newest = int(finite[-1])
    return detect_drift(line.values[:newest], None if line.errors is None else line.errors[:newest]) is not None


def _direct(line: Series, change: ChangePoint | Drift) -> str:
    """Return which way a change went; neither where eager mode moved a speed, as Compare says of both levels."""
    if line.speeds and isinstance(change, ChangePoint):
        known = np.flatnonzero(np.isfinite(line.values))
        at = int(np.searchsorted(known, change.index))
        levels = known[max(0, at - change.before_count) : at], known[at : at + change.after_count]
        before, after = (_find_medians(line, places) for places in levels)
        verdict = judge_sides(COMPARED, before, after).get(line.metric.name)
        if verdict is not None and verdict.word == "eager":
            return "changed"
    return direct(line.metric, change.before, change.after)


def _find_medians(line: Series, places: Ints) -> SideValues:
    levels = {name: values[places][np.isfinite(values[places])] for name, values in line.speeds.items()}
    return SideValues({name: float(np.median(level)) for name, level in levels.items() if len(level)})


def _shared_fields(line: Series, change_point: ChangePoint | Drift) -> dict[str, Any]:
    return {
        "subject": line.subject,
        "key": line.key,
        "branch": line.branch,
        "metric": line.metric.name,
        "direction": _direct(line, change_point),
        "before_value": change_point.before,
        "after_value": change_point.after,
        "relative": change_point.relative,
        "p_value": change_point.p_value,
    }


_ID_BYTES = 10


def key_of(change: SeriesChange) -> tuple[Any, ...]:
    """Return what a kept finding's series is told by, as Line and Found do."""
    return make_series_key(
        change.subject, {name: getattr(change, name) for name in SERIES}, change.branch, change.metric
    )


def match(
    found: Sequence[DetectedChange], kept: Iterable[SeriesChange], order: Mapping[str, int]
) -> tuple[list[tuple[str, DetectedChange, SeriesChange | None]], list[SeriesChange]]:
    """Give each change of one series its id; return those kept that were not found again.

    A change is the kept one of the same kind and direction whose range of runs touches its own, the nearest first. One
    whose runs were deleted can be neither found nor lost: it stays as it is.
    """
    known = list(kept)
    left, taken = [change for change in known if change.first_run_id in order], {change.id for change in known}
    matched: list[tuple[str, DetectedChange, SeriesChange | None]] = []
    for one in found:
        near = [change for change in left if _matches(one, change, order)]
        best = min(
            near,
            key=lambda change: (abs(order[change.first_run_id] - order[one.first_run_id]), change.id),
            default=None,
        )
        if best is not None:
            left.remove(best)
        matched.append((best.id if best else _make_unique_id(one, taken), one, best))
    return matched, left


def _make_unique_id(one: DetectedChange, taken: set[str]) -> str:
    """Make an id; a finding that moved since may have taken the place's own."""
    found = next(id_ for again in count() if (id_ := make_id(one, again)) not in taken)
    taken.add(found)
    return found


def make_id(one: DetectedChange, again: int = 0) -> str:
    """Make the id of a new finding: the same whenever the same is found anew; `again` is for one whose id is taken."""
    told = json.dumps(
        [*one.place, one.kind, one.direction, one.first_run_id, *([again] if again else [])], separators=(",", ":")
    )
    digest = hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=_ID_BYTES).digest()
    return base64.b32encode(digest).decode().lower()


def _matches(one: DetectedChange, change: SeriesChange, order: Mapping[str, int]) -> bool:
    if (one.kind, one.direction) != (change.kind, change.direction):
        return False
    if one.kind == "vanished":
        return one.first_run_id == change.first_run_id
    low, high = order[one.low_run_id], order[one.high_run_id]
    its_low = order.get(change.low_run_id or "", order[change.first_run_id])
    its_high = order.get(change.high_run_id or "", order[change.first_run_id])
    return its_low <= high and low <= its_high
