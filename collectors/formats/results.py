"""What reading a file of results gives: results, graph breaks and what completes them, with the file's identity."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.formats.file_names import FileNameInfo, read_name, stem_of

MOST_ROWS = 100_000  # of one file, which takes minutes; a suite of upstream's in every configuration has some thousand
_RECORDS_OF_RESULT = 16  # of the benchmark database's JSON: one a metric
_ENCODING = ("utf-8", "surrogatepass")
_LONG_RECORD = 256  # characters: a longer record is remembered by its digest


@dataclass(frozen=True)
class BreakRow:
    """One row of a graph-breaks file."""

    model: str
    reason: str
    stack: tuple[tuple[str, int, str], ...]  # file, line, function; outermost first
    line: int


@dataclass(frozen=True)
class Addition:
    """What one file has of a result that another file has: phases, or repeats."""

    model: str
    tag: str | None
    phases_s: dict[str, float] = field(default_factory=dict)
    repeats: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class ResultFile:
    """The results of a file, and what could not be read of it."""

    name: str
    kind: str  # performance | accuracy | … | graph_breaks | compilation_metrics | raw_timings | summary | unknown
    results: list[BenchMeasured] = field(default_factory=list)
    breaks: list[BreakRow] = field(default_factory=list)
    additions: list[Addition] = field(default_factory=list)
    rejects: Rejects = field(default_factory=Rejects)
    row_count: int = 0
    line_count: int = 0
    records: list[tuple[str, bool]] = field(default_factory=list)  # each, and whether a clock is in it
    is_full: bool = False  # it holds numbers in full precision: it goes before its twin
    _by_key: dict[tuple[Any, ...], int] = field(default_factory=dict, repr=False)

    @property
    def stem(self) -> str:
        """Return what the name shares with the other files of the same table."""
        return stem_of(self.name)

    @cached_property
    def named(self) -> FileNameInfo:
        """Return what the name tells."""
        return read_name(self.name)

    def has_room(self, line: int) -> bool:
        """Return True if another row is read; the first that is not is counted with its line, and none after it."""
        most = MOST_ROWS * (_RECORDS_OF_RESULT if self.is_full else 1)
        if self.row_count >= most:
            self.rejects.add("too_many_rows", line, f"{self.name}: more than {most:,}")
        return self.row_count < most

    def mark(self, fields: dict[str, Any]) -> None:
        """Count a record, and remember it: a file's records name it."""
        self.row_count += 1
        # Padding comes later, when a later row has more columns: it is no part of what a row said first.
        values = {name: value for name, value in fields.items() if value not in ("", "0", 0, None)}
        timed = any(_is_timed(value) for value in values.values())
        text = json.dumps(values, sort_keys=True, default=str)
        self.records.append((text if len(text) < _LONG_RECORD else digest(text), timed))

    def add(self, result: BenchMeasured, line: int) -> None:
        """Add a result; the first of several that say the same stays."""
        if self._by_key.setdefault(key_of(result), len(self.results)) < len(self.results):
            self.rejects.add("duplicate_row", line, result.model)
        else:
            self.results.append(result)

    def keys(self, salt: str = "", *, every: bool = False) -> list[str]:
        """Return the file's key of all its records; then those that it had while it was shorter.

        Without a salt only records that hold a measured time name a file, unless `every` is asked for: two nights on
        which every model passed write the same verdicts, and are not the same night. None if there are none.
        """
        content = blake2b("\x1e".join(("results", salt, self.kind, self.stem)).encode(*_ENCODING), digest_size=16)
        names, is_named = [], bool(salt) or every
        for text, is_timed in self.records:
            content.update(f"\x1e{text}".encode(*_ENCODING))
            is_named |= is_timed
            if is_named:
                names.append(content.hexdigest())
        return names[::-1]


def digest(*parts: str) -> str:
    """Return a content's name: 32 hexadecimal digits."""
    return blake2b("\x1e".join(parts).encode(*_ENCODING), digest_size=16).hexdigest()


def _is_timed(value: Any) -> bool:
    try:
        number = float(value) if isinstance(value, str | float) else 0.0
    except ValueError:
        return False
    return number == number and abs(number) < 1e15 and number != int(number)


def task_of(stem: str, model: str, tag: str | None = None) -> str:
    """Return the task of a result: its table and its model."""
    return "/".join((stem, model, tag) if tag else (stem, model))


def count_lines(data: bytes) -> int:
    """Count the lines of a file."""
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def key_of(result: BenchMeasured) -> tuple[Any, ...]:
    """Return what makes a result of a file one result: a rerun of the same is the same."""
    tag, commit = result.facts.get("tag"), result.facts.get("commit")
    when = result.facts.get("timestamp")
    return (*_series(result), result.experiment, tag, commit, when)


def _series(result: BenchMeasured) -> Sequence[Any]:
    names = ("suite", "model", "mode", "dtype", "device", "hardware", "backend", "dynamic", "batch_size")
    return [getattr(result, name) for name in names]
