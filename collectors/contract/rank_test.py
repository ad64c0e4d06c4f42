"""The Mann–Whitney U test, with the standard library alone."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

_EXACT_TOTAL, _EXACT_SMALLER, _EXACT_LARGER = 24, 8, 200


@dataclass(frozen=True)
class MannWhitneyResult:
    u: float
    p_value: float
    is_exact: bool


def mann_whitney(base: Sequence[float], new: Sequence[float]) -> MannWhitneyResult:
    """Test two-sided whether base and new differ in location. Ties get their mean rank.

    Small samples are exact; larger ones use the normal approximation with corrections for ties and
    continuity. Raises ValueError if a side is empty or has a NaN. Source: Mann and Whitney 1947;
    Lehmann, Nonparametrics: Statistical Methods Based on Ranks, 1.2 and 1.4 (ties).
    """
    if not base or not new:
        raise ValueError(f"expected at least one value a side, got {len(base)} and {len(new)}")
    if any(math.isnan(value) for value in (*base, *new)):
        raise ValueError("a value is not a number: it has no rank")
    ordered = sorted(new)
    # Twice the pairs in which base is larger, a tie once: integers, which add up without rounding.
    larger_twice = sum(bisect_left(ordered, value) + bisect_right(ordered, value) for value in base)
    u = larger_twice / 2
    smaller, larger = sorted((len(base), len(new)))
    if smaller + larger <= _EXACT_TOTAL or (smaller <= _EXACT_SMALLER and larger <= _EXACT_LARGER):
        ranks = _double_ranks([*base, *new])
        doubled = larger_twice + len(base) * (len(base) + 1)
        rank_sum = doubled if len(base) == smaller else sum(ranks) - doubled
        return MannWhitneyResult(u, _exact_p(ranks, smaller, rank_sum), True)
    together = {*base, *new}
    ties = Counter([*base, *new]).values() if len(together) < len(base) + len(new) else ()
    return MannWhitneyResult(u, _approximate_p(u, len(base), len(new), ties), False)


def _double_ranks(values: Sequence[float]) -> tuple[int, ...]:
    counts = Counter(values)
    sizes = [counts[value] for value in sorted(counts)]
    return tuple(
        2 * end - size + 1 for end, size in zip(accumulate(sizes), sizes) for _ in range(size)
    )


def smallest_p(base_count: int, new_count: int) -> float:
    return min(1.0, 2 / math.comb(base_count + new_count, base_count))


def _exact_p(ranks: tuple[int, ...], count: int, observed: int) -> float:
    sums = _count_sums(ranks, count)
    # The mean is count × total ÷ N; multiplied by N everything is an integer.
    size, mean = len(ranks), count * sum(ranks)
    away = abs(observed * size - mean)
    far = sum(ways for total, ways in sums if abs(total * size - mean) >= away)
    return far / math.comb(size, count)


@lru_cache(maxsize=256)
def _count_sums(ranks: tuple[int, ...], count: int) -> tuple[tuple[int, int], ...]:
    """Count the ways in which `count` of the ranks give each sum.

    A polynomial is one large integer with a slot per power: multiplying is a shift, and Python adds
    large integers in C.
    """
    bits = math.comb(len(ranks), count).bit_length()
    ways = [1] + [0] * count
    for rank in ranks:
        for taken in range(count, 0, -1):
            ways[taken] += ways[taken - 1] << (bits * rank)
    packed, mask, counts, total = ways[count], (1 << bits) - 1, [], 0
    while packed:
        if packed & mask:
            counts.append((total, packed & mask))
        packed >>= bits
        total += 1
    return tuple(counts)


def _approximate_p(u: float, base_count: int, new_count: int, ties: Iterable[int]) -> float:
    total = base_count + new_count
    correction = sum(count**3 - count for count in ties) / (total * (total - 1))
    variance = base_count * new_count / 12 * (total + 1 - correction)
    if variance <= 0:  # all values are the same
        return 1.0
    distance = abs(u - base_count * new_count / 2) - 0.5
    return min(1.0, math.erfc(max(distance, 0.0) / math.sqrt(2 * variance)))
