"""The Steps page of a run, its API, and the download of a trace."""

from __future__ import annotations

from flask import Blueprint, Response, abort

from compileboard.app.artifacts.model import read_artifact
from compileboard.app.core.api import PageQuery, operation
from compileboard.app.core.db import get_run_reader, get_store
from compileboard.app.core.page import Page, read_id
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run
from compileboard.app.steps.model import StepWindowRow, list_window_rows, load_steps
from compileboard.app.steps.run_queries import MAX_WINDOWS, list_windows
from compileboard.collectors.contract.record_names import STEPS_TRACE

blueprint = Blueprint("steps", __name__)


@blueprint.get("/runs/<run_id>/steps")
def show(run_id: str) -> str:
    detail = find_run(run_id)
    reader = get_run_reader(run_id)
    windows = list_windows(reader, run_id, None, MAX_WINDOWS).rows
    screen = load_steps(reader, run_id, windows)
    return render_run(detail, "steps/index.html", tab="steps", screen=screen)


@blueprint.get("/runs/<run_id>/steps/<trace_id>/trace.json")
def trace(run_id: str, trace_id: str) -> Response:
    find_run(run_id)
    artifact = read_artifact(get_store(), run_id, read_id(trace_id))
    if (
        artifact is None
        or artifact.text is None
        or (artifact.run_id, artifact.name) != (run_id, STEPS_TRACE)
    ):
        abort(404, f"Run {run_id} has no trace of steps {trace_id[:40]}.")
    response = Response(artifact.text.encode("utf-8", "replace"), content_type="application/json")
    name = f"steps-{run_id}-{artifact.id}.json"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@operation("/runs/<run_id>/steps")
def list_step_windows(detail: RunDetail, page: PageQuery) -> Page[StepWindowRow]:
    """List a run's windows of steps timed by `run --steps`: the time of each graph and gap, and the
    cost of each graph break.
    """
    reader = get_run_reader(detail.run.id)
    return list_window_rows(reader, detail.run.id, page.cursor, page.limit)
