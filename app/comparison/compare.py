"""Compare two runs, commits, branches, torch versions or baselines."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from compileboard.app.benchmarks.run_queries import list_measured
from compileboard.app.comparison.baselines import list_baselines
from compileboard.app.comparison.differences import compare
from compileboard.app.comparison.load import drop_programs, filter_suite, load_side
from compileboard.app.comparison.model import GROUPS, Comparison, ModelResult
from compileboard.app.comparison.pairs import describe_entry, list_shown
from compileboard.app.comparison.sides import find_default, find_side, name_side, resolve_run_ids
from compileboard.app.comparison.summary import ComparisonSummary, summarize
from compileboard.app.comparison.table import (
    DEFAULT_ORDER,
    ComparisonHeadline,
    TableSelection,
    choose,
    list_headlines,
)
from compileboard.app.core.engine import Engine
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.page import FilterError
from compileboard.app.core.store import Store
from compileboard.app.incidents.queries import list_worst


@dataclass(frozen=True)
class ComparisonScreen:
    comparison: Comparison

    @cached_property
    def summary(self) -> ComparisonSummary:
        return summarize(self.comparison)

    @cached_property
    def headlines(self) -> tuple[ComparisonHeadline, ...]:
        return tuple(list_headlines(self.comparison))

    @cached_property
    def parts(self) -> tuple[tuple[str, TableSelection], ...]:
        known = {total.metric.name for total in self.comparison.sums}
        groups = [(key, label) for key, (label, names) in GROUPS.items() if known & set(names)]
        return tuple(
            (label, choose(self.comparison, key, DEFAULT_ORDER, at > 0))
            for at, (key, label) in enumerate(groups)
        )

    @cached_property
    def _shown(self) -> list[str]:
        return list_shown((*self.comparison.base.entries, *self.comparison.new.entries))

    def describe(self, entry: ModelResult) -> str:
        return describe_entry(entry, self._shown)


def build_comparison(
    store: Store,
    clock: RecorderClock,
    base: str,
    new: str,
    *,
    anyway: bool = False,
    suite: str | None = None,
) -> ComparisonScreen:
    """Compare two named sides, `latest` and `previous` included.

    Raises FilterError if a side does not exist or neither has the suite.
    """
    base, new = resolve_run_ids(store.board, store.engine, clock, base, new)
    named = [
        find_side(store.board, store.engine, clock, text, name)
        for name, text in (("base", base), ("new", new))
    ]
    sides = []
    warnings = []
    for side, other in (named, named[::-1]):
        side, warning = drop_programs(side, other)
        warnings += [warning] if warning else []
        if suite:
            # The runs that measured the suite; all runs if none did, which leaves nothing to
            # compare.
            runs = tuple(
                run
                for run in side.runs
                if any(
                    row.suite == suite
                    for row in list_measured(store.open_run(run.run.id), run.run.id)
                )
            )
            side = replace(side, runs=runs or side.runs)
        loaded = load_side(store, clock, side)
        sides.append(filter_suite(loaded, suite) if suite else loaded)
    if suite and not any(side.entries for side in sides):
        raise FilterError(
            f"suite: neither {base[:80]} nor {new[:80]} has a result of suite {suite[:80]!r}"
        )
    comparison = compare(sides[0], sides[1], anyway)
    comparison = replace(comparison, warnings=(*comparison.warnings, *warnings))
    return ComparisonScreen(comparison)


def build_default_comparison(
    store: Store,
    clock: RecorderClock,
    base: str | None,
    new: str | None,
    *,
    anyway: bool = False,
    suite: str | None = None,
) -> ComparisonScreen | None:
    """Compare like `build_comparison`; a missing side is the newest benchmark, or the one before
    it.

    Returns None if there is nothing to compare with.
    """
    both = find_default(store.board, store.engine, clock, base or None, new or None)
    return (
        build_comparison(store, clock, *both, anyway=anyway, suite=suite or None) if both else None
    )


MAX_PER_KIND = 3


@dataclass(frozen=True)
class ProposedPair:
    kind: str
    base: str
    new: str
    base_title: str
    new_title: str


def list_proposals(
    reader: sqlite3.Connection, engine: Engine, clock: RecorderClock
) -> list[ProposedPair]:
    pairs = {(base, new): kind for kind, base, new in _list_pairs(reader, engine, clock)}
    proposals = []
    for (base, new), kind in pairs.items():
        try:
            sides = [find_side(reader, engine, clock, side, "side") for side in (base, new)]
        except FilterError:  # its run was deleted
            continue
        proposals.append(ProposedPair(kind, base, new, *map(name_side, sides)))
    return proposals


def _list_pairs(
    reader: sqlite3.Connection, engine: Engine, clock: RecorderClock
) -> Iterator[tuple[str, str, str]]:
    default = find_default(reader, engine, clock, None, None)
    if default:
        yield "Newest run and the one before", *default
        for baseline in list_baselines(reader, limit=MAX_PER_KIND).rows:
            yield (
                f"Newest run and baseline {baseline.name}",
                f"baseline:{baseline.name}",
                default[1],
            )
    for incident in list_worst(reader, MAX_PER_KIND):
        if incident.last_good_run_id:
            yield (
                f"Before and after: {incident.title}",
                incident.last_good_run_id,
                incident.first_bad_run_id,
            )
