"""Summaries of the newest run, shared by overview, API and suite report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.trends import (
    MOST_RUNS,
    StoredSummary,
    TrendFilter,
    find_newest_summary,
    list_eligible_summaries,
    list_timed_runs,
)
from compileboard.app.queries.newest import RecorderClock, list_running_ids
from compileboard.collectors.store.rollups.summaries import Definition


@dataclass(frozen=True)
class SummarizedRuns:
    definition: Definition
    summaries: Sequence[StoredSummary]
    newest: StoredSummary
    running: frozenset[str]
    timed: frozenset[str]

    @property
    def newest_summaries(self) -> list[StoredSummary]:
        return [summary for summary in self.summaries if summary.run_id == self.newest.run_id]

    def find_newest_before(self, position: int) -> StoredSummary | None:
        older = [summary for summary in self.summaries[position:] if summary.run_id in self.timed]
        return find_newest_summary(older, self.timed, self.running)


def summarize_runs(
    engine: Engine,
    selected: TrendFilter,
    definition: str | None,
    clock: RecorderClock,
    limit: int = MOST_RUNS,
) -> SummarizedRuns | None:
    by, summaries = list_eligible_summaries(engine, selected, definition, limit)
    running = list_running_ids(engine, clock)
    timed = frozenset(list_timed_runs(engine, selected))
    newest = find_newest_summary(summaries, timed, running)
    return SummarizedRuns(by, summaries, newest, running, timed) if newest else None
