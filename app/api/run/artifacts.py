"""Artifacts, and two of them compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.analysis.artifacts.changes import compare_artifacts
from compileboard.app.analysis.text.diff import Fold, ShownRow
from compileboard.app.api.answers import PageQuery, operation, refuse
from compileboard.app.db import get_run_reader, get_store
from compileboard.app.queries.fields import Count
from compileboard.app.queries.page import Page, read_id
from compileboard.app.queries.parameters import Parameter
from compileboard.app.queries.run import artifacts
from compileboard.app.queries.run.artifacts import (
    ArtifactFilter,
    ArtifactPairQuery,
    check_artifact_id,
)
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.schema import Keywords, one_of
from compileboard.app.screens.run.artifacts import (
    ArtifactJson,
    build_artifact,
    explain_artifact,
    read_artifact,
)
from compileboard.collectors.store.rollups.results import fill

_RUN = "/runs/<run_id>/artifacts"


@dataclass(frozen=True)
class DiffQuery(ArtifactPairQuery):
    ignore: Annotated[
        bool,
        Parameter(choices=("addresses",)),
        "Leave out memory addresses, object ids and made-up paths.",
    ] = False
    context: Annotated[
        int, Keywords(minimum=1, maximum=1000), "Equal lines around a changed one."
    ] = 3


@dataclass(frozen=True)
class ArtifactText(ArtifactJson):
    """One artifact with its text."""

    text: Annotated[str | None, "The text; null if none is kept."]


@dataclass(frozen=True)
class ArtifactDiffLine:
    """A line of the comparison, or a stretch of equal lines."""

    kind: Annotated[
        str, one_of(("same", "changed", "added", "removed", "fold")), "What became of it."
    ]
    count: Annotated[Count, "Lines that it stands for: more than 1 for a fold."]
    left_number: Annotated[int | None, "Line in `a`, from 1."]
    left_text: Annotated[str | None, "That line; null where `a` has none, and for a fold."]
    right_number: Annotated[int | None, "Line in `b`, from 1."]
    right_text: Annotated[str | None, "That line; null where `b` has none, and for a fold."]


@dataclass(frozen=True)
class ArtifactDiffJson:
    """Two artifacts compared; the fields are null where one has no text."""

    a: Annotated[ArtifactJson, "The left one."]
    b: Annotated[ArtifactJson, "The right one."]
    remark: Annotated[str, "Comparisons left out, with the reason. Empty without one."]
    identical: Annotated[bool | None, "Whether the texts are the same to the last character."] = (
        None
    )
    equivalent: Annotated[bool | None, "Whether they are the same but for what is ignored."] = None
    changed_count: Annotated[Count | None, "Lines that changed."] = None
    added_count: Annotated[Count | None, "Lines that only `b` has."] = None
    removed_count: Annotated[Count | None, "Lines that only `a` has."] = None
    coarse_because: Annotated[str | None, "Why the comparison is not exact; empty if it is."] = None
    hidden_count: Annotated[Count | None, "Lines behind the last row."] = None
    rows: Annotated[
        Sequence[ArtifactDiffLine], "Changed lines with equal ones around them, folds between."
    ] = ()


@operation(_RUN)
def list_artifacts(
    detail: RunDetail, selection: ArtifactFilter, page: PageQuery
) -> Page[ArtifactJson]:
    """List a run's artifacts, torch's log records beside its events, by name; those of one compile
    in order.
    """
    listed = artifacts.list_artifacts(
        get_run_reader(detail.run.id), detail.run.id, selection, page.cursor, page.limit
    )
    return listed.map(explain_artifact)


@operation(f"{_RUN}/<artifact_id>")
def get_artifact(detail: RunDetail, artifact_id: str) -> ArtifactText:
    """Return one artifact with its text."""
    screen = build_artifact(get_run_reader(detail.run.id), detail.run.id, read_id(artifact_id))
    if screen is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no artifact number {artifact_id[:40]}.")
    row = vars(explain_artifact(screen.artifact)) | {"state_meaning": screen.state.meaning}
    return ArtifactText(**row, text=screen.artifact.text)


def _find_artifact(run_id: str, name: str, text: str) -> artifacts.Artifact:
    number = check_artifact_id(name, text)
    artifact = read_artifact(get_store(), run_id, number)
    return (
        artifact
        if artifact is not None
        else refuse(f"{name}: there is no artifact number {number}.")
    )


@operation(f"{_RUN}/diff")
def get_diff(detail: RunDetail, query: DiffQuery) -> ArtifactDiffJson:
    """Return two artifacts, of this run or of any, compared by lines: at most 5000 rows, equal
    stretches folded.
    """
    a, b = (_find_artifact(detail.run.id, name, getattr(query, name)) for name in ("a", "b"))
    pair = compare_artifacts(a, b, ignore=query.ignore, context=query.context)
    values: dict[str, Any] = {
        "a": explain_artifact(pair.a),
        "b": explain_artifact(pair.b),
        "remark": pair.remark,
    }
    if pair.diff is not None:
        rows = [_make_diff_row(part) for part in pair.diff.parts]
        values |= vars(pair.diff) | {"hidden_count": pair.diff.hidden_count, "rows": rows}
    return fill(ArtifactDiffJson, values)


def _make_diff_row(part: ShownRow | Fold) -> ArtifactDiffLine:
    if isinstance(part, Fold):
        return ArtifactDiffLine(**vars(part), left_text=None, right_text=None)
    left, right = (
        None if side is None else "".join(text for text, _ in side)
        for side in (part.left, part.right)
    )
    return ArtifactDiffLine(part.kind, 1, part.left_number, left, part.right_number, right)
