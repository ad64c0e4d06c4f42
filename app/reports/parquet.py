"""Write reports as Parquet in batches, with the column types of the tables."""

from __future__ import annotations

import importlib.util
import io
import json
import sqlite3
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from compileboard.app.core.format import format_iso_time
from compileboard.app.core.page import FilterError
from compileboard.app.core.resources import __version__
from compileboard.app.reasons.run_queries import FailedGuard
from compileboard.app.reports.csv_report import (
    BY_NAME,
    COLUMNS,
    KINDS,
    flatten_row,
    flatten_value,
    read_rows,
)
from compileboard.collectors.contract.metric_fields import FIELDS
from compileboard.collectors.contract.records import list_types

if TYPE_CHECKING:
    from compileboard.app.benchmarks.suite import SuiteScreen
    from compileboard.app.comparison.model import Comparison
    from compileboard.app.runs.run_queries import RunDetail


_OF_HINTS: Mapping[Any, str] = {int: "int", float: "float", bool: "bool", tuple[str, ...]: "list"}
_OF_UNITS = {
    "us": "int",
    "ms": "int",
    "bytes": "int",
    "count": "int",
    "bool": "bool",
    "s": "float",
    "time_s": "float",
    "list": "list",
    "time_us": "moment",
}
_SERIES = {"dynamic": "bool", "batch_size": "int", "world_size": "int"}
COMPARISON_TYPES: Mapping[str, str] = {
    **_SERIES,
    **dict.fromkeys(("base", "new", "change", "p_value", "ratio_low", "ratio_high"), "float"),
}


@lru_cache(maxsize=16)
def find_types(table: str) -> Mapping[str, str]:
    types = _read_hints(KINDS[table])
    if table == "compilations":
        types |= {
            name: _OF_UNITS[field.unit]
            for name, field in FIELDS.items()
            if field.unit in _OF_UNITS and name not in types
        }
        types |= {name: "int" for name in COLUMNS[table] if name.startswith("phase_")}
    elif table == "recompiles":
        types |= {f"guard_{name}": kind for name, kind in _read_hints(FailedGuard).items()} | {
            "guard_count": "int"
        }
    elif table == "spans_by_name":
        types["open_count"] = "int"
    declared = list_types(*getattr(KINDS[table], "tables", ()))
    return {
        name: "moment" if declared.get(name) == "moment" else kind for name, kind in types.items()
    }


def _read_hints(kind: Any) -> dict[str, str]:
    types_by_name = {}
    for name, hint in typing.get_type_hints(kind).items():
        is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
        named = set(typing.get_args(hint)) - {types.NoneType} if is_union else {hint}
        if named == {int, float}:
            types_by_name[name] = "float"
        elif len(named) == 1 and (type_name := _OF_HINTS.get(named.pop())):
            types_by_name[name] = type_name
    return types_by_name


Row = Mapping[str, Any]
REST = "of_other_type"
_BATCH = 2_000  # rows; 100,000 compilations are written in less than 200 MB
_MAX_WHOLE = 2**53  # larger floats do not represent every whole number


def is_available() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def check_available() -> None:
    """Raises FilterError if pyarrow is not installed."""
    if not is_available():
        raise FilterError(
            "format: parquet needs pyarrow, which is not installed; pip install "
            "'compileboard[parquet]'"
        )


def write_run_parquet(
    connection: sqlite3.Connection, detail: RunDetail, table: str, source: bool, written_us: int
) -> Iterator[bytes]:
    rows = (
        flatten_row(table, row)
        for row in read_rows(connection, detail.run.id, BY_NAME[table], source)
    )
    what = {
        "report": "run",
        "table": table,
        "run_id": detail.run.id,
        "source_lines": source and detail.keep_source,
    }
    return write_parquet(COLUMNS[table], find_types(table), rows, what, written_us)


def write_comparison_parquet(comparison: Comparison, written_us: int) -> Iterator[bytes]:
    from compileboard.app.comparison.summary import COLUMNS as COMPARED
    from compileboard.app.comparison.summary import list_lines

    what = {"report": "comparison", "base": comparison.base.asked, "new": comparison.new.asked}
    return write_parquet(COMPARED, COMPARISON_TYPES, list_lines(comparison), what, written_us)


def write_suite_parquet(suite: SuiteScreen, table: str, written_us: int) -> Iterator[bytes]:
    from compileboard.app.benchmarks.suite import SUITE_TABLES

    kind = SUITE_TABLES[table]
    what: dict[str, Any] = {
        "report": "suite",
        "table": table,
        "set": suite.chosen.fields,
        "branch": suite.branch,
    }
    what |= {"since_us": suite.period.since_us, "until_us": suite.period.until_us}
    return write_parquet(kind.columns, kind.types, kind.list(suite), what, written_us)


def write_parquet(
    columns: Sequence[str],
    types: Mapping[str, str],
    rows: Iterable[Row],
    what: Mapping[str, Any],
    written_us: int,
) -> Iterator[bytes]:
    """Return the chunks of a table. A column without a type is text.

    Raises FilterError immediately if pyarrow is not installed.
    """
    check_available()
    return _write(columns, types, iter(rows), what, written_us)


def _write(
    columns: Sequence[str],
    types: Mapping[str, str],
    rows: Iterator[Row],
    what: Mapping[str, Any],
    written_us: int,
) -> Iterator[bytes]:
    import pyarrow
    from pyarrow import parquet

    kinds = {
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "moment": pyarrow.timestamp("us", tz="UTC"),
        "text": pyarrow.string(),
        "list": pyarrow.list_(pyarrow.string()),
    }
    metadata = {"what": json.dumps(what), "written_by": f"CompileBoard {__version__}"}
    metadata["written_at"] = format_iso_time(written_us)
    fields = [(name, kinds[types.get(name, "text")]) for name in (*columns, REST)]
    schema = pyarrow.schema(
        fields, metadata={f"compileboard.{name}": text for name, text in metadata.items()}
    )
    sink = _Sink()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        while batch := [_fit(columns, types, row) for row in islice(rows, _BATCH)]:
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
            yield sink.take()
    yield sink.take()


def _fit(columns: Sequence[str], types: Mapping[str, str], row: Row) -> dict[str, Any]:
    fitted: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name in columns:
        value = row.get(name)
        kind = types.get(name, "text")
        if value is None:
            fitted[name] = None
        elif kind == "text":
            fitted[name] = _write_text(value)
        elif (
            kind == "list"
            and isinstance(value, list | tuple)
            and all(isinstance(element, str) for element in value)
        ):
            fitted[name] = [_encode(element) for element in value]
        elif _fits(kind, value):
            fitted[name] = (
                float(value) if kind == "float" else bool(value) if kind == "bool" else value
            )
        else:
            rest[name] = value
    return fitted | {REST: json.dumps(rest) if rest else None}


def _write_text(value: Any) -> str:
    return _encode(str(flatten_value(value)))


def _encode(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _fits(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "bool"
    if isinstance(value, int):
        if kind == "float":
            return abs(value) <= _MAX_WHOLE
        return value in (0, 1) if kind == "bool" else -(2**63) <= value < 2**63
    return kind == "float" and isinstance(value, float)


class _Sink(io.RawIOBase):
    """A file object that buffers the data written since the last `take`."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def writable(self) -> bool:
        return True

    def take(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data
