"""A model as returned by its builder. Imported in child processes only, because it needs torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Inputs = tuple[Any, ...] | dict[str, Any]


@dataclass
class Loaded:
    """A float32 module on the CPU and its inputs. The harness casts and moves the module and sets
    its mode.

    `resize` makes inputs of another size, whose unit is `size_name`; `sizes` are recommended ones.
    """

    module: torch.nn.Module
    inputs: Inputs
    # Called with the module's output; None: the mean of all its tensors.
    loss: Callable[[Any], torch.Tensor] | None = None
    batch_size: int | None = None  # None: the first dimension of the first tensor
    resize: Callable[[int], Inputs] | None = None
    size_name: str = "batch size"
    sizes: tuple[int, ...] = ()
    # Measured in the module's current mode: it sets train() or eval() itself.
    keeps_mode: bool = False


def load_image_model(module: torch.nn.Module, batch_size: int, shape: tuple[int, ...]) -> Loaded:
    """Wrap a model that takes one tensor, of `shape` per sample; it can also run 2 and 4 times the
    batch.
    """
    from torch._dynamo.testing import reduce_to_scalar_loss  # imports dynamo, which takes a second

    def inputs(size: int) -> Inputs:
        return (torch.randn(size, *shape),)

    sizes = (batch_size, batch_size * 2, batch_size * 4)
    return Loaded(
        module, inputs(batch_size), reduce_to_scalar_loss, batch_size, inputs, sizes=sizes
    )
