"""Artifacts of a run: one with its text, two side by side, and what changed between two compiles of a frame."""

from __future__ import annotations

from flask import Blueprint, Response, abort, current_app, request, url_for

from compileboard.app.analysis import labels
from compileboard.app.analysis.artifacts.changes import COMPARED, compare_artifacts, compare_pairs, list_missing
from compileboard.app.analysis.artifacts.labels import GUARDS, describe_name, describe_state, list_metadata, view_text
from compileboard.app.analysis.compiles import label_category
from compileboard.app.analysis.guards.breakdown import describe_kind
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run import artifacts, compiles, recompiles
from compileboard.app.queries.run.artifacts import Artifact, ArtifactRow
from compileboard.app.web.run.shell import find_run, render_run

blueprint = Blueprint("artifacts", __name__)

_ALL = 1_000_000  # equal lines around a changed one: the whole text
_CHOICES = 500  # compiles that the chooser offers


def find_one(run_id: str, text: str, shown_name: str) -> Artifact:
    """Return an artifact of a run by the number in an address, or answer that there is none."""
    good = text.isascii() and text.isdigit() and len(text) < 19
    found = artifacts.get_artifact(get_reader(), run_id, int(text)) if good else None
    if found is None:
        abort(404, f"Run {shown_name[:80]} has no artifact number {text[:40]}.")
    return found


@blueprint.get("/runs/<run_id>/artifacts/<artifact_id>")
def show(run_id: str, artifact_id: str) -> str:
    """Show one artifact with its text."""
    detail, reader = find_run(run_id), get_reader()
    it = find_one(run_id, artifact_id, detail.run.shown_name)
    compile_ = None if it.compile_key is None else compiles.get_compile(reader, run_id, it.compile_key)
    return render_run(
        detail,
        "artifacts/one.html",
        tab="directory",
        it=it,
        meaning=describe_name(it.name),
        text_state=describe_state(it.state, it.unreadable),
        compile=compile_,
        beside=artifacts.get_neighbours(reader, it),
        entries=list_entries(it, compile_),
        view=None if it.text is None else view_text(it.name, it.text, it.encoding),
        metadata=list_metadata({**it.envelope, **it.metadata}),
        guard_page=guard_page(it),
    )


def guard_page(it: ArtifactRow) -> str | None:
    """Return the address of the guards as a tree, where there is such a page."""
    if it.name not in GUARDS or "guards.show_one" not in current_app.view_functions:
        return None
    return url_for("guards.show_one", run_id=it.run_id, artifact_id=it.id)


def list_entries(it: ArtifactRow, compile_: compiles.CompileRow | None) -> list[tuple[str, str, ArtifactRow]]:
    """List the same artifact of the cache entries before and after, as (which, compile id, artifact)."""
    if compile_ is None:
        return []
    reader = get_reader()
    chain = compiles.list_chain(reader, compile_.process_id, compile_.generation, compile_.frame_id)
    place = next((n for n, other in enumerate(chain) if other.id == compile_.id), None)
    if place is None:
        return []
    found = []
    for which, at in (("previous", place - 1), ("next", place + 1)):
        same = artifacts.find_counterpart(reader, it, chain[at].id) if 0 <= at < len(chain) else None
        if same is not None:
            found.append((which, chain[at].compile_id, same))
    return found


@blueprint.get("/runs/<run_id>/artifacts/<artifact_id>/raw")
def raw(run_id: str, artifact_id: str) -> Response:
    """Give an artifact's text as it is, to look at or to save."""
    detail = find_run(run_id)
    it = find_one(run_id, artifact_id, detail.run.shown_name)
    if it.text is None:
        abort(404, f"Artifact {it.id} has no text. {describe_state(it.state, it.unreadable).meaning}")
    response = Response(it.text.encode("utf-8", "replace"), content_type="text/plain; charset=utf-8")
    response.headers["X-Content-Type-Options"] = "nosniff"
    way = "attachment" if request.args.get("download") else "inline"
    response.headers["Content-Disposition"] = f'{way}; filename="artifact-{it.id}.txt"'
    return response


def _read_side(run_id: str, name: str) -> Artifact | None:
    """Read the artifact that a query names, of this run or of any; none where it names none."""
    value = request.args.get(name, "").strip()
    if not value:
        return None
    number, reader = artifacts.check_artifact_id(name, value), get_reader()
    found = artifacts.get_artifact(reader, run_id, number) or artifacts.find_artifact(reader, number)
    return found if found is not None else abort(404, f"{name}: there is no artifact number {number}.")


@blueprint.get("/runs/<run_id>/artifacts/diff")
def diff(run_id: str) -> str:
    """Show two artifacts side by side, or let the reader choose the other one."""
    detail, reader = find_run(run_id), get_reader()
    a, b = _read_side(run_id, "a"), _read_side(run_id, "b")
    if a is None:
        raise FilterError("a: this page needs the number of an artifact, and of another as b")
    against = _read_compile(a.run_id)
    missing = ""
    if against is not None and b is None:
        same = artifacts.find_counterpart(reader, a, against.id)
        b = None if same is None else artifacts.get_artifact(reader, same.run_id, same.id)
        missing = "" if b else f"Compile {against.compile_id} has no {a.name} that stands for this one."
    chosen = against.id if against else b.compile_key if b else a.compile_key
    exact, whole = request.args.get("exact") == "1", request.args.get("context") == "all"
    found = compare_artifacts(a, b, ignore=not exact, context=_ALL if whole else 3) if b else None
    return render_run(
        detail,
        "artifacts/diff.html",
        tab="directory",
        a=a,
        b=b,
        found=found,
        exact=exact,
        whole=whole,
        missing=missing,
        chosen=chosen,
        compiles=compiles.list_compiles(reader, a.run_id, limit=_CHOICES).rows,
        choices=[] if chosen is None else artifacts.list_texts(reader, chosen),
        describe_name=describe_name,
    )


def _read_compile(run_id: str) -> compiles.CompileRow | None:
    value = request.args.get("against", "").strip()
    if not value:
        return None
    good = value.isascii() and value.isdigit() and len(value) < 19
    found = compiles.get_compile(get_reader(), run_id, int(value)) if good else None
    return found if found is not None else abort(404, f"against: this run has no compile number {value[:40]}.")


@blueprint.get("/runs/<run_id>/compiles/<key>/changes")
def changes(run_id: str, key: str) -> str:
    """Show what changed in a compile against the cache entry that it was recompiled from."""
    detail, reader = find_run(run_id), get_reader()
    good = key.isascii() and key.isdigit() and len(key) < 19
    it = compiles.get_compile(reader, run_id, int(key)) if good else None
    if it is None:
        abort(404, f"Run {detail.run.shown_name[:80]} has no compile number {key[:40]}.")
    chain = compiles.list_chain(reader, it.process_id, it.generation, it.frame_id)
    wanted = request.args.get("from") or it.recompiled_from
    older = next((other for other in chain if other.compile_id == wanted and other.id != it.id), None)
    sections = [] if older is None else compare_pairs(artifacts.list_pairs(reader, older.id, it.id, COMPARED))
    return render_run(
        detail,
        "artifacts/changes.html",
        tab="directory",
        it=it,
        older=older,
        chain=[other for other in chain if other.id != it.id],
        recompiles=recompiles.list_compile_recompiles(reader, [it.id]),
        words=labels,
        label_category=label_category,
        sections=sections,
        missing=list_missing(sections),
        guard_page=guard_page,
        describe_kind=describe_kind,
    )
