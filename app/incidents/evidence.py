"""The evidence of a change: the adjacent runs, what changed between them, and possible causes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

from compileboard.app.benchmarks.commit_order import list_commit_range
from compileboard.app.benchmarks.metrics import PASSES, format_value
from compileboard.app.benchmarks.trend_lines import find_changes
from compileboard.app.benchmarks.trend_queries import TrendRun, list_trend_runs
from compileboard.app.comparison.differences import compare
from compileboard.app.comparison.load import load_side
from compileboard.app.comparison.model import (
    WORDS,
    ComparedReasons,
    ComparedSide,
    Comparison,
    ModelPair,
    ModelResult,
    ReasonChange,
)
from compileboard.app.comparison.queries import find_distinct_ids
from compileboard.app.comparison.sides import find_side
from compileboard.app.core.forge import RunSource, get_source
from compileboard.app.core.format import format_plural
from compileboard.app.core.newest import read_clock
from compileboard.app.core.page import FilterError
from compileboard.app.core.schema import get_plain
from compileboard.app.core.store import Store
from compileboard.app.incidents.code_owners import find_owners, is_gitlab_syntax
from compileboard.app.incidents.groups import group_changes, match_incidents
from compileboard.app.incidents.likely_causes import CauseFinder, get_failed_result
from compileboard.app.incidents.model import (
    HeadlineMetric,
    Incident,
    IncidentCause,
    SeriesChange,
    describe_headline,
    describe_size,
    describe_values,
    find_metric_of,
    name_subject,
    rank_change,
    rank_severity,
)
from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.store.incident_triage import DetectedRows, IncidentMove
from compileboard.collectors.store.sealed_files import RunFileUnavailable

MAX_CAUSES = 12
MAX_COMMITS = 20
_CACHED_SIDES, _CACHED_PAIRS = 16, 64  # changes of one run are processed together
_LEFT_OUT = ("unchanged", "by_design")
# Something new or more frequent is the likelier cause of a change for the worse.
_RANK = {
    "slower": -1,
    "faster": -1,
    "new": 0,
    "changed": 1,
    "more often": 2,
    "resolved": 3,
    "less often": 4,
}
_COUNTERS = ("fallbacks_to_eager", "cudagraph_skips", "graph_breaks", "recompiles", "unique_graphs")


class EvidenceCollector:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._engine = store.engine
        self._side = lru_cache(maxsize=_CACHED_SIDES)(self._load_side)
        self._pair = lru_cache(maxsize=_CACHED_PAIRS)(self._compare)
        self._runs = lru_cache(maxsize=10_000)(self._read_run)

    def gather(self, change: SeriesChange) -> dict[str, Any]:
        after = self._runs(change.first_run_id)
        before = None if change.before_run_id is None else self._runs(change.before_run_id)
        return {
            "before": describe_run(before),
            "after": describe_run(after),
            "environment": _list_environment(before, after),
            "commits": self._list_commits(before, after),
            "causes": self._list_causes(change, before, after),
        }

    def _list_causes(
        self, change: SeriesChange, before: TrendRun | None, after: TrendRun | None
    ) -> list[dict[str, Any]]:
        is_stopped_suite = change.subject == "suite" and change.kind == "vanished"
        if before is None or after is None or is_stopped_suite:
            return []
        if change.metric == PASSES.name and change.kind == "step" and change.direction == "worse":
            # The result says why: comparing two runs takes a hundred times as long, and failures
            # are many.
            failed = get_failed_result(self._store, change)
            return (
                [_make_cause("failure", "new", failed.accuracy or failed.reason or "failed")]
                if failed
                else []
            )
        compared = self._pair(before.id, after.id)
        return [] if compared is None else self._find_causes(change, compared)

    def _read_run(self, run_id: str) -> TrendRun | None:
        return next(iter(list_trend_runs(self._engine, [run_id])), None)

    def _load_side(self, run_id: str) -> ComparedSide | None:
        try:
            clock = read_clock()  # only labels are needed, and an id needs none
            named = find_side(self._store.board, self._engine, clock, run_id, "run")
            return load_side(self._store, clock, named)
        except (FilterError, RunFileUnavailable):  # deleted in the meantime, or its file is lost
            return None

    def _compare(self, before: str, after: str) -> Comparison | None:
        base, new = self._side(before), self._side(after)
        return None if base is None or new is None else compare(base, new)

    def _list_commits(self, before: TrendRun | None, after: TrendRun | None) -> dict[str, Any]:
        if before is None or after is None or not before.git_commit or not after.git_commit:
            return {"known": False, "count": 0, "listed": []}
        if before.git_commit == after.git_commit:
            return {"known": True, "count": 0, "listed": []}
        in_range = list_commit_range(self._engine, before.git_commit, after.git_commit, MAX_COMMITS)
        listed = [
            {
                "hash": commit.hash,
                "author": commit.author,
                "subject": commit.subject,
                "time_us": commit.time_us,
            }
            for commit in in_range.commits
        ]
        return {
            "known": in_range.known,
            "count": in_range.count,
            "listed": listed if in_range.known else [],
        }

    def _find_causes(self, change: SeriesChange, compared: Comparison) -> list[dict[str, Any]]:
        breaks, recompiles, rerecordings = (
            _filter_subject(change, diff)
            for diff in (compared.breaks, compared.causes, compared.rerecordings)
        )
        # What is listed one by one needs no total.
        listed_names = {"graph_breaks", "unique_graphs"} if breaks else set()
        listed_names |= {"recompiles"} if recompiles else set()
        causes = [
            *self._list_distinct_causes("graph_break", "breaks", breaks),
            *self._list_distinct_causes("recompile", "causes", recompiles),
            *self._list_distinct_causes("rerecording", "rerecordings", rerecordings),
            *_sum_categories(recompiles),
            *_list_settings(compared),
            *_list_cache(compared),
            *_list_counter_causes(change, compared, listed_names | {change.metric}),
        ]
        return sorted(causes, key=lambda cause: _RANK.get(cause["word"], 9))[:MAX_CAUSES]

    def _list_distinct_causes(
        self, kind: str, table: str, changes: Sequence[ReasonChange]
    ) -> Iterable[dict[str, Any]]:
        ids = (
            find_distinct_ids(self._engine, table, [change.fingerprint for change in changes])
            if changes
            else {}
        )
        for change in changes:
            word = WORDS[change.word][0]
            where = f" in {change.function}" if change.function else ""
            cause = _make_cause(
                kind,
                word,
                f"{change.reason[:200]}{where}",
                change.base_count,
                change.new_count,
            )
            yield cause | {f"{table[:-1]}_id": ids.get(change.fingerprint)}


def _make_cause(
    kind: str, word: str, label: str, before: object = None, after: object = None
) -> dict[str, Any]:
    return {"kind": kind, "word": word, "label": label, "before": before, "after": after}


def describe_run(run: TrendRun | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {
        "run_id": run.id,
        "name": run.name,
        "started_us": run.started_us,
        "commit": run.git_commit,
        "subject": run.git_subject,
        "torch": run.torch_version,
    }


def _list_environment(before: TrendRun | None, after: TrendRun | None) -> list[dict[str, str]]:
    if before is None or after is None:
        return []
    parts = [part for change in find_changes([before, after]) for part in change.parts]
    return [{"word": word, "before": was, "now": now} for word, was, now in parts]


def _filter_subject(other_change: SeriesChange, diff: ComparedReasons) -> list[ReasonChange]:
    changed = [change for change in diff.changes if change.word not in _LEFT_OUT]
    if other_change.subject != "model":
        return changed
    return [
        change
        for change in changed
        if change.key is None or _is_of_series(other_change, change.key)
    ]


def _is_of_series(change: SeriesChange, key: Sequence[Any]) -> bool:
    return change.has_fields(
        dict(zip(("suite", "model", "mode", "dtype", "backend", "dynamic"), key))
    )


def _sum_categories(changes: Sequence[ReasonChange]) -> list[dict[str, Any]]:
    sums: dict[str, list[ReasonChange]] = {}
    for change in changes:
        sums.setdefault(change.kind or "", []).append(change)
    causes = []
    for category, members in sums.items():
        before, after = (
            sum(change.base_count for change in members),
            sum(change.new_count for change in members),
        )
        if category and len(members) > 1 and before != after:
            word = "more often" if after > before else "less often"
            causes.append(_make_cause("guard", word, label_category(category).label, before, after))
    return causes


def _list_settings(compared: Comparison) -> list[dict[str, Any]]:
    return [
        _make_cause(
            "setting",
            "changed",
            f"{setting.module}.{setting.name}",
            setting.base or setting.default,
            setting.new or setting.default,
        )
        for setting in compared.settings
        if setting.base != setting.new
    ]


def _list_cache(compared: Comparison) -> list[dict[str, Any]]:
    return [
        _make_cause(
            "cache",
            "more often" if total.new > total.base else "less often",
            "cache misses",
            int(total.base),
            int(total.new),
        )
        for total in compared.totals
        if total.metric.name == "cache_miss_count" and total.base != total.new
    ]


def _list_counter_causes(
    change: SeriesChange, compared: Comparison, listed_names: Set[str]
) -> list[dict[str, Any]]:
    if change.subject == "suite":
        before, after = (
            _count_models(change, side.entries) for side in (compared.base, compared.new)
        )
        return (
            [_make_cause("setting", "changed", "models of the suite", before, after)]
            if before != after
            else []
        )
    if change.subject != "model":
        return []
    causes = []
    for pair in compared.pairs:
        if _is_of_series(change, pair.new.key) and pair.new.series["batch_size"] in (
            None,
            change.batch_size or None,
        ):
            causes += _list_eager(change, pair)
            for name in _COUNTERS:
                delta = pair.deltas.get(name)
                if delta is not None and name not in listed_names and delta.base != delta.new:
                    word = "more often" if delta.new > delta.base else "less often"
                    causes.append(
                        _make_cause("counter", word, delta.metric.label, delta.base, delta.new)
                    )
    for entry in compared.new.entries:
        if (
            _is_of_series(change, entry.key)
            and change.direction == "worse"
            and (entry.status == "failed" or entry.is_wrong)
        ):
            causes.append(_make_cause("failure", "new", entry.accuracy or entry.reason or "failed"))
    return causes


def _list_eager(change: SeriesChange, pair: ModelPair) -> list[dict[str, Any]]:
    if (
        change.metric != "speedup"
        or "speedup" not in pair.deltas
        or pair.deltas["speedup"].word != "eager"
    ):
        return []
    eager = pair.deltas["eager_latency_ms"]
    values = (format_value(eager.metric, value) for value in (eager.base, eager.new))
    label = "its latency changed, the compiled model's did not"
    return [
        _make_cause("eager_mode", "slower" if eager.new > eager.base else "faster", label, *values)
    ]


def _count_models(change: SeriesChange, entries: Sequence[ModelResult]) -> int:
    return sum(entry.series["suite"] == change.suite for entry in entries)


HEADLINE_COUNT = 3
MAX_MODELS = 200
_TITLE_LIMIT = 200

_COUNTED = {
    "graph_break": "graph_breaks",
    "recompile": "recompiles",
}  # the evidence that a kind of cause adds to


class IncidentAssembler:
    def __init__(self, store: Store, ranks: Mapping[str, int]) -> None:
        self._engine = store.engine
        self._board = store.board
        self._ranks = ranks
        self._causes = CauseFinder(store)

    def assemble(
        self,
        changes: Iterable[SeriesChange],
        stored: Iterable[Incident],
        changed_ids: Set[str],
        commented_ids: Set[str],
        partitions: Set[tuple[str, str]],
    ) -> DetectedRows:
        rows: list[dict[str, Any]] = []
        members_by_id: dict[str, list[str]] = {}
        moves: list[IncidentMove] = []
        removed_ids: list[str] = []
        of_partition: dict[tuple[str, str], list[SeriesChange]] = {
            partition: [] for partition in partitions
        }
        for change in changes:
            if (change.suite, change.branch) in of_partition:
                of_partition[change.suite, change.branch].append(change)
        incidents: dict[tuple[str, str], list[Incident]] = {}
        for incident in stored:
            incidents.setdefault((incident.suite, incident.branch), []).append(incident)
        for partition, members in sorted(of_partition.items()):
            groups = group_changes(members, self._ranks)
            leads = [min(group, key=rank_change) for group in groups]
            matched = match_incidents(groups, leads, incidents.get(partition, ()))
            known = {incident.id: incident for incident in incidents.get(partition, ())}
            moves += matched.moves
            merged = {move.source_id for move in matched.moves if not move.is_split}
            removed_ids += [
                id_ for id_ in matched.removed_ids if id_ in merged or id_ not in commented_ids
            ]
            for incident_id, group, lead in zip(matched.ids, groups, leads):
                before = known.get(incident_id)
                if before is not None and _is_unchanged(before, group, changed_ids):
                    continue
                members_by_id[incident_id] = [change.id for change in group]
                rows.append(self._make_row(incident_id, lead, group))
        return DetectedRows(
            incidents=rows,
            members=members_by_id,
            moves=moves,
            removed_incident_ids=removed_ids,
        )

    def _make_row(
        self, incident_id: str, lead: SeriesChange, group: Sequence[SeriesChange]
    ) -> dict[str, Any]:
        live = [change for change in group if change.state != "withdrawn"] or list(group)
        drivers = _list_deciding_changes(live, lead.direction)
        state = find_state(live, drivers, lead.direction, self._ranks)
        good = max(
            (
                change
                for change in live
                if change.first_run_id == lead.first_run_id and change.before
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
        models = list(
            dict.fromkeys(name_subject(change) for change in sorted(drivers, key=rank_change))
        )
        evidence = {
            "last_good": good.before,
            "first_bad": lead.after,
            "recovered": recovered,
            "commits": good.commits,
            "environment": lead.environment,
            "measured_as": lead.measured_as,
            "models": models[:MAX_MODELS],
            "headline": [
                vars(_make_headline(change)) for change in pick_headlines(live, lead, causes)
            ],
            "causes": get_plain(causes),
            "others": others,
            "code_owners": self._find_owners(lead.first_run_id, causes),
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

    def _find_owners(self, run_id: str, causes: Sequence[IncidentCause]) -> list[str]:
        file = next((cause.file for cause in causes if cause.file), None)
        source = get_source(self._board, run_id) if file else RunSource()
        place, text = source.find_place(file), source.git.get("code_owners")
        if place is None or not text:
            return []
        is_gitlab = is_gitlab_syntax(text, source.git.get("remote"))
        return find_owners(text, place.file, is_gitlab=is_gitlab)

    def _describe(self, run_id: str) -> dict[str, Any] | None:
        return describe_run(next(iter(list_trend_runs(self._engine, [run_id])), None))


def _is_unchanged(before: Incident, group: Sequence[SeriesChange], changed_ids: Set[str]) -> bool:
    if not before.headlines or any(
        change.id in changed_ids or change.incident_id != before.id for change in group
    ):
        return False
    return before.change_count == (
        sum(change.state != "withdrawn" for change in group) or len(group)
    )


def _list_deciding_changes(live: Sequence[SeriesChange], direction: str) -> list[SeriesChange]:
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
    """Return whether all changes recovered, or most did and the others probably did.

    One commit may cause all of them and another recover them; in many noisy series some recoveries
    are never certain alone.
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
    live: Sequence[SeriesChange], lead: SeriesChange, causes: Sequence[IncidentCause] = ()
) -> list[SeriesChange]:
    """Return the most important changes: the lead, its other metrics, then other models."""
    ordered = sorted((change for change in live if change.id != lead.id), key=rank_change)
    shown, metrics = [lead], {lead.metric}
    for change in [change for change in ordered if change.model == lead.model] or ordered:
        if change.metric not in metrics and change.direction == lead.direction:
            metrics.add(change.metric)
            shown.append(change)
    counted = _COUNTED.get(causes[0].kind) if causes else None
    explaining = [change for change in shown[HEADLINE_COUNT:] if change.metric == counted]
    return [*shown[: HEADLINE_COUNT - len(explaining)], *explaining]


def _make_headline(change: SeriesChange) -> HeadlineMetric:
    return HeadlineMetric(
        change_id=change.id,
        subject=name_subject(change),
        metric=change.metric,
        label=find_metric_of(change).label,
        values=describe_values(change),
        size=describe_size(change),
        direction=change.direction,
    )


def make_title(
    lead: SeriesChange, live: Sequence[SeriesChange], causes: Sequence[IncidentCause]
) -> str:
    """Format as `<model>: <most severe change>, <cause>`."""
    models = {
        (change.subject, change.model) for change in live if change.direction == lead.direction
    }
    models = {model for model in models if model[0] != "suite"} or models
    subject = name_subject(lead) if len(models) == 1 else format_plural(len(models), "model")
    what = (
        "fails to compile" if causes and causes[0].is_compile_failure else describe_headline(lead)
    )
    if len(models) > 1:
        what += f" ({name_subject(lead)})"
    cause = causes[0].text if causes else ""
    cause = (
        cause[:1].lower() + cause[1:]
        if cause.startswith(("Graph", "Recompile", "Setting"))
        else cause
    )
    return f"{subject}: {what}{f', {cause}' if cause else ''}"[:_TITLE_LIMIT]
