"""Build a model of transformers' from its configuration, with random weights. Child processes only."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from compileboard.collectors.bench.loaded import Inputs, Loaded
from compileboard.collectors.bench.plan.models import NotAvailable
from compileboard.collectors.bench.suites import transformers_inputs
from compileboard.collectors.bench.suites.transformers import RECIPES, TransformersRecipe

# Small enough that nothing is dropped, and not 0: the dropout itself stays in the graph, as upstream does it.
NO_DROPOUT = 1e-30


def build(batch_size: int, name: str) -> Loaded:
    """Build one model of the catalogue.

    Raises: NotAvailable if this transformers has no such class.
    """
    recipe = RECIPES[name]
    model_class = _find_class(recipe.class_name or name)
    config = _configure(model_class.config_class, recipe)
    module = model_class(config)
    make = getattr(transformers_inputs, recipe.inputs)

    def of_length(length: int) -> Inputs:
        inputs: Inputs = make(config, batch_size, length)
        return inputs

    def of_batch(size: int) -> Inputs:
        inputs: Inputs = make(config, size, recipe.length)
        return inputs

    loaded = Loaded(module, of_length(recipe.length), loss=own_loss, batch_size=batch_size)
    if recipe.inputs in transformers_inputs.HAVE_LENGTH:
        longest = recipe.length
        loaded.resize, loaded.size_name = of_length, "sequence length"
        loaded.sizes = (longest // 4, longest // 2, longest * 3 // 4, longest)
    else:
        loaded.resize, loaded.sizes = of_batch, (batch_size, batch_size * 2, batch_size * 4)
    return loaded


def own_loss(output: Any) -> torch.Tensor:
    """Return the loss that the model computed from its labels: the first of its outputs."""
    loss: torch.Tensor = output[0]
    return loss


def _find_class(name: str) -> Any:
    try:
        return getattr(transformers, name)
    except AttributeError as error:
        raise NotAvailable(f"transformers {transformers.__version__} has no class {name}") from error
    except ImportError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if not isinstance(cause, ImportError):
            raise  # an installation that is broken, which its traceback explains
        raise NotAvailable(f"transformers' {name} needs what is not installed: {cause}") from error


def _configure(config_class: Any, recipe: TransformersRecipe) -> Any:
    """Make the configuration; without a cache of keys and values, as upstream: one forward needs none."""
    config = config_class(**recipe.config)
    for part in (config, getattr(config, "text_config", None), getattr(config, "vision_config", None)):
        if part is None:
            continue
        if hasattr(part, "use_cache"):
            part.use_cache = False
        for attribute in [it for it in vars(part) if "drop" in it]:
            value = getattr(part, attribute)
            if isinstance(value, float) and value > NO_DROPOUT:
                setattr(part, attribute, NO_DROPOUT)
    return config
