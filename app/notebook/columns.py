"""Rows as pandas frames; each column's dtype follows from the field's schema in the API's document.

A time is a datetime in UTC and its column loses the `_us`; unrecorded values are NA.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pandas as pd

from compileboard.app.json_text import dump_json
from compileboard.app.queries.fields import TIME_UNIT
from compileboard.app.reports.parquet import find_types
from compileboard.app.schema import Schema, describe_type, get_plain, is_model

MOMENT, LIST, MAPPING, CATEGORY = "datetime64[us, UTC]", "list", "dict", "category"
TEXT, INTEGER, NUMBER, FLAG = "string", "Int64", "Float64", "boolean"
OTHER = "of_other_type"  # a column that is there where a value has not its column's type
_OF_JSON = {
    "string": TEXT,
    "integer": INTEGER,
    "number": NUMBER,
    "boolean": FLAG,
    "array": LIST,
    "object": MAPPING,
}
_OF_METRICS = {"int": INTEGER, "moment": INTEGER, "float": NUMBER, "bool": FLAG, "list": LIST}
_TYPES: Mapping[str, tuple[type, ...]] = {
    TEXT: (str,),
    CATEGORY: (str,),
    INTEGER: (int,),
    MOMENT: (int,),
    NUMBER: (float, int),
    FLAG: (bool,),
    LIST: (list, tuple),
    MAPPING: (dict,),
}
_BATCH = 1000  # rows
_NOT_A_TIME = -(2**63)  # numpy's NaT
_LIMITS = {
    INTEGER: (1 - 2**63, 2**63 - 1),
    MOMENT: (-62_135_596_800_000_000, 253_402_300_799_999_999),  # years 1 to 9999
}


@dataclass(frozen=True)
class FrameColumn:
    name: str
    kind: str
    description: str
    path: tuple[str, ...]
    values: tuple[str, ...] = ()


@cache
def list_columns(*models: Any) -> tuple[FrameColumn, ...]:
    components: dict[str, Schema] = {}
    schemas = [_resolve(describe_type(model, components), components) for model in models]
    columns = {
        column.name: column for schema in schemas for column in _walk(schema, components, ())
    }
    return tuple(columns.values())


def _resolve(schema: Schema, components: Mapping[str, Schema]) -> Schema:
    if "oneOf" in schema:
        return _resolve(schema["oneOf"][0], components) | {
            "description": schema.get("description", "")
        }
    reference = schema.get("$ref", "").rpartition("/")[2]
    return components[reference] | schema if reference else schema


def _walk(
    schema: Schema, components: Mapping[str, Schema], path: tuple[str, ...]
) -> Iterator[FrameColumn]:
    for name, part in schema["properties"].items():
        field = _resolve(part, components)
        inner = (*path, name)
        if "properties" in field:
            yield from _walk(field, components, inner)
            continue
        kind, name, description = (
            _find_kind(name, field),
            _name_column(inner),
            field.get("description", ""),
        )
        if kind == MOMENT:
            name, description = (
                name.removesuffix("_us"),
                description.removesuffix(TIME_UNIT).strip(),
            )
        yield FrameColumn(
            name, kind, description, inner, tuple(filter(None, field.get("enum", ())))
        )
    if schema.get("additionalProperties") is True:
        yield FrameColumn("other_metrics", MAPPING, "What this version has no description of.", ())


def _name_column(path: tuple[str, ...]) -> str:
    if len(path) == 2 and path[0] == "phases_us":
        return f"phase_{path[1]}_us"  # as the CSV report has it
    return "_".join(path)


def _find_kind(name: str, field: Schema) -> str:
    types = field.get("type")
    if types is None:  # a metric of torch's
        return _OF_METRICS.get(find_types("compilations").get(name, "text"), TEXT)
    (word,) = {types} if isinstance(types, str) else {*types} - {"null"}
    if word == "integer" and field.get("description", "").endswith(TIME_UNIT):
        return MOMENT
    return CATEGORY if "enum" in field else _OF_JSON[word]


def make_frame(columns: Sequence[FrameColumn], rows: Iterable[Any]) -> pd.DataFrame:
    lists: list[list[Any]] = [[] for _column in columns]
    known = frozenset(column.path[0] for column in columns if column.path)
    iterator = iter(rows)
    # A batch at a time, so that not all rows stand as objects beside their columns.
    while batch := list(islice(iterator, _BATCH)):
        for column, values in zip(columns, lists):
            part = _read_values(column.path, batch, known)
            values += map(_freeze, part) if column.kind in (LIST, MAPPING) else part
    row_count = len(lists[0])
    others: dict[int, dict[str, Any]] = {}
    arrays = {
        column.name: _make_array(column, values, others) for column, values in zip(columns, lists)
    }
    if others:
        texts = [
            dump_json(others[row]).decode() if row in others else None for row in range(row_count)
        ]
        arrays[OTHER] = _convert(TEXT, (), texts)
    return pd.DataFrame(arrays, index=pd.RangeIndex(row_count))


def _read_values(
    path: tuple[str, ...], rows: Sequence[Any], known: frozenset[str]
) -> Iterable[Any]:
    if not path:
        return [
            {name: value for name, value in row.items() if name not in known} or None
            for row in rows
        ]
    name, *inner = path
    values: Iterable[Any] = map((attrgetter if is_model(type(rows[0])) else itemgetter)(name), rows)
    for key in inner:
        values = [None if value is None else get_plain(value).get(key) for value in values]
    return values


def _make_array(column: FrameColumn, values: list[Any], others: dict[int, dict[str, Any]]) -> Any:
    if not _are_fitting(column.kind, values):
        values = [
            value if value is None else _fit(column, value, row, others)
            for row, value in enumerate(values)
        ]
    return _convert(column.kind, column.values, values)


def _are_fitting(kind: str, values: Sequence[Any]) -> bool:
    if not {*map(type, values)} <= {*_TYPES[kind], type(None)}:
        return False
    low, high = _LIMITS.get(kind, (0, 0))
    numbers = [value for value in values if value is not None] if kind in _LIMITS else []
    return not numbers or (low <= min(numbers) and max(numbers) <= high)


def _fit(column: FrameColumn, value: Any, row: int, others: dict[int, dict[str, Any]]) -> Any:
    kind = column.kind
    if kind == TEXT and not isinstance(value, str):
        return dump_json(value).decode()  # a metric of torch's that is an object
    if _are_fitting(kind, [value]):
        return value
    others.setdefault(row, {})[column.name] = value
    return None


def _convert(kind: str, words: Sequence[str], values: list[Any]) -> Any:
    if kind == MOMENT:
        numbers = np.array(
            [_NOT_A_TIME if value is None else value for value in values], dtype="int64"
        )
        return pd.DatetimeIndex(numbers.view("datetime64[us]")).tz_localize("UTC")
    if kind == CATEGORY:
        known = dict.fromkeys((*words, *(value for value in values if value is not None)))
        return pd.Categorical(values, categories=pd.array([*known], dtype=pd.StringDtype("python")))
    if kind in (LIST, MAPPING):
        array = np.empty(len(values), dtype=object)
        for row, value in enumerate(values):
            array[row] = value
        return array
    return pd.array(values, dtype=pd.StringDtype("python") if kind == TEXT else kind)


def _freeze(value: Any) -> Any:
    return tuple(map(get_plain, value)) if isinstance(value, list | tuple) else get_plain(value)
