"""A model as its builder hands it over. Only child processes import this: it needs torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Inputs = tuple[Any, ...] | dict[str, Any]


@dataclass
class Loaded:
    """A module on the CPU in float32 and what to call it with; the harness casts, moves and sets its mode.

    `resize` makes inputs of another size of what `size_name` says, for shapes that vary; `sizes` are worth trying.
    """

    module: torch.nn.Module
    inputs: Inputs
    loss: Callable[[Any], torch.Tensor] | None = None  # of the module's output; None: the mean of all its tensors
    batch_size: int | None = None  # None: the first dimension of the first tensor
    resize: Callable[[int], Inputs] | None = None
    size_name: str = "batch size"
    sizes: tuple[int, ...] = ()
    keeps_mode: bool = False  # measured in the mode that the module is in: train() or eval() is its own affair
