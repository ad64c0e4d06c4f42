"""The evidence of a change: the runs next to it, what changed between them, and possible causes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from typing import Any

from compileboard.app.analysis.comparison.differences import WORDS, compare
from compileboard.app.analysis.comparison.model import (
    CompareSide,
    Comparison,
    DistinctChange,
    DistinctDiff,
    ModelPair,
    ModelResult,
)
from compileboard.app.analysis.metrics import PASSES, format_value
from compileboard.app.analysis.trends.lines import find_changes
from compileboard.app.engines.store import Store, open_run_or_board
from compileboard.app.incidents.detection import DetectedChange
from compileboard.app.queries.dashboard.causes import get_failed_result
from compileboard.app.queries.fleet.commits import list_commit_range
from compileboard.app.queries.fleet.comparison import find_distinct_ids
from compileboard.app.queries.fleet.trends import TrendRun, list_trend_runs
from compileboard.app.queries.newest import read_clock
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.sides import find_side
from compileboard.app.screens.fleet.comparison import load_side
from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.store.sealed.files import RunFileUnavailable

MOST_CAUSES = 12
MOST_COMMITS = 20
_CACHED_SIDES, _CACHED_PAIRS = 16, 64  # changes of one run come together
_UNCHANGED = "unchanged"
# A change for the worse is rather caused by what is new or came more often.
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

    def gather(self, change: DetectedChange) -> dict[str, Any]:
        after = self._runs(change.first_run_id)
        before = None if change.before_run_id is None else self._runs(change.before_run_id)
        return {
            "before": describe_run(before),
            "after": describe_run(after),
            "environment": _list_environment(before, after),
            "commits": self._list_commits(before, after),
            "causes": self._list_causes(change, before, after),
            "points": {"before": change.before_count, "after": change.after_count},
        }

    def _list_causes(
        self, change: DetectedChange, before: TrendRun | None, after: TrendRun | None
    ) -> list[dict[str, Any]]:
        if before is None or after is None or _belongs_to_other_subject(change):
            return []
        if change.metric == PASSES.name and change.kind == "step" and change.direction == "worse":
            # The result says why: comparing two runs takes a hundred times as long, and failures
            # are many.
            series = change.configuration
            failed = get_failed_result(
                open_run_or_board(self._store, after.id), after.id, series["suite"], series["model"]
            )
            return (
                [_make("failure", "new", failed.accuracy or failed.reason or "failed")]
                if failed
                else []
            )
        compared = self._pair(before.id, after.id)
        return [] if compared is None else self._find_causes(change, compared)

    def _read_run(self, run_id: str) -> TrendRun | None:
        runs = list_trend_runs(self._engine, [run_id])
        return runs[0] if runs else None

    def _load_side(self, run_id: str) -> CompareSide | None:
        try:
            clock = read_clock()  # labels alone: an id needs none
            named = find_side(self._store.board, self._engine, clock, run_id, "run")
            return load_side(self._store, clock, named)
        except (FilterError, RunFileUnavailable):  # deleted meanwhile, or its file is lost
            return None

    def _compare(self, before: str, after: str) -> Comparison | None:
        base, new = self._side(before), self._side(after)
        return None if base is None or new is None else compare(base, new)

    def _list_commits(self, before: TrendRun | None, after: TrendRun | None) -> dict[str, Any]:
        if before is None or after is None or not before.git_commit or not after.git_commit:
            return {"known": False, "count": 0, "listed": []}
        if before.git_commit == after.git_commit:
            return {"known": True, "count": 0, "listed": []}
        in_range = list_commit_range(
            self._engine, before.git_commit, after.git_commit, MOST_COMMITS
        )
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

    def _find_causes(self, change: DetectedChange, compared: Comparison) -> list[dict[str, Any]]:
        breaks, recompiles = (
            _filter_subject(change, diff) for diff in (compared.breaks, compared.causes)
        )
        # What is told one by one needs no count beside it.
        listed_names = {"graph_breaks", "unique_graphs"} if breaks else set()
        listed_names |= {"recompiles"} if recompiles else set()
        causes = [
            *self._of_distinct("graph_break", "breaks", breaks),
            *self._of_distinct("recompile", "causes", recompiles),
            *_sum_categories(recompiles),
            *_list_settings(compared),
            *_list_cache(compared),
            *_list_own(change, compared, listed_names | {change.metric}),
        ]
        return sorted(causes, key=lambda cause: _RANK.get(cause["word"], 9))[:MOST_CAUSES]

    def _of_distinct(
        self, kind: str, table: str, changes: Sequence[DistinctChange]
    ) -> Iterable[dict[str, Any]]:
        ids = (
            find_distinct_ids(self._engine, table, [change.what.fingerprint for change in changes])
            if changes
            else {}
        )
        for change in changes:
            word = WORDS[change.word][0]
            where = f" in {change.what.function}" if change.what.function else ""
            cause = _make(
                kind,
                word,
                f"{change.what.reason[:200]}{where}",
                change.base_count,
                change.new_count,
            )
            yield cause | {f"{table[:-1]}_id": ids.get(change.what.fingerprint)}


def _belongs_to_other_subject(change: DetectedChange) -> bool:
    return change.subject == "suite" and change.kind == "vanished"


def _make(
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


def _filter_subject(other_change: DetectedChange, diff: DistinctDiff) -> list[DistinctChange]:
    changed = [change for change in diff.changes if change.word != _UNCHANGED]
    if other_change.subject != "model":
        return changed
    return [
        change
        for change in changed
        if change.what.model is None or _is_of(other_change, change.what.model)
    ]


def _is_of(change: DetectedChange, key: Sequence[Any]) -> bool:
    names = ("suite", "model", "mode", "dtype", "backend", "dynamic")
    return all((ours or "") == (change.configuration[name] or "") for name, ours in zip(names, key))


def _sum_categories(changes: Sequence[DistinctChange]) -> list[dict[str, Any]]:
    sums: dict[str, list[DistinctChange]] = {}
    for change in changes:
        sums.setdefault(change.what.kind or "", []).append(change)
    causes = []
    for category, members in sums.items():
        before, after = (
            sum(change.base_count for change in members),
            sum(change.new_count for change in members),
        )
        if category and len(members) > 1 and before != after:
            word = "more often" if after > before else "less often"
            causes.append(_make("guard", word, label_category(category).label, before, after))
    return causes


def _list_settings(compared: Comparison) -> list[dict[str, Any]]:
    return [
        _make(
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
        _make(
            "cache",
            "more often" if total.new > total.base else "less often",
            "cache misses",
            int(total.base),
            int(total.new),
        )
        for total in compared.totals
        if total.metric.name == "cache_miss_count" and total.base != total.new
    ]


def _list_own(
    change: DetectedChange, compared: Comparison, listed_names: Set[str]
) -> list[dict[str, Any]]:
    if change.subject == "suite":
        before, after = (
            _count_models(change, side.entries) for side in (compared.base, compared.new)
        )
        return (
            [_make("setting", "changed", "models of the suite", before, after)]
            if before != after
            else []
        )
    if change.subject != "model":
        return []
    causes = []
    for pair in compared.pairs:
        if _is_of(change, pair.new.key) and pair.new.series["batch_size"] in (
            None,
            change.configuration["batch_size"] or None,
        ):
            causes += _list_eager(change, pair)
            for name in _COUNTERS:
                delta = pair.deltas.get(name)
                if delta is not None and name not in listed_names and delta.base != delta.new:
                    word = "more often" if delta.new > delta.base else "less often"
                    causes.append(_make("counter", word, delta.metric.label, delta.base, delta.new))
    for entry in compared.new.entries:
        if (
            _is_of(change, entry.key)
            and change.direction == "worse"
            and (entry.status == "failed" or entry.is_wrong)
        ):
            causes.append(_make("failure", "new", entry.accuracy or entry.reason or "failed"))
    return causes


def _list_eager(change: DetectedChange, pair: ModelPair) -> list[dict[str, Any]]:
    if (
        change.metric != "speedup"
        or "speedup" not in pair.deltas
        or pair.deltas["speedup"].word != "eager"
    ):
        return []
    eager = pair.deltas["eager_latency_ms"]
    values = (format_value(eager.metric, value) for value in (eager.base, eager.new))
    label = "its latency changed, the compiled model's did not"
    return [_make("eager_mode", "slower" if eager.new > eager.base else "faster", label, *values)]


def _count_models(change: DetectedChange, entries: Sequence[ModelResult]) -> int:
    return sum(entry.series["suite"] == change.configuration["suite"] for entry in entries)
