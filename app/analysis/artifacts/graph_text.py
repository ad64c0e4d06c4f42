"""The text of a graph that torch printed: its parameters, and the types of the tensors in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from compileboard.collectors.formats.size_expressions import evaluate_size

# A tensor's type: dtype, sizes, and in newer texts strides and device.
_TENSOR = re.compile(
    r"(?P<dtype>[a-z]+\d\w*)\[(?P<size>[^\[\]]*)\](?:\[(?P<stride>[^\[\]]*)\](?P<device>[\w:]*))?"
)
_CLASS = re.compile(r"(?m)^class <?\w+>?\(")
MOST_CHARS = 4_000_000


@dataclass(frozen=True)
class TensorType:
    """A tensor's printed type. Units: size and stride in elements, a size may be an expression of
    symbols.
    """

    dtype: str
    size: tuple[str, ...]
    stride: tuple[str, ...] | None
    device: str

    def sizes(self, symbols: Mapping[str, int]) -> tuple[int, ...]:
        """Raises ValueError for an unknown symbol."""
        return tuple(evaluate_size(size, symbols) for size in self.size)

    def strides(self, symbols: Mapping[str, int]) -> tuple[int, ...]:
        """Return contiguous strides if the text has none. Raises ValueError for an unknown
        symbol.
        """
        if self.stride is not None:
            return tuple(evaluate_size(stride, symbols) for stride in self.stride)
        return list_contiguous_strides(self.sizes(symbols))

    def count_bytes(self, symbols: Mapping[str, int]) -> int:
        """Raises ValueError for an unknown symbol or dtype."""
        if self.dtype not in DTYPES:
            raise ValueError(f"{self.dtype[:40]!r} is no dtype that is known here")
        count = 1
        for size in self.sizes(symbols):
            count *= size
        return count * DTYPES[self.dtype][1]


# torch's short name: (its name, bytes of an element).
# Source: torch/utils/_dtype_abbrs.py
DTYPES = {
    "bf16": ("bfloat16", 2),
    "f64": ("float64", 8),
    "f32": ("float32", 4),
    "f16": ("float16", 2),
    "f8e4m3fn": ("float8_e4m3fn", 1),
    "f8e5m2": ("float8_e5m2", 1),
    "f8e4m3fnuz": ("float8_e4m3fnuz", 1),
    "f8e5m2fnuz": ("float8_e5m2fnuz", 1),
    "f8e8m0fnu": ("float8_e8m0fnu", 1),
    "c32": ("complex32", 4),
    "c64": ("complex64", 8),
    "c128": ("complex128", 16),
    "i8": ("int8", 1),
    "i16": ("int16", 2),
    "i32": ("int32", 4),
    "i64": ("int64", 8),
    "b8": ("bool", 1),
    "u8": ("uint8", 1),
    "u16": ("uint16", 2),
    "u32": ("uint32", 4),
    "u64": ("uint64", 8),
}


def parse_tensor_type(text: str) -> TensorType | None:
    """Parse a tensor type as torch prints it, such as `f32[8, s0][s0, 1]cuda:0`; None for anything
    else.
    """
    match = _TENSOR.match(text)
    if match is None or match["dtype"] not in DTYPES:
        return None
    stride = None if match["stride"] is None else _split(match["stride"])
    return TensorType(
        match["dtype"], _split(match["size"]), stride, (match["device"] or "").partition(":")[0]
    )


def _split(text: str) -> tuple[str, ...]:
    parts, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    return (*parts, text[begin:].strip()) if text.strip() else ()


def list_contiguous_strides(size: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for length in reversed(size):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def parse_graph(text: str) -> tuple[str, ast.FunctionDef]:
    """Return a graph's text as valid Python, and its forward method. Raises ValueError if it is no
    graph.
    """
    if len(text) > MOST_CHARS:
        raise ValueError(f"a graph of {len(text):,} characters; expected at most {MOST_CHARS:,}")
    graph = _CLASS.sub("class GraphModule(", text.strip("\n"), count=1)
    return graph, _find_forward(graph)


def parse_signature(text: str) -> ast.FunctionDef:
    """Return a graph's forward method without its body. Raises ValueError if the text is no
    graph.
    """
    head, colon, _body = text.partition("):\n        ")
    return parse_graph(f"{head}{colon}pass" if colon else text)[1]


def list_types(function: ast.FunctionDef) -> dict[str, str]:
    return {argument.arg: _annotation(argument) for argument in function.args.args[1:]}


def _find_forward(graph: str) -> ast.FunctionDef:
    try:
        body = ast.parse(graph).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the text is no graph that Python reads ({error})") from None
    for node in body[0].body if body and isinstance(body[0], ast.ClassDef) else ():
        if isinstance(node, ast.FunctionDef) and node.name == "forward" and node.args.args:
            return node
    raise ValueError("the text is no graph: expected a class with a forward method")


def _annotation(argument: ast.arg) -> str:
    written = argument.annotation
    return (
        written.value
        if isinstance(written, ast.Constant) and isinstance(written.value, str)
        else ""
    )
