"""Trim torch's repro scripts and parse the inputs in them, as text. Needs only the standard
library.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections.abc import Mapping
from math import prod
from typing import Any

from ...contract.repros import ReproInput, Size
from ...contract.secrets import WITHHELD, scrub_environment, scrub_text

_MAIN = re.compile(r"^if __name__ == ['\"]__main__['\"]:", re.MULTILINE)
_IMPORT = re.compile(r"^import torch$", re.MULTILINE)
_SYMBOL = re.compile(r"^([A-Za-z_]\w*) = (-?\d+)$")
_COMMENT = re.compile(r"[ \t]*# File:? .*")
_SETTING = re.compile(
    r"^(?P<name>torch\.[\w.]*config\.[\w.]+) = (?P<value>.*(?:\n(?!torch\.|import |\n).*)*)", re.M
)
_KNOWN = {*dir(builtins), "torch", "tensor", "device", "inf", "nan"}
_READ = re.compile(
    r"^(?:(?P<storage>\w+) = )?reader\.(?P<kind>\w+)\((?P<arguments>.*)\)(?:\s+# (?P<name>.+))?$"
)
# Folders, logs and debugging of the process that wrote the script are none of the one that runs it.
_NOT_ITS_OWN = re.compile(r"DIR|PATH|TRACE|LOGS|DEBUG|REPRO_|CACHE|ELASTIC")
_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Any] = {
    "Max": max,
    "Min": min,
    "FloorDiv": operator.floordiv,
    "PythonMod": operator.mod,
    "Mod": operator.mod,
}
MAX_EXPONENT = 64


def trim_script(text: str, environment: Mapping[str, str], *, keep_source: bool = True) -> str:
    main = _MAIN.search(text)
    text = text[: main.start()] if main else text
    imported = _IMPORT.search(text)
    if imported is not None:
        symbols = [line for line in text[: imported.start()].splitlines() if _SYMBOL.match(line)]
        text = "\n".join(
            [*symbols, "import os", *_variables(environment), text[imported.start() :]]
        )
    if not keep_source:
        text = _COMMENT.sub("", text)
    return scrub_text(_leave_out_objects(text)).rstrip() + "\n"


def _leave_out_objects(text: str) -> str:
    """Replace settings whose value is an object by comments, because torch writes its repr."""
    imported = {name.split(".")[0] for name in re.findall(r"^import ([\w.]+)", text, re.M)}
    known = _KNOWN | imported - {"__main__"}

    def write(setting: re.Match[str]) -> str:
        try:
            names = {
                node.id
                for node in ast.walk(ast.parse(setting["value"], mode="eval"))
                if isinstance(node, ast.Name)
            }
        except (SyntaxError, ValueError):
            names = {"__main__"}
        if names <= known:
            return setting[0]
        return f"# left out: {setting['name']}, whose value is an object of the program's"

    return _SETTING.sub(write, text)


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _variables(environment: Mapping[str, str]) -> list[str]:
    stored = scrub_environment(environment)
    return [
        f"os.environ[{name!r}] = {value!r}"
        for name, value in stored.items()
        if WITHHELD not in value and name.startswith("TORCH") and not _NOT_ITS_OWN.search(name)
    ]


def read_symbols(text: str) -> dict[str, int]:
    symbols: dict[str, int] = {}
    for line in text.splitlines():
        match = _SYMBOL.match(line)
        if match:
            symbols[match[1]] = int(match[2])
        elif line.strip():
            break
    return symbols


def read_inputs(text: str) -> tuple[ReproInput, ...]:
    """Return the inputs described by a script's `load_args`, in order.

    Raises ValueError if it has none or one cannot be parsed.
    """
    start = text.find("def load_args(reader):")
    if start < 0:
        raise ValueError("this script has no load_args(reader): it is none of torch's")
    inputs: list[ReproInput] = []
    storages: dict[str, dict[str, Any]] = {}
    symbols = read_symbols(text)
    is_quoted = False
    for line in text[start:].splitlines()[1:]:
        if line and not line[0].isspace():
            break
        if line.strip() == '"""':  # parts of what could not be written
            is_quoted = not is_quoted
        match = None if is_quoted else _READ.match(line.strip())
        if match is None:
            continue
        positional, named = _arguments(match["arguments"])
        if match["kind"] == "storage":
            size = evaluate(str(positional[1]), symbols) if len(positional) > 1 else None
            storage = {
                "storage": len(storages),
                "storage_bytes": size,
                "device": named.get("device", "cpu"),
            }
            storages[match["storage"] or ""] = storage
        else:
            name = match["name"] or f"input_{len(inputs)}"
            inputs.append(_read_input(match["kind"], name, positional, named, storages))
    return tuple(inputs)


def _read_input(
    kind: str,
    name: str,
    positional: list[Any],
    named: dict[str, Any],
    storages: dict[str, dict[str, Any]],
) -> ReproInput:
    if kind == "tensor":
        shape = tuple(positional[1])
        stride = tuple(positional[2]) if len(positional) > 2 else contiguous_stride(shape)
        return ReproInput(
            name=name,
            dtype=str(named.get("dtype", "float32")).removeprefix("torch."),
            shape=shape,
            stride=stride,
            storage_offset=named.get("storage_offset", 0),
            requires_grad=bool(named.get("requires_grad", False)),
            **storages[positional[0]],
        )
    if kind == "symint":
        value = positional[0] if positional else None
        if isinstance(value, int):
            expression = named.get("expr")
            return ReproInput(
                name=name,
                kind="symint" if expression else "int",
                value=value,
                expression=expression,
            )
        return ReproInput(name=name, kind="symint", expression=str(value))
    if kind == "const":
        return ReproInput(name=name.partition(",")[0], kind="none")
    words = name if kind == "unsupported" else kind
    label = str(positional[0]) if kind == "unsupported" and positional else name
    return ReproInput(
        name=label, kind="other", value=words.removeprefix("unsupported type for dumping: ")
    )


def _arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"a line of load_args cannot be read: {text[:80]}") from error
    assert isinstance(call, ast.Call)
    return [_plain(part) for part in call.args], {
        part.arg or "": _plain(part.value) for part in call.keywords
    }


def _plain(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(_plain(part) for part in node.elts)
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        return (
            -node.operand.value
            if isinstance(node.operand.value, (int, float))
            else ast.unparse(node)
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "device":
        parts = {part.arg: _plain(part.value) for part in node.keywords}
        parts["type"] = parts.get("type") or (_plain(node.args[0]) if node.args else "cpu")
        return str(parts["type"]) + (f":{parts['index']}" if parts.get("index") is not None else "")
    return ast.unparse(node)


def contiguous_stride(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    return tuple(_product(shape[dim + 1 :]) for dim in range(len(shape)))


def _product(sizes: tuple[Size, ...]) -> Size:
    number = prod(max(size, 1) for size in sizes if isinstance(size, int))
    expressions = [
        size if size.isidentifier() else f"({size})" for size in sizes if isinstance(size, str)
    ]
    if not expressions:
        return number
    return "*".join([*([str(number)] if number != 1 else []), *expressions])


def evaluate(expression: str, symbols: Mapping[str, int]) -> int | None:
    try:
        return _value(ast.parse(expression, mode="eval").body, symbols)
    except (SyntaxError, ValueError, KeyError, ArithmeticError, RecursionError):
        return None


def _value(node: ast.expr, symbols: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    if isinstance(node, ast.Name):
        return symbols[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, symbols)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, symbols), _value(node.right, symbols)
        if isinstance(node.op, ast.Pow) and not 0 <= right <= MAX_EXPONENT:
            raise ValueError(ast.unparse(node))
        return int(_OPERATORS[type(node.op)](left, right))
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _FUNCTIONS
    ):
        return int(_FUNCTIONS[node.func.id](*(_value(part, symbols) for part in node.args)))
    raise ValueError(ast.unparse(node))


def count_calls(text: str) -> int | None:
    match = re.search(r"^    def forward\(.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    try:
        body = ast.parse(_dedent(match[0])).body[0].body if match else []  # type: ignore[attr-defined]
    except (SyntaxError, IndexError, RecursionError):
        return None
    return (
        sum(
            isinstance(part, (ast.Assign, ast.Expr)) and isinstance(part.value, ast.Call)
            for part in body
        )
        or None
    )


def _dedent(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())
