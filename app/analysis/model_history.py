"""A model's results over time, series by series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.queries.result_rows import Measured, ResultRow

# What tells two series of a model apart; the address of a series has these.
FIELDS = ("suite", "mode", "dtype", "device", "hardware", "backend", "dynamic", "batch_size", "world_size")
Pair = tuple[ResultRow, tuple[Measured, ...]]


@dataclass(frozen=True)
class Point:
    """Hold one run's result of a series, and the experiments that it was made of, the leading one first."""

    row: ResultRow
    parts: tuple[Measured, ...]


@dataclass(frozen=True)
class ModelSeries:
    """Hold a model's results that can be compared with each other, the oldest first."""

    fields: dict[str, Any]
    points: Sequence[Point]

    @property
    def newest(self) -> ResultRow:
        """Return its newest result."""
        return self.points[-1].row

    @property
    def label(self) -> str:
        """Name the series as people do: inference · float32 · NVIDIA H200 · inductor · batch 8."""
        it = self.fields
        said = [it["mode"], it["dtype"], it["hardware"] or it["device"], it["backend"]]
        said += ["dynamic shapes" if it["dynamic"] else None]
        said += [None if it["batch_size"] is None else f"batch {it['batch_size']}"]
        said += [f"{it['world_size']} ranks" if it["world_size"] > 1 else None]
        return " · ".join(str(word) for word in said if word) or "not described"

    @property
    def query(self) -> dict[str, str]:
        """Return what an address says to mean this series."""
        said = {name: "" if value is None else str(value) for name, value in self.fields.items()}
        return said | {"dynamic": "yes" if self.fields["dynamic"] else "no"}


def split_series(history: Iterable[Pair]) -> list[ModelSeries]:
    """Part a model's results, newest first, into series: the one that was measured last comes first."""
    found: dict[tuple[Any, ...], list[Point]] = {}
    for row, parts in history:
        found.setdefault(tuple(getattr(row, name) for name in FIELDS), []).append(Point(row, parts))
    return [ModelSeries(dict(zip(FIELDS, key)), tuple(reversed(points))) for key, points in found.items()]


def choose_series(series: Sequence[ModelSeries], given: Mapping[str, str]) -> ModelSeries | None:
    """Return the series that fits what an address says, where several do the first one that was timed."""
    fit = [it for it in series if all(given[name] == value for name, value in it.query.items() if name in given)]
    timed = [it for it in fit if "performance" in it.newest.experiments]
    found = timed or fit
    return found[0] if found else None
