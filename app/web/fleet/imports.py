"""The Imports page, with or without JavaScript."""

from __future__ import annotations

from flask import Blueprint, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from compileboard.app.db import get_board_path, get_settings, request_origin
from compileboard.app.imports.upload import FORBIDDEN, accept_upload
from compileboard.app.screens.dashboard.imports import (
    build_import,
    build_imports,
    describe_no_import,
)
from compileboard.app.web.access import describe_lack, get_sender, may

blueprint = Blueprint("imports", __name__)
SHOWN = 20


@blueprint.get("/imports")
def index() -> str:
    settings = get_settings()
    return render_template(
        "imports/index.html",
        screen=build_imports(get_board_path(), SHOWN),
        open=may("write") and settings.uploads == "yes",
        no=FORBIDDEN if may("write") else describe_lack(),
    )


@blueprint.post("/imports")
def start() -> Response:
    upload = accept_upload(
        request.environ, request.args, get_settings(), request_origin(), get_sender()
    )
    return redirect(url_for("imports.show", import_id=upload.id), 303)


@blueprint.get("/imports/<import_id>")
def show(import_id: str) -> str:
    upload = build_import(get_board_path(), import_id)
    if upload is None:
        abort(404, describe_no_import(import_id))
    return render_template("imports/one.html", upload=upload)
