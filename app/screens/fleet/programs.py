"""Recorded programs with the most compile time to save."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.engines.store import Store, open_run_or_board
from compileboard.app.format import format_duration
from compileboard.app.queries.fields import Count, DurationUs, RunId
from compileboard.app.queries.run_cache import cached_for_run
from compileboard.app.queries.run_rows import RunRow
from compileboard.collectors.fixes.titles import describe_savings
from compileboard.collectors.store.causes import load_causes

MOST_PROGRAMS = 5
MOST_COMPILES = 5_000  # of a run whose causes a list of several can wait for


@dataclass(frozen=True)
class ProgramSavings:
    """What fixes of a program's newest run would save."""

    run_id: RunId
    name: Annotated[str, "What the run is called."]
    sentence: Annotated[str, "What its fixes save, in one sentence."]
    saved_us: Annotated[DurationUs, "Compile time that its fixes save, at most."]
    compile_us: Annotated[DurationUs | None, "Its compile time."]
    fix_count: Annotated[Count, "Causes with a known fix."]
    first_cause: Annotated[str, "The cause that costs most."]


def list_programs(store: Store, runs: Iterable[RunRow]) -> list[ProgramSavings]:
    newest: dict[tuple[str | None, str], RunRow] = {}
    for run in runs:
        if run.state != "running" and 0 < run.compile_count <= MOST_COMPILES:
            newest.setdefault((run.suite, run.name), run)
    programs = [
        program
        for run in list(newest.values())[:MOST_PROGRAMS]
        if (program := _read_program(store, run))
    ]
    return sorted(programs, key=lambda program: (-program.saved_us, program.name))


def _read_program(store: Store, run: RunRow) -> ProgramSavings | None:
    causes = cached_for_run(open_run_or_board(store, run.id), run.id, load_causes)
    fixable = [cause for cause in causes if cause.is_fixable]
    if not fixable:
        return None
    return ProgramSavings(
        run_id=run.id,
        name=run.shown_name,
        sentence=describe_savings(causes, run.compile_us, format_duration),
        saved_us=sum(cause.saved_us or 0 for cause in fixable),
        compile_us=run.compile_us,
        fix_count=len(fixable),
        first_cause=fixable[0].title,
    )
