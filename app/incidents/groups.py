"""Group series changes from one change of code or machine into incidents.

Changes of one branch and suite join if the ranges of runs in which they occurred overlap and they
share a model, or a cause that is new in both. A gradual change joins only gradual ones, because it
would chain every step of half a year, and small steps within it, which are noise of the drift.
Changes of several models in one direction join if one run may have brought them all, as after a new
driver. A measured change without a cause joins a change of its model with a cause in the next run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from compileboard.app.benchmarks.metrics import MODEL_OF, PASSES
from compileboard.app.incidents.model import Incident, SeriesChange, find_metric_of
from compileboard.collectors.store.incident_triage import IncidentMove
from compileboard.collectors.store.rollups import SET

_MOVED_BY = MODEL_OF | {"pass_ratio": PASSES.name}  # a model's metric and the suite's that it moves
_SEVERAL = 3  # gradual changes of so many models make the suite's
_NEW = ("new", "more often", "changed")


class RunSpan(NamedTuple):
    """Ranks of the runs between which a change occurred: after `start`, up to and including
    `end`.
    """

    start: int
    end: int

    def overlaps(self, other: RunSpan) -> bool:
        return max(self.start, other.start) < min(self.end, other.end)


class _UnionFind:
    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def find(self, position: int) -> int:
        while self._parents[position] != position:
            self._parents[position] = self._parents[self._parents[position]]
            position = self._parents[position]
        return position

    def join(self, first: int, second: int) -> None:
        self._parents[self.find(second)] = self.find(first)


def group_changes(
    changes: Sequence[SeriesChange], ranks: Mapping[str, int]
) -> list[list[SeriesChange]]:
    """Group changes of one branch and suite. A withdrawn change stays with its incident."""
    groups = _UnionFind(len(changes))
    spans = [
        None if change.state == "withdrawn" else find_span(change, ranks) for change in changes
    ]
    keyed: dict[Hashable, list[int]] = {}
    for position, change in enumerate(changes):
        if spans[position] is not None and change.subject != "suite":
            for key in _list_keys(change):
                keyed.setdefault(key, []).append(position)
    for key, positions in keyed.items():
        join = _join_densest if isinstance(key, tuple) and key[0] == "range" else _join_overlapping
        join(groups, positions, spans)
    _join_touching(groups, changes, spans)
    _join_parts_of_drifts(groups, changes, spans)
    _attach_suites(groups, changes, spans)
    _join_withdrawn(groups, changes, spans)
    members: dict[int, list[SeriesChange]] = {}
    for position, change in enumerate(changes):
        members.setdefault(groups.find(position), []).append(change)
    return list(members.values())


def find_span(change: SeriesChange, ranks: Mapping[str, int]) -> RunSpan | None:
    first = ranks.get(change.first_run_id)
    if first is None:
        return None
    start = ranks.get(change.before_run_id or "", ranks.get(change.low_run_id or "", first) - 1)
    return RunSpan(min(start, first - 1), max(ranks.get(change.high_run_id or "", first), first))


def list_cause_keys(change: SeriesChange) -> list[Hashable]:
    keys: list[Hashable] = []
    for cause in change.causes:
        ids = map(cause.get, ("break_id", "cause_id", "rerecording_id"))
        identity = next(filter(None, ids), None)
        if identity and cause["word"] in _NEW:
            keys.append(("cause", identity))
        elif cause["kind"] == "setting":
            keys.append(
                ("setting", cause["label"], str(cause.get("before")), str(cause.get("after")))
            )
    for part in change.environment:
        keys.append(("environment", part.get("word"), part.get("before"), part.get("now")))
    return keys


def _list_keys(change: SeriesChange) -> list[Hashable]:
    is_drift = change.kind == "drift"
    causes = [] if is_drift else list_cause_keys(change)
    one_range = ("range", is_drift, change.direction)
    return [(is_drift, change.subject, change.model), *(causes or [one_range])]


def _join_overlapping(
    groups: _UnionFind, positions: Iterable[int], spans: Sequence[RunSpan | None]
) -> None:
    newest: tuple[int, int] | None = None  # the largest end so far, and its change
    for span, position in sorted(
        (span, position) for position in positions if (span := spans[position]) is not None
    ):
        if newest is not None and span.start < newest[0]:
            groups.join(newest[1], position)
        if newest is None or span.end > newest[0]:
            newest = (span.end, position)


def _join_densest(
    groups: _UnionFind, positions: Iterable[int], spans: Sequence[RunSpan | None]
) -> None:
    left = [(span, position) for position in positions if (span := spans[position]) is not None]
    while left:
        counts = Counter(
            rank for span, _position in left for rank in range(span.start + 1, span.end + 1)
        )
        densest = min(counts, key=lambda rank: (-counts[rank], rank))
        joined = [position for span, position in left if span.start < densest <= span.end]
        for position in joined:
            groups.join(joined[0], position)
        left = [(span, position) for span, position in left if not span.start < densest <= span.end]


def _join_touching(
    groups: _UnionFind, changes: Sequence[SeriesChange], spans: Sequence[RunSpan | None]
) -> None:
    steps = [
        (position, change, span)
        for position, (change, span) in enumerate(zip(changes, spans))
        if span is not None and change.subject == "model" and change.kind == "step"
    ]
    explained = [
        (position, change, span) for position, change, span in steps if list_cause_keys(change)
    ]
    known = {groups.find(position) for position, _change, _span in explained}
    for position, change, span in steps:
        if groups.find(position) in known or find_metric_of(change).kind == "count":
            continue
        beside = {
            groups.find(number)
            for number, other, reach in explained
            if (other.model, other.direction) == (change.model, change.direction)
            and (reach.start == span.end or reach.end == span.start)
        }
        if len(beside) == 1:
            groups.join(beside.pop(), position)


def _join_parts_of_drifts(
    groups: _UnionFind, changes: Sequence[SeriesChange], spans: Sequence[RunSpan | None]
) -> None:
    """Join a drift with the small steps into which noise divides it. A step larger than the whole
    drift stays an incident of its own.
    """
    members: dict[int, list[int]] = {}
    for position, change in enumerate(changes):
        if change.subject == "model" and spans[position] is not None:
            members.setdefault(groups.find(position), []).append(position)
    drifts = {
        root: [changes[at] for at in own if changes[at].kind == "drift"]
        for root, own in members.items()
    }
    wide = {
        root: own
        for root, own in drifts.items()
        if len({change.model for change in own}) >= _SEVERAL
    }
    for root, own in members.items():
        steps = [changes[at] for at in own]
        if drifts[root] or any(
            list_cause_keys(step) or find_metric_of(step).kind == "count" for step in steps
        ):
            continue
        for drift_root, drift in wide.items():
            limit = max(abs(change.relative or 0) for change in drift)
            runs = [spans[at] for at in members[drift_root]]
            start, end = (
                min(span.start for span in runs if span),
                max(span.end for span in runs if span),
            )
            if all(
                step.direction == drift[0].direction
                and abs(step.relative or 0) <= limit
                and (span := spans[at]) is not None
                and start <= span.start
                and span.end <= end
                for at, step in zip(own, steps)
            ):
                groups.join(drift_root, root)
                break


def _attach_suites(
    groups: _UnionFind, changes: Sequence[SeriesChange], spans: Sequence[RunSpan | None]
) -> None:
    of_models = [
        number
        for number, change in enumerate(changes)
        if change.subject == "model" and spans[number]
    ]
    left: dict[Hashable, list[int]] = {}
    for position, change in enumerate(changes):
        span = spans[position]
        if change.subject != "suite" or span is None:
            continue
        moved = [
            number
            for number in of_models
            if _explains_suite_change(changes[number], change, spans[number], span)
        ]
        if moved:
            best = max(moved, key=lambda number: _rank_match(changes[number], change))
            groups.join(best, position)
        else:
            key = (change.kind == "drift", *(getattr(change, name) for name in SET))
            left.setdefault(key, []).append(position)
    for positions in left.values():
        _join_overlapping(groups, positions, spans)


def _join_withdrawn(
    groups: _UnionFind, changes: Sequence[SeriesChange], spans: Sequence[RunSpan | None]
) -> None:
    firsts: dict[str, int] = {}
    for position, (change, span) in enumerate(zip(changes, spans)):
        if span is not None and change.incident_id:
            firsts.setdefault(change.incident_id, position)
    for position, (change, span) in enumerate(zip(changes, spans)):
        if span is None and change.incident_id:
            groups.join(firsts.setdefault(change.incident_id, position), position)


def _explains_suite_change(
    change: SeriesChange, of_suite: SeriesChange, span: RunSpan | None, suite_span: RunSpan
) -> bool:
    same = all(getattr(change, name) == getattr(of_suite, name) for name in SET)
    alike = change.direction == of_suite.direction and (change.kind == "drift") == (
        of_suite.kind == "drift"
    )
    return same and alike and span is not None and span.overlaps(suite_span)


def _rank_match(change: SeriesChange, of_suite: SeriesChange) -> tuple[Any, ...]:
    same_metric = change.metric == _MOVED_BY.get(of_suite.metric, of_suite.metric)
    return (
        same_metric,
        change.first_run_id == of_suite.first_run_id,
        abs(change.relative or 0),
        change.id,
    )


class IncidentMatch(NamedTuple):
    ids: list[str]
    moves: list[IncidentMove]
    removed_ids: list[str]


def match_incidents(
    groups: Sequence[Sequence[SeriesChange]],
    leads: Sequence[SeriesChange],
    stored: Iterable[Incident],
) -> IncidentMatch:
    """Return the incident of each group: the stored one with its changes, or a new one.

    When an incident splits, the part with most of its changes keeps the id, and the others get a
    copy of the discussion. When incidents merge, the oldest keeps its id and gets all discussions.
    """
    known = {incident.id: incident for incident in stored}
    counts: dict[str, Counter[int]] = {}
    for number, group in enumerate(groups):
        for change in group:
            if change.incident_id in known:
                counts.setdefault(str(change.incident_id), Counter())[number] += 1
    # By incident: the group that continues it.
    owner = {id_: min(of, key=lambda number: (-of[number], number)) for id_, of in counts.items()}
    owned: dict[int, list[str]] = {}
    for incident_id in sorted(owner, key=lambda id_: (known[id_].found_us, id_)):
        owned.setdefault(owner[incident_id], []).append(incident_id)
    taken = set(known)
    ids: list[str] = []
    moves: list[IncidentMove] = []
    for number, group in enumerate(groups):
        own = owned.get(number, [])
        incident_id = own[0] if own else _make_id(leads[number].id, taken)
        taken.add(incident_id)
        ids.append(incident_id)
        moves += [IncidentMove(other, incident_id, is_split=False) for other in own[1:]]
        if not own:
            sources = {change.incident_id for change in group if change.incident_id in known}
            moves += [
                IncidentMove(source, incident_id, is_split=True)
                for source in sorted(filter(None, sources))
            ]
    removed = set(known).difference(ids)
    return IncidentMatch(ids, moves, sorted(removed))


def _make_id(change_id: str, taken: set[str]) -> str:
    number, incident_id = 1, change_id
    while incident_id in taken:
        number += 1
        incident_id = f"{change_id}-{number}"
    return incident_id
