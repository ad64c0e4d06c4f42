"""Make instances of classes from rows of statements. A field's type determines how its column is
converted.
"""

from __future__ import annotations

import sqlite3
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from compileboard.app.core.engine import Row
from compileboard.app.core.fields import ID_PATTERN
from compileboard.app.core.page import FIRST, Key, Page, bind_page, make_page
from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.contract.values import fit_json
from compileboard.collectors.store.reading import read_json
from compileboard.collectors.store.runs import add_process_names

Made = TypeVar("Made")


@cache
def _list_conversions(kind: Any) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind, include_extras=True)
    found = {name: _find_conversion(hint) for name, hint in hints.items()}
    return {name: convert for name, convert in found.items() if convert}


def _find_conversion(hint: Any) -> Callable[[Any], Any] | None:
    if get_origin(hint) is Annotated:
        if ID_PATTERN in hint.__metadata__:
            return format_id
        hint = hint.__origin__
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return next(filter(None, map(_find_conversion, get_args(hint))), None)
    if origin is dict:
        of_key, of_value = get_args(hint)
        if get_origin(of_value) is Annotated:
            of_value = of_value.__origin__
        shape = types.GenericAlias(dict, (of_key, of_value))
        return lambda column: read_json(shape, column) or {}
    if hint == tuple[str, ...]:
        return lambda column: tuple(read_json(list[str], column) or ())
    return bool if hint is bool else None


def make_row(kind: Callable[..., Made], row: Row | Mapping[str, Any]) -> Made:
    """Make an instance of a class from columns with the names of its fields.

    Columns are converted to the field's type: bool, content id, tuple of strings or dict. A class
    with `read_columns` makes its fields from the columns itself.
    """
    values = dict(row)
    if hasattr(kind, "read_columns"):
        values = kind.read_columns(values)
    for name, convert in _list_conversions(kind).items():
        if isinstance(values.get(name), int | str | bytes):
            values[name] = convert(values[name])
    return kind(**values)


def read_facts(kind: Callable[..., Made], facts: Any, **beside: Any) -> Made:
    """Make an instance of a class from untrusted JSON and the values `beside` it. A field is None
    if its value is missing, empty or of another type.
    """
    known = facts if isinstance(facts, dict) else {}
    read = {
        name: None if known.get(name) in (None, "") else fit_json(hint, known[name])
        for name, hint in get_type_hints(kind).items()
        if name not in beside
    }
    return kind(**read, **beside)


def list_rows(
    kind: Callable[..., Made],
    sql: str,
    connection: sqlite3.Connection,
    run_id: str | None = None,
    *,
    limit: int = 20,
    **values: Any,
) -> list[Made]:
    """List the rows of a statement. A field `process` is the name of the process in
    `process_id`.
    """
    records: Iterable[Any] = connection.execute(sql, {"run_id": run_id, "limit": limit} | values)
    if "process" in get_type_hints(kind):
        records = add_process_names(connection, records)
    return [make_row(kind, row) for row in records]


def find_row(
    kind: Callable[..., Made],
    sql: str,
    connection: sqlite3.Connection,
    run_id: str | None = None,
    **values: Any,
) -> Made | None:
    return next(iter(list_rows(kind, sql, connection, run_id, **values)), None)


def list_page(
    kind: Callable[..., Made],
    sql: str,
    connection: sqlite3.Connection,
    run_id: str,
    cursor: str | None = None,
    limit: int = 50,
    *,
    first: Mapping[str, Key] = FIRST,
    key: Callable[[Made], tuple[Key, ...]] = attrgetter("time_us", "id"),
    **values: Any,
) -> Page[Made]:
    """List a page of a run's rows, starting after the cursor's key.

    Raises FilterError for an invalid cursor.
    """
    rows = list_rows(kind, sql, connection, **bind_page(run_id, cursor, limit, first), **values)
    return make_page(rows, limit, key)
