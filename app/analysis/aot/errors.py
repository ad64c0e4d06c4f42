"""Errors that AOTAutograd's wrappers raise around compiled code, recognised by torch's message.

Source: torch/_functorch/_aot_autograd/runtime_wrappers.py of 2.13
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.queries.run.failures import FailureRow

_FRAME = re.compile(r'^ *File "([^"]+)", line \d+', re.MULTILINE)
_WRAPPERS = re.compile(r"[/\\]_functorch[/\\]_aot_autograd[/\\]")
# Part of torch's message → what it means, how to avoid it.
_KNOWN = (
    (
        "guessed its\nmetadata incorrectly",
        (
            "The backward was compiled for a gradient of another type or subclass than the one "
            "that came."
        ),
        (
            "Torch's message names the remedies: detach the output, or "
            "__coerce_same_metadata_as_tangent__."
        ),
    ),
    (
        "compiled with non-empty donated buffers",
        (
            "The backward ran with retain_graph or create_graph, but writes over tensors that were "
            "saved for it."
        ),
        (
            "Set torch._functorch.config.donated_buffer to False before it is compiled, or keep no "
            "graph."
        ),
    ),
    (
        "is a view and is being modified inplace",
        (
            "The wrapper copies a new value into an input that is one of several views, which "
            "autograd does not allow."
        ),
        "Return the new value instead of writing it.",
    ),
    (
        "would not require grad",
        (
            "An input needs gradients, and the graph was compiled for one that does not "
            "(debug_assert)."
        ),
        "Report it to PyTorch: a guard should have recompiled.",
    ),
)


@dataclass(frozen=True)
class WrapperError:
    failure: FailureRow
    meaning: Annotated[str, "What it means. Empty for a message that is not known."]
    fix: Annotated[str, "How to avoid it. Empty for a message that is not known."]


def explain_errors(failures: list[FailureRow]) -> list[WrapperError]:
    return [_explain(failure) for failure in failures if _is_raised_by_wrapper(failure)]


def _is_raised_by_wrapper(failure: FailureRow) -> bool:
    frames = _FRAME.findall(failure.text)
    return failure.phase == "wrapper" or (
        failure.phase == "backward" and bool(frames) and _WRAPPERS.search(frames[-1]) is not None
    )


def _explain(failure: FailureRow) -> WrapperError:
    message = " ".join((failure.message or "").split())
    for part, meaning, fix in _KNOWN:
        if " ".join(part.split()) in message:
            return WrapperError(failure, meaning, fix)
    return WrapperError(failure, "", "")
