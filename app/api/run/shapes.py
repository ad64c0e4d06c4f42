"""Schemas of symbolic shapes."""

from __future__ import annotations

from compileboard.app.analysis.rows import shapes_row
from compileboard.app.analysis.shapes import build_shapes
from compileboard.app.api.answers import Answer, Operation, build_page_answer, find_run, read_cursor, read_limit
from compileboard.app.api.parameters import PAGE
from compileboard.app.api.schema import (
    COMPILE_ID,
    FILE,
    FUNCTION,
    LINE,
    OUTCOME,
    RANK,
    SOURCE_LINE,
    STACK,
    Schema,
    array_of,
    count,
    flag,
    maybe,
    record,
    ref,
    text,
    whole,
)
from compileboard.app.db import get_reader
from compileboard.app.queries.run.shapes import list_shape_compiles

_PLACE = {"file": FILE, "line": LINE, "source_line": SOURCE_LINE, "stack": STACK}
GUARD = record(
    "A condition that the compiled code holds under.",
    expression=maybe(text("The condition as torch writes it.")),
    words=text("The condition in words."),
    count=count("How often it was added."),
    by_user=flag("Whether a line of the user's caused it: torch and its backend add some of their own."),
    **_PLACE,
)
SYMBOL = record(
    "One symbol of a compile.",
    symbol=text("torch's name: `s77`, or `u0` where its value is known only when the code runs."),
    is_unbacked=flag("Whether its value is known only when the code runs."),
    source=maybe(text("What it stands for: `x.size()[0]`.")),
    value=maybe(text("Its value in the call that was compiled.")),
    value_range=maybe(text("The values it was allowed when it was made, as torch writes them.")),
    same=array_of(
        {"type": "string"}, "Dimensions of the graph's inputs that share it (duck shapes); empty for one alone."
    ),
    specialized=array_of(
        record(
            "It was fixed to one value.",
            value=maybe(text("The value that is compiled in.")),
            reason=maybe(text("Why, in torch's word.")),
            words=text("Why, in words."),
            **_PLACE,
        ),
        "What fixed it.",
    ),
    guards=array_of(ref("ShapeGuard"), "Conditions that name it."),
    advice=array_of({"type": "string"}, "What to do."),
    **_PLACE,
)
COMPILE = record(
    "One compile that has symbolic shapes.",
    compile_key=whole("`id` of the compile."),
    compile_id=COMPILE_ID,
    rank=RANK,
    function=FUNCTION,
    file=FILE,
    outcome=OUTCOME,
    record_count=count("Records of its symbolic shapes; the first 400 are read."),
    symbols=array_of(ref("ShapeSymbol"), "Its symbols."),
    other_guards=array_of(ref("ShapeGuard"), "Conditions that name no symbol."),
    fixed=array_of(
        record(
            "A dimension of an input that was 0 or 1 beside dynamic ones: torch compiles those in.",
            name=text("The input's name in the graph."),
            dim=count("The dimension."),
            size=count("Its size."),
        ),
        "0 and 1 that were compiled in.",
    ),
)
SCHEMAS: dict[str, Schema] = {"ShapeGuard": GUARD, "ShapeSymbol": SYMBOL, "ShapeCompile": COMPILE}


def list_shapes(run_id: str) -> Answer:
    """List the compiles that have symbolic shapes."""
    find_run(run_id)
    page = list_shape_compiles(get_reader(), run_id, read_cursor(), read_limit())
    return build_page_answer(page, lambda it: shapes_row(build_shapes(it)))


OPERATIONS = (
    Operation(
        "/runs/<run_id>/shapes",
        list_shapes,
        "ShapeCompile",
        True,
        "A run's symbolic shapes by compile: what each symbol stands for, what fixed or guarded it, what to do.",
        PAGE,
    ),
)
