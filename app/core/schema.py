"""Dataclasses as JSON, and their JSON schemas. Annotations describe the fields, the docstring the
class.

`Annotated[Count | None, "Graph breaks."]` is a field that may be null. A property with `@published`
is a field too. For a class with `tables`, contract/records.py describes the fields that are columns
of these tables.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from compileboard.collectors.contract.records import PRIVATE as PRIVATE
from compileboard.collectors.contract.records import TABLES, Column
from compileboard.collectors.contract.records import published as published

Schema = dict[str, Any]
OPTIONAL = {"optional": True}  # metadata of a field that may be missing in JSON
_NAMED: dict[str, type] = {}  # models by name in the document
_NAMES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    dict: "object",
}


class Unit(str):
    """The unit of a type, appended to the description of every value of it."""

    __slots__ = ()


TIME_UNIT, DURATION_UNIT = Unit("Microseconds since 1970, UTC."), Unit("Microseconds.")


class Keywords:
    def __init__(self, **values: Any) -> None:
        self.values = values


def one_of(values: Iterable[str]) -> Keywords:
    return Keywords(enum=[*values])


def is_model(model: type) -> bool:
    return dataclasses.is_dataclass(model) or hasattr(model, "_fields")


@cache
def list_names(model: Any) -> tuple[str, ...]:
    parts = [part for base in reversed(model.__mro__) for part in vars(base).items()]
    computed = [
        name for name, part in parts if isinstance(part, property) and hasattr(part.fget, "in_json")
    ]
    if not dataclasses.is_dataclass(model):
        return (*model._fields, *computed)
    fields = [
        field.name for field in dataclasses.fields(model) if not field.metadata.get("private")
    ]
    return (*fields, *dict.fromkeys(computed))


@cache
def _make_getter(model: Any) -> Callable[[Any], tuple[Any, ...]]:
    names = list_names(model)
    getter = attrgetter(*names)
    return getter if len(names) > 1 else lambda value: (getter(value),)


def get_row(value: Any) -> dict[str, Any]:
    model = type(value)
    if is_model(model):
        return dict(zip(list_names(model), _make_getter(model)(value)))  # type: ignore[arg-type]
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def get_plain(value: Any) -> Any:
    """Convert dataclasses and named tuples to dicts, recursively."""
    if is_model(type(value)):
        return {name: get_plain(part) for name, part in get_row(value).items()}
    if isinstance(value, list | tuple):
        return [get_plain(part) for part in value]
    return value


def describe_model(model: type, components: dict[str, Schema]) -> Schema:
    """Return the JSON schema of a dataclass; no other properties are allowed.

    Raises TypeError if a field has no description.
    """
    hints = get_type_hints(model, include_extras=True)
    fields = getattr(model, "__dataclass_fields__", {}).values()  # a named tuple has none
    optional = {field.name for field in fields if field.metadata.get("optional")}
    properties = {}
    for name in list_names(model):
        if name in hints:
            properties[name] = describe_type(hints[name], components)
            column = None if "description" in properties[name] else _find_column(model, name)
            if column:
                properties[name] = describe_type(_annotate(hints[name], column), components)
        else:
            getter = getattr(model, name).fget
            hint = get_type_hints(getter, include_extras=True)["return"]
            properties[name] = describe_type(hint, components, read_docstring(getter))
        if not properties[name].keys() & {"description", "$ref", "oneOf"}:
            raise TypeError(
                f"{model.__name__}.{name}: expected Annotated[…, description], this has no "
                "description"
            )
    return {
        "type": "object",
        "description": read_docstring(model),
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _find_column(model: Any, name: str) -> Column | None:
    tables = (TABLES[table].columns for table in getattr(model, "tables", ()))
    return next((columns[name] for columns in tables if name in columns), None)


def _annotate(hint: Any, column: Column) -> Any:
    about: dict[str, Any] = {"time_us": TIME_UNIT, "us": DURATION_UNIT}
    about |= dict.fromkeys(("count", "bytes"), Keywords(minimum=0))
    part = one_of(column.words) if column.words else about.get(column.type)
    return Annotated[hint, column.help, part]


def describe_type(hint: Any, components: dict[str, Schema], description: str = "") -> Schema:
    schema = _describe_parts(hint, components)
    unit = schema.pop("unit", "")
    text = f"{schema.get('description') or description} {unit}".strip()
    return schema | {"description": text} if text else schema


def _describe_parts(hint: Any, components: dict[str, Schema]) -> Schema:
    metadata: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
    origin, args = get_origin(hint), get_args(hint)
    is_nullable = origin in (Union, types.UnionType) and type(None) in args
    if is_nullable:
        (hint,) = (part for part in args if part is not type(None))
        schema = _describe_parts(hint, components)
    else:
        schema = _describe_unannotated(hint, origin, args, components)
    for part in metadata:
        if isinstance(part, str):
            schema["unit" if isinstance(part, Unit) else "description"] = str(part)
        elif isinstance(part, Keywords):
            schema |= part.values
    if is_nullable and "type" in schema:
        schema["type"] = [schema["type"], "null"]
        schema |= {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    elif is_nullable:
        about: Schema = {
            name: schema.pop(name) for name in ("description", "unit") if name in schema
        }
        schema = {"oneOf": [schema, {"type": "null"}], **about}
    return schema


def _describe_unannotated(
    hint: Any, origin: Any, args: tuple[Any, ...], components: dict[str, Schema]
) -> Schema:
    if hint is Any:
        return {}
    if origin in (Union, types.UnionType):
        return {"type": [_NAMES[part] for part in args]}
    if origin is Literal:
        return {"type": "string", "enum": [*args]}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": describe_type(args[1], components)}
    if origin is not None and issubclass(origin, Iterable):
        return {"type": "array", "items": describe_type(args[0], components)}
    if hint in _NAMES:
        return {"type": _NAMES[hint]}
    if is_typeddict(hint):
        parts = get_type_hints(hint, include_extras=True).items()
        properties = {name: describe_type(part, components) for name, part in parts}
        return {"type": "object", "properties": properties}
    name = hint.__name__.removesuffix("Row").removesuffix("Json")
    if _NAMED.setdefault(name, hint) is not hint:
        raise TypeError(f"{name}: {hint!r} and {_NAMED[name]!r} have the same name in the document")
    if name not in components:
        components[name] = {}  # a model may refer to itself
        components[name] = describe_model(hint, components)
    return {"$ref": f"#/components/schemas/{name}"}


def read_docstring(described: Any) -> str:
    """Return the first paragraph of a docstring as a noun phrase."""
    paragraph = " ".join((described.__doc__ or "").split("\n\n")[0].split())
    name = paragraph.removeprefix("Return ").removeprefix("List ")
    return name[:1].upper() + name[1:]
