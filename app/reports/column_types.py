"""Which type each column of a tabular report has; text is what is not named here."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from compileboard.app.queries.artifacts import ArtifactRow
from compileboard.app.queries.compiles import Compilation
from compileboard.app.queries.guard_sets import GuardSet
from compileboard.app.queries.logs import RejectSum
from compileboard.app.queries.result_rows import ResultRow
from compileboard.app.queries.run_breaks import GraphBreakRow
from compileboard.app.queries.run_recompiles import Guard, RecompileRow
from compileboard.app.queries.timeline import NameTotal
from compileboard.app.reports.csv import COLUMNS
from compileboard.collectors.fields import FIELDS

# Columns in µs since the epoch; every other one in µs is a length of time.
MOMENTS = frozenset(("start_us", "started_us", "time_us", "start_time_us", "end_time_us", "longest_begin_us"))
_ROWS: dict[str, Any] = {
    "compilations": Compilation,
    "graph_breaks": GraphBreakRow,
    "recompiles": RecompileRow,
    "results": ResultRow,
    "artifacts": ArtifactRow,
    "spans_by_name": NameTotal,
    "guards": GuardSet,
    "rejects": RejectSum,
}
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
}
_OF_UNITS |= {"time_us": "int"}
_SERIES = {"dynamic": "bool", "batch_size": "int", "world_size": "int"}
COMPARISON_TYPES: Mapping[str, str] = {
    **_SERIES,
    **dict.fromkeys(("base", "new", "change", "p_value", "ratio_low", "ratio_high"), "float"),
}


@lru_cache(maxsize=16)
def find_types(table: str) -> Mapping[str, str]:
    """Return the types of a run's table: int, float, bool, moment or list."""
    found = _read_hints(_ROWS[table])
    if table == "compilations":
        found |= {name: _OF_UNITS[it.unit] for name, it in FIELDS.items() if it.unit in _OF_UNITS and name not in found}
        found |= {name: "int" for name in COLUMNS[table] if name.startswith("phase_")}
    elif table == "recompiles":
        found |= {f"guard_{name}": kind for name, kind in _read_hints(Guard).items()} | {"guard_count": "int"}
    elif table == "spans_by_name":
        found["open_count"] = "int"
    return {name: "moment" if kind == "int" and name in MOMENTS else kind for name, kind in found.items()}


def _read_hints(kind: Any) -> dict[str, str]:
    """Read the types of a dataclass's fields, `int | None` as int."""
    found = {}
    for name, hint in typing.get_type_hints(kind).items():
        named = set(typing.get_args(hint)) - {types.NoneType} if _is_union(hint) else {hint}
        if named == {int, float}:
            found[name] = "float"
        elif len(named) == 1 and (said := _OF_HINTS.get(named.pop())):
            found[name] = said
    return found


def _is_union(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
