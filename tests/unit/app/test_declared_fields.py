"""Fields of answers that are columns: their descriptions, units and types come from the declaration
of the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from compileboard.app.core.schema import _NAMED, describe_model
from compileboard.app.server.openapi import get_document
from compileboard.collectors.contract.records import TABLES

SCHEMAS = get_document()["components"]["schemas"]
ROWS = {name: model for name, model in _NAMED.items() if hasattr(model, "tables")}
JSON_TYPES = {
    "blob": {"object"},
    "text": {"string"},
    "bool": {"boolean"},
    "real": {"number"},
    "json": {"object", "array"},
}


@dataclass(frozen=True)
class Sample:
    """A row with a column of each kind, and a field that is none."""

    tables = ("run_totals", "runs")

    compile_count: int | None
    started_us: int
    source: str
    host: Any


def test_a_column_is_described_as_declared() -> None:
    properties = describe_model(Sample, {})["properties"]
    assert properties["compile_count"] == {
        "type": ["integer", "null"],
        "minimum": 0,
        "description": TABLES["run_totals"].columns["compile_count"].help,
    }
    assert properties["started_us"]["description"] == "Start. Microseconds since 1970, UTC."
    assert properties["source"]["enum"] == [*TABLES["runs"].columns["source"].words]
    assert properties["host"] == {"description": TABLES["runs"].columns["host"].help}


@pytest.mark.parametrize(("name", "model"), ROWS.items())
def test_a_field_has_the_type_of_its_column(name: str, model: Any) -> None:
    for field, schema in SCHEMAS[name]["properties"].items():
        columns = [
            TABLES[table].columns[field] for table in model.tables if field in TABLES[table].columns
        ]
        types = (
            {schema["type"]} if isinstance(schema.get("type"), str) else {*schema.get("type", ())}
        )
        expected = [JSON_TYPES.get(column.type, {"integer", "string"}) for column in columns]
        assert not columns or not types or types & expected[0], (field, schema, columns)
