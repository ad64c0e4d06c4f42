"""Build a transformers model with random weights and example inputs. Only in child processes.

Inputs include labels, so that the model computes its own loss.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers

from compileboard.collectors.bench.loaded import Inputs, Loaded
from compileboard.collectors.bench.plan.models import NotAvailable
from compileboard.collectors.bench.suites.transformers import RECIPES, TransformersRecipe

# Small enough that nothing is dropped, but not 0, so that the dropout stays in the graph, as
# upstream does it.
NO_DROPOUT = 1e-30
HAVE_LENGTH = ("tokens", "question_answering", "sequence_classification")


def build(batch_size: int, name: str) -> Loaded:
    """Build a model and its inputs. Raises NotAvailable if the installed transformers has no such
    class.
    """
    recipe = RECIPES[name]
    model_class = _find_class(recipe.class_name or name)
    config = _configure(model_class.config_class, recipe)
    module = model_class(config)
    make = INPUTS[recipe.inputs]

    def of_length(length: int) -> Inputs:
        inputs: Inputs = make(config, batch_size, length)
        return inputs

    def of_batch(size: int) -> Inputs:
        inputs: Inputs = make(config, size, recipe.length)
        return inputs

    if recipe.inputs == "image_and_text":
        module = ContrastiveLoss(module)
    loaded = Loaded(module, of_length(recipe.length), loss=own_loss, batch_size=batch_size)
    if recipe.inputs in HAVE_LENGTH:
        longest = recipe.length
        loaded.resize, loaded.size_name = of_length, "sequence length"
        loaded.sizes = (longest // 4, longest // 2, longest * 3 // 4, longest)
    else:
        loaded.resize, loaded.sizes = of_batch, (batch_size, batch_size * 2, batch_size * 4)
    return loaded


class ContrastiveLoss(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> Any:
        return self.model(**inputs, return_loss=True)


def own_loss(output: Any) -> torch.Tensor:
    loss: torch.Tensor = output[0]
    return loss


def _find_class(name: str) -> Any:
    try:
        return getattr(transformers, name)
    except AttributeError as error:
        raise NotAvailable(
            f"transformers {transformers.__version__} has no class {name}"
        ) from error
    except ImportError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if not isinstance(cause, ImportError):
            raise  # a broken installation, explained by its traceback
        raise NotAvailable(f"transformers' {name} needs what is not installed: {cause}") from error


def _configure(config_class: Any, recipe: TransformersRecipe) -> Any:
    config = config_class(**recipe.config)
    for part in (
        config,
        getattr(config, "text_config", None),
        getattr(config, "vision_config", None),
    ):
        if part is None:
            continue
        if hasattr(part, "use_cache"):
            part.use_cache = False
        for attribute in [name for name in vars(part) if "drop" in name]:
            value = getattr(part, attribute)
            if isinstance(value, float) and value > NO_DROPOUT:
                setattr(part, attribute, NO_DROPOUT)
    return config


def tokens(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    return {
        "input_ids": _ids(config, batch_size, length),
        "labels": _ids(config, batch_size, length),
    }


def question_answering(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    return {
        "input_ids": _ids(config, batch_size, length),
        "start_positions": torch.randint(0, length, (batch_size,)),
        "end_positions": torch.randint(0, length, (batch_size,)),
    }


def sequence_classification(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    return {"input_ids": _ids(config, batch_size, length), "labels": _classes(config, batch_size)}


def image(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    return {"pixel_values": _pictures(config, batch_size), "labels": _classes(config, batch_size)}


def image_and_text(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    return {
        "input_ids": _ids(config.text_config, batch_size, length),
        "pixel_values": _pictures(config.vision_config, batch_size),
    }


def speech(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    frames = length
    for kernel, stride in zip(config.conv_kernel, config.conv_stride):
        frames = (frames - kernel) // stride + 1
    labels = torch.randint(1, config.vocab_size, (batch_size, max(frames // 3, 1)))
    return {"input_values": torch.randn(batch_size, length), "labels": labels}


def speech_to_text(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    frames = config.max_source_positions * 2  # its second convolution halves them
    return {
        "input_features": torch.randn(batch_size, config.num_mel_bins, frames),
        "labels": _ids(config, batch_size, length),
    }


def _ids(config: Any, batch_size: int, length: int) -> torch.Tensor:
    return torch.randint(min(10, config.vocab_size - 1), config.vocab_size, (batch_size, length))


def _classes(config: Any, batch_size: int) -> torch.Tensor:
    return torch.randint(0, config.num_labels, (batch_size,))


def _pictures(config: Any, batch_size: int) -> torch.Tensor:
    size = config.image_size
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    return torch.randn(batch_size, config.num_channels, height, width)


INPUTS = {
    make.__name__: make
    for make in (
        tokens,
        question_answering,
        sequence_classification,
        image,
        image_and_text,
        speech,
        speech_to_text,
    )
}
