"""Schema of a frame in the tree of stacks."""

from __future__ import annotations

from compileboard.app.analysis.compiles import ENDINGS
from compileboard.app.analysis.rows import no_stack_row, stack_row
from compileboard.app.api.answers import Answer, Operation, find_run, read_cursor, read_limit
from compileboard.app.api.parameters import PAGE
from compileboard.app.api.schema import Schema, array_of, count, duration_us, flag, mapping, maybe, record, text, whole
from compileboard.app.db import get_reader
from compileboard.app.queries.page import decode_cursor, encode_cursor
from compileboard.app.queries.run.stacks import list_codes
from compileboard.app.screens.run.stacks import read_stack_tree

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
    compile_keys=array_of(whole("`id` of the compile."), "The compiles that this very frame is: not those below."),
    records=array_of(
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


def list_trie(run_id: str) -> Answer:
    """List the frames of the tree; compiles without a stack are at frame 0, which has no name."""
    find_run(run_id)
    reader, limit = get_reader(), read_limit()
    after = int((decode_cursor(read_cursor(), int) or (-1,))[0])
    tree = read_stack_tree(reader, run_id)
    places = [it for number, it in tree.places.items() if number > max(after, 0)][: limit + 1]
    rows = [no_stack_row(tree.without_stack)] if after < 0 and tree.without_stack else []
    codes = list_codes(reader, (it.id for it in places[:limit]))
    rows += [stack_row(it, codes.get(it.id)) for it in places]
    more = len(rows) > limit
    return Answer(rows[:limit], encode_cursor(rows[limit - 1]["id"]) if more else None)


OPERATIONS = (
    Operation(
        "/runs/<run_id>/trie",
        list_trie,
        "StackFrame",
        True,
        "Where a run's compiles and the records outside them came from: the frames of their stacks as a flat tree, "
        "callers first.",
        PAGE,
    ),
)
