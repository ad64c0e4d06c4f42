"""Where a noisy series is heading."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def rolling_median(values: Sequence[float], window: int) -> list[float]:
    """Return for each value the median of it and of those before it, at most `window` of them."""
    if not len(values):
        return []
    padded = np.concatenate([np.full(window - 1, np.nan), np.asarray(values, dtype="float64")])
    medians: list[float] = np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, window), axis=1).tolist()
    return medians
