"""Find the batch in a model's inputs, and tell dynamo that it varies. Child processes only."""

from __future__ import annotations

import torch
import torch._dynamo
from torch.utils import _pytree

from compileboard.collectors.bench.suites.not_available import NotAvailable
from compileboard.collectors.bench.workbench import Workbench


def batch_dimension(tensor: torch.Tensor, batch_size: int) -> int | None:
    """Return the first dimension that is as long as the batch.

    Source: detect_and_mark_batch of upstream's benchmarks/dynamo/common.py.
    """
    return next((place for place, size in enumerate(tensor.shape) if size == batch_size), None)


def mark_batch(bench: Workbench) -> None:
    """Mark the batch of every input as dynamic, if that was asked for. A batch of 1 is left, as upstream leaves it.

    Raises: NotAvailable in words if no input has the batch.
    """
    batch_size = bench.batch_size
    if not bench.settings.dynamic_batch_only or batch_size == 1:
        return
    marked = 0
    for tensor in _pytree.tree_leaves(bench.inputs):
        place = batch_dimension(tensor, batch_size or 0) if isinstance(tensor, torch.Tensor) else None
        if place is not None:
            torch._dynamo.maybe_mark_dynamic(tensor, place)
            marked += 1
    if not marked:
        raise NotAvailable(f"--dynamic-batch-only: no input has a dimension of the batch size, {batch_size}")
