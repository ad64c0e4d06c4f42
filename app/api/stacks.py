"""Where a run's compiles were started from, as rows of a tree."""

from __future__ import annotations

from compileboard.app.analysis.explored_rows import no_stack_row, read_stack_tree, stack_row
from compileboard.app.api.answer import Answer, find_run, read_cursor, read_limit
from compileboard.app.api.operation import Operation
from compileboard.app.api.parameters import PAGE
from compileboard.app.db import get_reader
from compileboard.app.queries.page import decode_cursor, encode_cursor
from compileboard.app.queries.stacks import list_codes


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
