"""A run's guards: totals and sets, one set as a tree, and a diff of two sets."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import cached_property

from compileboard.app.analysis.guards.breakdown import (
    GuardBreakdown,
    GuardFix,
    GuardOrigin,
    advise,
    list_origins,
    sum_guards,
)
from compileboard.app.analysis.guards.diff import GuardDiff, compare_guards
from compileboard.app.analysis.guards.tree import explain_cost
from compileboard.app.queries.page import Page
from compileboard.app.queries.run import guards
from compileboard.app.queries.run.artifacts import Artifact, get_artifact
from compileboard.app.queries.run.guards import GuardSet, GuardTotals
from compileboard.collectors.store.payloads import GuardTree, parse_guards

MOST_PLACES = 20  # roots and kinds that are listed by name


@dataclass(frozen=True)
class RunGuardsScreen:
    totals: GuardTotals
    sums: GuardBreakdown
    sets: Page[GuardSet]

    @cached_property
    def origins(self) -> list[GuardOrigin]:
        return list_origins(self.sums)

    @cached_property
    def advice(self) -> list[GuardFix]:
        return advise(self.origins, self.totals.median_us)


def build_guards(
    reader: sqlite3.Connection,
    run_id: str,
    sort: str = "latency",
    cursor: str | None = None,
    limit: int = 50,
) -> RunGuardsScreen:
    return RunGuardsScreen(
        totals=guards.get_totals(reader, run_id),
        sums=sum_guards(guards.list_summaries(reader, run_id)),
        sets=guards.list_guard_sets(reader, run_id, sort, cursor, limit),
    )


@dataclass(frozen=True)
class GuardSetScreen:
    guard_set: GuardSet
    artifact: Artifact | None
    tree: GuardTree | None
    previous: GuardSet | None

    @property
    def cost(self) -> str | None:
        return (
            explain_cost(self.tree.latency_us, self.guard_set.guard_count or 0)
            if self.tree is not None
            else None
        )


def build_guard_set(
    reader: sqlite3.Connection, run_id: str | None, artifact_id: int
) -> GuardSetScreen | None:
    guard_set = guards.get_guard_set(reader, run_id, artifact_id)
    if guard_set is None:
        return None
    artifact = get_artifact(reader, guard_set.run_id, artifact_id)
    tree = (
        parse_guards(artifact.text) if artifact is not None and artifact.text is not None else None
    )
    return GuardSetScreen(
        guard_set, artifact, tree, guards.get_previous_set(reader, guard_set.compile_key)
    )


@dataclass(frozen=True)
class GuardDiffScreen:
    before: GuardSet
    after: GuardSet
    diff: GuardDiff | None


def compare_guard_sets(before: GuardSetScreen, after: GuardSetScreen) -> GuardDiffScreen:
    diff = (
        compare_guards(before.tree, after.tree)
        if before.tree is not None and after.tree is not None
        else None
    )
    return GuardDiffScreen(before.guard_set, after.guard_set, diff)
