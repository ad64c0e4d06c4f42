"""Pages of a run's artifacts: texts, diffs, changes between compiles, the directory, and downloads
of torch's trace logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

from flask import Blueprint, Response, abort, current_app, request, url_for

from compileboard.app.artifacts import run_queries as artifacts
from compileboard.app.artifacts.artifact_labels import GUARDS, PROVENANCE_NAMES, describe_state
from compileboard.app.artifacts.model import (
    ArtifactDiffLine,
    ArtifactScreen,
    build_artifact,
    build_artifact_diff,
    build_changes,
    build_directory,
    build_program,
    build_provenance,
    compare_artifacts,
    list_diff_lines,
    name_program,
    read_artifact,
)
from compileboard.app.artifacts.run_queries import (
    Artifact,
    ArtifactFilter,
    ArtifactPairQuery,
    ArtifactRow,
    check_artifact_id,
)
from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.run_queries import CompileFilter, CompileRow
from compileboard.app.core.api import PageQuery, operation, refuse
from compileboard.app.core.db import get_run_reader, get_settings, get_store
from compileboard.app.core.fields import Count
from compileboard.app.core.labels import describe_outcome
from compileboard.app.core.page import FilterError, Page, read_id
from compileboard.app.core.parameters import Parameter
from compileboard.app.core.schema import Keywords, published
from compileboard.app.core.store import open_store
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run
from compileboard.app.runs.trace_files import get_trace_file, read_trace_file
from compileboard.app.steps.model import find_kernel_times
from compileboard.app.steps.run_queries import MAX_WINDOWS, list_windows
from compileboard.collectors.contract.fingerprints import normalize_run_id
from compileboard.collectors.store.results import fill

blueprint = Blueprint("artifacts", __name__)
_NO_ARTIFACT = "{}: there is no artifact number {}."


def get_artifact_or_404(run_id: str, text: str, shown_name: str) -> ArtifactScreen:
    screen = build_artifact(get_run_reader(run_id), run_id, read_id(text))
    if screen is None:
        abort(404, f"Run {shown_name[:80]} has no artifact number {text[:40]}.")
    return screen


@blueprint.get("/runs/<run_id>/artifacts/<artifact_id>")
def show(run_id: str, artifact_id: str) -> str:
    detail = find_run(run_id)
    screen = get_artifact_or_404(run_id, artifact_id, detail.run.shown_name)
    return render_run(
        detail,
        "artifacts/one.html",
        tab="directory",
        screen=screen,
        guard_page=guard_page(screen.artifact),
        provenance_page=_provenance_page(screen.artifact),
    )


@blueprint.get("/runs/<run_id>/artifacts/<artifact_id>/provenance")
def provenance(run_id: str, artifact_id: str) -> str:
    detail = find_run(run_id)
    artifact = get_artifact_or_404(run_id, artifact_id, detail.run.shown_name).artifact
    reader = get_run_reader(run_id)
    windows = list_windows(reader, run_id, None, MAX_WINDOWS).rows
    measured_us = find_kernel_times(windows, artifact.process_id, artifact.compile_id)
    screen = build_provenance(reader, artifact, measured_us)
    if screen is None:
        abort(404, f"Artifact {artifact.id}, {artifact.name[:80]}, belongs to no generated code.")
    return render_run(detail, "artifacts/provenance.html", tab="directory", screen=screen)


def _provenance_page(artifact: ArtifactRow) -> str | None:
    if artifact.compile_key is None or artifact.name not in PROVENANCE_NAMES:
        return None
    return url_for("artifacts.provenance", run_id=artifact.run_id, artifact_id=artifact.id)


def guard_page(artifact: ArtifactRow) -> str | None:
    if artifact.name not in GUARDS or "guards.show_one" not in current_app.view_functions:
        return None
    return url_for("guards.show_one", run_id=artifact.run_id, artifact_id=artifact.id)


@blueprint.get("/runs/<run_id>/artifacts/<artifact_id>/raw")
def raw(run_id: str, artifact_id: str) -> Response:
    detail = find_run(run_id)
    screen = get_artifact_or_404(run_id, artifact_id, detail.run.shown_name)
    artifact = screen.artifact
    if artifact.text is None:
        abort(404, f"Artifact {artifact.id} has no text. {screen.state.meaning}")
    way = "attachment" if request.args.get("download") else "inline"
    return _send_text(artifact.text, "plain", f'{way}; filename="artifact-{artifact.id}.txt"')


@blueprint.get("/runs/<run_id>/artifacts/<artifact_id>/program")
def program(run_id: str, artifact_id: str) -> Response:
    detail = find_run(run_id)
    artifact = get_artifact_or_404(run_id, artifact_id, detail.run.shown_name).artifact
    try:
        text = build_program(get_run_reader(run_id), artifact)
    except ValueError as error:
        abort(404, f"No program: {error}.")
    return _send_text(text, "x-python", f'attachment; filename="{name_program(artifact)}"')


def _send_text(text: str, kind: str, disposition: str) -> Response:
    response = Response(text.encode("utf-8", "replace"), content_type=f"text/{kind}; charset=utf-8")
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Disposition"] = disposition
    return response


def _find_side(run_id: str, name: str, text: str) -> Artifact | None:
    """Return the artifact whose id is in a query parameter, None if the run does not have it."""
    return read_artifact(get_store(), run_id, check_artifact_id(name, text))


def _read_side(run_id: str, name: str) -> Artifact | None:
    value = request.args.get(name, "").strip()
    if not value:
        return None
    return _find_side(run_id, name, value) or abort(404, _NO_ARTIFACT.format(name, int(value)))


@blueprint.get("/runs/<run_id>/artifacts/diff")
def diff(run_id: str) -> str:
    detail = find_run(run_id)
    b_run = normalize_run_id(request.args.get("b_run") or run_id)
    a, b = _read_side(run_id, "a"), _read_side(b_run, "b")
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
    return render_run(detail, "artifacts/changes.html", tab="directory", screen=screen)


_RUN = "/runs/<run_id>/artifacts"


@dataclass(frozen=True)
class DiffQuery(ArtifactPairQuery):
    ignore: Annotated[
        bool,
        Parameter(choices=("addresses",)),
        "Leave out memory addresses, object ids and temporary paths.",
    ] = False
    context: Annotated[
        int, Keywords(minimum=1, maximum=1000), "Equal lines around a changed one."
    ] = 3


@dataclass(frozen=True)
class ArtifactText(artifacts.Artifact):
    """One artifact with its text."""

    text: Annotated[str | None, "The text; null if none is kept."]

    @property
    @published
    def state_meaning(self) -> Annotated[str, "The state in words."]:
        return describe_state(self.state, self.unreadable).meaning


@dataclass(frozen=True)
class ArtifactDiffJson:
    """Two artifacts compared; fields are null if one of them has no text."""

    a: Annotated[ArtifactRow, "The artifact that `a` names."]
    b: Annotated[ArtifactRow, "The artifact that `b` names."]
    remark: Annotated[str, "Comparisons left out, with the reason. Empty without one."]
    identical: Annotated[bool | None, "Whether the texts are the same to the last character."] = (
        None
    )
    equivalent: Annotated[bool | None, "Whether they differ only in ignored parts."] = None
    changed_count: Annotated[Count | None, "Lines that changed."] = None
    added_count: Annotated[Count | None, "Lines that only `b` has."] = None
    removed_count: Annotated[Count | None, "Lines that only `a` has."] = None
    coarse_because: Annotated[str | None, "Why the comparison is not exact; empty if it is."] = None
    hidden_count: Annotated[Count | None, "Lines after the last row."] = None
    rows: Annotated[
        Sequence[ArtifactDiffLine], "Changed lines with equal ones around them, folds between."
    ] = ()


@operation(_RUN)
def list_artifacts(
    detail: RunDetail, selection: ArtifactFilter, page: PageQuery
) -> Page[ArtifactRow]:
    """List a run's artifacts by name; those of one compile in order."""
    return artifacts.list_artifacts(
        get_run_reader(detail.run.id), detail.run.id, selection, page.cursor, page.limit
    )


@operation(f"{_RUN}/<artifact_id>")
def get_artifact(detail: RunDetail, artifact_id: str) -> ArtifactText:
    """Return one artifact with its text."""
    screen = build_artifact(get_run_reader(detail.run.id), detail.run.id, read_id(artifact_id))
    if screen is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no artifact number {artifact_id[:40]}.")
    return ArtifactText(**vars(screen.artifact))


@operation(f"{_RUN}/diff")
def get_diff(detail: RunDetail, query: DiffQuery) -> ArtifactDiffJson:
    """Return two artifacts, of this run or of any, compared by lines: at most 5,000 rows, equal
    lines folded.
    """
    b_run = normalize_run_id(query.b_run or detail.run.id)
    a, b = (
        _find_side(run_id, name, text) or refuse(_NO_ARTIFACT.format(name, int(text)))
        for run_id, name, text in ((detail.run.id, "a", query.a), (b_run, "b", query.b))
    )
    pair = compare_artifacts(a, b, ignore=query.ignore, context=query.context)
    values: dict[str, Any] = {
        "a": pair.a,
        "b": pair.b,
        "remark": pair.remark,
    }
    if pair.diff is not None:
        rows = list_diff_lines(pair.diff)
        values |= vars(pair.diff) | {"hidden_count": pair.diff.hidden_count, "rows": rows}
    return fill(ArtifactDiffJson, values)


directory_blueprint = Blueprint("directory", __name__)

PAGE_SIZE = 20  # compiles, each with all of its artifacts


@directory_blueprint.get("/runs/<run_id>/directory", endpoint="show")
def show_directory(run_id: str) -> str:
    detail = find_run(run_id)
    given = {
        name: request.args.get(name, "").strip()[:200] for name in ("outcome", "q", "artifact")
    }
    selection = CompileFilter(text=given["q"], outcome=given["outcome"], artifact=given["artifact"])
    screen = build_directory(
        get_run_reader(run_id), detail.run, selection, request.args.get("cursor"), PAGE_SIZE
    )
    return render_run(
        detail,
        "trace_files/index.html",
        tab="directory",
        screen=screen,
        given=given,
        filtered=any(given.values()),
        names=[(name, f"{name} ({count:,})") for name, count in screen.artifact_counts.items()],
        outcomes=[
            (key, describe_outcome(key, detail.run.state == "running").word)
            for key in screen.outcomes
        ],
        has_shapes="shapes.show" in current_app.view_functions,
    )


download_blueprint = Blueprint("traces", __name__)


@download_blueprint.get("/runs/<run_id>/traces/<name>")
def download(run_id: str, name: str) -> Response:
    file = get_trace_file(get_run_reader(run_id), run_id, name)
    if file is None:
        abort(404, f"Run {run_id[:80]} keeps no trace log of that name; --level full records them.")
    response = Response(
        _read_pieces(get_settings().db, run_id, file.name), content_type="text/plain; charset=utf-8"
    )
    response.headers["Content-Length"] = str(file.size_bytes)
    response.headers.set("Content-Disposition", "attachment", filename=file.name)
    return response


def _read_pieces(database: str, run_id: str, name: str) -> Iterator[bytes]:
    # A store of its own: the request's is closed before the last piece is sent.
    with closing(open_store(database)) as store:
        yield from read_trace_file(store.open_run(run_id), run_id, name)
