"""Build a timm model with random weights. Child processes only."""

from __future__ import annotations

import warnings

import timm
import torch
from timm.data import resolve_model_data_config
from torch._dynamo.testing import reduce_to_scalar_loss

from compileboard.collectors.bench.loaded import Inputs, Loaded
from compileboard.collectors.bench.plan.models import NotAvailable


def build(batch_size: int, name: str) -> Loaded:
    if not timm.is_model(name):
        raise NotAvailable(f"timm {timm.__version__} has no model {name}")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # timm renames models and keeps the old names, with a warning
        # Without dropout of its own, as upstream: eager and compiled must compute the same.
        module = timm.create_model(name, pretrained=False, in_chans=3, drop_rate=0.0)
    image: tuple[int, ...] = resolve_model_data_config(module)["input_size"]

    def inputs(size: int) -> Inputs:
        return (torch.randn(size, *image),)

    sizes = (batch_size, batch_size * 2, batch_size * 4)
    return Loaded(
        module, inputs(batch_size), reduce_to_scalar_loss, batch_size, inputs, sizes=sizes
    )
