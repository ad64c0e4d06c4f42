"""Schema of a frame in the tree of stacks."""

from __future__ import annotations

from compileboard.app.analysis.directory import ENDINGS
from compileboard.app.api.schema import Schema, count, duration_us, flag, mapping, maybe, record, rows, text, whole

FRAME = record(
    "One frame of the stacks of compiles and of records outside them, shared by all that came through it.",
    id=whole("Number of the frame; 0 stands for compiles that have no stack."),
    parent_id=maybe(whole("The frame that called it, with a smaller `id`; null at the top.")),
    file=text("Its file: path in the repository, or module path."),
    line=maybe(whole("Line.")),
    name=text("Name of the function."),
    code=maybe(text("That line of the code; null with `--no-source`, and where torch gave none.")),
    is_library=flag("Whether the file is Python's, torch's or a well-known package's."),
    compile_count=count("Compiles started here and below."),
    total_us=maybe(duration_us("Their time.")),
    endings=mapping(count("Compiles."), f"How those ended: {', '.join(f'`{it}`' for it in ENDINGS)}."),
    compile_keys=rows(whole("`id` of the compile."), "The compiles that this very frame is: not those below."),
    records=rows(
        record(
            "Records of one name.",
            name=text("Its name."),
            record_count=count("Records of that name."),
            artifact_id=maybe(whole("`id` of the first one's artifact; null for symbolic shapes.")),
        ),
        "What was recorded at this very frame outside any compile: export, AOTInductor.",
    ),
)
SCHEMAS: dict[str, Schema] = {"StackFrame": FRAME}
