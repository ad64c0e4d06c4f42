"""Redact the user's source lines in torch's texts, keeping breaks and causes distinguishable.

Each line becomes `<source withheld 3fa9c1d2e4b5>`, the start of the SHA-256 of the stripped line:
`source_hash` reads it back, so fingerprints are the same with and without source.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .fingerprints import source_hash

_FILE = re.compile(r'^(?P<indent>[ \t]*)(?:-\s*)?File ".*?", line \d+(?:, in .*)?$')
_MARKS = re.compile(r"^[\s^~]+$")
# "k == 1      # x = self.l(x) * k  # models.py:83 in forward": the middle part is the user's line.
# A guard of several places has them all: "… (utils.py:42 in run_node) and y = k + 1  # models.py:84
# in forward". A data-dependent guard's line begins with "Caused by: if n > 0:  # models.py:85 in
# forward (torch/…)".
_COMMENT = re.compile(
    r"(?P<before>\s{2}# |\([^\s()]+:\d+ in [^\s()]+\) and |^\s*Caused by: )"
    r"(?P<code>\S.*?)(?P<after>\s*# \(?[^#\n]+?:\d+ in [^\s()]+)"
)
# torch writes none with a comment; a hostile one would take too long to search.
_LONG_LINE = 20_000
# FX's notation for the origin of a node, in graphs and in 2.13's hints: # File "m.py", line 3, in
# f, code: y = x + 1
_NODE = re.compile(r"(?P<before># File:? .*?, code: )(?P<code>.*\S)")
# Structured stacks have the line in `loc`; a SyntaxError in `text`, and a frame in `code`.
_CODE_KEYS = frozenset(("loc", "code", "source_line"))

_INTERPRETER = re.compile(r"(?:i?python|pypy|(?:ba|da|z|k|fi)?sh)[\d.]*t?")
# -c CODE, with other letters before it (bash -lc), or Python's -cCODE.
_CODE_OPTION = re.compile(r"(?P<option>-(?![mWX])[A-Za-z]*?c)(?P<code>.*)", re.DOTALL)
_VALUE_OPTIONS = frozenset(("-X", "-W", "-o", "--check-hash-based-pycs", "--rcfile", "--init-file"))


def redact_line(line: str) -> str:
    hashed = source_hash(line)
    if hashed is None:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return f"{indent}<source withheld {hashed}>"


def redact_source(value: Any) -> Any:
    if isinstance(value, str):
        return _redact_text(value)
    if isinstance(value, dict):
        # torch's counters use the text of a graph break, with the user's line, as a key.
        return {redact_source(key): _redact_entry(key, entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(redact_source(entry) for entry in value)  # it may be a key
    if isinstance(value, list | set | frozenset):
        return [redact_source(entry) for entry in value]
    return value


def redact_code(argv: list[str]) -> list[str]:
    """Replace the program after `-c` of Python or a shell in a command line."""
    redacted = list(argv)
    for position, word in enumerate(argv):
        if _INTERPRETER.fullmatch(word.rsplit("/", 1)[-1]):
            _redact_program(redacted, position + 1)
    return redacted


def _redact_program(argv: list[str], position: int) -> None:
    while position < len(argv) and argv[position].startswith("-") and argv[position] != "-m":
        option = _CODE_OPTION.fullmatch(argv[position])
        if option and option["code"]:
            argv[position] = option["option"] + _withhold(option["code"])
            return
        if option:
            argv[position + 1 : position + 2] = map(_withhold, argv[position + 1 : position + 2])
            return
        position += 2 if argv[position] in _VALUE_OPTIONS else 1


def _withhold(code: str) -> str:
    hashed = source_hash(code)
    return code if hashed is None else f"<source withheld {hashed}>"


def _redact_entry(key: Any, value: Any) -> Any:
    if key in _CODE_KEYS and isinstance(value, str):
        return "\n".join(redact_line(line) for line in value.split("\n"))
    return redact_source(value)


def _redact_text(text: str) -> str:
    if 'File "' not in text and "# " not in text:
        return text
    if text[:1] in "[{":
        nested = _redact_nested(text)
        if nested is not None:
            return nested
    lines = text.split("\n")
    redacted: list[str] = []
    frame_indent: int | None = None  # Of the last frame, while its source may follow.
    for line in lines:
        frame = _FILE.match(line)
        indent = len(line) - len(line.lstrip())
        if frame:
            frame_indent = len(frame["indent"])
            redacted.append(line)
        elif frame_indent is not None and line.strip() and indent > frame_indent:
            # A multi-line statement has several lines of carets; they show its length, not its
            # text.
            redacted.append(line if _MARKS.match(line) else redact_line(line))
        else:
            frame_indent = None
            redacted.append(_in_comment(line) if "# " in line else line)
    return "\n".join(redacted)


def _in_comment(line: str) -> str:
    if len(line) > _LONG_LINE:
        return redact_line(line)
    if _NODE.search(line):
        return _NODE.sub(lambda match: match["before"] + redact_line(match["code"]), line)
    return _COMMENT.sub(
        lambda match: match["before"] + redact_line(match["code"]) + match["after"], line
    )


def _redact_nested(text: str) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        return "[\n" + ",\n".join(json.dumps(redact_source(entry)) for entry in value) + "\n]"
    return json.dumps(redact_source(value))
