"""Row names to compare both sides by: the model, and what distinguishes its configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from compileboard.app.checks.model import CannotCompare, RuleInput, Side
from compileboard.app.comparison.model import MACHINE_FIELDS, MODEL_FIELDS
from compileboard.app.comparison.pairs import match
from compileboard.app.comparison.queries import DISTINCT, DistinctItem

FIELDS = ("suite", "mode", "dtype", "device", "backend", "dynamic", "world_size")
# Not part of a model's identity: another batch size or machine is mentioned, not a vanished model.
# They distinguish duplicates.
TIE_BREAKERS = ("batch_size", "hardware")
_TIE_BREAKERS = ("batch_size", *MACHINE_FIELDS)
_CONFIGURATION = tuple(name for name in MODEL_FIELDS if name not in ("model", "batch_size"))


def align_row_names(actual: Side, expected: Side) -> tuple[Side, Side]:
    """Give rows of the same configuration the same name on both sides, by those fields of Compare's
    key that both sides have.

    Raises CannotCompare if a run has several results of a model that the other side cannot
    distinguish.
    """
    sides = (actual, expected)
    rows = [row for side in sides for row in side.rows]
    fields = [
        name
        for name in _CONFIGURATION
        if rows and all(row.series.get(name) is not None for row in rows)
    ]
    shown = [name for name in fields if len({str(row.series[name]) for row in rows}) > 1]
    names = {id(row): _name_row(row.name, row.series, shown) for row in rows}
    twins = {
        name
        for side in sides
        for name, count in Counter(names[id(row)] for row in side.rows).items()
        if count > 1
    }
    if twins and all(row.series for row in rows):
        differing = {
            name: _list_differing([row for row in rows if names[id(row)] == name]) for name in twins
        }
        names = {
            id(row): _name_row(row.name, row.series, [*shown, *differing.get(names[id(row)], ())])
            for row in rows
        }
    for side in sides:
        counts = Counter(names[id(row)] for row in side.rows)
        same = [
            row for row in side.rows if counts[names[id(row)]] > 1 and row.series
        ]  # for a bare CSV the rules mention it
        if same:
            raise CannotCompare(_describe_duplicates(side, same))
    together, _left, _right = match(
        expected.rows, actual.rows, ("model", *fields, "batch_size"), _read_field
    )
    for row, new in (both for pairs in together for both in pairs):
        if not twins or None not in (row.series.get("batch_size"), new.series.get("batch_size")):
            names[id(row)] = names[id(new)]
    return _rename_rows(actual, names), _rename_rows(expected, names)


def _read_field(row: RuleInput, field: str) -> Any:
    return row.name if field == "model" else row.series.get(field)


def _name_row(model: str, series: Mapping[str, Any], fields: Iterable[str]) -> str:
    words = [_format_field(name, series.get(name)) for name in fields]
    return f"{model} ({', '.join(words)})" if words else model


def _list_differing(rows: Sequence[RuleInput]) -> list[str]:
    return [name for name in _TIE_BREAKERS if len({row.series.get(name) for row in rows}) > 1]


def name_configuration(model: str, series: Mapping[str, Any]) -> str:
    known = (name for name in (*FIELDS, *TIE_BREAKERS) if series.get(name) not in (None, ""))
    return _name_row(model, series, known)


def _describe_duplicates(side: Side, twins: list[RuleInput]) -> str:
    name = twins[0].name
    same = [row for row in twins if row.name == name]
    alike = "; ".join(
        ", ".join(
            _format_field(field, row.series.get(field)) for field in FIELDS if row.series.get(field)
        )
        for row in same[:4]
    )
    return (
        f"{side.title} has {len(same)} results of {name} ({alike}), and the other side cannot "
        "tell them apart; choose "
        "by suite, mode, dtype, device, backend, dynamic or static shapes, batch size, world "
        "size or model"
    )


def _rename_rows(side: Side, names: Mapping[int, str]) -> Side:
    rows = tuple(replace(row, name=names[id(row)]) for row in side.rows)
    by_key = {row.key: row.name for row in rows}
    distinct: Any = {name: _rename_models(getattr(side, name), by_key) for name in DISTINCT}
    return replace(side, rows=rows, **distinct)


def _rename_models(
    items: tuple[DistinctItem, ...] | None, names: Mapping[str, str]
) -> tuple[DistinctItem, ...] | None:
    if items is None:
        return None
    # Drops those of models that were filtered out.
    return merge_distinct(
        replace(item, model=None if item.model is None else names[item.model])
        for item in items
        if item.model is None or item.model in names
    )


def merge_distinct(items: Iterable[DistinctItem]) -> tuple[DistinctItem, ...]:
    """Add up the counts of the same item of the same model."""
    merged: dict[tuple[str | None, str], DistinctItem] = {}
    for item in items:
        key = (item.model, item.fingerprint)
        known = merged.get(key)
        merged[key] = replace(known, count=known.count + item.count) if known else item
    return tuple(merged.values())


def _format_field(field: str, value: Any) -> str:
    if field == "dynamic":
        return "dynamic" if value else "static"
    return (
        f"{field.replace('_', ' ')} {value}"
        if field in ("batch_size", "world_size")
        else str(value)
    )
