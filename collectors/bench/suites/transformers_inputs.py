"""Example inputs with labels, by the kind of model, so that the model computes its own loss. Child processes only."""

from __future__ import annotations

from typing import Any

import torch

HAVE_LENGTH = ("tokens", "question_answering", "sequence_classification")


def tokens(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    """Return token ids and a label for each; encoder-decoder models shift the labels to decode from."""
    return {"input_ids": _ids(config, batch_size, length), "labels": _ids(config, batch_size, length)}


def question_answering(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    """Return token ids, and where each answer starts and ends."""
    return {
        "input_ids": _ids(config, batch_size, length),
        "start_positions": torch.randint(0, length, (batch_size,)),
        "end_positions": torch.randint(0, length, (batch_size,)),
    }


def sequence_classification(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    """Return token ids and a class for each sequence."""
    return {"input_ids": _ids(config, batch_size, length), "labels": _classes(config, batch_size)}


def image(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    """Return pictures and a class for each."""
    return {"pixel_values": _pictures(config, batch_size), "labels": _classes(config, batch_size)}


def image_and_text(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    """Return pictures and a text for each; the loss is whether they belong together."""
    return {
        "input_ids": _ids(config.text_config, batch_size, length),
        "pixel_values": _pictures(config.vision_config, batch_size),
        "return_loss": True,
    }


def speech(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    """Return sound, and labels that are fewer than its frames: connectionist temporal classification needs that."""
    frames = length
    for kernel, stride in zip(config.conv_kernel, config.conv_stride):
        frames = (frames - kernel) // stride + 1
    labels = torch.randint(1, config.vocab_size, (batch_size, max(frames // 3, 1)))
    return {"input_values": torch.randn(batch_size, length), "labels": labels}


def speech_to_text(config: Any, batch_size: int, length: int) -> dict[str, Any]:
    """Return spectrograms of the one length the model takes, and the text to say."""
    frames = config.max_source_positions * 2  # its second convolution halves them
    return {
        "input_features": torch.randn(batch_size, config.num_mel_bins, frames),
        "labels": _ids(config, batch_size, length),
    }


def _ids(config: Any, batch_size: int, length: int) -> torch.Tensor:
    """Return tokens that are not padding, which most configurations have among the first few."""
    return torch.randint(min(10, config.vocab_size - 1), config.vocab_size, (batch_size, length))


def _classes(config: Any, batch_size: int) -> torch.Tensor:
    return torch.randint(0, config.num_labels, (batch_size,))


def _pictures(config: Any, batch_size: int) -> torch.Tensor:
    size = config.image_size
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    return torch.randn(batch_size, config.num_channels, height, width)
