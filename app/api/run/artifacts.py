"""Schemas of artifacts and of two of them compared."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis.artifacts.changes import compare_artifacts
from compileboard.app.analysis.rows import artifact_row
from compileboard.app.analysis.text.diff import Fold
from compileboard.app.api.answers import (
    Answer,
    Operation,
    build_page_answer,
    find_run,
    read_cursor,
    read_limit,
    read_number,
    read_word,
    refuse,
)
from compileboard.app.api.parameters import PAGE
from compileboard.app.api.schema import (
    COMPILE_ID,
    COMPILE_KEY,
    ID,
    PROCESS_ID,
    RANK,
    Schema,
    anything,
    array_of,
    count,
    extend,
    flag,
    maybe,
    record,
    ref,
    text,
    time_us,
    whole,
    word,
)
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError, check_limit
from compileboard.app.queries.run import artifacts
from compileboard.app.screens.run.artifacts import build_artifact, read_artifact

ARTIFACT = record(
    "One record that torch or another program wrote into a log under a name.",
    id=ID,
    run_id=text("The run's id."),
    process_id=PROCESS_ID,
    sequence=whole("Where it stands in its log: bytes from the beginning."),
    rank=RANK,
    pid=maybe(whole("Process number of the operating system.")),
    compile_key=COMPILE_KEY,
    compile_id=COMPILE_ID,
    generation=maybe(count("How often the process had called `reset()` before its compile.")),
    attempt=maybe(count("Analysis of the frame that wrote it: 0, and one more after each restart.")),
    name=text("torch's name of the record."),
    meaning=text("What a record of that name is."),
    title=maybe(text("What tells it from others of its name: a file, a graph.")),
    encoding=text("string or json."),
    state=text("kept, none, left_out, withheld, damaged or too_large."),
    state_meaning=text("The state in words."),
    size_bytes=maybe(count("Size of the text as torch wrote it. Bytes.")),
    md5=maybe(text("torch's checksum of the text.")),
    time_us=time_us("When."),
    metadata=anything("What torch said beside the text."),
    envelope=anything("What else torch wrote around the record, as `subgraph_name`."),
    stack_id=maybe(
        whole(
            "Innermost frame of the stack around a record outside any compile: an `id` of `trie`; null without a stack."
        )
    ),
)
ROW = record(
    "A line of the comparison, or a stretch of equal lines.",
    kind=word("What became of it.", ("same", "changed", "added", "removed", "fold")),
    count=count("Lines that it stands for: more than 1 for a fold."),
    left_number=maybe(whole("Line in `a`, from 1.")),
    left_text=maybe(text("That line; null where `a` has none, and for a fold.")),
    right_number=maybe(whole("Line in `b`, from 1.")),
    right_text=maybe(text("That line; null where `b` has none, and for a fold.")),
)
SCHEMAS: dict[str, Schema] = {
    "Artifact": ARTIFACT,
    "ArtifactText": extend(
        ARTIFACT, "One artifact with its text.", text=maybe(text("The text; null if none is kept."))
    ),
    "ArtifactDiff": record(
        "Two artifacts compared; the fields are null where one has no text.",
        a=ref("Artifact"),
        b=ref("Artifact"),
        remark=text("What was not compared, and why; empty if all was."),
        identical=maybe(flag("Whether the texts are the same to the last character.")),
        equivalent=maybe(flag("Whether they are the same but for what is ignored.")),
        changed_count=maybe(count("Lines that changed.")),
        added_count=maybe(count("Lines that only `b` has.")),
        removed_count=maybe(count("Lines that only `a` has.")),
        coarse_because=maybe(text("Why the comparison is not exact; empty if it is.")),
        hidden_count=maybe(count("Lines behind the last row.")),
        rows=array_of(ROW, "Changed lines with equal ones around them, folds between."),
    ),
}


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
    return build_page_answer(
        artifacts.list_artifacts(get_reader(), run_id, wanted, read_cursor(), read_limit()), artifact_row
    )


def get_artifact(run_id: str, artifact_id: str) -> Answer:
    """Return one artifact with its text."""
    detail, number = find_run(run_id), read_number(artifact_id)
    screen = None if number is None else build_artifact(get_reader(), run_id, number)
    if screen is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no artifact number {artifact_id[:40]}.")
    text = screen.artifact.text
    return Answer(artifact_row(screen.artifact) | {"state_meaning": screen.state.meaning, "text": text})


def find_artifact(run_id: str, name: str) -> artifacts.Artifact:
    """Return the artifact that a parameter names, of this run or of any, or answer that there is none.

    Raises: FilterError if it is not a number.
    """
    number = artifacts.check_artifact_id(name, request.args.get(name, ""))
    artifact = read_artifact(get_reader(), run_id, number)
    return artifact if artifact is not None else refuse(f"{name}: there is no artifact number {number}.")


def get_diff(run_id: str) -> Answer:
    """Compare two artifacts."""
    find_run(run_id)
    ignore = request.args.get("ignore", "")
    if ignore not in ("", "addresses"):
        raise FilterError(f"ignore: {ignore[:40]!r} is not addresses")
    context = check_limit(request.args.get("context"), 3, MOST_CONTEXT)
    found = compare_artifacts(
        find_artifact(run_id, "a"), find_artifact(run_id, "b"), ignore=bool(ignore), context=context
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
