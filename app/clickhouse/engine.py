"""ClickHouse as the engine for queries across runs: its macros, and rows like those of SQLite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from compileboard.app.clickhouse.client import SETTINGS, ClientPool, explain
from compileboard.app.core.engine import TOKENS, Dialect, Row

LIMITS: dict[str, Any] = {
    "readonly": 2,  # read-only, but settings may be passed
    "max_execution_time": 30,
    "max_memory_usage": 4 << 30,
}
FIELD_BYTES = 120_000  # a server accepts 128 KiB per form field
_MACROS = {
    "join": "join",
    "is": "is not distinct from",
    "div": "div",
    "t": "r",  # a run's row includes its totals and annotations
    "a": "r",
    "totals": "",
    "words": "",
    "in": "in {}",
    "each": "(select arrayJoin({}) as value)",
    "rows": "(select * from {table}_rows where pub in {pubs})",
    "stored": "{}_rows",
    "of": "{table}.pub = {of}.pub",  # joining numbers takes half the time of texts
    "pub": "{}.pub",
}
_OF_NOTHING = {
    "in": "in []",
    "each": "(select null as value where 0)",
}  # an empty sequence has no type
_EMPTY = "empty"
_ROWS_OF_RESULTS = "(select * from results_rows where run_id in {ids} and pub in {pubs})"


class ClickHouseRow(tuple[Any, ...]):
    _names: tuple[str, ...]

    @classmethod
    def make(cls, names: tuple[str, ...], values: Sequence[Any]) -> ClickHouseRow:
        row = cls(values)
        row._names = names
        return row

    def keys(self) -> list[str]:
        return list(self._names)

    def __getitem__(self, key: Any, /) -> Any:
        return super().__getitem__(self._names.index(key) if isinstance(key, str) else key)


class ClickHouseEngine:
    dialect: Dialect = "clickhouse"

    def __init__(self, clients: ClientPool) -> None:
        self.clients = clients

    @property
    def name(self) -> str:
        return self.clients.address.label

    def rows(self, sql: str, values: Mapping[str, Any] = {}) -> list[Row]:
        """Run a query. Raises EngineUnavailable if ClickHouse cannot be reached, or a time or
        memory limit ends the query.
        """
        from clickhouse_connect.driver.exceptions import Error

        text, bound = prepare(sql, values)
        with self.clients.borrow() as client:
            try:
                answer = client.query(text, parameters=bound, settings=SETTINGS | LIMITS)
            except Error as error:
                raise explain(error, self.clients.address) from error
        names = tuple(name.rpartition(".")[2] for name in answer.column_names)
        return [ClickHouseRow.make(names, values) for values in answer.result_rows]

    def stream(self, sql: str, values: Mapping[str, Any] = {}) -> Iterator[tuple[Any, ...]]:
        from clickhouse_connect.driver.exceptions import Error

        text, bound = prepare(sql, values)
        with self.clients.borrow() as client:
            try:
                with client.query_rows_stream(
                    text, parameters=bound, settings=SETTINGS | LIMITS
                ) as rows:
                    yield from rows
            except Error as error:
                raise explain(error, self.clients.address) from error

    def close(self) -> None:
        """Release its resources; the process keeps its clients."""


def prepare(sql: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Translate a statement for ClickHouse. Raises KeyError for an unknown value or macro,
    TypeError for an unsupported value.
    """
    types = {name: _type_of(value) for name, value in values.items()}
    bound = dict(values)
    for name, kind in types.items():
        if kind.startswith("Array") and len(parts := _split_list(values[name])) > 1:
            types[name] = f"{kind}*{len(parts)}"
            bound |= {f"{name}_{index}": part for index, part in enumerate(parts)}
    text, names = _render_sql(sql, tuple(sorted(types.items())))
    return text, {name: _convert_value(bound[name]) for name in names}


def _split_list(values: Sequence[Any]) -> list[list[Any]]:
    parts: list[list[Any]] = [[]]
    size_bytes = 0
    for value in values:
        value_bytes = (
            2 * len(value.encode()) + 4 if isinstance(value, str) else 24
        )  # each character may be escaped
        if size_bytes + value_bytes > FIELD_BYTES and parts[-1]:
            parts.append([])
            size_bytes = 0
        parts[-1].append(value)
        size_bytes += value_bytes
    return parts


@lru_cache(maxsize=1024)
def _render_sql(sql: str, types: tuple[tuple[str, str], ...]) -> tuple[str, tuple[str, ...]]:
    named = dict(types)
    used: dict[str, None] = {}

    def bind(name: str) -> str:
        if named[name] in ("", _EMPTY):
            return "[]" if named[name] else "null"
        kind, _of, count = named[name].partition("*")
        parts = [f"{name}_{index}" for index in range(int(count))] if count else [name]
        used.update(dict.fromkeys(parts))
        bound = ", ".join(f"{{{part}:{kind}}}" for part in parts)
        return f"arrayConcat({bound})" if count else bound

    pieces = []
    position = 0
    for token in TOKENS.finditer(sql):
        pieces.append(sql[position : token.start()])
        position = token.end()
        if token["literal"]:
            pieces.append(
                token["literal"].replace("\\", "\\\\")
            )  # SQLite does not escape backslashes
        elif token["macro"]:
            name = token["of"]
            if token["table"]:
                ids = bind(name) if token["bound"] else f"(select id from {name})"  # noqa: S608  own names only
                pubs = (
                    f"(select pub from runs where id in {ids})"  # noqa: S608 - our own names
                    if token["bound"]
                    else f"(select pub from {name})"  # noqa: S608 - our own names
                )
                rows = _ROWS_OF_RESULTS if token["table"] == "results" else _MACROS[token["macro"]]
                pieces.append(rows.format(table=token["table"], of=name, ids=ids, pubs=pubs))
            elif name and not token["bound"]:
                pieces.append(_MACROS[token["macro"]].format(name))
            elif name and named[name] in ("", _EMPTY):
                pieces.append(_OF_NOTHING[token["macro"]])
            else:
                pieces.append(_MACROS[token["macro"]].format(name and bind(name)))
        elif token["name"]:
            pieces.append(bind(token["name"]))
    return "".join((*pieces, sql[position:])), tuple(used)


def _type_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        types = {_type_of(element) for element in value}
        if not types:
            return _EMPTY
        if len(types) > 1 or not types <= {"Int64", "Float64", "String"}:
            raise TypeError(
                f"a list has {sorted(types)}; expected whole numbers, numbers or texts alone"
            )
        return f"Array({types.pop()})"
    for kind, name in ((int, "Int64"), (float, "Float64"), (str, "String")):
        if isinstance(value, kind):
            return name
    raise TypeError(f"{type(value).__name__} cannot be bound to a statement")


def _convert_value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_convert_value(element) for element in value]
    return int(value) if isinstance(value, bool) else value
