"""Parse the scripts that torch writes for a failure: `repro.py`, `minifier_launcher.py`,
checkpoints, `fx_graph_runnable`. They are read through their syntax tree and never executed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compileboard.collectors.contract.repros import (
    MAX_PROGRAM_CHARS,
    ReproInput,
    ReproManifest,
    Size,
)

MAX_CHARS = 2_000
MAX_POWER = 64
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


_CALLS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("FloorDiv", "CleanDiv", "IntTrueDiv"), operator.floordiv),
    **dict.fromkeys(("Mod", "PythonMod"), operator.mod),
    **dict.fromkeys(("Max", "max"), max),
    **dict.fromkeys(("Min", "min"), min),
    "CeilDiv": lambda left, right: -(-left // right),
    **dict.fromkeys(
        ("floor", "TruncToInt", "ToFloat", "FloorToInt", "Identity"), lambda value: value
    ),
}


def evaluate_size(size: int | str, symbols: Mapping[str, Any]) -> Any:
    """Return a size for values of its symbols, which may be numbers or torch's symbolic ints.

    Raises ValueError for an unknown symbol or an expression that is not arithmetic.
    """
    if isinstance(size, int):
        return size
    if len(size) > MAX_CHARS:
        raise ValueError(f"a size of {len(size):,} characters; expected at most {MAX_CHARS:,}")
    try:
        return _evaluate(ast.parse(size.strip(), mode="eval").body, symbols)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError, TypeError) as error:
        raise ValueError(
            f"{size[:80]!r} is not a size: expected arithmetic of symbols ({error})"
        ) from None


def list_symbols(size: int | str) -> list[str]:
    if isinstance(size, int):
        return []
    try:
        tree = ast.parse(size.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return sorted(
        {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and id(node) not in called
        }
    )


def _evaluate(node: ast.expr, symbols: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in symbols:
            raise ValueError(f"the size of symbol {node.id!r} is not recorded")
        return symbols[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, symbols)
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, symbols), _evaluate(node.right, symbols)
        if isinstance(node.op, ast.Div):
            return left // right  # sympy writes an exact division as a fraction
        if (
            isinstance(node.op, ast.Pow)
            and isinstance(node.right, ast.Constant)
            and 0 <= right <= MAX_POWER
        ):
            return left**right
        if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](left, right)
    node = _join_ceiling(node)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _CALLS
        and not node.keywords
    ):
        return _CALLS[node.func.id](*(_evaluate(part, symbols) for part in node.args))
    raise ValueError(f"{ast.unparse(node)[:80]!r} is not a size: expected arithmetic of symbols")


def _join_ceiling(node: ast.expr) -> ast.expr:
    """Replace CeilToInt(IntTrueDiv(a, b)) by CeilDiv(a, b), because a plain division would be exact
    or rounded down.
    """
    match node:
        case ast.Call(
            func=ast.Name(id="CeilToInt"),
            args=[ast.Call(func=ast.Name(id="IntTrueDiv"), args=[_, _] as parts)],
        ):
            return ast.Call(func=ast.Name(id="CeilDiv"), args=parts, keywords=[])
    return node


_TAIL = re.compile(r"^if __name__ == ['\"]__main__['\"]:", re.MULTILINE)
_COMMENT = re.compile(r"#\s*([A-Za-z_]\w*)")
_VERSION = re.compile(r"^# torch version: (\S+)", re.MULTILINE)
_CUDA_VERSION = re.compile(r"^# torch cuda version: (\S+)", re.MULTILINE)
_GPU = re.compile(r"^# GPU Hardware Info:\s*\n# (.+?) : \d+", re.MULTILINE)


class NoTorchRepro(ValueError):
    pass


@dataclass(frozen=True)
class TorchScript:
    manifest: ReproManifest
    program: str  # without its last part
    hashes: dict[int, str] = field(
        default_factory=dict
    )  # Hashes in torch's content store, by storage number.
    save_dir: str | None = None  # the content store's folder, on the machine that wrote it


def parse_torch_script(text: str) -> TorchScript:
    """Parse one of torch's repro scripts. Raises NoTorchRepro with a message for the user."""
    if len(text) > MAX_PROGRAM_CHARS:
        raise NoTorchRepro(
            f"this script has {len(text):,} characters; expected at most {MAX_PROGRAM_CHARS:,}"
        )
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NoTorchRepro(f"this is not valid Python ({error})") from None
    if not any(isinstance(node, ast.ClassDef) and node.name == "Repro" for node in tree.body):
        raise NoTorchRepro("this script has no `class Repro`, as torch's repro scripts have")
    reader = _ArgumentReader(text.splitlines(), _read_symbols(tree))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "load_args":
            reader.read(node)
    call = _find_call(tree)
    backend = call.get("backend")
    is_dynamo = (
        "torch._dynamo.repro.after_dynamo" in text[_program_end(text) :] or "backend" in call
    )
    accuracy = call.get("accuracy")
    manifest = ReproManifest(
        kind="accuracy" if accuracy not in (None, False, "", "False") else "compile",
        level="dynamo" if is_dynamo else "aot",
        backend=backend if isinstance(backend, str) else ("inductor" if not is_dynamo else None),
        message=call.get("check_str"),
        inputs=tuple(reader.inputs),
        symbols=reader.symbols,
        node_count=len(_list_results(tree)) or None,
        versions={name: match and match.group(1) for name, match in _match_versions(text) if match},
        device=_find_gpu(text, reader.inputs),
        source="torch",
    )
    save_dir = call.get("save_dir")
    return TorchScript(
        manifest,
        text[: _program_end(text)].rstrip() + "\n",
        reader.hashes,
        save_dir if save_dir else None,
    )


def strip_tail(text: str) -> str:
    return text[: _program_end(text)].rstrip() + "\n"


def _program_end(text: str) -> int:
    tails = list(_TAIL.finditer(text))
    return tails[-1].start() if tails else len(text)


def _match_versions(text: str) -> list[tuple[str, re.Match[str] | None]]:
    cuda = _CUDA_VERSION.search(text)
    return [
        ("torch", _VERSION.search(text)),
        ("cuda", cuda if cuda and cuda.group(1) != "None" else None),
    ]


def _find_gpu(text: str, inputs: list[ReproInput]) -> str:
    gpu = _GPU.search(text)
    if gpu and any((entry.device or "cpu") != "cpu" for entry in inputs):
        return gpu.group(1).strip()
    return (
        next((entry.device for entry in inputs if entry.device not in (None, "cpu")), None) or "cpu"
    )


def _read_symbols(tree: ast.Module) -> dict[str, int]:
    symbols: dict[str, int] = {}
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
            and type(node.value.value) is int
        ):
            symbols[node.targets[0].id] = node.value.value
    return symbols


def _find_call(tree: ast.Module) -> dict[str, Any]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "run_repro"
        ):
            return {word.arg: _read_constant(word.value) for word in node.keywords if word.arg}
    return {}


def list_results(text: str) -> list[str]:
    """Return the names to which `forward` assigns the results of its calls, in order; they are the
    graph's call nodes.
    """
    try:
        return _list_results(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _list_results(tree: ast.Module) -> list[str]:
    forwards = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "forward"
    ]
    return [
        part.targets[0].id
        for part in (forwards[0].body if forwards else ())
        if isinstance(part, ast.Assign)
        and isinstance(part.targets[0], ast.Name)
        and not isinstance(part.value, (ast.Constant, ast.Name, ast.Attribute))
    ]


class _ArgumentReader:
    def __init__(self, lines: list[str], symbols: dict[str, int]) -> None:
        self.lines = lines
        self.symbols = symbols
        self.inputs: list[ReproInput] = []
        self.hashes: dict[int, str] = {}
        self._storages: dict[
            str, tuple[int, int | None, str]
        ] = {}  # variable: number, bytes, device

    def read(self, function: ast.FunctionDef) -> None:
        for statement in function.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                target = statement.targets[0]
                if isinstance(target, ast.Name):
                    self._read_storage(target.id, statement.value)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._read_input(statement.value)
        symbols = {name: value for name, value in self.symbols.items() if self._is_used(name)}
        self.symbols = symbols

    def _is_used(self, name: str) -> bool:
        word = re.compile(rf"\b{re.escape(name)}\b")
        return any(
            word.search(str(part))
            for entry in self.inputs
            for part in (
                *(entry.shape or ()),
                *(entry.stride or ()),
                entry.storage_offset,
                entry.expression,
            )
        )

    def _read_storage(self, variable: str, call: ast.Call) -> None:
        if (
            not isinstance(call.func, ast.Attribute)
            or call.func.attr != "storage"
            or len(call.args) < 2
        ):
            return
        content_hash, words = (
            _read_constant(call.args[0]),
            {word.arg: word.value for word in call.keywords},
        )
        number = len(self._storages)
        if isinstance(content_hash, str):
            self.hashes[number] = content_hash
        device = _read_device(words["device"]) if "device" in words else "cpu"
        self._storages[variable] = (number, self._number(_read_size(call.args[1])), device)

    def _read_input(self, call: ast.Call) -> None:
        if not isinstance(call.func, ast.Attribute):
            return
        name, words = self._name(call), {word.arg: word.value for word in call.keywords}
        kind = call.func.attr
        if kind == "tensor":
            self._read_tensor(name, call, words)
        elif kind == "symint":
            self._read_symint(name, call, words)
        elif kind == "const":
            self.inputs.append(ReproInput(name, kind="none"))
        elif kind in ("unsupported", "generator", "opaque"):
            self.inputs.append(ReproInput(name, kind="other", value=kind))

    def _read_symint(self, name: str, call: ast.Call, keywords: dict[str | None, ast.expr]) -> None:
        value, expression = (
            _read_constant(call.args[0]) if call.args else None,
            _read_constant(keywords.get("expr")),
        )
        if expression is None and call.args and value is None:
            expression = ast.unparse(call.args[0])
            value = self._number(expression)
        hint = value if isinstance(value, int) else None
        if isinstance(expression, str) and expression.isidentifier() and hint is not None:
            self.symbols.setdefault(expression, hint)
        kind = "symint" if isinstance(expression, str) else "int"
        self.inputs.append(ReproInput(name, kind=kind, value=hint, expression=expression))

    def _read_tensor(self, name: str, call: ast.Call, keywords: dict[str | None, ast.expr]) -> None:
        variable = call.args[0].id if call.args and isinstance(call.args[0], ast.Name) else ""
        number, storage_bytes, device = self._storages.get(variable, (None, None, "cpu"))
        shape = _read_sizes(call.args[1]) if len(call.args) > 1 else ()
        dtype = (
            ast.unparse(keywords["dtype"]).removeprefix("torch.")
            if "dtype" in keywords
            else "float32"
        )
        self.inputs.append(
            ReproInput(
                name,
                dtype=dtype.removeprefix("torch."),
                shape=shape,
                stride=_read_sizes(call.args[2])
                if len(call.args) > 2
                else contiguous_strides(shape),
                storage_offset=_read_size(keywords["storage_offset"])
                if "storage_offset" in keywords
                else 0,
                device=device,
                requires_grad=_read_constant(keywords.get("requires_grad")) is True,
                storage=number,
                storage_bytes=storage_bytes,
            )
        )

    def _name(self, call: ast.Call) -> str:
        if call.func.attr in ("const", "unsupported", "opaque") and call.args:  # type: ignore[attr-defined]
            first = _read_constant(call.args[0])
            if isinstance(first, str) and first.isidentifier():
                return first
        line = self.lines[(call.end_lineno or call.lineno) - 1]
        comment = _COMMENT.search(line, call.end_col_offset or 0)
        return comment.group(1) if comment else f"arg{len(self.inputs)}"

    def _number(self, size: Size) -> int | None:
        try:
            number = evaluate_size(size, self.symbols)
        except ValueError:
            return None
        return number if isinstance(number, int) else None


def contiguous_strides(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        if isinstance(step, int) and isinstance(size, int):
            step = step * max(size, 1)
        else:
            step = " * ".join(f"({part})" for part in (step, size) if part != 1) or 1
    return tuple(reversed(strides))


def count_extent(shape: Sequence[int], stride: Sequence[int], offset: int) -> int:
    """Return how many elements of its storage a tensor spans."""
    if 0 in shape:
        return 0
    return offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride))


def _read_constant(node: ast.expr | None) -> Any:
    try:
        return ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _read_size(node: ast.expr) -> Size:
    value = _read_constant(node)
    return value if type(value) is int else ast.unparse(node)


def _read_sizes(node: ast.expr) -> tuple[Size, ...]:
    return (
        tuple(_read_size(part) for part in node.elts)
        if isinstance(node, (ast.Tuple, ast.List))
        else ()
    )


def _read_device(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        words = {word.arg: _read_constant(word.value) for word in node.keywords}
        kind, index = words.get("type", "cpu"), words.get("index")
        return f"{kind}:{index}" if index is not None else str(kind)
    value = _read_constant(node)
    return value if isinstance(value, str) else "cpu"
