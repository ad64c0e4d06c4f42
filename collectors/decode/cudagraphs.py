"""Decode why torch found a CUDA graph not to fit. Source: log_data_ptr_mismatch of
torch/_inductor/cudagraph_utils.py.
"""

from __future__ import annotations

import re
from typing import Any

from compileboard.collectors.contract.shapes import GraphMismatch, MovedInput
from compileboard.collectors.decode.records import PathNamer, named_stack, parse_traceback

MOST_INPUTS = 20
_INPUT = re.compile(
    r"^input name: (.+?)\. data pointer changed from .*?\. input stack trace: ", re.MULTILINE
)


def parse_mismatch(reason: list[Any], namer: PathNamer) -> GraphMismatch:
    graph, status, text, described = reason
    _head, *parts = _INPUT.split(text if isinstance(text, str) else "")
    inputs = []
    for name, stack in zip(parts[::2], parts[1::2], strict=True):
        dtype, shape = described.get(name) or (None, None)
        frames = named_stack(parse_traceback(stack), namer)
        inputs.append(MovedInput(name=name, dtype=dtype, shape=shape, stack=frames))
    return GraphMismatch(
        graph=graph, status=status, inputs=inputs[:MOST_INPUTS], input_count=len(inputs)
    )
