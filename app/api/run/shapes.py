"""Symbolic shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.analysis.rows import shapes_row
from compileboard.app.analysis.shapes import build_shapes
from compileboard.app.api.answers import PageQuery, operation
from compileboard.app.db import get_reader
from compileboard.app.queries.fields import (
    CompileId,
    Count,
    FileName,
    FunctionName,
    LineNumber,
    Rank,
    SourceLine,
    Stack,
)
from compileboard.app.queries.page import Page
from compileboard.app.queries.run.compiles import Outcome
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.queries.run.shapes import list_shape_compiles


@dataclass(frozen=True)
class _Place:
    file: FileName
    line: LineNumber
    source_line: SourceLine
    stack: Stack


@dataclass(frozen=True)
class ShapeGuardJson(_Place):
    """A condition that the compiled code holds under."""

    expression: Annotated[str | None, "The condition as torch writes it."]
    words: Annotated[str, "The condition in words."]
    count: Annotated[Count, "How often it was added."]
    by_user: Annotated[bool, "Whether a line of the user's caused it: torch and its backend add some of their own."]


@dataclass(frozen=True)
class Specialization(_Place):
    """It was fixed to one value."""

    value: Annotated[str | None, "The value that is compiled in."]
    reason: Annotated[str | None, "Why, in torch's word."]
    words: Annotated[str, "Why, in words."]


@dataclass(frozen=True)
class ShapeSymbolJson(_Place):
    """One symbol of a compile."""

    symbol: Annotated[str, "torch's name: `s77`, or `u0` where its value is known only when the code runs."]
    is_unbacked: Annotated[bool, "Whether its value is known only when the code runs."]
    source: Annotated[str | None, "What it stands for: `x.size()[0]`."]
    value: Annotated[str | None, "Its value in the call that was compiled."]
    value_range: Annotated[str | None, "The values it was allowed when it was made, as torch writes them."]
    same: Annotated[list[str], "Dimensions of the graph's inputs that share it (duck shapes); empty for one alone."]
    specialized: Annotated[list[Specialization], "What fixed it."]
    guards: Annotated[list[ShapeGuardJson], "Conditions that name it."]
    advice: Annotated[list[str], "What to do."]


@dataclass(frozen=True)
class FixedDimensionJson:
    """A dimension of an input that was 0 or 1 beside dynamic ones: torch compiles those in."""

    name: Annotated[str, "The input's name in the graph."]
    dim: Annotated[Count, "The dimension."]
    size: Annotated[Count, "Its size."]


@dataclass(frozen=True)
class ShapeCompileJson:
    """One compile that has symbolic shapes."""

    compile_key: Annotated[int, "`id` of the compile."]
    compile_id: CompileId
    rank: Rank
    function: FunctionName
    file: FileName
    outcome: Outcome
    record_count: Annotated[Count, "Records of its symbolic shapes; the first 400 are read."]
    symbols: Annotated[list[ShapeSymbolJson], "Its symbols."]
    other_guards: Annotated[list[ShapeGuardJson], "Conditions that name no symbol."]
    fixed: Annotated[list[FixedDimensionJson], "0 and 1 that were compiled in."]


@operation("/runs/<run_id>/shapes")
def list_shapes(detail: RunDetail, page: PageQuery) -> Page[ShapeCompileJson]:
    """List a run's symbolic shapes by compile: what each symbol stands for, what fixed or guarded it, what to do."""
    found = list_shape_compiles(get_reader(), detail.run.id, page.cursor, page.limit)
    return found.map(lambda one: ShapeCompileJson(**shapes_row(build_shapes(one))))
