"""The first address of the API: what there is below it."""

from __future__ import annotations

from app.api.answer import Answer
from app.api.schema import Schema, record, text


def list_addresses() -> Answer:
    """Give every address with what it answers."""
    from app.api.openapi import get_document  # it describes this one too

    paths: dict[str, dict[str, dict[str, str]]] = get_document()["paths"]
    listed = [
        {"method": method.upper(), "path": path, "summary": operation["summary"]}
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]
    return Answer(listed)


SCHEMAS: dict[str, Schema] = {
    "Address": record(
        "An address of the API.",
        method=text("GET or POST."),
        path=text("Its path; what stands in braces is a value."),
        summary=text("What it answers."),
    )
}
