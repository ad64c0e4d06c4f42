"""The tables of fields and guard categories in docs/api.md; `python -m tests.tools.field_tables`
writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compileboard.app.server.openapi import get_document
from compileboard.collectors.contract.categories import CATEGORIES
from tests.tools.written_tables import fill_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
ROWS = (
    "Run",
    "Compile",
    "GraphBreak",
    "DistinctBreak",
    "Recompile",
    "FailedGuard",
    "RecompileCause",
    "RerecordingReason",
    "FailureIssue",
    "Failure",
    "Result",
    "Repro",
    "Incident",
)


def write_fields() -> Iterator[str]:
    """Yield a table for each of ROWS."""
    schemas = get_document()["components"]["schemas"]
    for name in ROWS:
        yield from (
            "",
            f"### {name}",
            "",
            schemas[name]["description"],
            "",
            "| field | type | meaning |",
            "|---|---|---|",
        )
        for field, schema in schemas[name]["properties"].items():
            meaning = schema.get("description", "").replace("|", "\\|")
            yield f"| `{field}` | {_name_type(schema)} | {meaning} |"
    yield ""


def write_categories() -> Iterator[str]:
    yield from ("", "| guard category | label | meaning |", "|---|---|---|")
    for category in CATEGORIES:
        yield f"| `{category.name}` | {category.label} | {category.meaning} |"
    yield ""


def _name_type(schema: dict[str, Any]) -> str:
    types = schema.get("type", "object")
    names = schema.get("enum") or ([types] if isinstance(types, str) else types)
    return (", " if "enum" in schema else " or ").join(f"`{name or 'null'}`" for name in names)


def fill_page(text: str) -> str:
    """Return docs/api.md with its tables written anew."""
    text = fill_table(text, "categories", write_categories())
    return fill_table(text, "fields", write_fields())


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
