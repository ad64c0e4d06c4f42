"""The content of a stored baseline, and how an update changes it. Pure: the store writes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from compileboard.app.checks.rules.model import RuleDistinct, RuleInput, Side
from compileboard.app.checks.tables import CannotCompare


@dataclass(frozen=True)
class BaselineChange:
    model: str
    word: str
    detail: str = ""


def merge(saved: Side, run: Side, models: Iterable[str]) -> Side:
    """Raises CannotCompare if neither side has one of the models."""
    names = set(models)
    if not names:
        return replace(run, title=saved.title)
    known = {row.name for row in (*saved.rows, *run.rows)}
    for name in sorted(names - known):
        raise CannotCompare(f"--model {name[:80]!r} is neither in {saved.title} nor in {run.title}")
    rows = [row for row in saved.rows if row.name not in names] + [
        row for row in run.rows if row.name in names
    ]
    return replace(
        saved,
        rows=tuple(sorted(rows, key=lambda row: (row.name, row.key))),
        breaks=_merge_breaks(saved, run, "breaks", names),
        causes=_merge_breaks(saved, run, "causes", names),
    )


def _merge_breaks(
    saved: Side, run: Side, field: str, names: set[str]
) -> tuple[RuleDistinct, ...] | None:
    old, new = getattr(saved, field), getattr(run, field)
    if old is None and new is None:
        return None
    left = {row.key for row in saved.rows if row.name in names}
    came = {row.key for row in run.rows if row.name in names}
    return (
        *(entry for entry in old or () if entry.model not in left),
        *(entry for entry in new or () if entry.model in came),
    )


def list_changes(before: Side, after: Side) -> list[BaselineChange]:
    old, new = {row.key: row for row in before.rows}, {row.key: row for row in after.rows}
    changes = []
    for key in sorted(old.keys() | new.keys()):
        row, other = old.get(key), new.get(key)
        if row is None or other is None:
            changes.append(BaselineChange(key, "added" if row is None else "removed"))
        elif row.cells != other.cells:
            changes.append(BaselineChange(key, "changed", _differ(row, other)))
    for field, what in (("breaks", "distinct graph break"), ("causes", "cause of recompiles")):
        removed = {(item.model, item.fingerprint): item for item in getattr(before, field) or ()}
        came = {(item.model, item.fingerprint): item for item in getattr(after, field) or ()}
        changes += [
            BaselineChange(came[key].model or "the run", "added", f"{what}: {came[key].reason}")
            for key in came
            if key not in removed
        ]
        changes += [
            BaselineChange(
                removed[key].model or "the run", "removed", f"{what}: {removed[key].reason}"
            )
            for key in removed
            if key not in came
        ]
    return changes


def _differ(row: RuleInput, other: RuleInput) -> str:
    names = [
        name for name in (*row.cells, *other.cells) if row.cells.get(name) != other.cells.get(name)
    ]
    return ", ".join(
        f"{name} {shorten(row.cells.get(name))} → {shorten(other.cells.get(name))}"
        for name in dict.fromkeys(names)
    )


def shorten(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
