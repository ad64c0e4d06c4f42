"""Python's bytecode listings as rows, as dynamo logs them for code after a graph break.

Source: Lib/dis.py of 3.10 to 3.14: offsets and ">>" before jump targets up to 3.12, labels as "L1:"
from 3.13 on
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SUFFIXES = ("_ORIGINAL_BYTECODE", "_MODIFIED_BYTECODE")
MOST_ROWS = 5_000
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
    has_offsets = all(heads)  # without them, only the first instruction of a line has a number
    rows: list[BytecodeRow] = []
    for number, (line, match) in enumerate(zip(lines, matches, strict=True), 1):
        if match is not None:
            rows.append(_read(number, match, has_offsets))
        elif line.strip():
            rows.append(BytecodeRow(number, remark=line.strip()))
    return Bytecode(rows[:MOST_ROWS], has_offsets, len(rows))


def _read(number: int, match: re.Match[str], has_offsets: bool) -> BytecodeRow:
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
