"""A run's problems beside its graph breaks and recompiles: failures, unfinished compiles, caches,
CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.analysis.labels import describe_failure_phase
from compileboard.app.analysis.timeline import find_phase
from compileboard.app.format import format_count, format_duration, format_plural
from compileboard.app.queries.fields import DurationUs, FileName, FunctionName, LineNumber
from compileboard.app.queries.run.failures import (
    CacheResult,
    CudagraphSkip,
    FailureGroup,
    FailureRow,
    Unfinished,
)
from compileboard.app.queries.run.recompiles import LimitHit
from compileboard.app.queries.run.run import StackCliff
from compileboard.app.schema import one_of
from compileboard.collectors.contract.compile_labels import build_label
from compileboard.collectors.fixes.fix import find_fix

_DISABLED = (
    ("force_disable_caches", True),
    ("fx_graph_cache", False),
    ("enable_autograd_cache", False),
)


@dataclass(frozen=True)
class Problem:
    """One problem of a run that is neither a graph break nor a recompile."""

    kind: Annotated[str, "What it is about: unfinished, failure, limit, stack, cache or cudagraph."]
    severity: Annotated[
        str, one_of(("bad", "warn")), "bad: it failed, never finished or runs eagerly."
    ]
    title: Annotated[str, "What happened."]
    number: Annotated[str, "How often or how much, in words."]
    function: FunctionName
    file: FileName
    line: LineNumber
    advice: Annotated[str, "The fix."]
    tab: Annotated[str, "The tab of the run's page that has the details."]
    cost_us: Annotated[DurationUs | None, "Compile time that it cost."] = None
    code: Annotated[str | None, "A line of code or a reason."] = None


@dataclass(frozen=True)
class RunFacts:
    unfinished: Sequence[Unfinished] = ()
    failures: Sequence[FailureGroup] = ()
    raised: Sequence[FailureRow] = ()  # while compiled code ran
    limit_hits: Sequence[LimitHit] = ()  # without a recorded recompile
    caches: Sequence[CacheResult] = ()
    skips: Sequence[CudagraphSkip] = ()
    changed: Sequence[Mapping[str, Mapping[str, Any]]] = ()
    cliffs: Sequence[StackCliff] = ()
    cacheable_us: int | None = None


def list_problems(facts: RunFacts) -> list[Problem]:
    grave = [
        *_unfinished(facts.unfinished),
        *_failures(facts.failures),
        *_raised(facts.raised),
        *_recompile_limits(facts.limit_hits),
    ]
    return [
        *grave,
        *_cliffs(facts.cliffs),
        *_disabled(facts),
        *_bypasses(facts.caches),
        *_cudagraph_skips(facts.skips),
    ]


def _unfinished(unfinished: Sequence[Unfinished]) -> list[Problem]:
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


def _cliffs(cliffs: Sequence[StackCliff]) -> list[Problem]:
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


_REFUSED = "when making fake tensor call"  # GB4315: no `except` of compiled code is reached


def _failures(failures: Sequence[FailureGroup]) -> list[Problem]:
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


def _raised(failures: Sequence[FailureRow]) -> list[Problem]:
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
        problems.append(_make_failure_problem(failure, title, number, advice))
    return problems


def _recompile_limits(limit_hits: Sequence[LimitHit]) -> list[Problem]:
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


def _disabled(facts: RunFacts) -> list[Problem]:
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
        f"{format_duration(cost_us)} compiled that a cache could keep"
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


def _bypasses(caches: Sequence[CacheResult]) -> list[Problem]:
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


def _cudagraph_skips(skips: Sequence[CudagraphSkip]) -> list[Problem]:
    groups: dict[str, list[CudagraphSkip]] = {}
    for skip in skips:
        groups.setdefault(skip.reason, []).append(skip)
    problems = []
    for reason, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        first, number = members[0], format_plural(len(members), "graph")
        advice = (
            "Remove what the reason names from the compiled function, so that its launches are "
            "replayed as one."
        )
        title, location = "CUDA graph not used", (first.function, first.file, first.line)
        problems.append(
            Problem("cudagraph", "warn", title, number, *location, advice, "caches", None, reason)
        )
    return problems
