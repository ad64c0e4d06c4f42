"""The API's operations in the order of the document, their blueprint, and the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from flask import Blueprint, Response, jsonify

from compileboard.app.activity import api as activity
from compileboard.app.aot import pages as aot
from compileboard.app.artifacts import pages as artifacts
from compileboard.app.benchmarks import api as benchmarks
from compileboard.app.benchmarks import trend_pages as trends
from compileboard.app.caches import pages as caches
from compileboard.app.comparison import api as comparison
from compileboard.app.compiles import pages as compiles
from compileboard.app.core import api
from compileboard.app.core.access import list_scopes
from compileboard.app.core.api import NoBody, Operation, check_query
from compileboard.app.core.page import Page
from compileboard.app.core.resources import __version__
from compileboard.app.core.schema import Keywords, Schema, describe_type
from compileboard.app.cuda_graphs import pages as cuda_graphs
from compileboard.app.guards import pages as guards
from compileboard.app.imports import pages as imports
from compileboard.app.imports.pages import UPLOAD
from compileboard.app.incidents import pages as incidents
from compileboard.app.push import api as push
from compileboard.app.ranks import pages as ranks
from compileboard.app.reasons import api as reasons
from compileboard.app.repros import pages as repros
from compileboard.app.runs import api as runs
from compileboard.app.runs import overview_pages as overview
from compileboard.app.search import pages as search
from compileboard.app.shapes import pages as shapes
from compileboard.app.stacks import pages as stacks
from compileboard.app.steps import pages as steps
from compileboard.app.timeline import pages as timeline
from compileboard.app.views import pages as views

# The operations of each subject, in the order of the document.
_SUBJECTS = {
    "Overview": (overview,),
    "Across runs": (reasons, repros),
    "Runs": (runs, compiles),
    "What a run recorded": (
        artifacts,
        guards,
        caches,
        aot,
        cuda_graphs,
        steps,
        ranks,
        stacks,
        shapes,
        timeline,
    ),
    "Search": (search,),
    "Imports and pushes": (imports, push),
    "Administration": (activity, views),
    "Benchmarks": (benchmarks, comparison, trends),
    "Incidents": (incidents,),
}
_SUBJECT_OF = {room.__name__: name for name, rooms in _SUBJECTS.items() for room in rooms}
OPERATIONS = tuple(
    operation
    for room in _SUBJECT_OF
    for operation in api.OPERATIONS
    if operation.view.__module__ == room
)


PREFIX = "/api/v1"
_OWN = "About the API"
_ABOUT = """What torch.compile did on your machines: everything that a page of the dashboard shows.

Times are microseconds since 1970 (`…_us`), sizes bytes, counts whole numbers. \
What torch did not record is null.
Every answer has an ETag: send it back as `If-None-Match`, \
and an answer that is still the same is 304 without a body.
"""


@dataclass(frozen=True)
class Error:
    """The body of every error response."""

    ok: Annotated[bool, Keywords(const=False), "Always false."]
    error: Annotated[str, "The error and the expected input, in one sentence."]
    errors: Annotated[list[str], "The same, one problem an entry."]
    status: Annotated[int, "The HTTP status."]


@dataclass(frozen=True)
class ApiEndpoint:
    """An endpoint of the API."""

    method: Annotated[str, "GET, POST, or, where machines push: HEAD, PATCH, PUT."]
    path: Annotated[str, "Its path, with parameters in braces."]
    summary: Annotated[str, "What it does or returns."]


PATH_PARAMETERS = {
    "incident_id": "An incident's `id`, or that of one of its changes.",
    "run_id": "A run's id, in full; to read, also `latest`.",
    "key": "A compile's `id`.",
    "repro_id": "A repro's `id`.",
    "config_hash": "A configuration text's hash.",
    "distinct_id": "A graph break's `id`.",
    "cause_id": "A cause's `id`.",
    "reason_id": "A reason's `id`.",
    "issue_id": "A failure's `id` across runs.",
    "token_id": "A token's `id`.",
    "import_id": "An import's `id`.",
    "view_id": "A saved view's `id`.",
    "artifact_id": "An artifact's `id`.",
    "lookup_id": "The `id` of a cache lookup.",
    "baseline_name": "A stored baseline's name.",
    "guards_id": "The `artifact_id` of a set of guards.",
    "name": "A model's exact name.",
    "stream_id": (
        "The id that a recorder gives its stream: letters, digits, dots and dashes, 64 at most."
    ),
    "digest": "32 hex digits: BLAKE2b of the text, 16 bytes.",
}
_FAILURES = {
    "400": ("BadRequest", "A parameter that is not known, or whose value cannot be used."),
    "401": ("NoToken", "No token where one is needed, or one that is not in force."),
    "403": (
        "Refused",
        "A token without the scope, or a host name that this server does not answer to.",
    ),
    "404": ("NotFound", "The address does not exist, or nothing has that ID."),
    "405": ("NotPossible", "The method is wrong. The sentence names the right one."),
    "500": ("Broken", "The server failed, or the database file is not one."),
    "503": (
        "Away",
        "The database is missing, locked or of another version. The sentence has the next step.",
    ),
}

# Further errors of an upload.
_REFUSALS = {
    "409": ("Conflict", "A conflict, named in the sentence."),
    "413": ("TooLarge", "More than one upload may have: the sentence names the limit."),
    "415": ("NoUpload", "Neither a form with files nor a raw file."),
    "429": ("Busy", "Too many imports are under way: try again after the seconds in Retry-After."),
    "507": ("NoRoom", "The server's disk is full."),
}

# Further errors of a push.
_PUSH_REFUSALS = {
    **{status: _REFUSALS[status] for status in ("409", "413", "429", "507")},
    "408": ("Slow", "The body came too slowly, or broke off."),
    "410": ("Deleted", "The run was deleted or pruned."),
    "411": ("NoLength", "There is no Content-Length."),
    "426": ("Newer", "A line of a newer collector: upgrade the server."),
    "460": ("Damaged", "The body is not what its checksum or digest tells: send it again."),
}
_LINES: Schema = {
    "required": True,
    "description": (
        "Whole lines of a stream, or a text; plain or gzip (Content-Encoding), with a "
        "Content-Length."
    ),
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
_HEADERS = {
    "Upload-Offset": "Where in the stream the body begins, in bytes.",
    "Upload-Checksum": "`crc32 HEX`, of the plain body.",
}


_TEXT: Schema = {"type": "string"}


def _describe_parameter(
    name: str, place: str, description: str, schema: Schema = _TEXT, *, required: bool = True
) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": required,
        "description": description,
        "schema": schema,
    }


def _list_parameters(operation: Operation) -> list[dict[str, Any]]:
    names = re.findall(r"<(?:path:)?(\w+)>", operation.path)
    of_path = [_describe_parameter(name, "path", PATH_PARAMETERS[name]) for name in names]
    of_query = [
        _describe_parameter(
            part.name, "query", part.description, part.schema, required=part.how.is_required
        )
        for part in operation.parameters
    ]
    headers = _HEADERS if operation.method == "PATCH" else {}
    of_header = [_describe_parameter(name, "header", about) for name, about in headers.items()]
    return [*of_path, *of_query, *of_header]


def _refer_to_responses(refusals: Mapping[str, tuple[str, str]]) -> dict[str, Schema]:
    return {
        status: {"$ref": f"#/components/responses/{key}"}
        for status, (key, _help) in refusals.items()
    }


def _describe_answer(data: Schema, end: Schema) -> Schema:
    ok = {"const": True}
    return {
        "type": "object",
        "description": "A success.",
        "properties": {"ok": ok, "data": data, "next": end},
        "required": ["ok", "data", "next"],
        "additionalProperties": False,
    }


def _describe_page(row: Schema, end: Schema) -> Schema:
    return _describe_answer({"type": "array", "items": row, "description": "One page."}, end)


def _describe_operation(operation: Operation, schemas: dict[str, Schema]) -> dict[str, Any]:
    failures = _refer_to_responses(_FAILURES)
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [_SUBJECT_OF[operation.view.__module__]],
        "security": [{"token": list(list_scopes(operation.view, operation.method))}],
        "parameters": _list_parameters(operation),
    }
    if operation.body is NoBody:
        failures["409"] = {"$ref": "#/components/responses/Conflict"}
    elif operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": describe_type(operation.body, schemas)}},
        }
    elif operation.view is imports.start_import:
        described["requestBody"] = UPLOAD
        failures |= _refer_to_responses(_REFUSALS)
    elif operation.method in ("PATCH", "POST", "PUT"):
        described["requestBody"] = _LINES
        failures |= _refer_to_responses(_PUSH_REFUSALS)
    else:
        failures = {
            "304": {"description": "The same as the answer whose ETag was sent."},
            **failures,
        }
    if operation.model is None:
        statuses = (200, 201) if operation.method == "PUT" else (operation.status,)
        return described | {
            "responses": {
                **{str(status): {"description": operation.summary} for status in statuses},
                **failures,
            }
        }
    data = describe_type(operation.model, schemas)
    schema = _describe_page(data, _NEXT) if operation.is_list else _describe_answer(data, _NO_NEXT)
    answer = {"description": operation.summary, "content": {"application/json": {"schema": schema}}}
    return described | {"responses": {str(operation.status): answer, **failures}}


_NEXT: Schema = {
    "type": ["string", "null"],
    "description": "`cursor` of the next page, null on the last.",
}
_NO_NEXT: Schema = {"type": "null", "description": "There are no pages."}


def _describe_paths(schemas: dict[str, Schema]) -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        path = paths.setdefault(write_path(PREFIX + operation.path), {})
        path[operation.method.lower()] = _describe_operation(operation, schemas)
    addresses = _describe_page(describe_type(ApiEndpoint, schemas), _NO_NEXT)
    return paths | {
        f"{PREFIX}/": _describe_meta_operation("index", "Every address of this API.", addresses),
        f"{PREFIX}/openapi.json": _describe_meta_operation(
            "document",
            "This document. It is the one answer that is not wrapped in `ok`, `data` and `next`.",
            {"type": "object"},
        ),
    }


def _describe_meta_operation(name: str, summary: str, schema: Schema) -> dict[str, Any]:
    answer = {"description": summary, "content": {"application/json": {"schema": schema}}}
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "tags": [_OWN],
            "parameters": [],
            "responses": {"200": answer},
        }
    }


def write_path(rule: str) -> str:
    return re.sub(r"<(?:path:)?(\w+)>", r"{\1}", rule)


@cache
def get_document() -> dict[str, Any]:
    schemas: dict[str, Schema] = {}
    failure = {"application/json": {"schema": describe_type(Error, schemas)}}
    paths = _describe_paths(schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "CompileBoard",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "MIT"},
        },
        "servers": [{"url": "/", "description": "This server."}],
        "tags": [{"name": name} for name in (*_SUBJECTS, _OWN)],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": (
                        "A token with one of the scopes. Without it where the server lets "
                        "anyone in."
                    ),
                }
            },
            "responses": {
                key: {"description": meaning, "content": failure}
                for key, meaning in (_FAILURES | _REFUSALS | _PUSH_REFUSALS).values()
            },
        },
    }


blueprint = Blueprint("api", __name__, url_prefix=PREFIX)


def _make_view(operation: Operation) -> Callable[..., Response]:
    def view(**path: str) -> Response:
        answer = operation.answer(**path)
        if isinstance(answer, Response):  # a stream writes the envelope itself
            return answer
        rows, end = (answer.rows, answer.next) if isinstance(answer, Page) else (answer, None)
        response = jsonify({"ok": True, "data": rows, "next": end})
        response.status_code = operation.status
        return response

    vars(view).update(vars(operation.view))  # the required scopes
    return view


def list_addresses() -> Response:
    check_query(())
    paths: dict[str, dict[str, dict[str, str]]] = get_document()["paths"]
    listed = [
        {"method": method.upper(), "path": path, "summary": operation["summary"]}
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]
    return jsonify({"ok": True, "data": listed, "next": None})


def show_document() -> Response:
    check_query(())
    return jsonify(get_document())


for _operation in OPERATIONS:
    blueprint.add_url_rule(
        _operation.path,
        _operation.name,
        _make_view(_operation),
        methods=[_operation.method],
        provide_automatic_options=False,
    )
blueprint.add_url_rule(
    "/", "index", list_addresses, methods=["GET"], provide_automatic_options=False
)
blueprint.add_url_rule(
    "/openapi.json", "document", show_document, methods=["GET"], provide_automatic_options=False
)
