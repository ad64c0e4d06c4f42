"""Build a torchvision model with random weights. Child processes only."""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch._dynamo.testing import reduce_to_scalar_loss

from compileboard.collectors.bench.loaded import Inputs, Loaded
from compileboard.collectors.bench.plan.models import NotAvailable

VIDEO = ("mc3_18", "r3d_18")
VIDEO_FRAMES = 8
VIDEO_SIZE = 112
IMAGE_SIZE = 224


def build(batch_size: int, name: str) -> Loaded:
    if name not in torchvision.models.list_models():
        raise NotAvailable(f"torchvision {torchvision.__version__} has no model {name}")
    words: dict[str, Any] = {"weights": None}
    if name.startswith(("deeplabv3", "fcn", "lraspp")):
        words["weights_backbone"] = None  # by default the pretrained backbone is downloaded
    module = torchvision.models.get_model(name, **words)

    def inputs(size: int) -> Inputs:
        if name in VIDEO:
            return (torch.randn(size, 3, VIDEO_FRAMES, VIDEO_SIZE, VIDEO_SIZE),)
        return (torch.randn(size, 3, IMAGE_SIZE, IMAGE_SIZE),)

    sizes = (batch_size, batch_size * 2, batch_size * 4)
    return Loaded(
        module, inputs(batch_size), reduce_to_scalar_loss, batch_size, inputs, sizes=sizes
    )
