"""Give both sides' rows the names that they are compared by: the model, and what tells its configurations apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from compileboard.app.checks.rules.model import RuleDistinct, RuleInput, Side

FIELDS = ("suite", "mode", "dtype", "device", "backend", "dynamic", "world_size")
# Not part of what a model is: another batch size or machine is said, not a vanished model. They tell twins apart.
TIE_BREAKERS = ("batch_size", "hardware")


class Ambiguous(ValueError):
    """Say which results have the same name."""


def pair(actual: Side, expected: Side) -> tuple[Side, Side]:
    """Name both sides' rows alike.

    Raises: Ambiguous if a run has several results of a model that the other side cannot tell apart.
    """
    sides = (actual, expected)
    rows = [row for side in sides for row in side.rows]
    fields = [name for name in FIELDS if rows and all(row.series.get(name) is not None for row in rows)]
    for name in TIE_BREAKERS:
        if all(row.series for row in rows) and any(_duplicates(side.rows, fields) for side in sides):
            fields.append(name)
    for side in sides:
        twins = [row for row in _duplicates(side.rows, fields) if row.series]  # of a bare CSV the rules say it
        if twins:
            raise Ambiguous(_describe(side, twins))
    shown = [name for name in fields if len({str(row.series.get(name)) for row in rows}) > 1]
    return _rename(actual, shown), _rename(expected, shown)


def name_configuration(model: str, series: Mapping[str, Any]) -> str:
    """Name a model with all that is known of how it ran."""
    words = [_word(name, series[name]) for name in (*FIELDS, *TIE_BREAKERS) if series.get(name) not in (None, "")]
    return f"{model} ({', '.join(words)})" if words else model


def _duplicates(rows: Sequence[RuleInput], fields: Iterable[str]) -> list[RuleInput]:
    keys = [(row.name, *(str(row.series.get(name)) for name in fields)) for row in rows]
    counts = Counter(keys)
    return [row for row, key in zip(rows, keys) if counts[key] > 1]


def _describe(side: Side, twins: list[RuleInput]) -> str:
    name = twins[0].name
    same = [row for row in twins if row.name == name]
    said = "; ".join(
        ", ".join(_word(field, row.series.get(field)) for field in FIELDS if row.series.get(field)) for row in same[:4]
    )
    return (
        f"{side.title} has {len(same)} results of {name} ({said}), and the other side cannot tell them apart; choose "
        "by suite, mode, dtype, device, backend, dynamic or static shapes, batch size, world size or model"
    )


def _rename(side: Side, shown: Sequence[str]) -> Side:
    names: dict[str, str] = {}
    rows = []
    for row in side.rows:
        words = [_word(name, row.series.get(name)) for name in shown]
        name = f"{row.name} ({', '.join(words)})" if words else row.name
        names[row.key] = name
        rows.append(replace(row, name=name))
    return replace(side, rows=tuple(rows), breaks=_of(side.breaks, names), causes=_of(side.causes, names))


def _of(found: tuple[RuleDistinct, ...] | None, names: dict[str, str]) -> tuple[RuleDistinct, ...] | None:
    """Name the models of distinct things; of several results of one model, the counts are summed."""
    if found is None:
        return None
    merged: dict[tuple[str | None, str], RuleDistinct] = {}
    for rule_distinct in found:
        model = names.get(rule_distinct.model) if rule_distinct.model is not None else None
        if rule_distinct.model is not None and model is None:
            continue  # its model was filtered away
        known = merged.get((model, rule_distinct.fingerprint))
        count = rule_distinct.count + (known.count if known else 0)
        merged[model, rule_distinct.fingerprint] = replace(known or rule_distinct, model=model, count=count)
    return tuple(merged.values())


def _word(field: str, value: Any) -> str:
    if field == "dynamic":
        return "dynamic" if value else "static"
    return f"{field.replace('_', ' ')} {value}" if field in ("batch_size", "world_size") else str(value)
