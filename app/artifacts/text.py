"""Parse and highlight artifact texts: code as coloured HTML lines, bytecode, metadata fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Annotated

from markupsafe import Markup

LANGUAGES = ("python", "graph", "cpp", "json", "text")
COLOUR_LIMIT_CHARS = 400_000  # ≈ 0.12 s; the largest output code of the recorded models has 247,000
_NESTED_LIMIT = 4  # a kernel in a string in a runnable has depth 2
_LINE_BREAK = re.compile(r"\r\n?")
_PICTURES = str.maketrans({"\0": "␀", "\x0b": "␋", "\x0c": "␌", "\x1b": "␛"})  # not allowed in HTML

_PYTHON_STRING = (
    r"(?P<s>(?:\b[rbfuRBFU]{1,2})?(?:'''[^'\\]*(?:(?:\\(?:[\s\S]|\Z)|'(?!''))[^'\\]*)*(?:'''|\Z)"
    r'|"""[^"\\]*(?:(?:\\(?:[\s\S]|\Z)|"(?!""))[^"\\]*)*(?:"""|\Z)'
    r"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'?|" + r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?))'
)
_PYTHON_REST = (
    r"|(?P<c>\#[^\n]*)|(?P<n>\b(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?j?))"
    r"|(?P<d>(?m:^[ \t]*)@[\w.]+)|(?P<f>(?:(?<=\bdef )|(?<=\bclass "
    r"))\w+|\btorch\.ops\.[\w.]+)|(?P<w>[^\W\d]\w*)"
)
# A tensor's type, as in "f32[8, 128][128, 1]cuda:0" or "Sym(s0)"; text after a semicolon only frees
# memory.
_GRAPH_FIRST = r'(?P<t>"(?:b?f|c|i|u|b|Sym)\w*[\[(][^"\n]*")|(?P<x>;[ \t]+\w+(?: = \w+)* = None)|'
_CPP = (
    r'(?P<c>//[^\n]*|/\*[\s\S]*?(?:\*/|\Z))|(?P<s>"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|'
    + r"'(?:\\.|[^'\\\n])')"
    r"|(?P<d>(?m:^)[ "
    r"\t]*\#[^\n]*)|(?P<n>\b(?:0[xX][\da-fA-F]+|\d[\d']*(?:\.\d*)?(?:[eE][+-]?\d+)?)[fFuUlLzZ]*)"
    r"|(?P<w>[^\W\d]\w*)"
)
_JSON = (
    r'(?P<f>"[^"\\\n]*(?:\\.[^"\\\n]*)*"(?=\s*:))|(?P<s>"[^"\\\n]*(?:\\.[^"\\\n]*)*"?)'
    r"|(?P<n>-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<w>[a-z]+)"
)


def _mark_words(kind: str, words: str) -> dict[str, str]:
    return dict.fromkeys(words.split(), kind)


_PYTHON_WORDS = _mark_words(
    "k",
    "and as assert async await break case class continue def del elif else except finally for "
    "from global if import in "
    "is lambda match nonlocal not or pass raise return try while with yield",
) | _mark_words("b", "None True False self cls")
_CPP_WORDS = _mark_words(
    "k",
    "alignas alignof auto break case catch class const constexpr continue default delete do "
    "else enum explicit extern "
    "false for friend if inline namespace new noexcept nullptr operator private public return "
    "sizeof static "
    "static_assert static_cast reinterpret_cast struct switch template this throw true try "
    "typedef typename using "
    "virtual volatile while",
) | _mark_words(
    "t",
    "void bool char short int long float double unsigned signed size_t int8_t uint8_t int16_t "
    "uint16_t int32_t "
    "uint32_t int64_t uint64_t bfloat16 half",
)


@dataclass(frozen=True)
class _Language:
    token: re.Pattern[str]
    words: Mapping[str, str]


_KNOWN = {
    "python": _Language(re.compile(_PYTHON_STRING + _PYTHON_REST), _PYTHON_WORDS),
    "graph": _Language(re.compile(_GRAPH_FIRST + _PYTHON_STRING + _PYTHON_REST), _PYTHON_WORDS),
    "cpp": _Language(re.compile(_CPP), _CPP_WORDS),
    "json": _Language(re.compile(_JSON), dict.fromkeys(("true", "false", "null"), "b")),
}
_KERNEL = re.compile(
    r"^\s*(?:(?P<cpp>\#include|extern \"C\"|\#pragma)|(?:import|from|@|def|class)\s?\w)",
    re.MULTILINE,
)
_QUOTED = re.compile(r"(?P<open>\w*('''|\"\"\"))(?P<body>.*?)(?P<close>\2)?\Z", re.DOTALL)


class CodeLines(list[Markup]):
    plain_because: str = ""


def highlight(text: str, language: str) -> CodeLines:
    """Colour and escape a text; beyond COLOUR_LIMIT_CHARS only escape it. Raises ValueError for an
    unknown language.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language: {language!r} is not one of {', '.join(LANGUAGES)}.")
    text = _LINE_BREAK.sub("\n", text).translate(_PICTURES).removesuffix("\n")
    plain = language == "text" or len(text) > COLOUR_LIMIT_CHARS
    html = escape(text, quote=False) if plain else "".join(_colour_tokens(text, language))
    lines = CodeLines(map(Markup, html.split("\n")))
    if plain and language != "text":
        lines.plain_because = (
            f"Shown without colours: {len(text):,} characters are more than {COLOUR_LIMIT_CHARS:,}."
        )
    return lines


def indent_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _colour_tokens(text: str, language: str, depth: int = 0) -> Iterator[str]:
    words, at = _KNOWN[language].words, 0
    special = _SPECIAL.get(language, {})
    for match in _KNOWN[language].token.finditer(text):
        kind, token = match.lastgroup or "", match.group()
        if kind == "w":
            kind = words.get(token, "")
            if not kind:
                continue
        begin = match.start()
        if begin > at:
            yield escape(text[at:begin], quote=False)
        at = match.end()
        if kind in special:
            yield from special[kind](token, language, depth)
        else:
            yield _format_token(kind, token)
    if at < len(text):
        yield escape(text[at:], quote=False)


def _format_token(kind: str, token: str) -> str:
    inner = escape(token, quote=False)
    if "\n" in inner:
        inner = inner.replace("\n", f'</span>\n<span class="{kind}">')
    return f'<span class="{kind}">{inner}</span>'


def _format_string(token: str, language: str, depth: int) -> Iterable[str]:
    quoted = _QUOTED.match(token) if "\n" in token and depth < _NESTED_LIMIT else None
    kernel = _KERNEL.search(quoted["body"]) if quoted else None
    if quoted is None or kernel is None:
        yield _format_token("s", token)
        return
    yield _format_token("s", quoted["open"])
    yield from _colour_tokens(quoted["body"], "cpp" if kernel["cpp"] else "python", depth + 1)
    if quoted["close"]:
        yield _format_token("s", quoted["close"])


def _format_comment(token: str, language: str, depth: int) -> Iterable[str]:
    location, mark, code = token.partition(", code: ")
    yield _format_token("c", location + mark)
    if code:
        yield _format_token("u", code)


_SPECIAL = {
    "python": {"s": _format_string, "c": _format_comment},
    "graph": {"s": _format_string, "c": _format_comment},
}


SUFFIXES = ("_ORIGINAL_BYTECODE", "_MODIFIED_BYTECODE")
MAX_ROWS = 5_000
_INSTRUCTION = re.compile(
    r"(?P<head>[\s\d>:L-]*?)(?P<opcode>[A-Z][A-Z0-9_]{2,}|<\d+>)(?:\s+(?P<argument>-?\d+))?(?:\s+\((?P<value>.*)\))?\s*"
)
_LABEL = re.compile(r"\bL\d+(?=:)")
_NUMBER = re.compile(r"(?<![L\d])\d+")


@dataclass(frozen=True)
class BytecodeRow:
    number: int
    line: str = ""
    offset: str = ""
    target: str = ""
    opcode: str = ""
    argument: str = ""
    value: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Bytecode:
    rows: Sequence[BytecodeRow]
    has_offsets: bool
    row_count: int


def is_bytecode(name: str) -> bool:
    return name.endswith(SUFFIXES)


def parse_bytecode(text: str) -> Bytecode | None:
    lines = text.split("\n")
    matches = [_INSTRUCTION.fullmatch(line) if len(line) < 4_000 else None for line in lines]
    heads = [_NUMBER.findall(match["head"]) for match in matches if match is not None]
    if not heads:
        return None
    has_offsets = all(heads)  # otherwise only the first instruction of a line has a number
    rows: list[BytecodeRow] = []
    for number, (line, match) in enumerate(zip(lines, matches, strict=True), 1):
        if match is not None:
            rows.append(_read_bytecode_row(number, match, has_offsets))
        elif line.strip():
            rows.append(BytecodeRow(number, remark=line.strip()))
    return Bytecode(rows[:MAX_ROWS], has_offsets, len(rows))


def _read_bytecode_row(number: int, match: re.Match[str], has_offsets: bool) -> BytecodeRow:
    head = match["head"]
    numbers = _NUMBER.findall(head)
    label = _LABEL.search(head)
    return BytecodeRow(
        number,
        line=numbers[0] if len(numbers) > has_offsets else "",
        offset=numbers[-1] if has_offsets else "",
        target=label[0] if label is not None else ">>" if ">>" in head else "",
        opcode=match["opcode"],
        argument=match["argument"] or "",
        value=match["value"] or "",
    )


_TOKEN = re.compile(
    r"'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"|[(\[{]|[)\]}]|, ", re.DOTALL
)
_FIELD = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_CALL = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)\s*\Z", re.DOTALL | re.ASCII)


@dataclass(frozen=True)
class FieldChange:
    """A metadata field whose value differs between two artifacts."""

    name: Annotated[str, "Name of the field."]
    before: Annotated[str | None, "Value before; null where it was not there."]
    after: Annotated[str | None, "Value after; null where it is not there."]


def split_arguments(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for token in _TOKEN.finditer(text):
        what = token[0]
        if what in "([{":
            depth += 1
        elif what in ")]}":
            depth = max(depth - 1, 0)
        elif what == ", " and not depth:
            parts.append(text[start : token.start()])
            start = token.end()
    return [part for part in (*parts, text[start:]) if part.strip()]


def read_fields(text: str) -> dict[str, str] | None:
    call = _CALL.match(text)
    if call is None:
        return None
    fields = {}
    for part in split_arguments(call[2]):
        named = _FIELD.match(part)
        if named is None:
            return None
        fields[named[1]] = part[named.end() :]
    return fields


def compare_fields(before: dict[str, str], after: dict[str, str]) -> tuple[FieldChange, ...]:
    names = list(dict.fromkeys((*before, *after)))
    return tuple(
        FieldChange(name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )
