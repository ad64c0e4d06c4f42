"""A forward pass that logs and warns, as libraries do."""

import logging
import warnings

import torch

logger = logging.getLogger("library")


def attend(query, key, mask=None):
    if mask is None:
        warnings.warn("no mask given", stacklevel=2)
        mask = torch.ones(query.shape[0], key.shape[0])
    logger.debug("attention of %d rows", query.shape[0])
    scores = query @ key.T / query.shape[-1] ** 0.5
    return scores.masked_fill(mask == 0, -1e9).softmax(-1)


@torch.compile
def block(x):
    weights = attend(x, x)
    logger.warning("slow path")
    return weights @ x


torch.manual_seed(0)
result = [block(torch.randn(3, 4)) for _ in range(2)]
