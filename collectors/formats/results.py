"""The results and graph breaks read from one file, and the keys that identify the file."""

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

# Of one file, which takes minutes; a suite of upstream's in every configuration has some thousand
MOST_ROWS = 100_000
_RECORDS_OF_RESULT = 16  # of the benchmark database's JSON: one a metric
_ENCODING = ("utf-8", "surrogatepass")
_LONG_RECORD = 256  # characters: a longer record is remembered by its digest


@dataclass(frozen=True)
class BreakRow:
    model: str
    reason: str
    stack: tuple[tuple[str, int, str], ...]  # file, line, function; outermost first
    line: int


@dataclass(frozen=True)
class Addition:
    model: str
    tag: str | None
    phases_s: dict[str, float] = field(default_factory=dict)
    repeats: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class ResultFile:
    name: str
    # Performance | accuracy | … | graph_breaks | compilation_metrics | raw_timings | summary |
    # unknown
    kind: str
    results: list[BenchMeasured] = field(default_factory=list)
    breaks: list[BreakRow] = field(default_factory=list)
    additions: list[Addition] = field(default_factory=list)
    rejects: Rejects = field(default_factory=Rejects)
    row_count: int = 0
    line_count: int = 0
    records: list[tuple[str, bool]] = field(
        default_factory=list
    )  # each, and whether a clock is in it
    is_full: bool = False  # it holds numbers in full precision: it goes before its twin
    _by_key: dict[tuple[Any, ...], int] = field(default_factory=dict, repr=False)

    @property
    def stem(self) -> str:
        return stem_of(self.name)

    @cached_property
    def named(self) -> FileNameInfo:
        return read_name(self.name)

    def has_room(self, line: int) -> bool:
        most = MOST_ROWS * (_RECORDS_OF_RESULT if self.is_full else 1)
        if self.row_count >= most:
            self.rejects.add("too_many_rows", line, f"{self.name}: more than {most:,}")
        return self.row_count < most

    def mark(self, fields: dict[str, Any]) -> None:
        self.row_count += 1
        # Padding comes later, when a later row has more columns: it is no part of what a row said
        # first.
        values = {name: value for name, value in fields.items() if value not in ("", "0", 0, None)}
        timed = any(_is_timed(value) for value in values.values())
        text = json.dumps(values, sort_keys=True, default=str)
        self.records.append((text if len(text) < _LONG_RECORD else digest(text), timed))

    def add(self, result: BenchMeasured, line: int) -> None:
        if self._by_key.setdefault(key_of(result), len(self.results)) < len(self.results):
            self.rejects.add("duplicate_row", line, result.model)
        else:
            self.results.append(result)

    def keys(self, salt: str = "", *, every: bool = False) -> list[str]:
        """Return the key of the whole file, then the keys it had while it was shorter.

        Without a salt only records with a measured time count, unless `every` is set: two nights on
        which all models passed have equal verdicts but are different runs. Empty if no record
        counts.
        """
        content = blake2b(
            "\x1e".join(("results", salt, self.kind, self.stem)).encode(*_ENCODING), digest_size=16
        )
        names, is_named = [], bool(salt) or every
        for text, is_timed in self.records:
            content.update(f"\x1e{text}".encode(*_ENCODING))
            is_named |= is_timed
            if is_named:
                names.append(content.hexdigest())
        return names[::-1]


def digest(*parts: str) -> str:
    return blake2b("\x1e".join(parts).encode(*_ENCODING), digest_size=16).hexdigest()


def _is_timed(value: Any) -> bool:
    try:
        number = float(value) if isinstance(value, str | float) else 0.0
    except ValueError:
        return False
    return number == number and abs(number) < 1e15 and number != int(number)


def task_of(stem: str, model: str, tag: str | None = None) -> str:
    return "/".join((stem, model, tag) if tag else (stem, model))


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def key_of(result: BenchMeasured) -> tuple[Any, ...]:
    tag, commit = result.facts.get("tag"), result.facts.get("commit")
    when = result.facts.get("timestamp")
    return (*_series(result), result.experiment, tag, commit, when)


def _series(result: BenchMeasured) -> Sequence[Any]:
    names = (
        "suite",
        "model",
        "mode",
        "dtype",
        "device",
        "hardware",
        "backend",
        "dynamic",
        "batch_size",
    )
    return [getattr(result, name) for name in names]
