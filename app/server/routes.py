"""The API's blueprint: one rule for each of OPERATIONS, and the document that describes them."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, Response, jsonify

from compileboard.app.core.api import Operation, check_query
from compileboard.app.core.page import Page
from compileboard.app.server.openapi import PREFIX, get_document
from compileboard.app.server.operations import OPERATIONS

blueprint = Blueprint("api", __name__, url_prefix=PREFIX)


def _serve(operation: Operation) -> Callable[..., Response]:
    def view(**path: str) -> Response:
        answer = operation.answer(**path)
        if isinstance(answer, Response):  # streamed: it writes the envelope itself
            return answer
        rows, end = (answer.rows, answer.next) if isinstance(answer, Page) else (answer, None)
        response = jsonify({"ok": True, "data": rows, "next": end})
        response.status_code = operation.status
        return response

    vars(view).update(vars(operation.view))  # the scopes that it needs
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
        _serve(_operation),
        methods=[_operation.method],
        provide_automatic_options=False,
    )
blueprint.add_url_rule(
    "/", "index", list_addresses, methods=["GET"], provide_automatic_options=False
)
blueprint.add_url_rule(
    "/openapi.json", "document", show_document, methods=["GET"], provide_automatic_options=False
)
