"""Schemas of symbolic shapes."""

from __future__ import annotations

from compileboard.app.api.schema import Schema, count, flag, maybe, record, ref, rows, text, whole
from compileboard.app.api.schemas_parts import COMPILE_ID, FILE, FUNCTION, LINE, OUTCOME, RANK, SOURCE_LINE, STACK

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
    same=rows({"type": "string"}, "Dimensions of the graph's inputs that share it (duck shapes); empty for one alone."),
    specialized=rows(
        record(
            "It was fixed to one value.",
            value=maybe(text("The value that is compiled in.")),
            reason=maybe(text("Why, in torch's word.")),
            words=text("Why, in words."),
            **_PLACE,
        ),
        "What fixed it.",
    ),
    guards=rows(ref("ShapeGuard"), "Conditions that name it."),
    advice=rows({"type": "string"}, "What to do."),
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
    symbols=rows(ref("ShapeSymbol"), "Its symbols."),
    other_guards=rows(ref("ShapeGuard"), "Conditions that name no symbol."),
    fixed=rows(
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
