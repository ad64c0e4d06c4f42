"""Build a user's model. Only in child processes."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import torch

from compileboard.collectors.bench.loaded import Inputs, Loaded
from compileboard.collectors.bench.suites.user import (
    OnlyError,
    find_class,
    import_file,
    marked_functions,
    read_only,
)

RETURNS = "(module, inputs) or compileboard.collectors.bench.loaded.Loaded"


def build(batch_size: int, only: str, part: str | None = None) -> Loaded:
    """Build the target of `--only`: an instance of a class, or the result of a marked function for
    a batch size.

    A marked function with a parameter `part` receives `--part`. Raises OnlyError if the file has no
    such target or it is not a model, and any exception of the file.
    """
    target = read_only(only)
    module = import_file(target.path)
    if target.kind == "class":
        if part is not None:
            raise OnlyError(
                f"--part {part}: {target.name} is a class; only a marked function accepts a part"
            )
        return _from_class(module, target.path, target.name)
    functions = {marked.name: function for marked, function in marked_functions(module)}
    if target.name not in functions:
        raise OnlyError(f"{target.path} has no function marked as {target.name!r}")
    function = functions[target.name]
    if part is not None and "part" not in inspect.signature(function).parameters:
        raise OnlyError(f"--part {part}: {target.name} has no parameter part")
    words = {} if part is None else {"part": part}
    return _from_result(
        function(batch_size, **words), f"{target.path}: {target.name}({batch_size})"
    )


def _from_class(module: ModuleType, path: str, name: str) -> Loaded:
    where = f"{path}: {name}"
    model_class = find_class(module, path, name)
    if not (isinstance(model_class, type) and issubclass(model_class, torch.nn.Module)):
        raise OnlyError(f"{where} is not a class derived from torch.nn.Module, which it must be")
    if not hasattr(model_class, "get_example_inputs"):
        raise OnlyError(
            f"{where} has no method get_example_inputs(), which returns a tuple of what "
            "forward takes"
        )
    model = model_class()
    inputs = _check_inputs(model.get_example_inputs(), f"{where}.get_example_inputs()")
    return Loaded(
        model, inputs, keeps_mode=True
    )  # as upstream: neither train() nor eval() is called on these


def _from_result(result: Any, where: str) -> Loaded:
    if isinstance(result, Loaded):
        return result
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise OnlyError(f"{where} returned {_describe(result)}; expected {RETURNS}")
    model, inputs = result
    if not isinstance(model, torch.nn.Module):
        raise OnlyError(f"{where} returned {_describe(model)} first; expected a torch.nn.Module")
    return Loaded(model, _check_inputs(inputs, where))


def _check_inputs(inputs: Any, where: str) -> Inputs:
    if isinstance(inputs, list):
        return tuple(inputs)
    if isinstance(inputs, (tuple, dict)):
        return inputs
    hint = "; write `return (x,)`, with the comma" if isinstance(inputs, torch.Tensor) else ""
    raise OnlyError(
        f"{where} gave {_describe(inputs)} as inputs; expected a tuple or a dict of them{hint}"
    )


def _describe(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
