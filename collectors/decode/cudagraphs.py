"""Decode events of CUDA graphs: why one was skipped, and why one was recorded again.

Source: cudagraph_trees.py and cudagraph_utils.py in torch/_inductor.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from compileboard.collectors.contract.events import CudagraphMade, FrameContext
from compileboard.collectors.contract.shapes import GraphMismatch, MovedInput
from compileboard.collectors.decode.records import (
    PathNamer,
    named_stack,
    parse_frames,
    parse_traceback,
)

MAX_INPUTS = 20
_INPUT = re.compile(
    r"^input name: (.+?)\. data pointer changed from .*?\. input stack trace: ", re.MULTILINE
)
_OWN = {one.name for one in fields(CudagraphMade)} - {one.name for one in fields(FrameContext)}


def parse_skip(metadata: dict[str, Any], namer: PathNamer) -> dict[str, Any] | None:
    """Return the fields of a skip, None if the record does not have torch's form."""
    reason = metadata.get("reason")
    if not isinstance(reason, str):
        return None
    stack = metadata.get("stack", reason)
    frames = parse_traceback(stack) if isinstance(stack, str) else parse_frames(stack)
    if frames:
        # torch writes the stack into the reason: "… due to mutated inputs. Found from : \n File …"
        head = reason.split('File "', 1)[0].strip()
        reason = head.removesuffix("Found from :").strip() or reason
    return {"reason": reason, "stack": named_stack(frames, namer)}


def parse_recording(metadata: dict[str, Any], namer: PathNamer) -> dict[str, Any] | None:
    """Return the fields of a recording, None if the record does not have our hook's form."""
    if not isinstance(metadata.get("reasons"), list):
        return None
    reasons = [_parse_mismatch(reason, namer) for reason in metadata["reasons"]]
    own = {name: value for name, value in metadata.items() if name in _OWN}
    return own | {"reasons": reasons, "status": reasons[-1]["status"] if reasons else None}


def _parse_mismatch(reason: list[Any], namer: PathNamer) -> GraphMismatch:
    graph, status, text, described, count = reason
    _head, *parts = _INPUT.split(text if isinstance(text, str) else "")
    inputs = []
    for name, stack in list(zip(parts[::2], parts[1::2], strict=True))[:MAX_INPUTS]:
        dtype, shape = described.get(name) or (None, None)
        frames = named_stack(parse_traceback(stack), namer)
        inputs.append(MovedInput(name=name, dtype=dtype, shape=shape, stack=frames))
    return GraphMismatch(graph=graph, status=status, inputs=inputs, input_count=count)
