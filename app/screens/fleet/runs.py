"""The list of runs: what a filter lets through, each with its state and tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.analysis.runs.states import RunState, describe_state
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.runs import RunFilter, count_runs, list_runs, list_tags, read_run_filter
from compileboard.app.queries.newest import MAY_CHANGE, RecorderClock
from compileboard.app.queries.run_rows import RunRow

DEFAULT_ORDER = "started"


@dataclass(frozen=True)
class RunsFilters:
    """What a list of runs is asked for; `limit_count` is how many one page has."""

    runs: RunFilter
    order: str
    cursor: str | None
    limit_count: int
    is_pinned_first: bool = False
    is_counted: bool = False


@dataclass(frozen=True)
class ListedRun:
    """A run of a list, with its state as people see it and its tags."""

    run: RunRow
    state: RunState
    tags: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class RunsScreen:
    """One page of the list of runs; `run_count` counts all that the filter lets through, where that was asked."""

    filters: RunsFilters
    runs: Sequence[ListedRun]
    next_cursor: str | None
    run_count: int | None

    @property
    def is_live(self) -> bool:
        """Return True while a run of the page may still change."""
        return any(listed.state.word in MAY_CHANGE for listed in self.runs)


def read_runs_filters(
    query: Mapping[str, str], limit_count: int, *, is_pinned_first: bool = False, is_counted: bool = False
) -> RunsFilters:
    """Read the address of a list of runs.

    Raises: FilterError if a key is unknown or a value cannot be used.
    """
    order, cursor = query.get("sort") or DEFAULT_ORDER, query.get("cursor")
    return RunsFilters(read_run_filter(query), order, cursor, limit_count, is_pinned_first, is_counted)


def describe_runs(engine: Engine, runs: Sequence[RunRow], clock: RecorderClock) -> list[ListedRun]:
    """Return runs with their states and tags."""
    tags = list_tags(engine, [run.id for run in runs])
    return [ListedRun(run, describe_state(run, *clock), tags[run.id]) for run in runs]


def build_runs(engine: Engine, filters: RunsFilters, clock: RecorderClock) -> RunsScreen:
    """Build one page of the list of runs.

    Raises: FilterError if the order or the cursor cannot be used.
    """
    page = list_runs(
        engine,
        filters.runs,
        sort=filters.order,
        cursor=filters.cursor,
        limit=filters.limit_count,
        pinned_first=filters.is_pinned_first,
    )
    return RunsScreen(
        filters=filters,
        runs=describe_runs(engine, page.rows, clock),
        next_cursor=page.next,
        run_count=count_runs(engine, filters.runs) if filters.is_counted else None,
    )
