"""Remove user source lines from query results: whole fields, and lines inside torch's texts."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from compileboard.app.benchmarks.exports import ExportFailure
from compileboard.app.compiles.run_queries import CompileRow
from compileboard.app.runs.advice import CauseRow
from compileboard.collectors.contract.redaction import redact_source

Row = TypeVar("Row")

# Fields that contain only source; frames of a stack have theirs under "code" or "loc".
_WHOLE = frozenset(("source_line", "code", "loc"))
# Mappings and dataclasses whose `source` is a line of the model; elsewhere it is a guard's
# expression.
_EXPORTS = frozenset(("export", "failure"))


def without_source(row: Row) -> Row:
    if isinstance(row, CauseRow):
        row = row.hide_source()  # type: ignore[assignment]
    changes = {}
    for field in dataclasses.fields(row):  # type: ignore[arg-type]
        value = getattr(row, field.name)
        cleaned = _clean(field.name, value)
        if cleaned is not value and cleaned != value:
            changes[field.name] = cleaned
    return dataclasses.replace(row, **changes) if changes else row  # type: ignore[type-var]


def clean_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _clean(name, value) for name, value in row.items()}


def _clean(name: str, value: Any) -> Any:
    if value is None or name in _WHOLE:
        return None
    if isinstance(
        value, int | float | CompileRow
    ):  # only names and numbers, and a report has hundreds
        return value
    if name in _EXPORTS and isinstance(value, dict):
        value = value | {"source": None}
    if isinstance(value, ExportFailure):
        value = dataclasses.replace(value, source=None)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return without_source(value)
    if isinstance(value, dict):
        return {redact_source(key): _clean(str(key), entry) for key, entry in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_clean(field, entry) for field, entry in zip(value._fields, value)))
    if isinstance(value, (list, tuple)):
        return type(value)(_clean(name, entry) for entry in value)
    return redact_source(value)
