"""Check a value against the part of JSON Schema that the API's document uses; a keyword beyond it
is an error.
"""

from __future__ import annotations

from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
KNOWN = {
    *(
        "$ref",
        "type",
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minimum",
    ),
    *("maximum", "maxLength", "pattern", "description", "default", "oneOf"),
}


def list_faults(
    value: Any, schema: dict[str, Any], schemas: dict[str, Any], where: str = "$"
) -> list[str]:
    """List what of a value does not fit its schema."""
    assert set(schema) <= KNOWN, f"{where}: {set(schema) - KNOWN} is not checked"
    if "$ref" in schema:
        return list_faults(value, schemas[schema["$ref"].rpartition("/")[2]], schemas, where)
    faults = []
    if "type" in schema and not _is_of(value, schema["type"]):
        return [f"{where}: {value!r:.60} is not {schema['type']}"]
    if "const" in schema and value != schema["const"]:
        faults.append(f"{where}: {value!r:.60} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        faults.append(f"{where}: {value!r:.60} is not one of {schema['enum']}")
    if "minimum" in schema and value is not None and value < schema["minimum"]:
        faults.append(f"{where}: {value} is below {schema['minimum']}")
    if isinstance(value, dict):
        faults += _check_object(value, schema, schemas, where)
    if isinstance(value, list) and "items" in schema:
        faults += [
            fault
            for n, entry in enumerate(value)
            for fault in list_faults(entry, schema["items"], schemas, f"{where}[{n}]")
        ]
    return faults


def _is_of(value: Any, types: str | list[str]) -> bool:
    names = [types] if isinstance(types, str) else types
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, TYPES[name]) for name in names)


def _check_object(
    value: dict[str, Any], schema: dict[str, Any], schemas: dict[str, Any], where: str
) -> list[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    faults = [
        f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value
    ]
    for name, entry in value.items():
        if name in properties:
            faults += list_faults(entry, properties[name], schemas, f"{where}.{name}")
        elif others is False:
            faults.append(f"{where}.{name} is not described")
        elif isinstance(others, dict):
            faults += list_faults(entry, others, schemas, f"{where}.{name}")
    return faults
