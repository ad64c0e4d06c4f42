"""Pages that describe the API for people, made from its OpenAPI document."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, abort, render_template

from compileboard.app.core.newest import LATEST
from compileboard.app.core.schema import Schema
from compileboard.app.server.openapi import get_document

blueprint = Blueprint("api_pages", __name__)

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_REFERENCE = "#/components/schemas/"
_SIDES = ("base", "new", "baseline")  # their defaults need benchmark runs, or there are none
_SENT_AS = {
    "application/json": ("-H", "Content-Type: application/json", "-d"),
    "multipart/form-data": ("-F", "files=@trace.tar.gz"),
    "application/octet-stream": ("--data-binary", "@FILE"),
}


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    operation: dict[str, Any]

    @property
    def address(self) -> str | None:
        """Return a URL that answers as it is, with the newest run in place of any run."""
        path = self.path.replace("{run_id}", LATEST)
        is_whole = "{" not in path and not self._needed
        return path if self.method == "GET" and is_whole else None

    @property
    def curl(self) -> str:
        """Return a curl command for it; the reader replaces the names in capitals."""
        flags = {"GET": [], "HEAD": ["--head"]}.get(self.method, ["-X", self.method])
        kind = next(iter(self._content), None)
        flags += _SENT_AS[kind] if kind else ()
        if kind == "application/json":
            fields = next(model["properties"] for _name, model in list_objects(self.body))
            values = {
                name: field["examples"][0] for name, field in fields.items() if "examples" in field
            }
            flags.append(json.dumps(values, ensure_ascii=False))
        for part in self.operation["parameters"]:
            flags += ("-H", f"{part['name']}: …") if part["in"] == "header" else ()
        path = self.path
        if self.method in ("GET", "HEAD"):
            path = path.replace("{run_id}", LATEST)
        path = _PLACEHOLDER.sub(lambda name: name[1].upper(), path)
        path += "?" * bool(self._needed) + "&".join(
            f"{name}={name.upper()}" for name in self._needed
        )
        return " ".join(["curl", "-s", *map(shlex.quote, flags), f'"$BOARD{path}"'])

    @property
    def _needed(self) -> list[str]:
        return [
            part["name"]
            for part in self.operation["parameters"]
            if part["in"] == "query" and (part["required"] or part["name"] in _SIDES)
        ]

    @property
    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = self.operation.get("requestBody", {}).get("content", {})
        return content

    @property
    def body(self) -> Schema | None:
        """Return the schema of the request's JSON body."""
        schema: Schema | None = self._content.get("application/json", {}).get("schema")
        return schema

    @property
    def answer(self) -> Schema | None:
        """Return the schema of the response's `data`, or of the whole response if it has none."""
        for status, response in self.operation["responses"].items():
            if status.startswith("2") and "content" in response:
                schema: Schema = response["content"]["application/json"]["schema"]
                data: Schema = schema.get("properties", {}).get("data", schema)
                return data
        return None


def list_endpoints() -> Iterator[Endpoint]:
    for path, methods in get_document()["paths"].items():
        for method, operation in methods.items():
            yield Endpoint(method.upper(), path, operation)


def name_reference(schema: Schema) -> str | None:
    """Return the name of the object that a schema describes, directly or as items or values."""
    for part in (schema, *schema.get("oneOf", ())):
        if "$ref" in part:
            return str(part["$ref"]).removeprefix(_REFERENCE)
        for inner in (part.get("items"), part.get("additionalProperties")):
            if isinstance(inner, dict) and (name := name_reference(inner)):
                return name
    return None


def describe_kind(schema: Schema) -> str:
    """Return the type of a value in a few words: `list of Compile or null`."""
    if "oneOf" in schema:
        return " or ".join(describe_kind(part) for part in schema["oneOf"])
    if name := schema.get("$ref"):
        return str(name).removeprefix(_REFERENCE)
    kinds = schema.get("type", "any")
    inner = {
        "array": ("list", schema.get("items")),
        "object": ("object", schema.get("additionalProperties")),
    }
    words = []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        word, of = inner.get(kind, (kind, None))
        words.append(f"{word} of {describe_kind(of)}" if isinstance(of, dict) and of else word)
    return " or ".join(words)


def list_objects(schema: Schema | None) -> list[tuple[str, Schema]]:
    """List the named objects in a schema, the outermost first, each once."""
    schemas = get_document()["components"]["schemas"]
    found: dict[str, Schema] = {}
    waiting = [schema] if schema else []
    while waiting:
        part = waiting.pop(0)
        name = name_reference(part)
        if name and name not in found:
            found[name] = schemas[name]
            waiting.append(schemas[name])
        waiting += part.get("properties", {}).values()
    return [*found.items()]


@blueprint.get("/reference")
def index() -> str:
    endpoints = [*list_endpoints()]
    subjects = {
        tag["name"]: [one for one in endpoints if tag["name"] in one.operation["tags"]]
        for tag in get_document()["tags"]
    }
    return render_template("reference/index.html", subjects=subjects)


@blueprint.get("/reference/<operation_id>")
def show(operation_id: str) -> str:
    for endpoint in list_endpoints():
        if endpoint.operation["operationId"] == operation_id:
            return render_template(
                "reference/operation.html",
                endpoint=endpoint,
                taken=list_objects(endpoint.body),
                answered=list_objects(endpoint.answer),
                describe_kind=describe_kind,
                name_reference=name_reference,
            )
    abort(404, f"The API has no operation {operation_id[:60]}: /reference lists them.")
