"""A few words to write JSON schemas with: the subset of JSON Schema 2020-12 that OpenAPI 3.1 and the tests read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]


def text(said: str, **more: Any) -> Schema:
    """Describe a text."""
    return {"type": "string", "description": said, **more}


def whole(said: str, **more: Any) -> Schema:
    """Describe a whole number."""
    return {"type": "integer", "description": said, **more}


def decimal(said: str) -> Schema:
    """Describe a number."""
    return {"type": "number", "description": said}


def flag(said: str) -> Schema:
    """Describe a truth value."""
    return {"type": "boolean", "description": said}


def anything(said: str) -> Schema:
    """Describe a value whose shape is the recorder's."""
    return {"description": said}


def word(said: str, words: Iterable[str]) -> Schema:
    """Describe one of some words."""
    return text(said, enum=list(words))


def maybe(schema: Schema) -> Schema:
    """Allow null: not recorded."""
    if "type" not in schema:
        return {"oneOf": [schema, {"type": "null"}]}
    found = schema | {"type": [schema["type"], "null"]}
    return found | {"enum": [*schema["enum"], None]} if "enum" in schema else found


def rows(of: Schema, said: str) -> Schema:
    """Describe a list."""
    return {"type": "array", "items": of, "description": said}


def mapping(of: Schema, said: str) -> Schema:
    """Describe an object with any names, whose values are alike."""
    return {"type": "object", "additionalProperties": of, "description": said}


def record(said: str, **properties: Schema) -> Schema:
    """Describe an object that always has exactly these names."""
    return {
        "type": "object",
        "description": said,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def extend(base: Schema, said: str, **properties: Schema) -> Schema:
    """Describe an object that has what another has, and these."""
    return record(said, **(base["properties"] | properties))


def ref(name: str) -> Schema:
    """Point to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def count(said: str) -> Schema:
    """Describe a count."""
    return whole(said, minimum=0)


def time_us(said: str) -> Schema:
    """Describe a moment."""
    return whole(f"{said} Microseconds since 1970, UTC.")


def duration_us(said: str) -> Schema:
    """Describe a duration."""
    return whole(f"{said} Microseconds.")
