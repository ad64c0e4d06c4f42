"""Causes of a run with their fixes, as pages, reports and the API show them, and the run's
verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from compileboard.app.analysis.runs.problems import Problem
from compileboard.app.analysis.runs.states import describe_end
from compileboard.app.analysis.runs.states import list_problems as list_failures
from compileboard.app.format import format_count, format_duration, format_plural
from compileboard.app.queries.fields import ContentId, PageUrl, gb_url
from compileboard.app.queries.run_rows import RunRow
from compileboard.app.schema import published
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.fixes.fix import SuggestedFix
from compileboard.collectors.fixes.recorded import SourceLines
from compileboard.collectors.fixes.titles import describe_savings
from compileboard.collectors.store.dashboard.trials import Trial

_BLANK = re.compile(r"\{\w+\}")


@dataclass(frozen=True)
class FixAdvice:
    """A fix of a cause: what to change, when it applies and what it costs."""

    id: Annotated[str, "Its name in the catalogue."]
    title: Annotated[str, "The fix."]
    applies: Annotated[str, "When it applies."]
    cost: Annotated[str, "What it costs."]
    helps: Annotated[bool, "False where nothing is known to help, or nothing is to be fixed."]
    diff: Annotated[
        tuple[str, ...], "The change of the user's own lines; empty where it takes a person."
    ]
    file: Annotated[str | None, "The file that it changes."]
    line: Annotated[int | None, "Its first line."]
    example: Annotated[
        tuple[str, ...], "The change of a small program, run against torch before and after."
    ]
    settings: Annotated[tuple[str, ...], "Statements that do the same, behind `import torch`."]


@dataclass(frozen=True)
class TriedFix:
    """Result of a fix that was tried on this run's program."""

    outcome: Annotated[
        str, "improved, unchanged, worse, different, failed, not_applied or interrupted."
    ]
    label: Annotated[str, "The outcome in words."]
    summary: Annotated[str, "What changed, in one line."]
    title: Annotated[str, "The fix."]
    new_run_id: Annotated[str | None, "The run with the fix."]
    base_run_id: Annotated[str | None, "The run without, beside it."]


@dataclass(frozen=True)
class CauseRow(Cause):
    """A cause of lost compile time, with its fixes."""

    advice: Annotated[
        tuple[FixAdvice, ...], "Fixes, the best first; empty where none is known."
    ] = ()
    trials: Annotated[tuple[TriedFix, ...], "Fixes that were tried, the newest first."] = ()
    try_command: Annotated[
        str | None, "The command that tries the first fix that needs no person."
    ] = None

    @property
    @published
    def is_expected(self) -> bool:
        """Return True if there is nothing to fix."""
        return super().is_expected

    @property
    @published
    def page_url(self) -> PageUrl:
        """Return the public page about this kind of graph break, None where it has none."""
        return gb_url(self.gb_id)

    @property
    @published
    def reason_id(
        self,
    ) -> Annotated[ContentId, "`id` of its first graph break, or recompile cause."]:
        """Return the id of its page over all runs."""
        return format_id(self.content_ids[0])

    def hide_source(self) -> CauseRow:
        titles = [_BLANK.sub("…", suggested.fix.title) for suggested in self.fixes]
        advice = [
            replace(row, title=title, diff=(), file=None)
            for row, title in zip(self.advice, titles, strict=True)
        ]
        return replace(self, source_line=None, code=None, fixes=(), advice=tuple(advice))

    @property
    def noun(self) -> str:
        return format_plural(
            self.event_count, "graph break" if self.kind == "graph_break" else "recompile"
        )


@dataclass(frozen=True)
class RunVerdict:
    """The problem of a run in one sentence, and the line below it."""

    tone: Annotated[str, "bad, warn, good or quiet."]
    sentence: Annotated[str, "The answer."]
    note: Annotated[str, "What failed or runs eagerly."]
    number: Annotated[int | None, "Fixes that are known."]


def list_cause_rows(
    causes: Sequence[Cause], run: RunRow, trials: Sequence[Trial], *, is_pushed: bool
) -> list[CauseRow]:
    """A pushed run is in no local database, so its fixes cannot be tried there."""
    by_cause: dict[str | None, list[TriedFix]] = {}
    for trial in trials:
        result = TriedFix(
            trial.outcome,
            trial.outcome_label,
            trial.summary,
            trial.title,
            trial.new_run_id,
            trial.base_run_id,
        )
        by_cause.setdefault(trial.cause_fingerprint, []).append(result)
    return [
        CauseRow(
            **vars(cause),
            advice=tuple(_describe_fix(suggested, cause) for suggested in cause.fixes),
            trials=tuple(by_cause.get(cause.fingerprint, ())),
            try_command=f"compileboard-collect try {run.id} --fix {cause.number}"
            if cause.can_try and run.source == "live" and not is_pushed
            else None,
        )
        for cause in causes
    ]


def _describe_fix(suggested: SuggestedFix, cause: Cause) -> FixAdvice:
    fix = suggested.fix
    first = suggested.edits[0] if suggested.edits else None
    return FixAdvice(
        id=fix.id,
        title=suggested.title,
        applies=fix.applies,
        cost=fix.cost,
        helps=suggested.helps,
        diff=tuple(_list_changes(suggested, cause)),
        file=first.file if first else None,
        line=first.line if first else None,
        example=tuple(fix.diff) if fix.after is not None else (),
        settings=suggested.settings,
    )


def _list_changes(suggested: SuggestedFix, cause: Cause) -> list[str]:
    changes = []
    for edit in suggested.edits:
        lines = [
            find_line(cause, edit.file, edit.line + offset) for offset in range(edit.line_count)
        ]
        changes += [f"-{line}" for line in lines if line is not None]
        changes += [f"+{line}" for line in edit.replacement]
    if suggested.settings and not suggested.edits:
        changes += [" import torch", *(f"+{statement}" for statement in suggested.settings)]
    return changes


def find_line(cause: Cause, file: str, line: int) -> str | None:
    code: SourceLines | None = cause.code
    if code is not None and code.file == file and 0 <= line - code.first_line < len(code.lines):
        return code.lines[line - code.first_line]
    return cause.source_line if (file, line) == (cause.file, cause.line) else None


def judge_run(
    run: RunRow, causes: Sequence[Cause], problems: Sequence[Problem], *, is_pruned: bool = False
) -> RunVerdict:
    grave = [problem for problem in problems if problem.severity == "bad"]
    eager = [cause for cause in causes if cause.is_eager]
    fix_count = sum(cause.is_fixable for cause in causes)
    notes = [f"{problem.title} ({problem.number})" for problem in grave[:2]]
    notes += [f"{format_count(len(grave) - 2)} more problems"] if len(grave) > 2 else []
    notes += [f"{cause.function or 'A function'} runs eagerly" for cause in eager[:2]]
    notes += (
        [f"{format_plural(len(eager) - 2, 'more cause')} of eager code"] if len(eager) > 2 else []
    )
    if not causes and not run.compile_count:
        words = "Nothing was compiled" if run.state != "running" else "Nothing was compiled yet"
        if run.has_only_results:
            words = "Compiles not recorded"
        return RunVerdict("bad" if grave else "quiet", words, ". ".join(notes), None)
    failed = [describe_end(run)] if run.state in ("failed", "killed") else []
    failed += list_failures(run)
    if is_pruned:
        counts = (
            format_plural(run.graph_break_count, "graph break"),
            format_plural(run.recompile_count, "recompile"),
        )
        return RunVerdict("quiet", ", ".join(counts), ". ".join(failed or ["No failures"]), None)
    notes = notes or [*(failed or ["No failures"]), "Nothing runs eagerly."]
    if not causes:
        sentence = "Nothing to fix: 1 graph per function, no recompiles"
        if grave:
            sentence = f"{format_plural(len(grave), 'problem')}; no graph breaks, no recompiles"
        return RunVerdict(
            "bad" if grave else "warn" if failed else "good", sentence, ". ".join(notes), None
        )
    is_expected = all(cause.is_expected for cause in causes) and not failed
    tone = "bad" if grave or eager else "good" if is_expected else "warn"
    sentence = describe_savings(causes, run.compile_us, format_duration)
    return RunVerdict(tone, sentence, ". ".join(notes), fix_count or None)


@dataclass(frozen=True)
class SavingShare:
    number: int | None
    time_us: int
    start: float
    width: float

    @property
    def color(self) -> str:
        return "rest" if self.number is None else f"series-{(self.number - 1) % 8 + 1}"


def list_savings(causes: Sequence[Cause], compile_us: int | None) -> list[SavingShare]:
    if not compile_us or not any(cause.saved_us for cause in causes):
        return []
    parts = [(cause.number, cause.saved_us) for cause in causes if cause.saved_us]
    rest_us = max(0, compile_us - sum(time_us for _number, time_us in parts))
    shares, start = [], 0.0
    for number, time_us in [*parts, (None, rest_us)]:
        width = 100 * time_us / compile_us
        shares.append(SavingShare(number, time_us, round(start, 3), round(width, 3)))
        start += width
    return shares
