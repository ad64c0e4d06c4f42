"""Turn a printed graph into a Python program that runs it.

The text has each input's type, sizes, strides and device, so no values are needed. torch's parser
of such texts makes only contiguous tensors whose sizes are numbers or single symbols; the program
makes the others too.

Source: torch/_dynamo/debug_utils.py aot_graph_input_parser of 2.11 and 2.13
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from compileboard.collectors.formats.torch_repro import evaluate_size, list_symbols

# A tensor's type: dtype, sizes, and in newer texts strides and device.
_TENSOR = re.compile(
    r"(?P<dtype>[a-z]+\d\w*)\[(?P<size>[^\[\]]*)\](?:\[(?P<stride>[^\[\]]*)\](?P<device>[\w:]*))?"
)
_CLASS = re.compile(r"(?m)^class <?\w+>?\(")
MAX_CHARS = 4_000_000


@dataclass(frozen=True)
class TensorType:
    """A tensor's printed type. Units: size and stride in elements; a size may be an expression of
    symbols.
    """

    dtype: str
    size: tuple[str, ...]
    stride: tuple[str, ...] | None
    device: str

    def sizes(self, symbols: Mapping[str, int]) -> tuple[int, ...]:
        """Return the sizes as numbers. Raises ValueError for an unknown symbol."""
        return tuple(evaluate_size(size, symbols) for size in self.size)

    def strides(self, symbols: Mapping[str, int]) -> tuple[int, ...]:
        """Return contiguous strides if the text has none. Raises ValueError for an unknown
        symbol.
        """
        if self.stride is not None:
            return tuple(evaluate_size(stride, symbols) for stride in self.stride)
        return list_contiguous_strides(self.sizes(symbols))

    def count_bytes(self, symbols: Mapping[str, int]) -> int:
        """Return the size in bytes. Raises ValueError for an unknown symbol or dtype."""
        if self.dtype not in DTYPES:
            raise ValueError(f"{self.dtype[:40]!r} is not a known dtype")
        count = 1
        for size in self.sizes(symbols):
            count *= size
        return count * DTYPES[self.dtype][1]


# torch's short name: (its name, bytes per element).
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
    """Parse a tensor type as torch prints it, such as `f32[8, s0][s0, 1]cuda:0`. None for another
    text.
    """
    match = _TENSOR.match(text)
    if match is None or match["dtype"] not in DTYPES:
        return None
    stride = None if match["stride"] is None else _split_sizes(match["stride"])
    return TensorType(
        match["dtype"],
        _split_sizes(match["size"]),
        stride,
        (match["device"] or "").partition(":")[0],
    )


def _split_sizes(text: str) -> tuple[str, ...]:
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
    """Return a graph's text as valid Python, and its forward method. Raises ValueError if it is not
    a graph.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"a graph of {len(text):,} characters; expected at most {MAX_CHARS:,}")
    graph = _CLASS.sub("class GraphModule(", text.strip("\n"), count=1)
    return graph, _find_forward(graph)


def parse_signature(text: str) -> ast.FunctionDef:
    """Return a graph's forward method without its body. Raises ValueError if the text is not a
    graph.
    """
    head, colon, _body = text.partition("):\n        ")
    return parse_graph(f"{head}{colon}pass" if colon else text)[1]


def list_types(function: ast.FunctionDef) -> dict[str, str]:
    return {argument.arg: _get_annotation(argument) for argument in function.args.args[1:]}


def _find_forward(graph: str) -> ast.FunctionDef:
    try:
        body = ast.parse(graph).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a graph that Python can parse ({error})") from None
    for node in body[0].body if body and isinstance(body[0], ast.ClassDef) else ():
        if isinstance(node, ast.FunctionDef) and node.name == "forward" and node.args.args:
            return node
    raise ValueError("not a graph: expected a class with a forward method")


def _get_annotation(argument: ast.arg) -> str:
    written = argument.annotation
    return (
        written.value
        if isinstance(written, ast.Constant) and isinstance(written.value, str)
        else ""
    )


RUNNABLE = ("aot_forward_graph", "aot_backward_graph", "aot_inference_graph")
UNRECORDED_SIZE = 8  # The value of a symbol without a recorded one.
_SYMBOL = re.compile(r"Sym\((?P<size>.+)\)")
_PARSED_SYMBOL = re.compile(r"Sym\(s\d+\)")
_CONSTANT = re.compile(r'(?m)^\s+\w+(?:: "(?P<type>[^"\n]*)")? = self\.(?P<name>\w+)')
_GENERATOR = re.compile(r"(?:fwd|bwd)_rng_state_\d+")

_TEMPLATE = '''"""{title}

    python {file_name} [DEVICE]

Inputs are random, of the recorded types, sizes and strides. \
Without a DEVICE it runs where it was recorded, if it can.
"""

import sys

import torch
from torch import fx, inf, nan  # names that a printed graph may use
from torch._dynamo.debug_utils import aot_graph_input_parser
from torch.utils._pytree import tree_leaves

RECORDED_ON = {device!r}
SYMBOLS = {symbols!r}{unrecorded}
STRIDED = {strided!r}  # size and stride of what is not contiguous
TENSORS = {tensors!r}  # dtype, size and stride of inputs that the parser does not make
NUMBERS = {numbers!r}
GENERATORS = {generators!r}
CONSTANTS = {constants!r}  # attributes of the module, their values are not in the text

if len(sys.argv) > 1:
    DEVICE = sys.argv[1]
else:
    DEVICE = RECORDED_ON if RECORDED_ON != "cuda" or torch.cuda.is_available() else "cpu"


def device(type, index=None):
    """Stand in for torch.device: a graph recorded elsewhere runs on DEVICE."""
    return torch.device(DEVICE if type == RECORDED_ON else type)


{graph}


def make_tensor(dtype, size, stride):
    length = 1 + sum((n - 1) * step for n, step in zip(size, stride)) if all(size) else 0
    flat = torch.randn(length, device=DEVICE) if dtype.is_floating_point \
else torch.zeros(length, device=DEVICE)
    return flat.to(dtype).as_strided(size, stride)


def make_inputs():
    inputs = aot_graph_input_parser(GraphModule.forward, device=DEVICE, sym_shapes=SYMBOLS)
    for name, (size, stride) in STRIDED.items():
        inputs[name] = make_tensor(inputs[name].dtype, size, stride)
    for name, (dtype, size, stride) in TENSORS.items():
        inputs[name] = make_tensor(getattr(torch, dtype), size, stride)
    inputs.update(NUMBERS)
    inputs.update((name, torch.Generator(DEVICE)) for name in GENERATORS)
    add_attributes(inputs["self"], GraphModule)
    for name, (dtype, size, stride) in CONSTANTS.items():
        setattr(inputs["self"], name, make_tensor(getattr(torch, dtype), size, stride))
    return inputs


def add_attributes(module, graph_class):
    """Make the graphs inside a graph attributes of it, as they are in the module."""
    for name, inner in vars(graph_class).items():
        if isinstance(inner, type):
            setattr(module, name, inner())
            add_attributes(getattr(module, name), inner)


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.no_grad():
        inputs = make_inputs()
        outputs = GraphModule.forward(**inputs)
    print(len(inputs) - 1, "inputs on", DEVICE)
    for number, value in enumerate(tree_leaves(outputs)):
        if isinstance(value, torch.Tensor):
            print("output", number, str(value.dtype).removeprefix("torch."), list(value.shape))
        else:
            print("output", number, value)
'''


@dataclass
class _Inputs:
    types: dict[str, str] = field(default_factory=dict)  # passed to torch's parser
    strided: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    tensors: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    generators: list[str] = field(default_factory=list)


def build_graph_program(text: str, symbols: Mapping[str, int], title: str, file_name: str) -> str:
    """Return a program that runs a graph's text; `symbols` are the recorded values.

    Raises ValueError if the text is not a graph, or does not describe an input.
    """
    graph, function = parse_graph(text)
    types = list_types(function)
    device, unrecorded, known = "cpu", dict[str, int](), dict(symbols)
    for written in [*types.values(), *(match["type"] or "" for match in _CONSTANT.finditer(graph))]:
        for size in _list_sizes(written):
            unrecorded |= {
                symbol: UNRECORDED_SIZE for symbol in list_symbols(size) if symbol not in symbols
            }
        tensor = parse_tensor_type(written)
        if tensor is not None and tensor.device not in ("", "cpu"):
            device = tensor.device
    known |= unrecorded
    inputs = _read_inputs(types, known)
    lines = graph.split("\n")
    end = function.body[0].lineno - 1
    head = "\n".join(lines[:end])
    for name, written in types.items():
        put = f'{name}: "{inputs.types[name]}"' if name in inputs.types else name
        head = head.replace(f'{name}: "{written}"', put, 1)
    used = {
        symbol
        for written in types.values()
        for size in _list_sizes(written)
        for symbol in list_symbols(size)
    }
    names = ", ".join(sorted(unrecorded))
    return _TEMPLATE.format(
        title=title.replace("\\", "").replace('"', "'"),
        file_name=file_name,
        device=device,
        symbols={symbol: known[symbol] for symbol in sorted(used)},
        unrecorded=f"  # not recorded, so {UNRECORDED_SIZE}: {names}" if unrecorded else "",
        strided=inputs.strided,
        tensors=inputs.tensors,
        numbers=inputs.numbers,
        generators=inputs.generators,
        constants=_read_constants(graph, known),
        graph="\n".join([head, *lines[end:]]),
    )


def _list_sizes(written: str) -> tuple[str, ...]:
    tensor = parse_tensor_type(written)
    if tensor is not None:
        return (*tensor.size, *(tensor.stride or ()))
    symbol = _SYMBOL.fullmatch(written)
    return () if symbol is None else (symbol["size"],)


def _read_inputs(types: Mapping[str, str], symbols: Mapping[str, int]) -> _Inputs:
    inputs = _Inputs()
    for name, written in types.items():
        tensor, symbol = parse_tensor_type(written), _SYMBOL.fullmatch(written)
        if tensor is not None:
            size, stride = tensor.sizes(symbols), tensor.strides(symbols)
            if tensor.dtype.startswith("f8"):  # torch cannot draw random numbers of these types
                inputs.tensors[name] = (DTYPES[tensor.dtype][0], size, stride)
                continue
            inputs.types[name] = f"{tensor.dtype}{list(size)}"
            if stride != list_contiguous_strides(size):
                inputs.strided[name] = (size, stride)
        elif symbol is not None:
            if _PARSED_SYMBOL.fullmatch(written):
                inputs.types[name] = written
            else:
                inputs.numbers[name] = evaluate_size(symbol["size"], symbols)
        elif _GENERATOR.fullmatch(name):
            inputs.generators.append(name)
        else:
            raise ValueError(
                f"input {name}: the text does not state its type ({written or 'no type'})"
            )
    return inputs


def _read_constants(
    graph: str, symbols: Mapping[str, int]
) -> dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]]:
    constants = {}
    for match in _CONSTANT.finditer(graph):
        tensor = parse_tensor_type(match["type"] or "")
        if tensor is not None:
            constants[match["name"]] = (
                DTYPES[tensor.dtype][0],
                tensor.sizes(symbols),
                tensor.strides(symbols),
            )
    return constants
