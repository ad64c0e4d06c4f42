"""Bring the findings up to date with the runs: everything once, then what new runs touch."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

from compileboard.app.incidents.detection import DetectedChange, detect, detect_stopped, key_of, match, needs_rescan
from compileboard.app.incidents.evidence import EvidenceCollector
from compileboard.app.incidents.pending import VERSION, PendingRuns, find_pending_runs
from compileboard.app.incidents.series import (
    MeasuredRuns,
    RunOrder,
    Series,
    find_configuration,
    find_suite_runs,
    merge_suites,
    rank_runs,
    read_model_series,
    read_run_series,
    read_suite_series,
)
from compileboard.app.queries.dashboard.incidents import SeriesChange, load_findings
from compileboard.app.queries.engine import SqliteEngine
from compileboard.app.queries.fleet.series import list_names_of, list_series_of, list_suites_of
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.dashboard.series_changes import FOUND, save_findings

_TAIL_RUNS = 80  # of a branch, in which something new is looked for; what is found there is looked at whole
_WITHOUT_EVIDENCE = tuple(name for name in FOUND if name not in ("evidence", "confirmed_us"))


@dataclass(frozen=True)
class UpdateReport:
    """Say what an update did."""

    run_count: int  # that were new
    series_count: int  # series that were looked at
    new_ids: tuple[str, ...]
    changed_count: int
    removed_count: int


@dataclass
class _Changes:
    """Gather what is to be written."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    removed_ids: list[str] = field(default_factory=list)
    new_ids: list[str] = field(default_factory=list)
    series_count: int = 0


def update_findings(
    path: str | os.PathLike[str], *, everything: bool = False, now_us: int | None = None
) -> UpdateReport:
    """Look at the series of new runs, at all series where asked, and keep what is found.

    Raises: StoreError if the database cannot be used.
    """
    with closing(open_reader(path)) as reader:
        pending = find_pending_runs(reader, everything=everything)
        if not pending.needs_full_scan and not pending.run_ids:
            return UpdateReport(0, 0, (), 0, 0)
        changes = SeriesScanner(reader, pending).scan(load_findings(reader))
    with closing(open_writer(path)) as writer:
        save_findings(writer, changes.rows, changes.removed_ids, seen=pending.cursor, version=VERSION, now_us=now_us)
    new_ids = tuple(changes.new_ids)
    return UpdateReport(
        len(pending.run_ids), changes.series_count, new_ids, len(changes.rows) - len(new_ids), len(changes.removed_ids)
    )


class SeriesScanner:
    """Series to rescan because new runs touched them."""

    def __init__(self, reader: sqlite3.Connection, pending: PendingRuns) -> None:
        self._reader = reader
        self._engine = SqliteEngine(reader)
        self._pending = pending

    def scan(self, kept: Sequence[SeriesChange]) -> _Changes:
        """Detect what is there to detect, and say what is to be written."""
        places = RunOrder(self._pending.runs, rank_runs(self._engine, self._pending.runs))
        by_place: dict[tuple[Any, ...], list[SeriesChange]] = {}
        for change in kept:
            by_place.setdefault(key_of(change), []).append(change)
        evidence, changes = EvidenceCollector(self._reader), _Changes()
        lines, presences = self._read(places, by_place)
        for line in lines:
            changes.series_count += 1
            of_line = [change for change in by_place.get(line.place, ()) if change.kind != "vanished"]
            _save(changes, evidence, places, detect(line), of_line)
        for presence, others in _list_others(presences, places):
            one = detect_stopped(presence, others, places.order)
            of_series = [change for change in by_place.get(presence.place, ()) if change.kind == "vanished"]
            if one is None and not self._pending.needs_full_scan:  # of the newest runs alone: too few to take it back
                of_series = [
                    finding for finding in of_series if presence.measured_after(finding.first_run_id, places.order)
                ]
            _save(changes, evidence, places, [one] if one else [], of_series, presence.run_ids)
        return changes

    def _read(
        self, places: RunOrder, by_place: Mapping[tuple[Any, ...], Sequence[SeriesChange]]
    ) -> tuple[Iterator[Series], list[MeasuredRuns]]:
        """Read the lines that may have changed, and when each series of the touched branches was there."""
        presences: list[MeasuredRuns] = []
        if self._pending.needs_full_scan:
            return self._read_all(places, presences), presences
        touched = set(list_series_of(self._engine, self._pending.run_ids))
        loud: dict[int, set[tuple[Any, ...]]] = {}
        for series_id, lines, present in read_model_series(self._engine, places, run_ids=self._list_tail(places)):
            presences.extend(present)
            if series_id in touched:
                found = {line.place for line in lines if self._needs_rescan(line, by_place.get(line.place, ()), places)}
                loud |= {series_id: found} if found else {}
        return self._read_changed(places, loud), presences

    def _needs_rescan(self, line: Series, kept: Sequence[SeriesChange], places: RunOrder) -> bool:
        return needs_rescan(line, kept, places.order, is_cut=places.counts[line.branch] > _TAIL_RUNS)

    def _read_all(self, places: RunOrder, presences: list[MeasuredRuns]) -> Iterator[Series]:
        for _series_id, lines, present in read_model_series(self._engine, places):
            presences.extend(present)
            yield from lines
        yield from read_suite_series(self._engine, places)
        yield from read_run_series(self._engine, places)

    def _read_changed(self, places: RunOrder, loud: Mapping[int, Set[tuple[Any, ...]]]) -> Iterator[Series]:
        for series_id, lines, _present in read_model_series(self._engine, places, list(loud)) if loud else ():
            yield from (line for line in lines if line.place in loud[series_id])
        yield from read_suite_series(self._engine, places, list_suites_of(self._engine, self._pending.run_ids))
        yield from read_run_series(self._engine, places, list_names_of(self._engine, self._pending.run_ids))

    def _list_tail(self, places: RunOrder) -> list[str]:
        """List the newest runs of the branches that have new ones, and the new ones wherever they stand."""
        branches = {places.runs[run_id].branch for run_id in self._pending.run_ids}
        tail = dict.fromkeys(self._pending.run_ids)
        for branch in sorted(branches):
            of_branch = [run_id for run_id, run in places.runs.items() if run.branch == branch]
            of_branch.sort(key=lambda run_id: places.order[run_id])
            tail.update(dict.fromkeys(of_branch[-_TAIL_RUNS:]))
        return list(tail)


def _list_others(presences: Sequence[MeasuredRuns], places: RunOrder) -> Iterator[tuple[MeasuredRuns, Set[str]]]:
    """Yield when each model and suite was measured, and the runs that had its suite or, of a suite, any."""
    suite_runs = find_suite_runs(presences)
    for presence in presences:
        yield presence, suite_runs[find_configuration(presence.key, presence.branch)]
    of_branch: dict[str, set[str]] = {}
    suites = merge_suites(presences, places.order)
    for suite in suites:
        of_branch.setdefault(suite.branch, set()).update(suite.run_ids)
    yield from ((suite, of_branch[suite.branch]) for suite in suites)


def _save(
    changes: _Changes,
    evidence: EvidenceCollector,
    places: RunOrder,
    found: Sequence[DetectedChange],
    kept: Sequence[SeriesChange],
    present: Sequence[str] = (),
) -> None:
    """Note what is to be written of one series."""
    matched, lost = match(found, kept, places.order)
    for finding_id, one, before in matched:
        row = _make_row(finding_id, one, before, places)
        if before is None:
            changes.new_ids.append(finding_id)
        same_runs = before is not None and (before.before_run_id, before.first_run_id) == (
            one.before_run_id,
            one.first_run_id,
        )
        if before is not None and same_runs and all(getattr(before, name) == row[name] for name in _WITHOUT_EVIDENCE):
            continue
        points = {"points": {"before": one.before_count, "after": one.after_count}}
        told = before.evidence | points if before is not None and same_runs else evidence.gather(one)
        changes.rows.append(row | {"evidence": json.dumps(told, ensure_ascii=False, separators=(",", ":"))})
    for change in lost:
        back = [run_id for run_id in present if places.order[run_id] > places.order[change.first_run_id]]
        if change.kind != "vanished" or not back:
            changes.removed_ids += [change.id] if change.state != "withdrawn" else []
        elif change.recovered_run_id is None:
            changes.rows.append(_copy_row(change) | {"recovered_run_id": back[0]})


def _make_row(finding_id: str, one: DetectedChange, before: SeriesChange | None, places: RunOrder) -> dict[str, Any]:
    names = ("kind", "subject", "branch", "metric", "direction", "before_value", "after_value", "relative", "p_value")
    runs = ("before_run_id", "first_run_id", "low_run_id", "high_run_id", "recovered_run_id")
    confirmed = None if one.confirming_run_id is None else places.runs[one.confirming_run_id].started_us
    is_confirmed = confirmed is not None or (before is not None and before.confirmed_us is not None)
    return {
        **{name: getattr(one, name) for name in (*names, *runs)},
        **one.key,
        "id": finding_id,
        "state": "confirmed" if is_confirmed else "suspected",
        "first_us": places.runs[one.first_run_id].started_us,
        "confirmed_us": confirmed,
    }


def _copy_row(change: SeriesChange) -> dict[str, Any]:
    return asdict(change) | {"evidence": json.dumps(change.evidence, ensure_ascii=False, separators=(",", ":"))}
