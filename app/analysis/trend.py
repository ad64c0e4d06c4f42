"""Where a noisy series is heading."""

from __future__ import annotations

from collections.abc import Sequence


def rolling_median(values: Sequence[float], window: int) -> list[float]:
    """Return for each value the median of it and of those before it, at most `window` of them."""
    import pandas as pd  # here, because it takes a third of a second and only a database with many runs needs it

    medians: list[float] = pd.Series(values, dtype="float64").rolling(window, min_periods=1).median().tolist()
    return medians
