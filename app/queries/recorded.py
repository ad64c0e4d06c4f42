"""Sums of durations in SQL: the store adds nothing for a record without one, and that sum is no 0."""

from __future__ import annotations


def recorded_us(time_us: str, count: str) -> str:
    """Write a sum of durations that is null where `count` things were summed and none has a duration.

    Every duration is above 0. Both are SQL of our own, never text from outside.
    """
    return f"case when coalesce({time_us}, 0) > 0 or coalesce({count}, 0) = 0 then coalesce({time_us}, 0) end"
