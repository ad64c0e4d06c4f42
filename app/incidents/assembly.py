"""Assembly of incidents from series changes: grouping, the leading change, the title."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from compileboard.app.analysis.incidents.groups import group_changes, match_incidents
from compileboard.app.analysis.incidents.messages import (
    describe_headline,
    describe_series,
    describe_size,
    describe_values,
    find_metric_of,
    name_subject,
    rank_severity,
)
from compileboard.app.engines.store import Store
from compileboard.app.format import format_plural
from compileboard.app.incidents.causes import CauseFinder
from compileboard.app.incidents.evidence import describe_run
from compileboard.app.queries.dashboard.incidents import StoredIncident
from compileboard.app.queries.dashboard.series_changes import SeriesChange
from compileboard.app.queries.fleet.trends import list_trend_runs
from compileboard.collectors.store.dashboard.incidents import IncidentMove

HEADLINE_COUNT = 3
MOST_MODELS = 200
_TITLE_LIMIT = 200

_COUNTED = {
    "graph_break": "graph_breaks",
    "recompile": "recompiles",
}  # what a cause of a kind adds to


class AssembledIncidents:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.members: dict[str, list[str]] = {}
        self.moves: list[IncidentMove] = []
        self.removed_ids: list[str] = []
        self.new_ids: set[str] = set()


class IncidentAssembler:
    def __init__(self, store: Store, ranks: Mapping[str, int]) -> None:
        self._engine = store.engine
        self._ranks = ranks
        self._causes = CauseFinder(store)

    def assemble(
        self,
        changes: Iterable[SeriesChange],
        stored: Iterable[StoredIncident],
        changed_ids: Set[str],
        commented_ids: Set[str],
        partitions: Set[tuple[str, str]],
    ) -> AssembledIncidents:
        assembled = AssembledIncidents()
        of_partition: dict[tuple[str, str], list[SeriesChange]] = {
            partition: [] for partition in partitions
        }
        for change in changes:
            if (change.suite, change.branch) in of_partition:
                of_partition[change.suite, change.branch].append(change)
        incidents: dict[tuple[str, str], list[StoredIncident]] = {}
        for incident in stored:
            incidents.setdefault((incident.suite, incident.branch), []).append(incident)
        for partition, members in sorted(of_partition.items()):
            groups = group_changes(members, self._ranks)
            leads = [pick_lead(group) for group in groups]
            matched = match_incidents(groups, leads, incidents.get(partition, ()))
            known = {incident.id: incident for incident in incidents.get(partition, ())}
            assembled.moves += matched.moves
            merged = {move.source_id for move in matched.moves if not move.is_split}
            assembled.removed_ids += [
                id_ for id_ in matched.removed_ids if id_ in merged or id_ not in commented_ids
            ]
            for incident_id, group, lead in zip(matched.ids, groups, leads):
                before = known.get(incident_id)
                if before is not None and _is_unchanged(before, group, changed_ids):
                    continue
                if before is None:
                    assembled.new_ids.add(incident_id)
                assembled.members[incident_id] = [change.id for change in group]
                assembled.rows.append(self._make_row(incident_id, lead, group))
        return assembled

    def _make_row(
        self, incident_id: str, lead: SeriesChange, group: Sequence[SeriesChange]
    ) -> dict[str, Any]:
        live = [change for change in group if change.state != "withdrawn"] or list(group)
        drivers = _list_drivers(live, lead.direction)
        state = find_state(live, drivers, lead.direction, self._ranks)
        good = max(
            (
                change
                for change in live
                if change.first_run_id == lead.first_run_id and change.evidence.get("before")
            ),
            key=lambda change: self._ranks.get(change.before_run_id or "", -1),
            default=lead,
        )
        recovered_id = max(
            (change.recovered_run_id for change in drivers if change.recovered_run_id),
            key=lambda run_id: self._ranks.get(run_id, -1),
            default=None,
        )
        recovered = self._describe(recovered_id) if state == "recovered" and recovered_id else None
        causes, others = self._causes.find(lead, live)
        models = list(dict.fromkeys(name_subject(change) for change in sorted(drivers, key=_rank)))
        evidence = {
            "last_good": good.evidence.get("before"),
            "first_bad": lead.evidence.get("after"),
            "recovered": recovered,
            "commits": good.evidence.get("commits"),
            "environment": lead.evidence.get("environment") or [],
            "measured_as": describe_series(lead),
            "models": models[:MOST_MODELS],
            "headline": [_make_headline(change) for change in pick_headlines(live, lead, causes)],
            "causes": causes,
            "others": others,
        }
        confirmed = [change.confirmed_us for change in drivers if change.confirmed_us is not None]
        return {
            "id": incident_id,
            "direction": lead.direction,
            "state": state,
            "title": make_title(lead, live, causes),
            "suite": lead.suite,
            "branch": lead.branch,
            "severity": rank_severity(lead),
            "lead_change_id": lead.id,
            "change_count": len(live),
            "last_good_run_id": good.before_run_id,
            "first_bad_run_id": lead.first_run_id,
            "recovered_run_id": recovered_id if state == "recovered" else None,
            "first_us": lead.first_us,
            "recovered_us": recovered and recovered["started_us"],
            "confirmed_us": min(confirmed, default=None),
            "evidence": json.dumps(evidence, ensure_ascii=False, separators=(",", ":")),
        }

    def _describe(self, run_id: str) -> dict[str, Any] | None:
        runs = list_trend_runs(self._engine, [run_id])
        return describe_run(runs[0]) if runs else None


def _is_unchanged(
    before: StoredIncident, group: Sequence[SeriesChange], changed_ids: Set[str]
) -> bool:
    if not before.evidence or any(
        change.id in changed_ids or change.incident_id != before.id for change in group
    ):
        return False
    return before.change_count == (
        sum(change.state != "withdrawn" for change in group) or len(group)
    )


def pick_lead(group: Sequence[SeriesChange]) -> SeriesChange:
    return min(group, key=_rank)


def _rank(change: SeriesChange) -> tuple[Any, ...]:
    direction = ("worse", "better", "changed").index(change.direction)
    is_withdrawn, is_suite = change.state == "withdrawn", change.subject == "suite"
    return (
        is_withdrawn,
        direction,
        is_suite,
        rank_severity(change),
        -abs(change.relative or 0),
        change.id,
    )


def _list_drivers(live: Sequence[SeriesChange], direction: str) -> list[SeriesChange]:
    own = [change for change in live if change.direction == direction]
    return [change for change in own if change.subject != "suite"] or own


def find_state(
    live: Sequence[SeriesChange],
    drivers: Sequence[SeriesChange],
    direction: str,
    ranks: Mapping[str, int],
) -> str:
    if all(change.state == "withdrawn" for change in live):
        return "withdrawn"
    confirmed = [change for change in drivers if change.state == "confirmed"]
    if not confirmed:
        return "unconfirmed"
    if direction != "worse":
        return "closed"
    return "recovered" if _is_over(confirmed, ranks) else "open"


def _is_over(changes: Sequence[SeriesChange], ranks: Mapping[str, int]) -> bool:
    """Return whether every change recovered, or most did and the others, as it seems, with them.

    What one commit brought, one takes back; of many noisy series some are never certain alone.
    """
    recovered = [
        ranks.get(change.recovered_run_id, -1) for change in changes if change.recovered_run_id
    ]
    spans = [change.may_be_back for change in changes if not change.recovered_run_id]
    if not spans:
        return True
    return len(recovered) > len(spans) and all(
        span is not None
        and ranks.get(span[0], len(ranks)) <= max(recovered)
        and min(recovered) <= ranks.get(span[1], -1)
        for span in spans
    )


def pick_headlines(
    live: Sequence[SeriesChange], lead: SeriesChange, causes: Sequence[Mapping[str, Any]] = ()
) -> list[SeriesChange]:
    """Return the most important changes: the lead, its other metrics, then other models."""
    ordered = sorted((change for change in live if change.id != lead.id), key=_rank)
    shown, metrics = [lead], {lead.metric}
    for change in [change for change in ordered if change.model == lead.model] or ordered:
        if change.metric not in metrics and change.direction == lead.direction:
            metrics.add(change.metric)
            shown.append(change)
    counted = _COUNTED.get(causes[0].get("kind", "")) if causes else None
    explaining = [change for change in shown[HEADLINE_COUNT:] if change.metric == counted]
    return [*shown[: HEADLINE_COUNT - len(explaining)], *explaining]


def _make_headline(change: SeriesChange) -> dict[str, Any]:
    return {
        "change_id": change.id,
        "subject": name_subject(change),
        "metric": change.metric,
        "label": find_metric_of(change).label,
        "values": describe_values(change),
        "size": describe_size(change),
        "direction": change.direction,
    }


def make_title(
    lead: SeriesChange, live: Sequence[SeriesChange], causes: Sequence[Mapping[str, Any]]
) -> str:
    """Format as `<model>: <most severe change>, <cause>`."""
    models = {
        (change.subject, change.model) for change in live if change.direction == lead.direction
    }
    models = {model for model in models if model[0] != "suite"} or models
    subject = name_subject(lead) if len(models) == 1 else format_plural(len(models), "model")
    what = (
        "fails to compile"
        if causes and causes[0].get("is_compile_failure")
        else describe_headline(lead)
    )
    if len(models) > 1:
        what += f" ({name_subject(lead)})"
    cause = causes[0]["text"] if causes else ""
    cause = (
        cause[:1].lower() + cause[1:]
        if cause.startswith(("Graph", "Recompile", "Setting"))
        else cause
    )
    return f"{subject}: {what}{f', {cause}' if cause else ''}"[:_TITLE_LIMIT]
