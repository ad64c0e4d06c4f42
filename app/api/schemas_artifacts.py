"""Schemas of artifacts and of two of them compared."""

from __future__ import annotations

from compileboard.app.api.schema import (
    Schema,
    anything,
    count,
    extend,
    flag,
    maybe,
    record,
    ref,
    rows,
    text,
    time_us,
    whole,
    word,
)
from compileboard.app.api.schemas_parts import COMPILE_ID, COMPILE_KEY, ID, PROCESS_ID, RANK

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
        rows=rows(ROW, "Changed lines with equal ones around them, folds between."),
    ),
}
