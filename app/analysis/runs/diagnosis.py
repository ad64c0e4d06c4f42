"""What to do about a run: the few things that cost most, each with its number, its function and the fix.

What ends in eager code, or never ended, comes first; the rest is ordered by compile time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.analysis.labels import describe_failure_phase
from compileboard.app.analysis.timeline import find_phase
from compileboard.app.format import format_count, format_duration, format_plural
from compileboard.app.queries.fields import Count, DurationUs, FileName, FunctionName, LineNumber
from compileboard.app.queries.run.failures import (
    CacheResult,
    CudagraphSkip,
    FailureGroup,
    FailureRow,
    Unfinished,
)
from compileboard.app.queries.run.graph_breaks import RunDistinctBreak
from compileboard.app.queries.run.recompiles import LimitHit, RunCause
from compileboard.app.queries.run.run import StackCliff
from compileboard.app.schema import one_of
from compileboard.collectors.contract.categories import label_category

# Hints of torch's that say how things are, and not what to do.
_NO_ADVICE = ("This graph break is fundamental", "Please report an issue", "This is likely to be a Dynamo bug")
_DISABLED = (
    ("force_disable_caches", True),
    ("fx_graph_cache", False),
    ("enable_autograd_cache", False),
)


@dataclass(frozen=True)
class Problem:
    """One thing to do about a run."""

    kind: Annotated[str, "What it is about: unfinished, failure, limit, stack, recompile, break, cache or cudagraph."]
    severity: Annotated[str, one_of(("bad", "warn")), "How grave it is."]
    title: Annotated[str, "What happened."]
    number: Annotated[str, "How often or how much, in words."]
    function: FunctionName
    file: FileName
    line: LineNumber
    fix: Annotated[str, "What to do."]
    tab: Annotated[str, "The tab of the run's page that has the details."]
    cost_us: Annotated[DurationUs | None, "Compile time that it cost."]
    code: Annotated[str | None, "A line of code or a reason."] = None
    others: Annotated[Count, "Functions that have the same, beside the one named."] = 0


@dataclass(frozen=True)
class RunFacts:
    """The facts that a diagnosis rests on; each list has what costs most first."""

    compile_us: int | None = None
    unfinished: Sequence[Unfinished] = ()
    failures: Sequence[FailureGroup] = ()
    raised: Sequence[FailureRow] = ()  # while compiled code ran
    limit_hits: Sequence[LimitHit] = ()
    causes: Sequence[RunCause] = ()
    breaks: Sequence[RunDistinctBreak] = ()
    caches: Sequence[CacheResult] = ()
    skips: Sequence[CudagraphSkip] = ()
    changed: Sequence[Mapping[str, Mapping[str, Any]]] = ()
    cliffs: Sequence[StackCliff] = ()
    cacheable_us: int | None = None


def rank_fixes(evidence: RunFacts) -> list[Problem]:
    """List what to do, the most costly first; empty where nothing stands out."""
    grave = [
        *_unfinished(evidence.unfinished),
        *_failures(evidence.failures),
        *_raised(evidence.raised),
        *_recompile_limit_fixes(evidence),
    ]
    costly = [*_causes(evidence.causes), *_breaks(evidence), *_disabled(evidence), *_bypasses(evidence.caches)]
    costly += _cudagraph_fixes(evidence.skips)
    costly.sort(key=lambda fix: -(fix.cost_us or 0))
    # One cause that takes all first places hides the others: what ends in eager code keeps at most three.
    return [*grave[:3], *_cliffs(evidence.cliffs), *costly, *grave[3:]]


def _unfinished(unfinished: Sequence[Unfinished]) -> list[Problem]:
    fixes = []
    for span in unfinished:
        fix = "The phase it was in was not recorded: --level full, or TORCH_TRACE, records it."
        if span.spans:
            innermost = span.spans[-1].name
            fix = f"It was in {find_phase(innermost).label}: {innermost}, the last phase that began."
        number = "for how long: not recorded" if span.is_last else "its end was not recorded; the process went on"
        if span.until_us is not None:
            number = f"{format_duration(span.until_us)} from its start to the end of the run"
        code = " › ".join(phase.name for phase in span.spans) or None
        title = f"Compile {span.compile_id} never finished"
        location = (span.function, span.file, span.line)
        fixes.append(Problem("unfinished", "bad", title, number, *location, fix, "compiles", None, code))
    return fixes


def _cliffs(cliffs: Sequence[StackCliff]) -> list[Problem]:
    """Return one fix for all processes of what every warm call may lose; the run with room settles it."""
    if not cliffs:
        return []
    worst = max(cliffs, key=lambda cliff: cliff.faults_per_s)
    number = f"{format_count(round(worst.faults_per_s))} page faults a second while nothing compiled"
    if len(cliffs) > 1:
        number += f", in {format_plural(len(cliffs), 'process', 'processes')}"
    python = f"Python {worst.python_version}" if worst.python_version else "this Python"
    if worst.stack_room:
        fix, code = "The program had room, but not where this happens: decorate what the thread runs", None
    else:
        fix, code = "Run it once with room and compare", f"compileboard-collect run --stack-room -- {worst.command}"
        fix += ". If that is faster, decorate the function that holds the loop"
    fix += f" with @compileboard.stack_room, or take a newer patch release than {python}: docs/stack-cliff.md."
    title = "Every call may map and unmap memory for its frames"
    return [Problem("stack", "warn", title, number, None, None, None, fix, "processes", None, code)]


def _failures(failures: Sequence[FailureGroup]) -> list[Problem]:
    fixes = []
    for failure in failures:
        title = f"Compile failed: {failure.error_type or 'an exception'}"
        number = format_plural(failure.compile_count, "failed compile")
        fix = "Read the traceback; backend='eager', then 'aot_eager', tells which layer fails."
        fixes.append(_make_failure_fix(failure, title, number, fix))
    return fixes


def _make_failure_fix(failure: FailureGroup | FailureRow, title: str, number: str, fix: str) -> Problem:
    location = (failure.function, failure.file, failure.line)
    code = (failure.message or "").strip().split("\n\n")[0][:300] or None
    return Problem("failure", "bad", title, number, *location, fix, "failures", None, code)


_RAISED_FIX = {
    "forward": "Call the function without torch.compile: if it raises too, the program is at fault; else "
    "backend='eager', then 'aot_eager', tells which layer is.",
    "backward": "Read what the message says of the gradient or the operation; backend='eager', then 'aot_eager', tells "
    "which layer raises.",
    "wrapper": "AOTAutograd's code around the graph raised: the message names the input or output that it could not "
    "handle.",
}


def _raised(failures: Sequence[FailureRow]) -> list[Problem]:
    fixes = []
    for failure in failures:
        phase = describe_failure_phase(failure.phase)
        number = format_plural(failure.occurrence_count, "time")
        number += ", the last ended the program" if failure.ended_program else ""
        title = f"Raised in {phase.word}: {failure.error_type or 'an exception'}"
        if failure.phase == "program":
            title, number = f"The program ended: {failure.error_type or 'an exception'}", "raised outside compiled code"
        fix = _RAISED_FIX.get(failure.phase, "Read the traceback.")
        fixes.append(_make_failure_fix(failure, title, number, fix))
    return fixes


def _recompile_limit_fixes(evidence: RunFacts) -> list[Problem]:
    groups: dict[tuple[str | None, str | None], list[LimitHit]] = {}
    for limit_hit in evidence.limit_hits:
        groups.setdefault((limit_hit.file, limit_hit.function), []).append(limit_hit)
    fixes = []
    for (file, function), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        causes = [cause for cause in evidence.causes if (cause.file, cause.function) == (file, function)]
        cost_us = _sum_costs(causes)
        named = ", ".join(dict.fromkeys(_name_cause(cause) for cause in causes[:4]))
        fix = f"It was compiled again for: {named}. Take these away" if named else "Take away what makes it recompile"
        fix += ", or, if all these variants are wanted, raise torch._dynamo.config.recompile_limit."
        number = format_plural(len(members), "limit hit")
        if cost_us:
            number += f" after {format_duration(cost_us)} of recompiles"
        title = "Recompile limit hit: runs eagerly from then on"
        fixes.append(
            Problem("limit", "bad", title, number, function, file, members[0].line, fix, "recompiles", cost_us)
        )
    return fixes


def _sum_costs(members: Sequence[RunCause] | Sequence[RunDistinctBreak]) -> int | None:
    """Add up compile time; None where no record of these compiles has a time."""
    return sum(member.compile_us or 0 for member in members) or None


def _name_cause(cause: RunCause) -> str:
    label = label_category(cause.category).label
    return f"{label} of {cause.source}" if cause.source else label


def _causes(causes: Sequence[RunCause]) -> list[Problem]:
    groups: dict[tuple[str, str], list[RunCause]] = {}
    for cause in causes:
        fix = cause.suggestion or label_category(cause.category).meaning
        groups.setdefault((f"Recompiled: {_name_cause(cause)}", fix), []).append(cause)
    fixes = []
    for (title, fix), members in groups.items():
        first, cost_us = members[0], _sum_costs(members)
        count = sum(member.recompile_count for member in members)
        fixes.append(
            Problem(
                kind="recompile",
                severity="warn",
                title=title,
                number=(f"{format_duration(cost_us)} in " if cost_us else "") + format_plural(count, "recompile"),
                function=first.function,
                file=first.file,
                line=None,
                fix=fix,
                tab="recompiles",
                cost_us=cost_us,
                code=first.reason,
                others=len({(member.file, member.function) for member in members}) - 1,
            )
        )
    return fixes


def _breaks(evidence: RunFacts) -> list[Problem]:
    groups: dict[tuple[str, str], list[RunDistinctBreak]] = {}
    for graph_break in evidence.breaks:
        useful = [hint for hint in graph_break.hints if not hint.startswith(_NO_ADVICE)] or graph_break.hints
        fix = useful[0] if useful else graph_break.explanation or "Move this line out of the compiled function."
        name = graph_break.gb_type or (graph_break.reason.splitlines()[0] if graph_break.reason else "without a reason")
        groups.setdefault((name, fix), []).append(graph_break)
    fixes = []
    for (name, fix), members in groups.items():
        first = members[0]
        # Compiles with several of these breaks would be counted twice: all of the run's time is the most there is.
        cost_us = _sum_costs(members)
        if cost_us and evidence.compile_us:
            cost_us = min(cost_us, evidence.compile_us)
        count = format_plural(sum(member.break_count for member in members), "graph break")
        eager = sum(member.outcomes.get("skipped", 0) for member in members)
        fixes.append(
            Problem(
                kind="break",
                severity="bad" if eager else "warn",
                title=f"Graph break: {name}"
                + (f" ({format_plural(eager, 'frame')} left to run eagerly)" if eager else ""),
                number=count + (f", in compiles that took {format_duration(cost_us)}" if cost_us else ""),
                function=first.function,
                file=first.file,
                line=first.line,
                fix=fix,
                tab="breaks",
                cost_us=cost_us,
                code=first.source_line,
                others=len({(member.file, member.function) for member in members}) - 1,
            )
        )
    return fixes


def _disabled(evidence: RunFacts) -> list[Problem]:
    off = sorted(
        {
            f"{module}.{name} = {disabling_value}"
            for changed in evidence.changed
            for module, settings in changed.items()
            for name, disabling_value in _DISABLED
            if isinstance(settings.get(name), Mapping) and settings[name].get("value") is disabling_value
        }
    )
    if not off:
        return []
    cost_us = evidence.cacheable_us
    number = f"{format_duration(cost_us)} compiled that a cache could keep" if cost_us else "no compile was kept"
    fix = f"Leave the caches on for a second start that is faster: {', '.join(off)} is set here."
    return [Problem("cache", "warn", "Caches are disabled", number, None, None, None, fix, "caches", cost_us)]


def _bypasses(caches: Sequence[CacheResult]) -> list[Problem]:
    fixes = []
    for cache in caches:
        if cache.result != "bypass":
            continue
        name = "AOTAutograd cache" if cache.cache == "aot_autograd" else "FX graph cache"
        fix = "Every process compiles these graphs anew; avoid what the reason names to have them cached."
        number = format_plural(cache.lookup_count, "graph")
        fixes.append(
            Problem("cache", "warn", f"{name} bypassed", number, None, None, None, fix, "caches", None, cache.reason)
        )
    return fixes


def _cudagraph_fixes(skips: Sequence[CudagraphSkip]) -> list[Problem]:
    groups: dict[str, list[CudagraphSkip]] = {}
    for skip in skips:
        groups.setdefault(skip.reason, []).append(skip)
    fixes = []
    for reason, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        first, number = members[0], format_plural(len(members), "graph")
        fix = "Remove what the reason names from the compiled function, so that its launches are replayed as one."
        title = "CUDA graph not used"
        fixes.append(
            Problem(
                "cudagraph", "warn", title, number, first.function, first.file, first.line, fix, "caches", None, reason
            )
        )
    return fixes
