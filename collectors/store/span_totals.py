"""What the phases of a lane took, by name: kept up as spans end, so that no page adds up all of them."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass


@dataclass
class SpanTotal:
    """Hold what a batch adds to a name's totals.

    Units: microseconds.
    """

    span_count: int = 0
    instant_count: int = 0
    ended_count: int = 0
    total_us: int = 0
    exclusive_us: int = 0
    longest_us: int | None = None
    longest_begin_us: int | None = None

    def end(self, begin_us: int, duration_us: int, inner_us: int) -> None:
        """Take a phase that ended; `inner_us` of it were phases inside it."""
        self.ended_count += 1
        self.total_us += duration_us
        self.exclusive_us += max(0, duration_us - inner_us)
        if self.longest_us is None or duration_us > self.longest_us:
            self.longest_us, self.longest_begin_us = duration_us, begin_us


def write_totals(connection: sqlite3.Connection, lane_id: int, totals: dict[int, SpanTotal]) -> None:
    """Add a batch's totals, by name, to a lane's, and forget them."""
    connection.executemany(
        _ADD, [{"lane_id": lane_id, "name_id": name_id, **asdict(total)} for name_id, total in totals.items()]
    )
    totals.clear()


_ADD = """
insert into span_totals
  (
    lane_id, name_id, span_count, instant_count, ended_count, total_us, exclusive_us, longest_us, longest_begin_us
  )
values
  (
    :lane_id, :name_id, :span_count, :instant_count, :ended_count, :total_us, :exclusive_us, :longest_us,
    :longest_begin_us
  )
on conflict (lane_id, name_id) do update set
  span_count = span_count + excluded.span_count,
  instant_count = instant_count + excluded.instant_count,
  ended_count = ended_count + excluded.ended_count,
  total_us = total_us + excluded.total_us,
  exclusive_us = exclusive_us + excluded.exclusive_us,
  longest_begin_us = iif(
    excluded.longest_us > coalesce(longest_us, -1), excluded.longest_begin_us, longest_begin_us
  ),
  longest_us = iif(excluded.longest_us > coalesce(longest_us, -1), excluded.longest_us, longest_us)
"""
