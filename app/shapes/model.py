"""Symbolic shapes of a compile: the meaning of each symbol, and the code that fixed or
guarded it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from compileboard.app.compiles.run_queries import Outcome
from compileboard.app.core import fields
from compileboard.app.core.page import Page
from compileboard.app.core.run_cache import cached_for_run
from compileboard.app.core.schema import PRIVATE
from compileboard.app.shapes import run_queries as shapes
from compileboard.app.shapes.run_queries import MAX_RECORDS, ShapeCompile, ShapeLine, SymbolRecord

_SYMBOL = re.compile(r"\b(?:s|u|zf|zuf)\d+\b")
_LOCAL = re.compile(r"\bL\['(\w+)'\]")
_SIZE = re.compile(r"^(?P<tensor>.+)\.size\(\)\[(?P<dim>\d+)\]$")
_COMPARED = re.compile(r"^(?P<left>.+?) (?P<sign><=|>=|<|>) (?P<right>-?\d+)$")
_CALLED = re.compile(r"^(?P<call>Eq|Ne)\((?P<left>.+), (?P<right>[^,()]+)\)$")
_MOD = re.compile(r"^Mod\((?P<what>.+), (?P<by>\d+)\)$")
_INT32 = 2**31 - 1
_MAX_ADVICE = 4
_SIGNS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_REASONS = {
    "range_refined_to_singleton": "conditions left one value",
    "trivial_lhs": "it was set equal to another expression",
    "trivial_rhs": "it was set equal to another expression",
    "solve": "an equation had one solution",
    "find": "it was found equal to another expression",
}


@dataclass(frozen=True)
class _Location:
    file: fields.FileName
    line: fields.LineNumber
    source_line: Annotated[
        str | None, "The statement, or as much of it as was recorded; null with `--no-source`."
    ]
    stack: fields.Stack
    record_id: int | None = field(metadata=PRIVATE)


@dataclass(frozen=True)
class ShapeGuard(_Location):
    """A condition under which the compiled code is valid."""

    expression: Annotated[str | None, "The condition as torch writes it."]
    words: Annotated[str, "The condition in words."]
    count: Annotated[fields.Count, "How often it was added."]
    by_user: Annotated[
        bool, "Whether a user's line caused it; torch and its backend add their own."
    ]


@dataclass(frozen=True)
class Specialization(_Location):
    """The place at which a symbol was fixed to one value."""

    value: Annotated[str | None, "The value that is compiled in."]
    reason: Annotated[str | None, "Why, in torch's word."]
    words: Annotated[str, "The reason in words."]


@dataclass(frozen=True)
class ShapeSymbol(_Location):
    """A symbol of a compile, with its guards and the fix."""

    symbol: Annotated[
        str, "torch's name: `s77`, or `u0` where its value is known only when the code runs."
    ]
    is_unbacked: Annotated[bool, "Whether its value is known only when the code runs."]
    source: Annotated[str | None, "Its source: `x.size()[0]`."]
    value: Annotated[str | None, "Value of the symbol in the call that was compiled."]
    value_range: Annotated[
        str | None, "The values it was allowed when it was made, as torch writes them."
    ]
    same: Annotated[
        tuple[str, ...],
        "Dimensions of the graph's inputs that share it (duck shapes); empty for one alone.",
    ]
    specialized: Annotated[tuple[Specialization, ...], "Why it was fixed."]
    guards: Annotated[tuple[ShapeGuard, ...], "Conditions that name it."]
    advice: Annotated[tuple[str, ...], "How to keep the dimension dynamic, one change an entry."]


@dataclass(frozen=True)
class FixedDimension:
    """An input's dimension of size 0 or 1, which torch compiles in even if others are dynamic."""

    name: Annotated[str, "The input's name in the graph."]
    dim: Annotated[fields.Count, "Number of the dimension, from 0."]
    size: Annotated[fields.Count, "Size of the dimension."]


@dataclass(frozen=True)
class ShapeCompileRow:
    """A compile with symbolic shapes."""

    compile_key: Annotated[int, "`id` of the compile."]
    compile_id: fields.CompileId
    rank: fields.Rank
    function: fields.FunctionName
    file: fields.FileName
    outcome: Outcome
    record_count: Annotated[
        fields.Count, f"Records of its symbolic shapes; the first {MAX_RECORDS} are read."
    ]
    symbols: Annotated[tuple[ShapeSymbol, ...], "Symbols of the compile."]
    other_guards: Annotated[tuple[ShapeGuard, ...], "Conditions that name no symbol."]
    fixed: Annotated[tuple[FixedDimension, ...], "Sizes 0 and 1 that were compiled in."]
    cut_count: int = field(metadata=PRIVATE)


def build_shapes(shape_compile: ShapeCompile) -> ShapeCompileRow:
    made: dict[str, SymbolRecord | None] = {}
    sources: dict[str, str | None] = {}
    specialized: dict[str, list[SymbolRecord]] = {}
    for record in shape_compile.records:
        name = record.symbol
        if name and record.kind in ("created", "unbacked") and made.get(name) is None:
            made[name], sources[name] = record, record.source
        elif name and record.kind == "specialized":
            if made.setdefault(name, None) is None:
                sources.setdefault(name, record.source)
            specialized.setdefault(name, []).append(record)
    guards: dict[str, list[ShapeGuard]] = {}
    other = []
    for guard in _list_guards(shape_compile.records):
        names = dict.fromkeys(_SYMBOL.findall(guard.expression or ""))
        for name in names:
            made.setdefault(name, None)
            guards.setdefault(name, []).append(guard)
        if not names:
            other.append(guard)
    sizes = shape_compile.sizes
    return ShapeCompileRow(
        compile_key=shape_compile.key,
        compile_id=shape_compile.compile_id,
        rank=shape_compile.rank,
        function=shape_compile.function,
        file=shape_compile.file,
        outcome=shape_compile.outcome,
        record_count=shape_compile.record_count,
        symbols=tuple(
            _make_symbol(
                name,
                record,
                sources.get(name),
                specialized.get(name, ()),
                tuple(guards.get(name, ())),
                sizes,
            )
            for name, record in made.items()
        ),
        other_guards=tuple(other),
        fixed=tuple(_list_fixed(sizes)),
        cut_count=shape_compile.record_count - len(shape_compile.records),
    )


def _locate(record: SymbolRecord) -> dict[str, Any]:
    return {
        "file": record.file,
        "line": record.line,
        "source_line": record.source_line,
        "stack": record.stack,
        "record_id": record.id,
    }


_NOWHERE: dict[str, Any] = {
    "file": None,
    "line": None,
    "source_line": None,
    "stack": (),
    "record_id": None,
}


def _make_symbol(
    name: str,
    record: SymbolRecord | None,
    source: str | None,
    specialized: Sequence[SymbolRecord],
    guards: tuple[ShapeGuard, ...],
    sizes: dict[str, list[Any]],
) -> ShapeSymbol:
    symbol = ShapeSymbol(
        **(_locate(record) if record else _NOWHERE),
        symbol=name,
        is_unbacked=record.kind == "unbacked" if record else name.startswith(("u", "zuf")),
        source=_LOCAL.sub(r"\1", source) if source else None,
        value=record.value if record else None,
        value_range=record.value_range if record else None,
        same=tuple(_list_same(name, sizes)) if record and record.kind == "created" else (),
        specialized=tuple(
            Specialization(
                **_locate(fixed),
                value=fixed.value,
                reason=fixed.expression,
                words=describe_reason(fixed.expression),
            )
            for fixed in specialized
        ),
        guards=guards,
        advice=(),
    )
    return replace(symbol, advice=tuple(dict.fromkeys(_advise(symbol)))[:_MAX_ADVICE])


def _list_guards(records: Sequence[SymbolRecord]) -> list[ShapeGuard]:
    alike: dict[tuple[str | None, str | None, int | None], list[SymbolRecord]] = {}
    for record in records:
        if record.kind in ("guarded", "other"):
            alike.setdefault((record.expression, record.file, record.line), []).append(record)
    return [
        ShapeGuard(
            **_locate(first),
            expression=first.expression,
            words=describe_guard(first.expression or ""),
            count=len(alike[key]),
            by_user=bool(first.stack),
        )
        for key, (first, *_others) in alike.items()
    ]


def describe_guard(expression: str) -> str:
    called, compared = _CALLED.match(expression), _COMPARED.match(expression)
    if called:
        left, right, equal = called["left"], called["right"], called["call"] == "Eq"
        mod = _MOD.match(left)
        if mod and right == "0":
            return f"{mod['what']} must {'' if equal else 'not '}be a multiple of {mod['by']}"
        return (
            f"{left} must {'' if equal else 'not '}be "
            f"{'' if right.lstrip('-').isdigit() else 'equal to '}{right}"
        )
    if compared and compared["sign"] == "<=" and int(compared["right"]) == _INT32:
        return f"{compared['left']} must fit a 32-bit index"
    if compared:
        return f"{compared['left']} must be {_SIGNS[compared['sign']]} {compared['right']}"
    return f"{expression} must hold"


def describe_reason(reason: str | None) -> str:
    return _REASONS.get(reason or "", reason or "torch gave no reason")


def describe_range(text: str | None) -> str | None:
    match = re.fullmatch(r"\[(-?\w+), (-?\w+)\]", text or "")
    if match is None:
        return text
    low, high = match.groups()
    if high in ("int_oo", "oo"):
        return "any value" if low in ("-int_oo", "-oo") else f"{low} and up"
    return f"up to {high}" if low in ("-int_oo", "-oo") else f"{low} to {high}"


def _list_same(symbol: str, sizes: dict[str, list[Any]]) -> Iterator[str]:
    dimensions = [
        f"{name}.size()[{dim}]"
        for name, dimensions in sizes.items()
        if name.startswith("l_")
        for dim, size in enumerate(dimensions)
        if size == symbol
    ]
    yield from dimensions if len(dimensions) > 1 else ()


def _list_fixed(sizes: dict[str, list[Any]]) -> Iterator[FixedDimension]:
    for name, dimensions in sizes.items():
        if name.startswith("l_") and any(
            isinstance(size, str) and _SYMBOL.search(size) for size in dimensions
        ):
            for dim, size in enumerate(dimensions):
                if size in (0, 1) and isinstance(size, int) and not isinstance(size, bool):
                    yield FixedDimension(name, dim, size)


def _advise(symbol: ShapeSymbol) -> Iterator[str]:
    size = _SIZE.match(symbol.source or "")
    what = symbol.source or symbol.symbol
    for fixed in symbol.specialized:
        yield (
            f"{what} is compiled in as {fixed.value}: every other value is another compile, "
            "and mark_dynamic on it "
            "raises. If it is meant to vary, take the line that fixes it out of the compiled "
            "code, or write it without "
            "the number (a loop over a size, a comparison with ==, int() and a tensor of fixed "
            "size each fix it). "
            "If it never varies, nothing is to be done."
        )
    if symbol.specialized:
        return
    if symbol.is_unbacked:
        yield (
            "Its value is known only at run time, so no branch may depend on it. State what "
            "holds with "
            "torch._check(condition) right after the line that creates it. torch compiles that "
            "in, and raises "
            "where it does not hold."
        )
        return
    for guard in symbol.guards:
        yield from _advise_guard(guard, symbol.symbol, size)
    if symbol.same:
        yield (
            f"{', '.join(symbol.same)} had one size in the first compile, so torch took them "
            "for the same (duck "
            "shapes). A call in which they differ recompiles. Compile with sizes that differ, "
            "or set "
            "torch.fx.experimental._config.use_duck_shape = False."
        )


def _advise_guard(guard: ShapeGuard, name: str, size: re.Match[str] | None) -> Iterator[str]:
    expression = guard.expression or ""
    compared = _COMPARED.match(expression)
    if not guard.by_user or "torch._check" in (guard.source_line or ""):
        return  # nothing to write, or already written
    if compared and compared["left"] == name and int(compared["right"]) != _INT32:
        limit, sign = int(compared["right"]), compared["sign"]
        # torch 2.13 needs both bounds: with one of them it raises an AssertionError.
        bound = (
            f"min={limit + (sign == '>')}, max=…"
            if sign in (">", ">=")
            else f"min=2, max={limit - (sign == '<')}"
        )
        side = f"A call on the other side of “{guard.words}” recompiles, at most once."
        if size:
            marked = f"torch._dynamo.mark_dynamic({size['tensor']}, {size['dim']}, {bound})"
            yield f"{side} If that never happens, use {marked}. It raises where it does."
        else:
            yield f"{side} Take the comparison out of the compiled code, or warm up both sides."
    elif "Mod(" in expression and expression.startswith("Eq("):
        yield (
            f"“{guard.words}” comes from splitting or viewing a size: pad to such a multiple "
            "to compile once."
        )


@dataclass(frozen=True)
class RunShapesScreen:
    counts: Mapping[str, int]
    lines: Sequence[ShapeLine]
    page: Page[ShapeCompileRow]


def build_run_shapes(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 8
) -> RunShapesScreen:
    return RunShapesScreen(
        counts=cached_for_run(reader, run_id, shapes.count_kinds),
        lines=cached_for_run(reader, run_id, shapes.list_lines),
        page=list_shapes(reader, run_id, cursor, limit),
    )


def list_shapes(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 8
) -> Page[ShapeCompileRow]:
    return shapes.list_shape_compiles(reader, run_id, cursor, limit).map(build_shapes)
