"""Bytes that a forward graph saves for its backward: the backward graph's inputs other than
gradients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.analysis.artifacts.graph_text import (
    list_types,
    parse_signature,
    parse_tensor_type,
)
from compileboard.app.queries.fields import Count

_NOT_SAVED = re.compile(r"tangents_\d+|bwd_rng_state_\d+|bwd_(?:seed|base_offset)_\d+")
_INPUT = re.compile(r"primals_\d+")


@dataclass(frozen=True)
class SavedTensors:
    """Memory that a forward graph keeps until its backward. A view counts with its own size."""

    tensor_count: Annotated[Count, "Tensors that are saved."]
    bytes: Annotated[
        Count | None, "Bytes of all of them. Null where a symbol's size is not recorded."
    ]
    input_bytes: Annotated[
        Count | None, "Of these, inputs of the forward: parameters and arguments. Bytes."
    ]
    donated_bytes: Annotated[
        Count | None, "Of these, buffers that the backward may write over. Bytes."
    ]


def measure_saved(
    text: str, symbols: Mapping[str, int], donated: Sequence[int] | None
) -> SavedTensors | None:
    """Return what a backward graph takes from its forward, or None if the text is no graph.

    `donated` are indices of the backward graph's parameters, `symbols` the recorded sizes.
    """
    try:
        types = list_types(parse_signature(text))
    except ValueError:
        return None
    tensors = {
        index: (name, tensor)
        for index, (name, written) in enumerate(types.items())
        if not _NOT_SAVED.fullmatch(name) and (tensor := parse_tensor_type(written)) is not None
    }
    try:
        sizes = {index: tensor.count_bytes(symbols) for index, (_name, tensor) in tensors.items()}
    except ValueError:
        return SavedTensors(len(tensors), None, None, None)
    return SavedTensors(
        len(tensors),
        sum(sizes.values()),
        sum(size for index, size in sizes.items() if _INPUT.fullmatch(tensors[index][0])),
        None if donated is None else sum(sizes.get(index, 0) for index in donated),
    )
