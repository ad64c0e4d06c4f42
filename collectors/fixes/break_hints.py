"""Torch's hints that do not help."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from compileboard.collectors.fixes.fix import BreakFacts
from compileboard.collectors.fixes.statement import (
    find_statement,
    is_read,
    list_following,
    list_uses,
)
from compileboard.collectors.fixes.titles import name_builtin

LOGGING_BUILTINS = ("print",)
_AVOIDED = re.compile(r"Avoid calling `[^`]*?(\w+)`")


@dataclass(frozen=True)
class HintWarning:
    """A hint of torch's that is better not followed, and why."""

    hint: Annotated[str, "The hint, in torch's words."]
    reason: Annotated[str, "Why it does not help."]


def list_hint_warnings(facts: BreakFacts) -> list[HintWarning]:
    return [HintWarning(hint, reason) for hint in facts.hints if (reason := _judge(hint, facts))]


def _judge(hint: str, facts: BreakFacts) -> str | None:
    gb_id, line = facts.gb_id, facts.source_line or ""
    if gb_id == "GB0123" and "torch._dynamo.trace_autograd_ops" in hint:
        return "No effect as written: the setting is `torch._dynamo.config.trace_autograd_ops`."
    if gb_id == "GB0109" and "integer type" in hint:
        return "No effect alone: `.tolist()` of integers breaks next (GB0033)."
    if gb_id == "GB0015" and "fullgraph=False" in hint:
        return "No effect: graph breaks are allowed already."
    if (
        gb_id == "GB0059"
        and "reorderable_logging_functions" in hint
        and name_builtin(facts) not in LOGGING_BUILTINS
    ):
        return "For logging functions only: the call's result would be lost."
    if (
        gb_id == "GB0156"
        and hint.startswith("Avoid calling `")
        and f".{hint.split('`')[1].split('.')[-1]}(" not in line
    ):
        return "The name is torch's: your line calls it indirectly."
    if (
        gb_id == "GB0033"
        and "capture_scala" in hint
        and any(name in line for name in ("np.random", "numpy.random"))
    ):
        return "No effect on numpy.random."
    if gb_id == "GB0033" and "custom op" in hint and "_local_scalar_dense" not in facts.context:
        return "No effect: a custom operator that returns a bool breaks the graph at the `if`."
    if gb_id == "GB0170" and "branchless" in hint and line.lstrip().startswith(("while", "assert")):
        return "Fits an `if`, not this line."
    if gb_id == "GB0124" and "capture_scalar_outputs" in hint and reads_for_branch(facts):
        return "Moves the break to the `if` that depends on the number (GB0170)."
    return None


def reads_for_branch(facts: BreakFacts) -> bool:
    statement = find_statement(facts)
    if statement is None:
        return False
    following = list_following(facts, statement)
    reads = [call for call in statement.calls() if is_read(call)]
    return any("branch" in list_uses(statement, call, following) for call in reads)
