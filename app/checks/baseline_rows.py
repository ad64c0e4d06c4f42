"""What a stored baseline keeps of each model, as the rows that summaries are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from compileboard.app.checks.sides import load_side
from compileboard.app.queries.result_rows import ResultRow, fill
from compileboard.collectors.store.rows_bench import NUMBERS, REALS

_NONE: dict[str, Any] = {it.name: None for it in fields(ResultRow)}
_NONE |= {"run_id": "", "id": 0, "time_us": 0, "dynamic": False, "world_size": 1, "status": "measured"}
_NONE |= {"experiments": ("performance",), "tasks": ()}


def read_baseline_rows(body: Mapping[str, Any], title: str) -> list[ResultRow]:
    """Read a stored baseline's rows; what it does not keep is None.

    Raises: CannotCompare if a newer CompileBoard wrote it.
    """
    found = []
    for row in load_side(body, title).rows:
        cells = {REALS.get(name, name): cell for name, cell in row.cells.items()}
        known = {name: cells[name] for name in (*NUMBERS, "status", "reason", "accuracy") if name in cells}
        series = {name: value for name, value in row.series.items() if name in _NONE}
        found.append(fill(ResultRow, _NONE | series | known | {"model": row.name}))
    return found
