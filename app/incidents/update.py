"""Update the incidents: from all runs the first time, then from the series of new runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace

from compileboard.app.benchmarks.series_queries import (
    list_names_of,
    list_series_of,
    list_suites_of,
)
from compileboard.app.core.address import parse_address
from compileboard.app.core.store import Store, open_store
from compileboard.app.incidents.detection import detect_changes, detect_stopped, match, needs_rescan
from compileboard.app.incidents.evidence import (
    EvidenceCollector,
    IncidentAssembler,
)
from compileboard.app.incidents.model import SeriesChange
from compileboard.app.incidents.pending import VERSION, PendingRuns, find_pending_runs
from compileboard.app.incidents.queries import list_commented_ids, load_changes, load_incidents
from compileboard.app.incidents.series import (
    MeasuredRuns,
    RunOrder,
    Series,
    SeriesKey,
    find_suite_runs,
    merge_suites,
    rank_runs,
    read_model_series,
    read_run_series,
    read_suite_series,
)
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.incident_triage import DETECTED, DetectedRows, save_detected

# Branches in which to look for changes; a series with runs there is scanned whole.
_TAIL_RUNS = 80
_WITHOUT_EVIDENCE = tuple(name for name in DETECTED if name not in ("evidence", "confirmed_us"))


@dataclass(frozen=True)
class UpdateReport:
    run_count: int  # The number of new runs.
    series_count: int  # series that were scanned
    new_ids: tuple[str, ...]  # The ids of new incidents.
    changed_count: int
    removed_count: int


def update_incidents(
    path: str | os.PathLike[str], *, everything: bool = False, now_us: int | None = None
) -> UpdateReport:
    """Scan the series of new runs, or all series; store detected changes and their incidents.

    Raises StoreError if the database cannot be used.
    """
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    address = os.fspath(path)
    with closing(open_store(address)) as store:
        pending = find_pending_runs(store, everything=everything)
        if not pending.needs_full_scan and not pending.run_ids:
            return UpdateReport(0, 0, (), 0, 0)
        stored = load_changes(store.board)
        order = RunOrder(pending.runs, rank_runs(store.engine, pending.runs))
        changes = SeriesScanner(store, pending, order, now_us)
        changes.scan(stored)
        known_ids = {incident.id for incident in load_incidents(store.board)}
        detected = _assemble(store, pending, order, stored, changes)
    with closing(open_writer(parse_address(address).board)) as writer:
        save_detected(writer, detected, seen=pending.cursor, version=VERSION, now_us=now_us)
    new_ids = tuple(row["id"] for row in detected.incidents if row["id"] not in known_ids)
    return UpdateReport(
        len(pending.run_ids),
        changes.series_count,
        new_ids,
        len(detected.incidents) - len(new_ids),
        len(detected.dropped_ids),
    )


def _assemble(
    store: Store,
    pending: PendingRuns,
    order: RunOrder,
    stored: Sequence[SeriesChange],
    changes: SeriesScanner,
) -> DetectedRows:
    commented_ids, incidents = list_commented_ids(store.board), load_incidents(store.board)
    by_id = {change.id: change for change in stored}
    removed = [by_id[id_] for id_ in changes.removed_ids]
    dropped = {
        change.id
        for change in removed
        if change.confirmed_us is None and change.incident_id not in commented_ids
    }
    withdrawn = [change for change in removed if change.id not in dropped]
    current = by_id | {change.id: replace(change, state="withdrawn") for change in withdrawn}
    current |= {change.id: change for change in changes.found}
    for change_id in dropped:
        del current[change_id]
    changed_ids = {change.id for change in changes.found} | set(changes.removed_ids)
    touched = (
        current.values()
        if pending.needs_full_scan
        else [current.get(id_, by_id.get(id_)) for id_ in changed_ids]
    )
    partitions = {(change.suite, change.branch) for change in touched if change is not None}
    assembled = IncidentAssembler(store, order.ranks).assemble(
        current.values(), incidents, changed_ids, commented_ids, partitions
    )
    rows = [
        vars(change)
        | {"evidence": json.dumps(change.evidence, ensure_ascii=False, separators=(",", ":"))}
        for change in changes.found
    ]
    return replace(
        assembled,
        changes=rows,
        withdrawn_ids=[change.id for change in withdrawn],
        dropped_ids=sorted(dropped),
    )


class SeriesScanner:
    def __init__(self, store: Store, pending: PendingRuns, order: RunOrder, now_us: int) -> None:
        self._engine = store.engine
        self._pending = pending
        self._order = order
        self._now_us = now_us
        self._evidence = EvidenceCollector(store)
        self.found: list[SeriesChange] = []  # new and modified ones
        self.removed_ids: list[str] = []
        self.series_count = 0

    def scan(self, stored: Sequence[SeriesChange]) -> None:
        stored_by_key: dict[SeriesKey, list[SeriesChange]] = {}
        for change in stored:
            stored_by_key.setdefault(change.key, []).append(change)
        series_list, measured_runs = self._read(stored_by_key)
        for series in series_list:
            self.series_count += 1
            known = stored_by_key.get(series.key, ())
            lost = self._save(
                detect_changes(series), [change for change in known if change.kind != "vanished"]
            )
            self._remove(lost)
        for measured, suite_runs in _list_suite_runs(measured_runs, self._order):
            stopped = detect_stopped(measured, suite_runs, self._order)
            known = stored_by_key.get(measured.key, ())
            lost = self._save(
                [stopped] if stopped else [],
                [change for change in known if change.kind == "vanished"],
            )
            self._end_stops(lost, measured, is_stopped=stopped is not None)

    def _save(
        self, detected: Sequence[SeriesChange], stored: Sequence[SeriesChange]
    ) -> list[SeriesChange]:
        """Collect changes that differ from the stored ones; return the stored ones that were not
        detected again.
        """
        matched, lost = match(detected, stored, self._order.ranks)
        for change, before in matched:
            if before is None:
                facts = self._evidence.gather(change)
                change = replace(change, found_us=self._now_us)
            else:
                is_confirmed = change.confirmed_us is not None or before.confirmed_us is not None
                change = replace(
                    change,
                    state="confirmed" if is_confirmed else "unconfirmed",
                    found_us=before.found_us,
                    noticed_us=before.noticed_us,
                    incident_id=before.incident_id,
                )
                has_same_runs = (before.before_run_id, before.first_run_id) == (
                    change.before_run_id,
                    change.first_run_id,
                )
                if (
                    has_same_runs
                    and before.may_be_back == change.may_be_back
                    and all(
                        getattr(before, name) == getattr(change, name) for name in _WITHOUT_EVIDENCE
                    )
                ):
                    continue
                facts = before.evidence if has_same_runs else self._evidence.gather(change)
            self.found.append(
                replace(change, changed_us=self._now_us, evidence=facts | change.evidence)
            )
        return lost

    def _remove(self, lost: Iterable[SeriesChange]) -> None:
        self.removed_ids += [change.id for change in lost if change.state != "withdrawn"]

    def _end_stops(
        self, lost: Iterable[SeriesChange], measured: MeasuredRuns, *, is_stopped: bool
    ) -> None:
        """Mark stopped series that were measured again as recovered, since the newest runs alone
        cannot show that they had stopped.
        """
        ranks = self._order.ranks
        for change in lost:
            back = [run for run in measured.runs if ranks[run.id] > ranks[change.first_run_id]]
            if not back:
                if is_stopped or self._pending.needs_full_scan:
                    self._remove([change])
            elif change.recovered_run_id is None:
                self.found.append(
                    replace(change, recovered_run_id=back[0].id, changed_us=self._now_us)
                )

    def _read(
        self, stored_by_key: Mapping[SeriesKey, Sequence[SeriesChange]]
    ) -> tuple[Iterator[Series], list[MeasuredRuns]]:
        order = self._order
        measured_runs: list[MeasuredRuns] = []
        if self._pending.needs_full_scan:
            return self._read_all(measured_runs), measured_runs
        touched = set(list_series_of(self._engine, self._pending.run_ids))
        changed_keys: dict[int, set[SeriesKey]] = {}
        for series_id, series_list, measured in read_model_series(
            self._engine, order, run_ids=self._list_recent_runs()
        ):
            measured_runs.extend(measured)
            if series_id in touched:
                keys = {
                    series.key
                    for series in series_list
                    if needs_rescan(
                        series,
                        stored_by_key.get(series.key, ()),
                        order.ranks,
                        is_cut=order.counts[series.branch] > _TAIL_RUNS,
                    )
                }
                changed_keys |= {series_id: keys} if keys else {}
        return self._read_changed(changed_keys), measured_runs

    def _read_all(self, measured_runs: list[MeasuredRuns]) -> Iterator[Series]:
        order = self._order
        for _series_id, series_list, measured in read_model_series(self._engine, order):
            measured_runs.extend(measured)
            yield from series_list
        yield from read_suite_series(self._engine, order)
        yield from read_run_series(self._engine, order)

    def _read_changed(self, changed_keys: Mapping[int, Set[SeriesKey]]) -> Iterator[Series]:
        order = self._order
        for series_id, series_list, _present in (
            read_model_series(self._engine, order, list(changed_keys)) if changed_keys else ()
        ):
            yield from (series for series in series_list if series.key in changed_keys[series_id])
        yield from read_suite_series(
            self._engine, order, list_suites_of(self._engine, self._pending.run_ids)
        )
        yield from read_run_series(
            self._engine, order, list_names_of(self._engine, self._pending.run_ids)
        )

    def _list_recent_runs(self) -> list[str]:
        order = self._order
        branches = {order.runs[run_id].branch for run_id in self._pending.run_ids}
        tail = dict.fromkeys(self._pending.run_ids)
        for branch in sorted(branches):
            of_branch = [run_id for run_id, run in order.runs.items() if run.branch == branch]
            of_branch.sort(key=lambda run_id: order.ranks[run_id])
            tail.update(dict.fromkeys(of_branch[-_TAIL_RUNS:]))
        return list(tail)


def _list_suite_runs(
    measured_runs: Sequence[MeasuredRuns], order: RunOrder
) -> Iterator[tuple[MeasuredRuns, Set[str]]]:
    """Yield each series with the runs of its suite, and each suite with the runs of its branch."""
    suite_runs = find_suite_runs(measured_runs)
    for measured in measured_runs:
        yield measured, suite_runs[measured.suite_key]
    of_branch: dict[str, set[str]] = {}
    suites = merge_suites(measured_runs, order)
    for suite in suites:
        of_branch.setdefault(suite.branch, set()).update(suite.run_ids)
    yield from ((suite, of_branch[suite.branch]) for suite in suites)
