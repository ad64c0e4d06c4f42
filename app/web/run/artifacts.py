"""Artifacts of a run: text, diffs, and changes between compiles."""

from __future__ import annotations

from flask import Blueprint, Response, abort, current_app, request, url_for

from compileboard.app.analysis.artifacts.labels import GUARDS
from compileboard.app.db import get_run_reader, get_store
from compileboard.app.queries.page import FilterError, read_id
from compileboard.app.queries.run import compiles
from compileboard.app.queries.run.artifacts import Artifact, ArtifactRow, check_artifact_id
from compileboard.app.queries.run.compiles import CompileRow
from compileboard.app.screens.run.artifacts import (
    ArtifactScreen,
    build_artifact,
    build_artifact_diff,
    build_changes,
    build_program,
    name_program,
    read_artifact,
)
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("artifacts", __name__)


def find_one(run_id: str, text: str, shown_name: str) -> ArtifactScreen:
    screen = build_artifact(get_run_reader(run_id), run_id, read_id(text))
    if screen is None:
        abort(404, f"Run {shown_name[:80]} has no artifact number {text[:40]}.")
    return screen


@blueprint.get("/runs/<run_id>/artifacts/<artifact_id>")
def show(run_id: str, artifact_id: str) -> str:
    detail = find_run(run_id)
    screen = find_one(run_id, artifact_id, detail.run.shown_name)
    address = guard_page(screen.artifact)
    return render_run(
        detail, "artifacts/one.html", tab="directory", screen=screen, guard_page=address
    )


def guard_page(artifact: ArtifactRow) -> str | None:
    if artifact.name not in GUARDS or "guards.show_one" not in current_app.view_functions:
        return None
    return url_for("guards.show_one", run_id=artifact.run_id, artifact_id=artifact.id)


@blueprint.get("/runs/<run_id>/artifacts/<artifact_id>/raw")
def raw(run_id: str, artifact_id: str) -> Response:
    detail = find_run(run_id)
    screen = find_one(run_id, artifact_id, detail.run.shown_name)
    artifact = screen.artifact
    if artifact.text is None:
        abort(404, f"Artifact {artifact.id} has no text. {screen.state.meaning}")
    response = Response(
        artifact.text.encode("utf-8", "replace"), content_type="text/plain; charset=utf-8"
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    way = "attachment" if request.args.get("download") else "inline"
    response.headers["Content-Disposition"] = f'{way}; filename="artifact-{artifact.id}.txt"'
    return response


@blueprint.get("/runs/<run_id>/artifacts/<artifact_id>/program")
def program(run_id: str, artifact_id: str) -> Response:
    detail = find_run(run_id)
    artifact = find_one(run_id, artifact_id, detail.run.shown_name).artifact
    try:
        text = build_program(get_run_reader(run_id), artifact)
    except ValueError as error:
        abort(404, f"No program: {error}.")
    response = Response(
        text.encode("utf-8", "replace"), content_type="text/x-python; charset=utf-8"
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Disposition"] = f'attachment; filename="{name_program(artifact)}"'
    return response


def _read_side(run_id: str, name: str) -> Artifact | None:
    value = request.args.get(name, "").strip()
    if not value:
        return None
    number = check_artifact_id(name, value)
    artifact = read_artifact(get_store(), run_id, number)
    return (
        artifact
        if artifact is not None
        else abort(404, f"{name}: there is no artifact number {number}.")
    )


@blueprint.get("/runs/<run_id>/artifacts/diff")
def diff(run_id: str) -> str:
    detail = find_run(run_id)
    a, b = _read_side(run_id, "a"), _read_side(run_id, "b")
    if a is None:
        raise FilterError("a: this page needs the number of an artifact, and of another as b")
    exact, whole = request.args.get("exact") == "1", request.args.get("context") == "all"
    screen = build_artifact_diff(
        get_store(), a, b, _read_compile(a.run_id), is_exact=exact, is_whole=whole
    )
    return render_run(
        detail, "artifacts/diff.html", tab="directory", screen=screen, exact=exact, whole=whole
    )


def _read_compile(run_id: str) -> CompileRow | None:
    value = request.args.get("against", "").strip()
    if not value:
        return None
    row = compiles.get_compile(get_run_reader(run_id), run_id, read_id(value))
    return (
        row
        if row is not None
        else abort(404, f"against: this run has no compile number {value[:40]}.")
    )


@blueprint.get("/runs/<run_id>/compiles/<key>/changes")
def changes(run_id: str, key: str) -> str:
    detail = find_run(run_id)
    screen = build_changes(get_run_reader(run_id), run_id, read_id(key), request.args.get("from"))
    if screen is None:
        abort(404, f"Run {detail.run.shown_name[:80]} has no compile number {key[:40]}.")
    return render_run(
        detail, "artifacts/changes.html", tab="directory", screen=screen, guard_page=guard_page
    )
