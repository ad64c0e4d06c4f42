"""Convert log times with month, day and local time, but no year or time zone."""

from __future__ import annotations

import calendar
import re
from datetime import datetime, timezone

_EPOCH_TIME = re.compile(rb'"(?:end_time_us|start_time_us)": (\d{16})\b')
_EPOCH_SECONDS = re.compile(rb'"start_time": (\d{10})\.\d')
# The first time in a log is nearly always a timeline event's, in the payload of its first record.
_TIMELINE = re.compile(rb'^\t"ts": (\d{16})(?:\.\d+)?,?\s*$')
_LINE = re.compile(rb"^(?:\[rank\d+\]:)?[VDIWEC](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) ")
_QUARTER_US = 15 * 60 * 1_000_000  # every time zone is a multiple of a quarter of an hour
_HALF_YEAR_US = 180 * 86_400 * 1_000_000


class LogClock:
    def __init__(self, year: int, offset_us: int, *, is_set: bool = True) -> None:
        self.is_set = is_set  # by a time since the epoch, and not guessed
        self._year = year
        self._offset_us = offset_us
        self._last_us = 0
        self._second = b""  # the prefix as far as its seconds, and the time that is
        self._second_us = 0

    @classmethod
    def of(cls, head: bytes, fallback_us: int | None = None) -> LogClock:
        """Set year and zone by the first epoch time at the beginning of a log.

        Without one, use the year of `fallback_us` or 1970, and UTC; times then only order the
        records.
        """
        stamp: tuple[int, ...] | None = None
        for line in head.splitlines(keepends=True):
            if line[:1] != b"\t":
                match = _LINE.match(line)
                stamp = tuple(map(int, match.groups())) if match else None
                known = _EPOCH_TIME.findall(line) if b"_time_us" in line else []
                epoch = int(known[-1]) if known else None
                if (
                    epoch is None
                    and b'"start_time"' in line
                    and (seconds := _EPOCH_SECONDS.search(line))
                ):
                    epoch = int(seconds.group(1)) * 1_000_000
            else:
                timeline = _TIMELINE.match(line)
                epoch = int(timeline.group(1)) if timeline else None
            if stamp is not None and epoch is not None:
                return cls._anchored(stamp, epoch)
        year = datetime.fromtimestamp((fallback_us or 0) / 1e6, timezone.utc).year
        return cls(year, 0, is_set=False)

    @classmethod
    def _anchored(cls, stamp: tuple[int, ...], epoch_us: int) -> LogClock:
        base = datetime.fromtimestamp(epoch_us / 1e6, timezone.utc).year
        # Around New Year the local year is the one that comes closest.
        offsets = {year: epoch_us - _naive_us(year, stamp) for year in (base - 1, base, base + 1)}
        year = min(offsets, key=lambda candidate: abs(offsets[candidate]))
        return cls(year, round(offsets[year] / _QUARTER_US) * _QUARTER_US)

    def time_us(self, second: bytes, micro: bytes) -> int:
        """Convert a prefix such as `1121 03:27:48` with its microseconds to µs since the epoch."""
        if second != self._second:
            self._second, self._second_us = second, self._second_to_us(second)
        return self._second_us + int(micro)

    def _second_to_us(self, second: bytes) -> int:
        stamp = (*map(int, (second[:2], second[2:4], second[5:7], second[8:10], second[11:13])), 0)
        time_us = _naive_us(self._year, stamp) + self._offset_us
        if self._last_us - time_us > _HALF_YEAR_US:
            self._year += 1
            time_us = _naive_us(self._year, stamp) + self._offset_us
        self._last_us = time_us
        return time_us


def _naive_us(year: int, stamp: tuple[int, ...]) -> int:
    month, day, hour, minute, second, micro = stamp
    # timegm takes a 31st of February for the 3rd of March, so that a damaged prefix is no error.
    seconds = calendar.timegm(
        (year, min(max(month, 1), 12), max(day, 1), hour, minute, second, 0, 0, 0)
    )
    return seconds * 1_000_000 + micro
