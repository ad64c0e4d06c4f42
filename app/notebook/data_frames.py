"""Methods that return an API list as a frame, with its parameters as keywords."""

from __future__ import annotations

import inspect
import keyword
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Protocol

import numpy as np
import pandas as pd

from compileboard.app.comparison.sides import find_run as find_named_run
from compileboard.app.core.api import Limit, Operation, PageQuery, find_run
from compileboard.app.core.db import get_clock, get_engine, get_reader
from compileboard.app.core.json_text import dump_json
from compileboard.app.core.page import FilterError
from compileboard.app.core.parameters import (
    ParameterField,
    check_keys,
    list_names,
    list_parameters,
    read_filter,
)
from compileboard.app.core.schema import (
    TIME_UNIT,
    Schema,
    describe_type,
    get_plain,
    get_row,
    is_model,
)
from compileboard.app.reports.parquet import find_types
from compileboard.app.runs.queries import RunFilter, list_runs
from compileboard.app.server.openapi import OPERATIONS

MOMENT, LIST, MAPPING, CATEGORY = "datetime64[us, UTC]", "list", "dict", "category"
TEXT, INTEGER, NUMBER, FLAG = "string", "Int64", "Float64", "boolean"
OTHER = "of_other_type"  # Has the values that do not have their column's type.
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
    schemas = [_resolve_schema(describe_type(model, components), components) for model in models]
    columns = {
        column.name: column for schema in schemas for column in _walk_fields(schema, components, ())
    }
    return tuple(columns.values())


def _resolve_schema(schema: Schema, components: Mapping[str, Schema]) -> Schema:
    if "oneOf" in schema:
        return _resolve_schema(schema["oneOf"][0], components) | {
            "description": schema.get("description", "")
        }
    reference = schema.get("$ref", "").rpartition("/")[2]
    return components[reference] | schema if reference else schema


def _walk_fields(
    schema: Schema, components: Mapping[str, Schema], path: tuple[str, ...]
) -> Iterator[FrameColumn]:
    for name, part in schema["properties"].items():
        field = _resolve_schema(part, components)
        inner = (*path, name)
        if "properties" in field:
            yield from _walk_fields(field, components, inner)
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
        return f"phase_{path[1]}_us"  # as in the CSV report
    return "_".join(path)


def _find_kind(name: str, field: Schema) -> str:
    types = field.get("type")
    if types is None:  # a metric of torch
        return _OF_METRICS.get(find_types("compilations").get(name, "text"), TEXT)
    (word,) = {types} if isinstance(types, str) else {*types} - {"null"}
    if word == "integer" and field.get("description", "").endswith(TIME_UNIT):
        return MOMENT
    return CATEGORY if "enum" in field else _OF_JSON[word]


def make_frame(columns: Sequence[FrameColumn], rows: Iterable[Any]) -> pd.DataFrame:
    lists: list[list[Any]] = [[] for _column in columns]
    known = frozenset(column.path[0] for column in columns if column.path)
    iterator = iter(rows)
    # In batches, so that not all rows exist as objects beside their columns.
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
        arrays[OTHER] = _convert_column(TEXT, (), texts)
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
    if not _all_fit(column.kind, values):
        values = [
            value if value is None else _fit_value(column, value, row, others)
            for row, value in enumerate(values)
        ]
    return _convert_column(column.kind, column.values, values)


def _all_fit(kind: str, values: Sequence[Any]) -> bool:
    if not {*map(type, values)} <= {*_TYPES[kind], type(None)}:
        return False
    low, high = _LIMITS.get(kind, (0, 0))
    numbers = [value for value in values if value is not None] if kind in _LIMITS else []
    return not numbers or (low <= min(numbers) and max(numbers) <= high)


def _fit_value(column: FrameColumn, value: Any, row: int, others: dict[int, dict[str, Any]]) -> Any:
    kind = column.kind
    if kind == TEXT and not isinstance(value, str):
        return dump_json(value).decode()  # a metric of torch that is an object
    if _all_fit(kind, [value]):
        return value
    others.setdefault(row, {})[column.name] = value
    return None


def _convert_column(kind: str, known_values: Sequence[str], values: list[Any]) -> Any:
    if kind == MOMENT:
        numbers = np.array(
            [_NOT_A_TIME if value is None else value for value in values], dtype="int64"
        )
        return pd.DatetimeIndex(numbers.view("datetime64[us]")).tz_localize("UTC")
    if kind == CATEGORY:
        known = dict.fromkeys((*known_values, *(value for value in values if value is not None)))
        return pd.Categorical(values, categories=pd.array([*known], dtype=pd.StringDtype("python")))
    if kind in (LIST, MAPPING):
        array = np.empty(len(values), dtype=object)
        for row, value in enumerate(values):
            array[row] = value
        return array
    return pd.array(values, dtype=pd.StringDtype("python") if kind == TEXT else kind)


def _freeze(value: Any) -> Any:
    return tuple(map(get_plain, value)) if isinstance(value, list | tuple) else get_plain(value)


MAX_ROWS = 100_000
_PAGE_COUNT = 1000  # the API's limit
_RUN_ID = FrameColumn("run_id", TEXT, "The run's id.", ("run_id",))


class TruncatedFrameWarning(UserWarning):
    """The frame does not have all rows."""


class FrameSource(Protocol):
    def read(self, read: Callable[[str | None], pd.DataFrame]) -> pd.DataFrame:
        """Call a function with the run's id (None for all runs) while the database can be read."""


def read_filters(
    models: Iterable[type], filters: Mapping[str, Any], others: Iterable[str] = ()
) -> list[Any]:
    """Make filters from keywords. Raises FilterError for an unknown keyword or invalid value."""
    models = list(models)
    parts = {part.name: part for model in models for part in list_parameters(model)}
    query = {name.removesuffix("_"): value for name, value in filters.items() if value is not None}
    check_keys(query, dict.fromkeys((*others, *parts)))
    for name, value in query.items():
        if isinstance(value, list | tuple | set | dict):
            raise FilterError(f"{name}: {str(value)[:80]} is several values; expected one")
    texts = {
        name: write_text(value, parts[name].how.choices)
        for name, value in query.items()
        if name in parts
    }
    return [read_filter(model, texts) for model in models]


def write_text(value: Any, choices: Sequence[str] = ()) -> str:
    if isinstance(value, bool):
        words = choices or ("yes", "no")
        return ("yes" if "yes" in words else words[0]) if value else "no" if "no" in words else ""
    return value.isoformat() if isinstance(value, date) else str(value)


class FrameMethod:
    """A method that returns an API list as a frame.

    `page_count` is the number of rows per read; `part` names the list in a response with several
    fields. With `counts` the rows of all matching runs are concatenated.
    """

    def __init__(
        self,
        view: Callable[..., Any],
        *,
        page_count: int = _PAGE_COUNT,
        part: str = "",
        row: Any = None,
        counts: Sequence[str] = (),
    ) -> None:
        self.operation: Operation = next(
            operation for operation in OPERATIONS if operation.view is view
        )
        self.page_count = page_count
        self.part = part
        self.row = row or self.operation.model
        self.counts = counts
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, source: FrameSource | None, owner: type) -> Any:
        def read_of(self_: FrameSource, *, limit: int = MAX_ROWS, **filters: Any) -> pd.DataFrame:
            return self._read(self_, filters, limit)

        def read(*, limit: int = MAX_ROWS, **filters: Any) -> pd.DataFrame:
            return self._read(source, filters, limit)  # type: ignore[arg-type]

        method: Any = read_of if source is None else read
        method.__name__ = self.name
        method.__qualname__ = f"{owner.__name__}.{self.name}"
        # help(Board) has one sentence of each, help(board.runs) its keywords and columns.
        method.__doc__ = self.operation.summary if source is None else self.describe()
        if source is not None:
            method.__signature__ = self._make_signature()
        return method

    @property
    def of_runs(self) -> bool:
        return bool(self.counts)

    @property
    def columns(self) -> tuple[FrameColumn, ...]:
        columns = list_columns(self.row)
        is_led = self.of_runs and all(column.name != "run_id" for column in columns)
        return (_RUN_ID, *columns) if is_led else columns

    @property
    def own_filters(self) -> dict[str, type]:
        return {
            name: model
            for name, model in self.operation.filters.items()
            if not issubclass(model, Limit)
        }

    @property
    def own_names(self) -> list[str]:
        taken = list_names(RunFilter) if self.of_runs else ()
        names = (
            _name_keyword(name) for model in self.own_filters.values() for name in list_names(model)
        )
        return [name for name in names if name not in taken]

    @property
    def parameters(self) -> dict[str, ParameterField]:
        models = (*([RunFilter] if self.of_runs else []), *self.own_filters.values())
        parts: dict[str, ParameterField] = {}
        for part in (
            part for model in models for part in list_parameters(model) if part.description
        ):
            parts.setdefault(part.name, part)
        return parts

    def describe(self) -> str:
        lines = [self.operation.summary, "", "Keywords:"]
        lines += (
            ["  run: One run: its id or its commit, or how these begin, or `latest`."]
            if self.of_runs
            else []
        )
        lines += [
            f"  {_name_keyword(name)}: {part.description}" for name, part in self.parameters.items()
        ]
        lines += [f"  limit: Most rows; {MAX_ROWS} where it is not given.", "", "Columns:"]
        return "\n".join(
            [
                *lines,
                *(
                    f"  {column.name} ({column.kind}): {column.description}"
                    for column in self.columns
                ),
            ]
        )

    def _make_signature(self) -> inspect.Signature:
        names = [*(["run"] if self.of_runs else []), *map(_name_keyword, self.parameters)]
        parameters = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names
        ]
        limit = inspect.Parameter("limit", inspect.Parameter.KEYWORD_ONLY, default=MAX_ROWS)
        return inspect.Signature([*parameters, limit])

    def _read(self, source: FrameSource, filters: dict[str, Any], limit: int) -> pd.DataFrame:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise FilterError(f"limit: {limit!r} is not a whole number from 1")
        frame = source.read(
            lambda run_id: make_frame(
                self.columns, islice(self._list_rows(run_id, filters, limit + 1), limit + 1)
            )
        )
        if len(frame) > limit:
            text = (
                f"{self.name}: these are the first {limit} rows; there are more, which a "
                "higher limit= gives"
            )
            warnings.warn(text, TruncatedFrameWarning, stacklevel=3)
        frame.attrs["is_cut"] = len(frame) > limit
        return frame.iloc[:limit] if len(frame) > limit else frame

    def _list_rows(
        self, run_id: str | None, filters: dict[str, Any], max_count: int
    ) -> Iterator[Any]:
        if not self.of_runs:
            given = dict(zip(self.own_filters, read_filters(self.own_filters.values(), filters)))
            yield from self._list_pages(run_id, given, max_count)
            return
        of_run = {
            name: filters.pop(name) for name in (*list_names(RunFilter), "run") if name in filters
        }
        (selection,) = read_filters([RunFilter], of_run, ["run"])
        given = dict(
            zip(
                self.own_filters,
                read_filters(self.own_filters.values(), filters, ["run", *self.parameters]),
            )
        )
        for chosen_id in (
            [find_run_id(of_run["run"])] if of_run.get("run") else self._list_run_ids(selection)
        ):
            rows = self._list_pages(chosen_id, given, max_count)
            yield from (
                rows if self.columns[0] != _RUN_ID else (_add_run(row, chosen_id) for row in rows)
            )

    def _list_run_ids(self, selection: RunFilter) -> Iterator[str]:
        cursor = None
        while True:
            page = list_runs(
                get_engine(), selection, cursor=cursor, limit=_PAGE_COUNT, pinned_first=False
            )
            yield from (
                run.id for run in page.rows if any(getattr(run, name) for name in self.counts)
            )
            cursor = page.next
            if cursor is None:
                return

    def _list_pages(
        self, run_id: str | None, given: dict[str, Any], max_count: int
    ) -> Iterator[Any]:
        detail = {"detail": find_run(run_id)} if run_id is not None else {}
        filters = self.operation.filters.items()
        paging = next((name for name, model in filters if issubclass(model, Limit)), None)
        cursor = None
        while True:
            query = PageQuery(limit=min(self.page_count, max_count), cursor=cursor)
            paged = {} if paging is None else {paging: query}
            answer = self.operation.view(**detail, **given, **paged)
            yield from answer.rows if self.operation.is_list else getattr(answer, self.part)
            cursor = None if paging is None else answer.next
            if cursor is None:
                return


def _name_keyword(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def find_run_id(name: Any) -> str:
    """Resolve `latest`, or the beginning of an id or commit; unknown names are returned unchanged.

    Raises FilterError if several match, NoSuchRun if there is no run for `latest`.
    """
    text = write_text(name)
    named = find_named_run(get_reader(), get_engine(), get_clock(), text)
    return named.id if named else text


def _add_run(row: Any, run_id: str) -> dict[str, Any]:
    return {"run_id": run_id} | (get_row(row) if is_model(type(row)) else row)
