"""The OpenAPI 3.1 document, made of OPERATIONS, PARAMETERS and the schemas."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from compileboard.app.api.answers import Operation
from compileboard.app.api.fleet import (
    activity,
    checks,
    comparison,
    imports,
    incidents,
    models,
    overview,
    search,
    trends,
)
from compileboard.app.api.fleet.imports import UPLOAD
from compileboard.app.api.operations import OPERATIONS
from compileboard.app.api.parameters import PARAMETERS, PATH_PARAMETERS
from compileboard.app.api.run import aot, artifacts, caches, compiles, guards, ranks, run, shapes, stacks, timeline
from compileboard.app.api.schema import Schema, array_of, record, ref, text, whole
from compileboard.app.resources import __version__

PREFIX = "/api/v1"
_ABOUT = """What torch.compile did on your machines: everything that a page of the dashboard shows.

Times are microseconds since 1970 (`…_us`), sizes bytes, counts whole numbers. What torch did not record is null.
Every answer has an ETag: send it back as `If-None-Match`, and an answer that is still the same is 304 without a body.
"""
ERROR = record(
    "A failure.",
    ok={"const": False},
    error=text("What is wrong and what was expected, in one sentence."),
    errors=array_of({"type": "string"}, "The same, one problem an entry."),
    status=whole("The HTTP status."),
)
SCHEMAS: dict[str, Schema] = {
    **run.SCHEMAS,
    **compiles.SCHEMAS,
    **overview.SCHEMAS,
    **artifacts.SCHEMAS,
    **search.SCHEMAS,
    **guards.SCHEMAS,
    **caches.SCHEMAS,
    **aot.SCHEMAS,
    **checks.SCHEMAS,
    **comparison.SCHEMAS,
    **incidents.SCHEMAS,
    **imports.SCHEMAS,
    **activity.SCHEMAS,
    **models.SCHEMAS,
    **ranks.SCHEMAS,
    **stacks.SCHEMAS,
    **shapes.SCHEMAS,
    **timeline.SCHEMAS,
    **trends.SCHEMAS,
    "Error": ERROR,
}
_FAILURES = {
    "400": ("BadRequest", "A parameter that is not known, or whose value cannot be used."),
    "403": ("Refused", "A host name that this server does not answer to, or a change where it is read-only."),
    "404": ("NotFound", "There is no such address, or nothing of that id."),
    "405": ("NotPossible", "Another method is asked for there: the sentence says which."),
    "500": ("Broken", "The server failed, or the database file is not one."),
    "503": ("Away", "The database is missing, locked or of another version: the sentence says what to do."),
}

# What can be wrong with an upload, beside that.
_REFUSALS = {
    "409": ("Conflict", "What stands in the way: the sentence says what."),
    "413": ("TooLarge", "More than one upload may have: the sentence names the limit."),
    "415": ("NoUpload", "Neither a form with files nor a raw file."),
    "429": ("Busy", "Too many imports are under way: try again after the seconds in Retry-After."),
    "507": ("NoRoom", "The server's disk is full."),
}


def _describe_parameter(key: str) -> dict[str, Any]:
    name, said, schema = PARAMETERS[key]
    return {"name": name, "in": "query", "required": False, "description": said, "schema": schema}


def _describe_path(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"<(?:path:)?(\w+)>", path)
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATH_PARAMETERS[name],
            "schema": {"type": "string"},
        }
        for name in names
    ]


def _describe_answer(operation: Operation) -> Schema:
    data = ref(operation.schema)
    end: Schema = {"type": "null", "description": "There are no pages."}
    if operation.is_list:
        data = array_of(data, "One page.")
        end = {"type": ["string", "null"], "description": "`cursor` of the next page, null on the last."}
    return record("A success.", ok={"const": True}, data=data, next=end)


def _describe(operation: Operation) -> dict[str, Any]:
    name = operation.view.__name__
    room = operation.view.__module__.rpartition(".")[2]
    failures = {status: {"$ref": f"#/components/responses/{key}"} for status, (key, _said) in _FAILURES.items()}
    said: dict[str, Any] = {
        "operationId": f"{room}_{name}",
        "summary": operation.summary,
        "parameters": [
            *_describe_path(operation.path),
            *({"$ref": f"#/components/parameters/{key}"} for key in operation.parameters),
        ],
    }
    if operation.body == {}:
        failures["409"] = {"$ref": "#/components/responses/Conflict"}
    elif operation.body is not None:
        said["requestBody"] = {"required": True, "content": {"application/json": {"schema": operation.body}}}
    elif operation.method == "POST":
        said["requestBody"] = UPLOAD
        failures |= {status: {"$ref": f"#/components/responses/{key}"} for status, (key, _) in _REFUSALS.items()}
    else:
        failures = {"304": {"description": "The same as the answer whose ETag was sent."}, **failures}
    answer = {
        "description": operation.summary,
        "content": {"application/json": {"schema": _describe_answer(operation)}},
    }
    return said | {"responses": {str(operation.status): answer, **failures}}


def _describe_paths() -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = {}
    for it in OPERATIONS:
        paths.setdefault(write_path(PREFIX + it.path), {})[it.method.lower()] = _describe(it)
    return paths | {f"{PREFIX}/": _INDEX, f"{PREFIX}/openapi.json": _ITSELF}


def write_path(rule: str) -> str:
    """Write a rule's path as OpenAPI does: `{run_id}` for `<run_id>`."""
    return re.sub(r"<(?:path:)?(\w+)>", r"{\1}", rule)


_ADDRESS = record(
    "An address.",
    method=text("GET or POST."),
    path=text("Its path; what stands in braces is a value."),
    summary=text("What it answers."),
)
_ADDRESSES = record(
    "A success.",
    ok={"const": True},
    data=array_of(_ADDRESS, "All of them."),
    next={"type": "null", "description": "One page."},
)
_INDEX = {
    "get": {
        "operationId": "index",
        "summary": "Every address of this API.",
        "parameters": [],
        "responses": {
            "200": {"description": "The addresses.", "content": {"application/json": {"schema": _ADDRESSES}}}
        },
    }
}
_ITSELF = {
    "get": {
        "operationId": "document",
        "summary": "This document. It is the one answer that is not wrapped in `ok`, `data` and `next`.",
        "parameters": [],
        "responses": {
            "200": {"description": "This document.", "content": {"application/json": {"schema": {"type": "object"}}}}
        },
    }
}


@cache
def get_document() -> dict[str, Any]:
    """Return the document."""
    failure = {"application/json": {"schema": ref("Error")}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "CompileBoard", "version": __version__, "description": _ABOUT, "license": {"name": "MIT"}},
        "servers": [{"url": "/", "description": "This server."}],
        "paths": _describe_paths(),
        "components": {
            "schemas": SCHEMAS,
            "parameters": {key: _describe_parameter(key) for key in PARAMETERS},
            "responses": {
                key: {"description": said, "content": failure} for key, said in (_FAILURES | _REFUSALS).values()
            },
        },
    }
