"""Artifacts of a run: the list, one with its text, two compared."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis.artifact_diff import compare_artifacts
from compileboard.app.analysis.artifact_words import describe_state
from compileboard.app.analysis.explored_rows import artifact_row
from compileboard.app.analysis.text_diff import Fold
from compileboard.app.api.answer import (
    Answer,
    find_run,
    give_page,
    read_cursor,
    read_limit,
    read_number,
    read_word,
    refuse,
)
from compileboard.app.api.operation import Operation
from compileboard.app.api.parameters import PAGE
from compileboard.app.db import get_reader
from compileboard.app.queries import artifacts
from compileboard.app.queries.page import FilterError, check_limit

MOST_CONTEXT = 1000
_RUN = "/runs/<run_id>/artifacts"


def list_artifacts(run_id: str) -> Answer:
    """List artifacts."""
    find_run(run_id)
    compile_ = request.args.get("compile", "")
    key = read_number(compile_)
    if compile_ and key is None:
        raise FilterError(f"compile: {compile_[:40]!r} is not the number of a compile")
    wanted = artifacts.ArtifactFilter(read_word("name"), key, read_word("q"))
    return give_page(artifacts.list_artifacts(get_reader(), run_id, wanted, read_cursor(), read_limit()), artifact_row)


def get_artifact(run_id: str, artifact_id: str) -> Answer:
    """Return one artifact with its text."""
    detail, number = find_run(run_id), read_number(artifact_id)
    it = None if number is None else artifacts.get_artifact(get_reader(), run_id, number)
    if it is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no artifact number {artifact_id[:40]}.")
    state = describe_state(it.state, it.unreadable)
    return Answer(artifact_row(it) | {"state_meaning": state.meaning, "text": it.text})


def read_artifact(run_id: str, name: str) -> artifacts.Artifact:
    """Read the artifact that a parameter names, of this run or of any.

    Raises: FilterError if it is not a number.
    """
    number = artifacts.check_artifact_id(name, request.args.get(name, ""))
    reader = get_reader()
    it = artifacts.get_artifact(reader, run_id, number) or artifacts.find_artifact(reader, number)
    return it if it is not None else refuse(f"{name}: there is no artifact number {number}.")


def get_diff(run_id: str) -> Answer:
    """Compare two artifacts."""
    find_run(run_id)
    ignore = request.args.get("ignore", "")
    if ignore not in ("", "addresses"):
        raise FilterError(f"ignore: {ignore[:40]!r} is not addresses")
    context = check_limit(request.args.get("context"), 3, MOST_CONTEXT)
    found = compare_artifacts(
        read_artifact(run_id, "a"), read_artifact(run_id, "b"), ignore=bool(ignore), context=context
    )
    diff = found.diff
    sides = {"a": artifact_row(found.a), "b": artifact_row(found.b), "remark": found.remark}
    if diff is None:
        return Answer(sides | dict.fromkeys(DIFF_FIELDS) | {"rows": []})
    rows = [_part_row(part) for part in diff.parts]
    return Answer(sides | {name: getattr(diff, name) for name in DIFF_FIELDS} | {"rows": rows})


DIFF_FIELDS = (
    "identical",
    "equivalent",
    "changed_count",
    "added_count",
    "removed_count",
    "coarse_because",
    "hidden_count",
)


def _part_row(part: Any) -> dict[str, Any]:
    if isinstance(part, Fold):
        return {**vars(part), "left_text": None, "right_text": None}
    left, right = (None if side is None else "".join(text for text, _ in side) for side in (part.left, part.right))
    return {
        "kind": part.kind,
        "count": 1,
        "left_number": part.left_number,
        "left_text": left,
        "right_number": part.right_number,
        "right_text": right,
    }


OPERATIONS = (
    Operation(
        _RUN,
        list_artifacts,
        "Artifact",
        True,
        "What torch wrote into a run's logs beside its events: graphs, code, guards. By name; of one compile in order.",
        ("artifact_name", "compile", "q", *PAGE),
    ),
    Operation(f"{_RUN}/<artifact_id>", get_artifact, "ArtifactText", False, "One artifact with its text."),
    Operation(
        f"{_RUN}/diff",
        get_diff,
        "ArtifactDiff",
        False,
        "Two artifacts, of this run or of any, compared by lines: at most 5000 rows, equal stretches folded.",
        ("a", "b", "ignore", "context"),
    ),
)
