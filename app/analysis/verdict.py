"""The verdict that a page opens with: one sentence, one line of context, a few counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from compileboard.app.schema import one_of

TONES = ("bad", "warn", "quiet", "good")


@dataclass(frozen=True)
class VerdictCount:
    """A count beside a verdict."""

    label: Annotated[str, "Its label."]
    value: Annotated[str, "Its value."]


@dataclass(frozen=True)
class PageVerdict:
    """What a page says first; `state` names the rule that decided it."""

    state: Annotated[str, "Which rule decided it."]
    tone: Annotated[str, one_of(TONES), "How it looks: red, amber, grey or green."]
    sentence: Annotated[str, "What is wrong, or that nothing is."]
    context: Annotated[str, "One line of context; may be empty."] = ""
    counts: Annotated[list[VerdictCount], "Counts beside it."] = field(default_factory=list)
