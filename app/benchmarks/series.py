"""Series of one model's history, and model names in URLs.

Characters that browsers and servers would change (`..`, `//`, control characters) are written as
`~` and two hexadecimal digits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.app.benchmarks.labels import describe_part, split_backend
from compileboard.collectors.store.results import ExperimentResult, ResultRow
from compileboard.collectors.store.rollups import SET

_UNSAFE = re.compile(r"[~\x00-\x1f\x7f]|^/|(?<=/)/|/$|(?:(?<=/)|^)\.{1,2}(?=/|$)")
_WRITTEN = re.compile(r"~([0-7][0-9A-F])")
_EMPTY = "~"


def write_name(name: str) -> str:
    return (
        _UNSAFE.sub(lambda match: "".join(f"~{ord(character):02X}" for character in match[0]), name)
        or _EMPTY
    )


def read_name(written: str) -> str:
    return "" if written == _EMPTY else _WRITTEN.sub(lambda match: chr(int(match[1], 16)), written)


# The fields that distinguish the series of a model, as in a series' address.
FIELDS = (*SET[:-1], "batch_size", "world_size")


@dataclass(frozen=True)
class SetFields:
    tables = ("series",)

    suite: str
    mode: str | None
    dtype: str | None
    device: str | None
    hardware: str | None
    backend: str | None
    dynamic: bool
    world_size: int

    @property
    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SET}

    @property
    def query(self) -> dict[str, str]:
        return query_fields(self.fields)


@dataclass(frozen=True)
class SeriesFields(SetFields):
    batch_size: int | None


SEPARATOR = " · "
Pair = tuple[ResultRow, tuple[ExperimentResult, ...]]


@dataclass(frozen=True)
class Point:
    row: ResultRow
    parts: tuple[ExperimentResult, ...]


@dataclass(frozen=True)
class ModelSeries:
    fields: dict[str, Any]
    points: Sequence[Point]

    @property
    def newest(self) -> ResultRow:
        return self.points[-1].row

    @property
    def status_counts(self) -> Sequence[tuple[str, int]]:
        return Counter(point.row.status for point in self.points).most_common()

    @property
    def label(self) -> str:
        return label_fields(self.fields)

    @property
    def query(self) -> dict[str, str]:
        return query_fields(self.fields)


def label_fields(fields: Mapping[str, Any]) -> str:
    labels = [fields["mode"], fields["dtype"], fields["hardware"] or fields["device"]]
    labels += map(describe_part, split_backend(fields["backend"] or ""))
    labels += ["dynamic shapes" if fields["dynamic"] else None]
    labels += [f"batch {fields['batch_size']}" if fields.get("batch_size") is not None else None]
    labels += [f"{fields['world_size']} ranks" if fields["world_size"] > 1 else None]
    return SEPARATOR.join(str(word) for word in labels if word) or "not described"


def query_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    query = {name: "" if value is None else str(value) for name, value in fields.items()}
    return query | {"dynamic": "yes" if fields["dynamic"] else "no"}


def split_series(history: Iterable[Pair]) -> list[ModelSeries]:
    points_by_key: dict[tuple[Any, ...], list[Point]] = {}
    for row, parts in history:
        points_by_key.setdefault(tuple(getattr(row, name) for name in FIELDS), []).append(
            Point(row, parts)
        )
    return [
        ModelSeries(dict(zip(FIELDS, key)), tuple(reversed(points)))
        for key, points in points_by_key.items()
    ]


def choose_series(
    series: Sequence[ModelSeries], parameters: Mapping[str, str], run_id: str | None = None
) -> ModelSeries | None:
    """Return the series that matches a URL's parameters; if several do, the first that was
    timed.
    """
    fit = [
        model_series
        for model_series in series
        if all(
            parameters[name] == value
            for name, value in model_series.query.items()
            if name in parameters
        )
    ]
    if not fit and parameters.get("batch_size") == "":
        of_run = [
            model_series
            for model_series in series
            if run_id in {point.row.run_id for point in model_series.points}
        ]
        return choose_series(
            of_run,
            {name: value for name, value in parameters.items() if name != "batch_size"},
            run_id,
        )
    timed = [
        model_series for model_series in fit if "performance" in model_series.newest.experiments
    ]
    matches = timed or fit
    return matches[0] if matches else None
