"""Stored baselines: their contents, and how an update changes them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from compileboard.app.checks.model import CannotCompare, RuleInput, Side
from compileboard.app.comparison.model import (
    COMPARED,
    MACHINE_FIELDS,
    MODEL_FIELDS,
    ModelResult,
    make_interval,
)
from compileboard.app.comparison.queries import DISTINCT, DistinctItem
from compileboard.app.core.page import Page, decode_cursor, make_page
from compileboard.collectors.contract.result_columns import STORE_NAMES
from compileboard.collectors.store.codec import unpack

BASELINE_VERSION = 1

LIST_SQL = """
select name, run_id, note, created_us, changed_us
from baselines
where name > :after
order by name
limit :limit
"""
GET_SQL = """
select name, run_id, note, created_us, changed_us, body
from baselines
where name = :name
"""


@dataclass(frozen=True)
class BaselineRow:
    """A stored baseline."""

    tables = ("baselines",)

    name: str
    run_id: str | None
    note: str | None
    created_us: int
    changed_us: int


@dataclass(frozen=True)
class Baseline(BaselineRow):
    body: dict[str, Any]


def list_baselines(
    connection: sqlite3.Connection, cursor: str | None = None, limit: int = 1000
) -> Page[BaselineRow]:
    """List stored baselines by name. Raises FilterError for an invalid cursor."""
    after, _created_us = decode_cursor(cursor, str, int) or ("", 0)
    rows = connection.execute(LIST_SQL, {"after": after, "limit": limit + 1})
    return make_page(
        [BaselineRow(**dict(row)) for row in rows], limit, lambda row: (row.name, row.created_us)
    )


def get_baseline(connection: sqlite3.Connection, name: str) -> Baseline | None:
    row = connection.execute(GET_SQL, {"name": name}).fetchone()
    return Baseline(**(dict(row) | {"body": json.loads(unpack(row["body"]))})) if row else None


def dump_baseline(side: Side) -> dict[str, Any]:
    stored = asdict(replace(side, results=()))
    for name in (
        "results",
        "name",
        "commit",
        "failure",
    ):  # the rows already have what results are made of
        del stored[name]
    for item in (item for name in DISTINCT for item in stored[name] or ()):
        del item["experiment"]  # a check does not use it
    return {"version": BASELINE_VERSION, **stored}


def load_baseline(body: Mapping[str, Any], title: str) -> Side:
    """Read a stored baseline. Raises CannotCompare if a newer CompileBoard wrote it."""
    if body.get("version") != BASELINE_VERSION:
        raise CannotCompare(
            f"{title} has version {body.get('version')}, this knows {BASELINE_VERSION}; "
            "upgrade CompileBoard"
        )
    rows = tuple(RuleInput(**row) for row in body["rows"])
    distinct: Any = {
        name: tuple(DistinctItem(**item) for item in body[name])
        for name in DISTINCT
        if body.get(name) is not None
    }
    results = tuple(map(_read_result, rows))
    return Side(title, rows, environment=body["environment"], results=results, **distinct)


def _read_result(row: RuleInput) -> ModelResult:
    cells = {STORE_NAMES.get(name, name): value for name, value in row.cells.items()}
    return ModelResult(
        series={name: row.series.get(name) for name in (*MODEL_FIELDS, *MACHINE_FIELDS)}
        | {"model": row.name},
        status=cells.get("status", "measured"),
        values={
            metric.name: value
            for metric in COMPARED
            if (value := cells.get(metric.name)) is not None
        },
        reason=cells.get("reason"),
        accuracy=cells.get("accuracy"),
        interval=make_interval(cells.get("speedup_low"), cells.get("speedup_high")),
        repeats=row.repeats,
    )


@dataclass(frozen=True)
class BaselineChange:
    model: str
    word: str
    detail: str = ""


def merge(saved: Side, run: Side, models: Iterable[str]) -> Side:
    """Update a baseline with a run's results. Raises CannotCompare if one of the models is on
    neither side.
    """
    names = set(models)
    if not names:
        return replace(run, title=saved.title)
    known = {row.name for row in (*saved.rows, *run.rows)}
    for name in sorted(names - known):
        raise CannotCompare(f"--model {name[:80]!r} is neither in {saved.title} nor in {run.title}")
    rows = [row for row in saved.rows if row.name not in names] + [
        row for row in run.rows if row.name in names
    ]
    distinct: Any = {
        name: _merge_distinct(saved, run, getattr(saved, name), getattr(run, name), names)
        for name in DISTINCT
    }
    return replace(saved, rows=tuple(sorted(rows, key=lambda row: (row.name, row.key))), **distinct)


def _merge_distinct(
    saved: Side,
    run: Side,
    old: tuple[DistinctItem, ...] | None,
    new: tuple[DistinctItem, ...] | None,
    names: set[str],
) -> tuple[DistinctItem, ...] | None:
    if old is None and new is None:
        return None
    left, came = ({row.key for row in side.rows if row.name in names} for side in (saved, run))
    return (
        *(item for item in old or () if item.model not in left),
        *(item for item in new or () if item.model in came),
    )


def list_changes(before: Side, after: Side) -> list[BaselineChange]:
    old, new = ({row.key: row.cells for row in side.rows} for side in (before, after))
    changes = []
    for key in sorted(old.keys() | new.keys()):
        if key not in old or key not in new:
            changes.append(BaselineChange(key, "removed" if key in old else "added"))
        elif old[key] != new[key]:
            pairs = [
                (name, old[key].get(name), new[key].get(name)) for name in {**old[key], **new[key]}
            ]
            words = [f"{name} {shorten(a)} → {shorten(b)}" for name, a, b in pairs if a != b]
            changes.append(BaselineChange(key, "changed", ", ".join(words)))
    for pair, what in (
        ((before.breaks, after.breaks), "distinct graph break"),
        ((before.causes, after.causes), "cause of recompiles"),
        ((before.rerecordings, after.rerecordings), "reason to record CUDA graphs again"),
    ):
        removed, came = (
            {(item.model, item.fingerprint): item for item in items or ()} for items in pair
        )
        changes += [
            BaselineChange(item.model or "the run", word, f"{what}: {item.head}")
            for word, items, others in (("added", came, removed), ("removed", removed, came))
            for key, item in items.items()
            if key not in others
        ]
    return changes


def shorten(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
