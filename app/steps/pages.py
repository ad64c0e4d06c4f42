"""The steps of a run: what a call costs, and its trace."""

from __future__ import annotations

from flask import Blueprint, Response, abort

from compileboard.app.artifacts.model import read_artifact
from compileboard.app.core.api import PageQuery, operation
from compileboard.app.core.db import get_run_reader, get_store
from compileboard.app.core.page import Page
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run
from compileboard.app.steps.model import build_steps
from compileboard.app.steps.run_queries import (
    MOST_WINDOWS,
    StepWindow,
    list_compiles,
    list_windows,
)

blueprint = Blueprint("steps", __name__)


@blueprint.get("/runs/<run_id>/steps")
def show(run_id: str) -> str:
    detail = find_run(run_id)
    reader = get_run_reader(run_id)
    windows = list_windows(reader, run_id, None, MOST_WINDOWS)
    screen = build_steps(windows.rows, list_compiles(reader, run_id))
    return render_run(detail, "steps/index.html", tab="steps", screen=screen)


@blueprint.get("/runs/<run_id>/steps/<int:window_id>/trace.json")
def trace(run_id: str, window_id: int) -> Response:
    find_run(run_id)
    windows = list_windows(get_run_reader(run_id), run_id, None, MOST_WINDOWS).rows
    trace_id = next((one.trace_id for one in windows if one.id == window_id), None)
    artifact = read_artifact(get_store(), run_id, trace_id) if trace_id is not None else None
    if artifact is None or artifact.text is None:
        abort(404, f"Run {run_id} has no trace of steps {window_id}.")
    response = Response(artifact.text.encode("utf-8", "replace"), content_type="application/json")
    name = f"steps-{run_id}-{window_id}.json"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@operation("/runs/<run_id>/steps")
def list_step_windows(detail: RunDetail, page: PageQuery) -> Page[StepWindow]:
    """List the windows of a run's steps, with the time of each graph and gap, as `run --steps`
    timed them.
    """
    return list_windows(get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit)
