"""Repros: failures across runs, the repros of a run, and one repro."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from compileboard.app.analysis.repros import (
    InputText,
    OperationText,
    ProgramText,
    list_divergences,
    list_inputs,
    read_analysis,
    read_bisection,
    summarize_analysis,
    summarize_bisection,
    title_repro,
    view_program,
)
from compileboard.app.engines.store import Store
from compileboard.app.queries import repros
from compileboard.app.queries.page import Page
from compileboard.app.queries.repros import DistinctFailure, FailureFilter, ReproChoices, ReproRow
from compileboard.app.queries.run.run import get_run
from compileboard.app.queries.run_rows import RunRow
from compileboard.collectors.repro.locate.findings import NOT_REPRODUCED, Analysis, Bisection
from compileboard.collectors.store.repros import (
    NoSuchRepro,
    ReproResult,
    StoredRepro,
    list_results,
    load_repro,
)

Answer = TypeVar("Answer", Analysis, Bisection)
NOT_FAILING = frozenset(("passes", NOT_REPRODUCED))  # statuses of results
SAME = 20  # repros of the same failure on a page


@dataclass(frozen=True)
class FailureListScreen:
    page: Page[DistinctFailure]
    choices: ReproChoices
    order: str


def build_failure_list(
    board: sqlite3.Connection,
    selected: FailureFilter,
    sort: str | None,
    cursor: str | None,
    limit: int,
) -> FailureListScreen:
    page = repros.list_failures(board, selected, sort=sort, cursor=cursor, limit=limit)
    return FailureListScreen(page, repros.list_choices(board), sort or repros.DEFAULT_ORDER)


COMPARED = {
    "error": "Error",
    "eager_error": "Eager's error",
    "limit": "Limit",
    "verdict": "Verdict",
}


@dataclass(frozen=True)
class ReproScreen:
    repro: StoredRepro
    row: ReproRow
    run: RunRow
    results: Sequence[ReproResult]
    failure: DistinctFailure
    same: Page[ReproRow]
    failure_id: int | None  # that it belongs to, on its run's page

    @property
    def title(self) -> str:
        return title_repro(self.repro.manifest)

    @cached_property
    def program(self) -> ProgramText:
        return view_program(self.repro.program)

    @cached_property
    def dynamo_program(self) -> ProgramText | None:
        return (
            None if self.repro.dynamo_program is None else view_program(self.repro.dynamo_program)
        )

    @property
    def minimal(self) -> ReproResult | None:
        return find_minimal(self.results)

    @cached_property
    def minimal_program(self) -> ProgramText | None:
        return view_program(self.minimal.program) if self.minimal and self.minimal.program else None

    @cached_property
    def inputs(self) -> list[InputText]:
        return list_inputs(self.repro.manifest, self.repro.storage_bytes)

    @cached_property
    def analysis(self) -> Analysis | None:
        answers = (read_analysis(result) for result in self.results if result.command == "analyze")
        return _choose([answer for answer in answers if answer])

    @property
    def compared(self) -> list[tuple[str, object]]:
        accuracy = self.repro.manifest.accuracy
        wrong = accuracy.get("wrong")
        names = ", ".join(map(str, wrong)) if isinstance(wrong, list) else wrong
        facts = [(label, accuracy.get(name)) for name, label in COMPARED.items()]
        return [
            (label, value)
            for label, value in (*facts, ("Wrong values", names))
            if value is not None
        ]

    @property
    def divergences(self) -> list[OperationText]:
        return list_divergences(self.analysis) if self.analysis else []

    @cached_property
    def bisection(self) -> Bisection | None:
        answers = (read_bisection(result) for result in self.results if result.command == "bisect")
        return _choose([answer for answer in answers if answer])

    @property
    def analysis_sentence(self) -> str:
        return summarize_analysis(self.analysis) if self.analysis else ""

    @property
    def bisection_sentence(self) -> str:
        return summarize_bisection(self.bisection) if self.bisection else ""

    @property
    def bisection_facts(self) -> list[tuple[str, object]]:
        bisection = self.bisection
        if bisection is None:
            return []
        facts = [("Backend", bisection.backend), ("Subsystem", bisection.subsystem)]
        facts += [("Application", bisection.application), ("Operation", bisection.operation)]
        return [(label, value) for label, value in facts if value]

    @property
    def answer(self) -> str:
        if self.analysis and self.analysis.operation:
            return summarize_analysis(self.analysis)
        if self.bisection and self.bisection.subsystem:
            return f"Made by {summarize_bisection(self.bisection)}"
        if self.minimal and self.minimal.node_count is not None:
            return f"Fails with {self.minimal.node_count} of {self.row.node_count or '?'} nodes"
        if self.results and all(result.status in NOT_FAILING for result in self.results):
            return "Passed when it was run again"
        return "Not minimised yet"


def _choose(answers: Sequence[Answer]) -> Answer | None:
    """Return the newest answer where the graph failed, else the newest, so that a pass on another
    machine hides nothing.
    """
    return next(
        (answer for answer in answers if answer.status != NOT_REPRODUCED),
        answers[0] if answers else None,
    )


def find_minimal(results: Sequence[ReproResult]) -> ReproResult | None:
    minimal = [result for result in results if result.program and result.node_count is not None]
    return min(minimal, key=lambda result: result.node_count or 0, default=None)


def build_repro(store: Store, repro_id: str, cursor: str | None = None) -> ReproScreen | None:
    reader = store.board
    try:
        repro = load_repro(reader, repro_id)
    except NoSuchRepro:
        return None
    detail = get_run(reader, repro.run_id)
    of_run = store.open_run(repro.run_id)
    own = repros.get_repro(of_run, repro.id)
    failure = repros.get_failure(reader, own.fingerprint) if own else None
    if detail is None or own is None or failure is None:
        return None
    return ReproScreen(
        repro=repro,
        row=own,
        run=detail.run,
        results=list_results(reader, repro.id),
        failure=failure,
        same=repros.list_repros(reader, fingerprint=own.fingerprint, cursor=cursor, limit=SAME),
        failure_id=repros.find_failure(of_run, repro.id),
    )
