"""A run's causes and fixes as shown by pages, reports and the API, and its verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from compileboard.app.core.fields import (
    CalledAt,
    ContentId,
    DurationUs,
    FileName,
    FunctionName,
    LineNumber,
    PageUrl,
    gb_url,
)
from compileboard.app.core.format import format_count, format_duration, format_plural
from compileboard.app.core.labels import describe_cuda_graph_status, describe_failure_phase
from compileboard.app.core.schema import one_of, published
from compileboard.app.ranks.model import RanksScreen
from compileboard.app.reasons.run_queries import LimitHit
from compileboard.app.repros.queries import ReproRow
from compileboard.app.runs.failures import (
    CacheResult,
    CudagraphSkip,
    FailureGroup,
    FailureRow,
    UnfinishedCompile,
)
from compileboard.app.runs.rows import RunRow, describe_end
from compileboard.app.runs.rows import list_problems as list_failures
from compileboard.app.runs.run_queries import StackCliff
from compileboard.app.timeline.model import find_phase
from compileboard.collectors.contract.compile_labels import build_label
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.contract.run_config import describe_uncompiled
from compileboard.collectors.contract.secrets import can_run_again
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.fixes.cudagraph_fixes import (
    suggest_overwritten,
    suggest_recorded_again,
)
from compileboard.collectors.fixes.fix import Fix, SourceLines, SuggestedFix, find_fix
from compileboard.collectors.fixes.statement import find_whole, mark_part
from compileboard.collectors.fixes.titles import (
    NOTHING_TO_FIX,
    describe_saving,
    describe_savings,
    list_eager,
    takes_longer,
)
from compileboard.collectors.store.run_costs import Rerecordings

MIN_RECORDED_AGAIN = 3  # one or two may come from loading a model, or from a new phase
_DISABLED = (
    ("force_disable_caches", True),
    ("fx_graph_cache", False),
    ("enable_autograd_cache", False),
)


@dataclass(frozen=True)
class Problem:
    """A problem of a run other than a graph break or a recompile."""

    kind: Annotated[
        str, "Its kind: unfinished, failure, limit, ranks, stack, cache, cudagraph or accuracy."
    ]
    severity: Annotated[
        str, one_of(("bad", "warn")), "bad if it failed, never finished or runs eagerly."
    ]
    title: Annotated[str, "What happened."]
    number: Annotated[str, "Count or size, in words."]
    function: FunctionName
    file: FileName
    line: LineNumber
    advice: Annotated[str, "What to do about it."]
    tab: Annotated[str, "The tab of the run's page that has the details."]
    cost_us: Annotated[DurationUs | None, "Compile time that it cost."] = None
    code: Annotated[str | None, "A line of code or a reason."] = None
    called_at: CalledAt = None


@dataclass(frozen=True)
class RunFacts:
    unfinished: Sequence[UnfinishedCompile] = ()
    failures: Sequence[FailureGroup] = ()
    raised: Sequence[FailureRow] = ()  # while compiled code ran
    repros: Sequence[ReproRow] = ()
    limit_hits: Sequence[LimitHit] = ()  # without a recorded recompile
    caches: Sequence[CacheResult] = ()
    skips: Sequence[CudagraphSkip] = ()
    recorded_again: Sequence[Rerecordings] = ()
    changed: Sequence[Mapping[str, Mapping[str, Any]]] = ()
    cliffs: Sequence[StackCliff] = ()
    ranks: RanksScreen | None = None
    cacheable_us: int | None = None


def list_problems(facts: RunFacts) -> list[Problem]:
    return [
        *_list_wrong_problems(facts.repros),
        *_list_unfinished_problems(facts.unfinished),
        *_list_failure_problems(facts.failures),
        *_list_exception_problems(facts.raised),
        *_list_limit_problems(facts.limit_hits),
        *_list_rank_problems(facts.ranks),
        *_list_stack_problems(facts.cliffs),
        *_list_disabled_problems(facts),
        *_list_bypass_problems(facts.caches),
        *_list_skip_problems(facts.skips),
        *_list_rerecording_problems(facts.recorded_again),
    ]


def _list_wrong_problems(repros: Sequence[ReproRow]) -> list[Problem]:
    graphs: dict[tuple[str | None, str | None], list[ReproRow]] = {}
    for repro in repros:
        if repro.kind == "accuracy":
            graphs.setdefault((repro.file, repro.function), []).append(repro)
    return [
        Problem(
            "accuracy",
            "bad",
            "Wrong result: the compiled graph differs from eager",
            format_plural(len(members), "graph"),
            *(function, file, members[0].line),
            "Find the operation: compileboard-collect repro analyze " + members[0].id,
            "repros",
            code=members[0].message,
        )
        for (file, function), members in graphs.items()
    ]


def _list_unfinished_problems(unfinished: Sequence[UnfinishedCompile]) -> list[Problem]:
    problems = []
    for span in unfinished:
        advice = "The phase it was in was not recorded: --level full, or TORCH_TRACE, records it."
        if span.spans:
            innermost = span.spans[-1].name
            advice = (
                f"It was in {find_phase(innermost).label}: {innermost}, the last phase that began."
            )
        number = (
            "for how long: not recorded"
            if span.is_last
            else "its end was not recorded; the process went on"
        )
        if span.until_us is not None:
            number = f"{format_duration(span.until_us)} from its start to the end of the run"
        code = " › ".join(phase.name for phase in span.spans) or None
        title = build_label(span.process, f"Compile {span.compile_id} never finished", "")
        location = (span.function, span.file, span.line)
        problems.append(
            Problem("unfinished", "bad", title, number, *location, advice, "compiles", None, code)
        )
    return problems


def _list_rank_problems(ranks: RanksScreen | None) -> list[Problem]:
    if ranks is None:
        return []
    # With a shared cache, a rank finds what another one compiled: that is not a divergence.
    aspects = ranks.comparison.aspects
    if not any(word == "differs" for name, word in aspects.items() if name != "caches"):
        return []
    first = ranks.divergence
    advice = f"{first.sentence} {first.before}" if first else "Compare the ranks."
    number = ranks.summary.rstrip(".")
    return [
        Problem("ranks", "warn", "The ranks diverge", number, None, None, None, advice, "ranks")
    ]


def _list_stack_problems(cliffs: Sequence[StackCliff]) -> list[Problem]:
    if not cliffs:
        return []
    worst = max(cliffs, key=lambda cliff: cliff.faults_per_s)
    number = (
        f"{format_count(round(worst.faults_per_s))} page faults a second while nothing compiled"
    )
    if len(cliffs) > 1:
        number += f", in {format_plural(len(cliffs), 'process', 'processes')}"
    python = f"Python {worst.python_version}" if worst.python_version else "this Python"
    if worst.stack_room:
        advice, code = (
            "The program had room, but not where this happens: decorate what the thread runs",
            None,
        )
    else:
        advice, code = (
            "Run it once with room and compare",
            f"compileboard-collect run --stack-room -- {worst.command}",
        )
        advice += ". If that is faster, decorate the function that holds the loop"
    advice += (
        f" with @compileboard.stack_room, or take a newer patch release than {python}: "
        "docs/stack-cliff.md."
    )
    title = "Every call may map and unmap memory for its frames"
    return [
        Problem("stack", "warn", title, number, None, None, None, advice, "processes", None, code)
    ]


_REFUSED = "when making fake tensor call"  # GB4315: an `except` in compiled code is never reached


def _list_failure_problems(failures: Sequence[FailureGroup]) -> list[Problem]:
    problems = []
    for failure in failures:
        title = f"Compile failed: {failure.error_type or 'an exception'}"
        number = format_plural(failure.compile_count, "failed compile")
        advice = "Read the traceback; backend='eager', then 'aot_eager', tells which layer fails."
        if _REFUSED in (failure.message or ""):
            tested = find_fix("graph_break", "try_condition").title
            advice = (
                "The operator refuses its inputs. If a `try` catches that: "
                f"{tested[:1].lower()}{tested[1:]}."
            )
        problems.append(_make_failure_problem(failure, title, number, advice))
    return problems


def _make_failure_problem(
    failure: FailureGroup | FailureRow, title: str, number: str, advice: str
) -> Problem:
    location = (failure.function, failure.file, failure.line)
    code = (failure.message or "").strip().split("\n\n")[0][:300] or None
    return Problem("failure", "bad", title, number, *location, advice, "failures", None, code)


_RAISED_FIX = {
    "forward": "Call the function without torch.compile: if it raises too, the program is at "
    "fault; else "
    "backend='eager', then 'aot_eager', tells which layer is.",
    "backward": "Read what the message says of the gradient or the operation; backend='eager', "
    "then 'aot_eager', tells "
    "which layer raises.",
    "wrapper": "AOTAutograd's code around the graph raised: the message names the input or "
    "output that it could not "
    "handle.",
}


def _list_exception_problems(failures: Sequence[FailureRow]) -> list[Problem]:
    problems = []
    for failure in failures:
        phase = describe_failure_phase(failure.phase)
        number = format_plural(failure.occurrence_count, "time")
        number += ", the last ended the program" if failure.ended_program else ""
        title = f"Raised in {phase.word}: {failure.error_type or 'an exception'}"
        if failure.phase == "program":
            title, number = (
                f"The program ended: {failure.error_type or 'an exception'}",
                "raised outside compiled code",
            )
        advice = _RAISED_FIX.get(failure.phase, "Read the traceback.")
        advice = _join_titles(suggest_overwritten(failure.message)) or advice
        problems.append(_make_failure_problem(failure, title, number, advice))
    return problems


def _list_limit_problems(limit_hits: Sequence[LimitHit]) -> list[Problem]:
    groups: dict[tuple[str | None, str | None], list[LimitHit]] = {}
    for limit_hit in limit_hits:
        groups.setdefault((limit_hit.file, limit_hit.function), []).append(limit_hit)
    problems = []
    for (file, function), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        title, number = (
            "Recompile limit reached: fell back to eager",
            format_plural(len(members), "time"),
        )
        advice = "What it was recompiled for was not recorded. Compare its callers' arguments."
        location = (function, file, members[0].line)
        problems.append(Problem("limit", "bad", title, number, *location, advice, "recompiles"))
    return problems


def _list_disabled_problems(facts: RunFacts) -> list[Problem]:
    off = sorted(
        {
            f"{module}.{name} = {disabling_value}"
            for changed in facts.changed
            for module, settings in changed.items()
            for name, disabling_value in _DISABLED
            if isinstance(settings.get(name), Mapping)
            and settings[name].get("value") is disabling_value
        }
    )
    if not off:
        return []
    cost_us = facts.cacheable_us
    number = (
        f"at most {format_duration(cost_us)} that a cache could save the next start"
        if cost_us
        else "no compile was kept"
    )
    advice = f"Leave the caches on for a second start that is faster: {', '.join(off)} is set here."
    return [
        Problem(
            "cache",
            "warn",
            "Caches are disabled",
            number,
            None,
            None,
            None,
            advice,
            "caches",
            cost_us,
        )
    ]


def _list_bypass_problems(caches: Sequence[CacheResult]) -> list[Problem]:
    problems = []
    for cache in caches:
        if cache.result != "bypass":
            continue
        name = "AOTAutograd cache" if cache.cache == "aot_autograd" else "FX graph cache"
        advice = (
            "Every process compiles these graphs anew; avoid what the reason names to have "
            "them cached."
        )
        number = format_plural(cache.lookup_count, "graph")
        problems.append(
            Problem(
                "cache",
                "warn",
                f"{name} bypassed",
                number,
                None,
                None,
                None,
                advice,
                "caches",
                None,
                cache.reason,
            )
        )
    return problems


def _join_titles(fixes: Sequence[Fix]) -> str:
    return " Or: ".join(f"{fix.warn(fix.title)}." for fix in fixes)


def _list_skip_problems(skips: Sequence[CudagraphSkip]) -> list[Problem]:
    groups: dict[tuple[str, str | None], list[CudagraphSkip]] = {}
    for skip in skips:
        groups.setdefault((skip.reason, skip.code), []).append(skip)
    problems = []
    for (reason, code), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        first, number = members[0], format_plural(len(members), "graph")
        advice = _join_titles(first.fixes) or (
            "Remove what the reason names from the compiled function, so that its launches are "
            "replayed as one."
        )
        title, location = "CUDA graph not used", (first.function, first.file, first.line)
        problems.append(
            Problem(
                "cudagraph",
                "warn",
                f"{title}: {reason.removeprefix('skipping cudagraphs due to ').rstrip('.')}",
                number,
                *location,
                advice,
                "cudagraphs",
                None,
                code,
            )
        )
    return problems


def _list_rerecording_problems(groups: Sequence[Rerecordings]) -> list[Problem]:
    problems = []
    for group in groups:
        if group.count < MIN_RECORDED_AGAIN:
            continue
        problems.append(
            Problem(
                "cudagraph",
                "warn",
                f"CUDA graph recorded again: {describe_cuda_graph_status(group.status).word}",
                f"{format_plural(group.count, 'time')}, {format_duration(group.duration_us)}",
                *(group.function, group.file, group.line),
                _join_titles(suggest_recorded_again(group.status)) or "Look at what moved.",
                "cudagraphs",
            )
        )
    return problems


_BLANK = re.compile(r"\{\w+\}")


@dataclass(frozen=True)
class FixAdvice:
    """A fix of a cause: the change, when it applies, and its cost."""

    id: Annotated[str, "Name of the fix in the catalogue."]
    title: Annotated[str, "The change to make, in words."]
    applies: Annotated[str, "When it applies."]
    cost: Annotated[str, "What it costs."]
    helps: Annotated[bool, "False if no fix is known, or nothing is to be fixed."]
    diff: Annotated[tuple[str, ...], "The diff of the user's lines; empty if it needs a person."]
    file: Annotated[str | None, "The file that it changes."]
    line: Annotated[int | None, "First line that the fix changes."]
    example: Annotated[tuple[str, ...], "An example diff, run with torch before and after."]
    settings: Annotated[tuple[str, ...], "Equivalent statements, after `import torch`."]


@dataclass(frozen=True)
class CauseRow(Cause):
    """A cause of lost compile time, with its fixes."""

    advice: Annotated[
        tuple[FixAdvice, ...], "Fixes, the best first; empty where none is known."
    ] = ()
    try_command: Annotated[str | None, "The command that tries the first automatic fix."] = None
    tried_advice: Annotated[
        int | None, "Position in `advice` of the fix that `try_command` tries, from 0."
    ] = None

    @property
    @published
    def is_expected(self) -> bool:
        """Return whether there is nothing to fix."""
        return super().is_expected

    @property
    @published
    def page_url(self) -> PageUrl:
        return gb_url(self.gb_id)

    @property
    @published
    def reason_id(
        self,
    ) -> Annotated[ContentId, "`id` of its first graph break, or recompile cause."]:
        return format_id(self.content_ids[0])

    def hide_source(self) -> CauseRow:
        titles = [
            suggested.fix.warn(_BLANK.sub("…", suggested.fix.title)) for suggested in self.fixes
        ]
        advice = [
            replace(row, title=title, diff=(), file=None)
            for row, title in zip(self.advice, titles, strict=True)
        ]
        trials = [
            replace(trial, title=_BLANK.sub("…", suggested.fix.title))
            for trial in self.trials
            for suggested in self.fixes
            if suggested.fix.id == trial.fix_id
        ]
        return replace(
            self,
            source_line=None,
            code=None,
            fixes=(),
            advice=tuple(advice),
            trials=tuple(trials),
        )

    @property
    def statement(self) -> str | None:
        """Return the statement, as much of it as was recorded."""
        code = self.code
        if code is not None and self.line is not None and code.file == self.file:
            return find_whole(code.lines, code.first_line, self.line) or self.source_line
        return self.source_line and mark_part(self.source_line)

    @property
    def saving(self) -> str | None:
        return describe_saving(self, format_duration)

    @property
    def noun(self) -> str:
        return format_plural(
            self.event_count, "graph break" if self.kind == "graph_break" else "recompile"
        )


@dataclass(frozen=True)
class RunVerdict:
    """The problem of a run in one sentence, and the line below it."""

    tone: Annotated[str, "bad, warn, good or quiet."]
    sentence: Annotated[
        str, "What fixes save, or what there is instead: nothing to fix, counts, problems."
    ]
    note: Annotated[str, "What failed or runs eagerly."]
    number: Annotated[int | None, "Causes with a known fix; null if none."]


def list_cause_rows(causes: Sequence[Cause], run: RunRow, *, is_pushed: bool) -> list[CauseRow]:
    """Return the causes as rows with their fixes.

    Causes of a pushed run have no `try` command, because the run is not in a local database.
    """
    can_try = can_run_again(run.source, run.command) and not is_pushed
    return [
        CauseRow(
            **vars(cause),
            advice=tuple(_describe_fix(suggested, cause) for suggested in cause.fixes),
            try_command=f"compileboard-collect try {run.id} --fix {cause.number}"
            f"{' --apply' if cause.verified else ''}"
            if can_try and cause.can_try
            else None,
            tried_advice=cause.automatic if can_try else None,
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
    run: RunRow,
    causes: Sequence[Cause],
    problems: Sequence[Problem],
    *,
    is_pruned: bool = False,
    disabling: Sequence[str] = (),
) -> RunVerdict:
    grave = [problem for problem in problems if problem.severity == "bad"]
    eager = [cause for cause in causes if cause.is_eager and not cause.is_expected]
    fix_count = sum(cause.is_fixable for cause in causes)
    notes = [f"{problem.title} ({problem.number})" for problem in grave[:2]]
    notes += [f"{format_count(len(grave) - 2)} more problems"] if len(grave) > 2 else []
    notes += list_eager(causes)
    if not causes and not run.compile_count:
        words = "Nothing was compiled" if run.state != "running" else "Nothing was compiled yet"
        if run.has_only_results:
            words = "Compiles not recorded"
        elif run.state != "running" and run.source != "import" and not problems:
            reason = describe_uncompiled(run.state, run.torch_version, disabling)
            reason = reason.removeprefix(f"{words.lower()}: ")
            notes.append(f"{reason[0].upper()}{reason[1:]}")
        return RunVerdict("bad" if grave else "quiet", words, ". ".join(notes), None)
    failed = [describe_end(run)] if run.state in ("failed", "killed") else []
    failed += list_failures(run)
    if is_pruned:
        counts = (
            format_plural(run.graph_break_count or 0, "graph break"),
            format_plural(run.recompile_count or 0, "recompile"),
        )
        return RunVerdict("quiet", ", ".join(counts), ". ".join(failed or ["No failures"]), None)
    if run.skipped_frame_count and not eager:
        verb = "runs" if run.skipped_frame_count == 1 else "run"
        notes.append(f"{format_plural(run.skipped_frame_count, 'skipped frame')} {verb} eagerly")
    notes = notes or [*(failed or ["No failures"]), "Nothing runs eagerly."]
    if not causes:
        sentence = NOTHING_TO_FIX
        if problems:
            count = format_plural(len(grave or problems), "problem")
            sentence = f"{count}; no graph breaks, no recompiles"
        tone = "bad" if grave else "warn" if failed or problems else "good"
        return RunVerdict(tone, sentence, ". ".join(notes), None)
    is_expected = all(cause.is_expected for cause in causes) and not failed
    tone = "bad" if grave or eager else "good" if is_expected else "warn"
    found = format_plural(len(grave), "problem") if grave else ""
    sentence = describe_savings(causes, run.compile_us, format_duration, found)
    # What runs eagerly is the problem where no fix saves time that was recorded.
    if eager and not any((cause.saved_us or 0) > 0 or cause.step_us for cause in causes):
        first = list_eager(causes)[0]
        sentence, notes = first, [sentence, *(note for note in notes if note != first)]
    return RunVerdict(tone, sentence, ". ".join(notes), fix_count or None)


def describe_order(causes: Sequence[Cause]) -> str:
    """Return a sentence on how the causes are ordered, or '' if the order has no name."""
    listed = [cause for cause in causes if not cause.is_expected]
    if len(listed) < 2:
        return ""
    slower_count = sum(map(takes_longer, listed))
    listed = listed[: len(listed) - slower_count]
    if not listed or any(map(takes_longer, listed)):
        return ""
    rest = [cause for cause in listed if not cause.verified]
    by_time = [-cause.ranked_us for cause in rest]
    by_eager = [(not cause.is_eager, us) for cause, us in zip(rest, by_time, strict=True)]
    keys = ["verified fixes"] if len(rest) < len(listed) else []
    if by_time != sorted(by_time):
        keys.append("what runs eagerly")
        if by_eager != sorted(by_eager):
            return ""
    if rest != listed[len(listed) - len(rest) :]:
        return ""
    is_run = any(cause.run_us is not None for cause in listed)
    keys.append("most of the run's time" if is_run else "most compile time")
    keys += ["verified fixes that take longer"] if slower_count else []
    first, *more = keys
    return ", then ".join([f"{first[0].upper()}{first[1:]} first", *more])


@dataclass(frozen=True)
class SavingBarSegment:
    number: int | None
    time_us: int
    start: float
    width: float
    label: str
    basis: str  # measured or an estimate; empty of the remaining time

    @property
    def color(self) -> str:
        return "rest" if self.number is None else f"series-{(self.number - 1) % 8 + 1}"


def list_savings(causes: Sequence[Cause], compile_us: int | None) -> list[SavingBarSegment]:
    compile_us = causes[0].clock_us or compile_us if causes else None
    saving = [cause for cause in causes if (cause.saved_us or 0) > 0]
    if not compile_us or not saving:
        return []
    shares: list[SavingBarSegment] = []
    start = 0.0
    for cause in (*saving, None):
        time_us = (
            (cause.saved_us or 0) if cause else max(0, compile_us - sum(s.time_us for s in shares))
        )
        noun = "Fix" if cause and cause.is_fixable else "Cause"
        basis = "" if cause is None else "measured" if cause.measured else "estimate"
        width = 100 * time_us / compile_us
        shares.append(
            SavingBarSegment(
                cause.number if cause else None,
                time_us,
                round(start, 3),
                round(width, 3),
                f"{noun} {cause.number}" if cause else "Remaining",
                basis,
            )
        )
        start += width
    return shares
