"""Find the program's modules that registered operations, lowerings, decompositions or backends used
by its graphs.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from .. import torch_compat

_REGISTERED = re.compile(r"registered at (.+?\.py):\d+")
_OURS = (
    "torch",
    "functorch",
    "triton",
    "collectors",
    "compileboard",
    "_compileboard",
    "sympy",
    "builtins",
)
_MAIN = (
    "__main__",
    "__mp_main__",
)  # the second where multiprocessing has prepared for its children
_STANDARD = sys.stdlib_module_names - {"__main__"}
_BUILT_IN = frozenset(
    (
        "aten",
        "prims",
        "prim",
        "inductor",
        "inductor_prims",
        "higher_order",
        "profiler",
        "debugprims",
    )
)
_TABLES = (
    ("torch._inductor.lowering", "lowerings"),
    ("torch._inductor.decomposition", "decompositions"),
)
MAX_MODULES = 20


def list_preload(graph: Any, backend: Any = None) -> tuple[str, ...]:
    modules: dict[str, None] = {}
    found = (
        *_of_operations(graph),
        *_of_tables(),
        *_of_function(backend),
        *(name for value in _list_objects() for name in _of_function(value)),
    )
    for name in found:
        modules.setdefault(name)
    return tuple(modules)[:MAX_MODULES]


def _of_operations(graph: Any) -> Iterator[str]:
    targets = (
        {node.target for node in graph.graph.nodes if node.op == "call_function"}
        if graph is not None
        else set()
    )
    yield from operation_modules(set(map(_schema_name, targets)))


def _schema_name(target: Any) -> str:
    name = getattr(target, "_schema", None) or getattr(target, "_qualified_op_name", target)
    return str(name).partition("(")[0]


def operation_modules(names: Iterable[str]) -> Iterator[str]:
    torch = sys.modules["torch"]
    custom = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    for name in sorted(names):
        namespace, _, operation = name.partition("::")
        if not operation or namespace in _BUILT_IN:
            continue
        definition = custom.get(name.partition(".")[0])
        if definition is not None:
            yield from _of_function(getattr(definition, "_init_fn", None))
            continue
        for path in _REGISTERED.findall(torch._C._dispatch_dump(name)):
            yield from _of_file(path)


def _of_tables() -> Iterator[str]:
    for module, attribute in _TABLES:
        for function in set(
            map(_unwrapped, getattr(sys.modules.get(module), attribute, {}).values())
        ):
            yield from _of_function(function)


def _list_objects() -> Iterator[Any]:
    """Yield the values of changed settings, and the items of those that are lists."""
    for _, _, value, _ in torch_compat.list_changed_settings():
        yield from value if isinstance(value, (list, tuple, set)) else (value,)


def _unwrapped(function: Any) -> Any:
    for name in (
        "compiler_fn",
        "_torchdynamo_orig_backend",
        "_torchdynamo_orig_callable",
        "__wrapped__",
        "func",
    ):
        inner = getattr(function, name, None)
        if callable(inner):
            return _unwrapped(inner) if inner is not function else function
    return function


def _of_function(function: Any) -> Iterator[str]:
    function = _unwrapped(function)
    if function is None:
        return
    name = getattr(function, "__module__", None) or type(function).__module__
    if not isinstance(name, str) or name.split(".")[0] in _OURS or name.split(".")[0] in _STANDARD:
        return
    if name in _MAIN:
        path = getattr(sys.modules.get("__main__"), "__file__", None)
        if path:
            yield relative_path(path)
    else:
        yield _name_or_file(name)


def _name_or_file(name: str) -> str:
    file = getattr(sys.modules.get(name), "__file__", None)
    stem = os.path.splitext(os.path.basename(file))[0] if isinstance(file, str) else None
    is_named = stem in (None, "__init__", name.rpartition(".")[2])
    return name if is_named or file is None else relative_path(file)


def _of_file(path: str) -> Iterator[str]:
    absolute = os.path.abspath(path)
    if f"{os.sep}torch{os.sep}" in absolute:
        return
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name not in _MAIN and os.path.abspath(file) == absolute:
            yield _name_or_file(name)
            return
    if os.path.exists(absolute):
        yield relative_path(absolute)


@functools.lru_cache(maxsize=32)
def relative_path(path: str) -> str:
    """Return a path relative to its repository or the working directory, otherwise the file
    name.
    """
    absolute = os.path.abspath(path)
    folder = os.path.dirname(absolute)
    while folder != os.path.dirname(folder):
        if os.path.exists(os.path.join(folder, ".git")):
            return os.path.relpath(absolute, folder)
        folder = os.path.dirname(folder)
    below = os.path.relpath(absolute, os.getcwd())
    return os.path.basename(absolute) if below.startswith("..") else below
