"""The Compile directory of a run: every compile, how it ended, and what its log says in order."""

from __future__ import annotations

from flask import Blueprint, current_app, request

from compileboard.app.analysis import words
from compileboard.app.analysis.artifact_words import describe_name
from compileboard.app.analysis.directory import ENDINGS, LEGEND, build_entries
from compileboard.app.db import get_reader
from compileboard.app.queries import artifacts, compiles, directory
from compileboard.app.web.run_shell import find_run, render_run

blueprint = Blueprint("directory", __name__)

PAGE_SIZE = 20  # compiles, each with all that it wrote


@blueprint.get("/runs/<run_id>/directory")
def show(run_id: str) -> str:
    """Show a page of a run's compiles with what happened in each."""
    detail, reader = find_run(run_id), get_reader()
    given = {name: request.args.get(name, "").strip()[:200] for name in ("outcome", "q", "artifact")}
    wanted = compiles.CompileFilter(text=given["q"], ending=given["outcome"], artifact=given["artifact"])
    cursor = request.args.get("cursor")
    page = compiles.list_compiles(reader, run_id, wanted, cursor=cursor, limit=PAGE_SIZE)
    steps = directory.list_steps(reader, [it.id for it in page.rows])
    filtered = any(given.values())
    return render_run(
        detail,
        "run_directory.html",
        tab="directory",
        given=given,
        filtered=filtered,
        count=compiles.count_compiles(reader, run_id, wanted),
        listing=page,
        entries=build_entries(page.rows, steps, detail.run.state == "running"),
        cut=len(steps) >= directory.MOST_STEPS,
        loose=[] if filtered or cursor else artifacts.list_loose(reader, run_id),
        names=[(name, f"{name} ({count:,})") for name, count in artifacts.count_names(reader, run_id).items()],
        endings=[(key, word.word) for key, word in ENDINGS.items()],
        legend=LEGEND,
        words=words,
        describe_name=describe_name,
        has_shapes="shapes.show" in current_app.view_functions,
    )
