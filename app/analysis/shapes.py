"""Symbolic shapes of a compile: what each symbol stands for, what fixed or guarded it, and what to do about that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from compileboard.app.queries.run.shapes import ShapeCompile, SymbolRecord

_SYMBOL = re.compile(r"\b(?:s|u|zf|zuf)\d+\b")
_LOCAL = re.compile(r"\bL\['(\w+)'\]")
_SIZE = re.compile(r"^(?P<tensor>.+)\.size\(\)\[(?P<dim>\d+)\]$")
_COMPARED = re.compile(r"^(?P<left>.+?) (?P<sign><=|>=|<|>) (?P<right>-?\d+)$")
_CALLED = re.compile(r"^(?P<call>Eq|Ne)\((?P<left>.+), (?P<right>[^,()]+)\)$")
_MOD = re.compile(r"^Mod\((?P<what>.+), (?P<by>\d+)\)$")
_INT32 = 2**31 - 1
_MOST_ADVICE = 4
_SIGNS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_REASONS = {
    "range_refined_to_singleton": "conditions left one value",
    "trivial_lhs": "it was set equal to another expression",
    "trivial_rhs": "it was set equal to another expression",
    "solve": "an equation had one solution",
    "find": "it was found equal to another expression",
}


@dataclass(frozen=True)
class ShapeGuard:
    """A condition on sizes that compiled code assumes, how often it was added, and where it came from."""

    record: SymbolRecord
    words: str
    count: int


@dataclass
class ShapeSymbol:
    """One symbol of a compile; `record` made it, None where that was not recorded."""

    name: str
    record: SymbolRecord | None
    source: str | None
    same: tuple[str, ...] = ()  # other inputs' dimensions that torch took for the same size
    specialized: list[SymbolRecord] = field(default_factory=list)
    guards: list[ShapeGuard] = field(default_factory=list)
    advice: tuple[str, ...] = ()

    @property
    def is_unbacked(self) -> bool:
        """Return whether its value is known only when the code runs."""
        return self.record.kind == "unbacked" if self.record else self.name.startswith(("u", "zuf"))


@dataclass(frozen=True)
class FixedDimension:
    """A dimension of an input that was 0 or 1 beside dynamic ones, and so was compiled in."""

    name: str
    dim: int
    size: int


@dataclass(frozen=True)
class ShapesView:
    """The symbolic shapes of one compile."""

    compile: ShapeCompile
    symbols: tuple[ShapeSymbol, ...]
    other: tuple[ShapeGuard, ...]  # conditions that name no symbol
    fixed: tuple[FixedDimension, ...]
    cut_count: int


def build_shapes(shape_compile: ShapeCompile) -> ShapesView:
    """Put what torch said of a compile's symbols under each symbol."""
    symbols: dict[str, ShapeSymbol] = {}
    for record in shape_compile.records:
        if record.kind in ("created", "unbacked") and record.symbol:
            known = symbols.get(record.symbol)
            if known is None or known.record is None:
                symbols[record.symbol] = ShapeSymbol(record.symbol, record, _readable(record.source))
        elif record.kind == "specialized" and record.symbol:
            _find(symbols, record.symbol, record.source).specialized.append(record)
    other = []
    for guard in _list_guards(shape_compile.records):
        names = list(dict.fromkeys(_SYMBOL.findall(guard.record.expression or "")))
        for name in names:
            _find(symbols, name, None).guards.append(guard)
        if not names:
            other.append(guard)
    for symbol in symbols.values():
        symbol.same = tuple(_list_same(symbol, shape_compile.sizes))
        symbol.advice = tuple(dict.fromkeys(_advise(symbol)))[:_MOST_ADVICE]
    return ShapesView(
        shape_compile,
        tuple(symbols.values()),
        tuple(other),
        tuple(_list_fixed(shape_compile.sizes)),
        shape_compile.record_count - len(shape_compile.records),
    )


def _find(symbols: dict[str, ShapeSymbol], name: str, source: str | None) -> ShapeSymbol:
    return symbols.setdefault(name, ShapeSymbol(name, None, _readable(source)))


def _readable(source: str | None) -> str | None:
    return _LOCAL.sub(r"\1", source) if source else None


def _list_guards(records: Sequence[SymbolRecord]) -> list[ShapeGuard]:
    groups: dict[tuple[str | None, str | None, int | None], list[SymbolRecord]] = {}
    for record in records:
        if record.kind in ("guarded", "other"):
            groups.setdefault((record.expression, record.file, record.line), []).append(record)
    return [ShapeGuard(some[0], describe_guard(some[0].expression or ""), len(some)) for some in groups.values()]


def describe_guard(expression: str) -> str:
    """Return in words what a condition asks for."""
    called, compared = _CALLED.match(expression), _COMPARED.match(expression)
    if called:
        left, right, equal = called["left"], called["right"], called["call"] == "Eq"
        mod = _MOD.match(left)
        if mod and right == "0":
            return f"{mod['what']} must {'' if equal else 'not '}be a multiple of {mod['by']}"
        return f"{left} must {'' if equal else 'not '}be {'' if right.lstrip('-').isdigit() else 'equal to '}{right}"
    if compared and compared["sign"] == "<=" and int(compared["right"]) == _INT32:
        return f"{compared['left']} must fit a 32-bit index"
    if compared:
        return f"{compared['left']} must be {_SIGNS[compared['sign']]} {compared['right']}"
    return f"{expression} must hold"


def describe_reason(reason: str | None) -> str:
    """Return in words why torch gave a symbol one value."""
    return _REASONS.get(reason or "", reason or "torch gave no reason")


def describe_range(text: str | None) -> str | None:
    """Return in words which values a symbol was allowed when it was made; None where torch did not record it."""
    match = re.fullmatch(r"\[(-?\w+), (-?\w+)\]", text or "")
    if match is None:
        return text
    low, high = match.groups()
    if high in ("int_oo", "oo"):
        return "any value" if low in ("-int_oo", "-oo") else f"{low} and up"
    return f"up to {high}" if low in ("-int_oo", "-oo") else f"{low} to {high}"


def _list_same(symbol: ShapeSymbol, sizes: dict[str, list[Any]]) -> Iterator[str]:
    """List the inputs' dimensions that share a symbol beside its own: torch's duck shapes."""
    if symbol.record is None or symbol.record.kind != "created":
        return
    dimensions = [
        f"{name}.size()[{dim}]"
        for name, some in sizes.items()
        if name.startswith("l_")
        for dim, size in enumerate(some)
        if size == symbol.name
    ]
    yield from dimensions if len(dimensions) > 1 else ()


def _list_fixed(sizes: dict[str, list[Any]]) -> Iterator[FixedDimension]:
    for name, some in sizes.items():
        if name.startswith("l_") and any(isinstance(size, str) and _SYMBOL.search(size) for size in some):
            for dim, size in enumerate(some):
                if size in (0, 1) and isinstance(size, int) and not isinstance(size, bool):
                    yield FixedDimension(name, dim, size)


def _advise(symbol: ShapeSymbol) -> Iterator[str]:
    size = _SIZE.match(symbol.source or "")
    what = symbol.source or symbol.name
    for record in symbol.specialized:
        yield (
            f"{what} is compiled in as {record.value}: every other value is another compile, and mark_dynamic on it "
            "raises. If it is meant to vary, take the line that fixes it out of the compiled code, or write it without "
            "the number (a loop over a size, a comparison with ==, int() and a tensor of fixed size each fix it). "
            "If it never varies, nothing is to be done."
        )
    if symbol.specialized:
        return
    if symbol.is_unbacked:
        yield (
            "Its value is known only when the code runs, so no branch may depend on it. What you know of it, say with "
            "torch._check(condition) right after the line that makes it: torch then compiles that in, and raises "
            "where it is not so."
        )
        return
    for guard in symbol.guards:
        yield from _advise_guard(guard, symbol.name, size)
    if symbol.same:
        yield (
            f"{', '.join(symbol.same)} had one size when it was compiled, so torch took them for the same (duck "
            "shapes): a call in which they differ is compiled again. Compile with sizes that differ, or set "
            "torch.fx.experimental._config.use_duck_shape = False."
        )


def _advise_guard(guard: ShapeGuard, name: str, size: re.Match[str] | None) -> Iterator[str]:
    expression = guard.record.expression or ""
    compared, by_user = _COMPARED.match(expression), bool(guard.record.stack)
    if not by_user or "torch._check" in (guard.record.source_line or ""):
        return  # there is nothing to write, or it is written already
    if compared and compared["left"] == name and int(compared["right"]) != _INT32:
        limit, sign = int(compared["right"]), compared["sign"]
        # torch 2.13 wants both bounds: with one of them it raises an AssertionError.
        bound = f"min={limit + (sign == '>')}, max=…" if sign in (">", ">=") else f"min=2, max={limit - (sign == '<')}"
        side = f"A call on the other side of “{guard.words}” is compiled again: at most one more compile."
        if size:
            marked = f"torch._dynamo.mark_dynamic({size['tensor']}, {size['dim']}, {bound})"
            yield f"{side} If that never happens, {marked} says so, and raises where it does."
        else:
            yield f"{side} Take the comparison out of the compiled code, or warm up both sides."
    elif "Mod(" in expression and expression.startswith("Eq("):
        yield f"“{guard.words}” comes from splitting or viewing a size: pad to such a multiple to compile once."
