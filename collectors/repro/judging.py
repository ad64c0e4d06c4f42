"""Compile, run and compare a graph, in a trial process, whose state is changed.

Graphs of AOTAutograd go to `compile_fx_inner`, Dynamo's to their backend. If any size is symbolic,
compilation gets symbolic inputs: torch itself becomes static once no placeholder is a SymInt, which
removing unused inputs always causes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch._inductor.config
from torch.fx.experimental.symbolic_shapes import has_free_symbols
from torch.utils._pytree import tree_leaves

from compileboard.collectors.observe import torch_compat
from compileboard.collectors.repro import accuracy, failure
from compileboard.collectors.repro.failure import Failure
from compileboard.collectors.repro.repro import NotRunnable

COMPILED, EAGER = "compiled", "eager"


@dataclass(frozen=True)
class Judge:
    kind: str  # compile | runtime | accuracy | crash
    level: str = "aot"  # dynamo | aot
    backend: str = "inductor"  # of dynamo's graph
    mode: str = COMPILED  # eager: the graph fails without a compiler as well
    is_strict: bool = False
    settings: dict[str, Any] = field(default_factory=dict)  # of inductor, for this trial alone

    def in_eager(self) -> Judge:
        return replace(self, mode=EAGER)


def judge(module: Any, inputs: Sequence[Any], how: Judge) -> dict[str, Any]:
    """Try a graph once and return how its result is wrong, if it is.

    Raises the compiler's or graph's own exception.
    """
    with torch._inductor.config.patch(how.settings):
        if how.kind != "accuracy":
            _run_once(module, inputs, how)
            return {"failure": Failure(failure.PASSED).to_json(), "differences": []}
        differences = _compare_once(module, inputs, how)
    worst = accuracy.worst_of(differences)
    status = worst.status if worst is not None else failure.PASSED
    failing = [entry.to_json() for entry in differences if entry.status != failure.PASSED]
    return {"failure": Failure(status).to_json(), "differences": failing}


def symbolic_inputs(module: Any, inputs: Sequence[Any]) -> list[Any]:
    values = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    if len(values) != len(inputs) or not any(is_symbolic(value) for value in values):
        return list(inputs)
    return [value if value is not None else real for value, real in zip(values, inputs)]


def require_names(*capabilities: str) -> None:
    for capability in capabilities:
        if torch_compat.load(capability) is torch_compat.MISSING:
            raise NotRunnable(torch_compat.describe_missing(capability))


def is_symbolic(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, torch.SymInt)) and bool(has_free_symbols(value))


def compile_graph(module: Any, inputs: Sequence[Any], how: Judge) -> Callable[[list[Any]], Any]:
    arguments = symbolic_inputs(module, inputs)
    if how.level == "aot":
        require_names("graph_compiler")
        from torch._inductor.compile_fx import compile_fx_inner

        compiled = compile_fx_inner(module, arguments)
    else:
        from torch._dynamo.backends.registry import lookup_backend

        compiled = lookup_backend(how.backend)(module, arguments)
    if how.level == "aot":
        return lambda values: compiled(list(values))
    return lambda values: compiled(*values)  # as dynamo calls it, whatever its `_boxed_call` says


def _run_once(module: Any, inputs: Sequence[Any], how: Judge) -> None:
    values = accuracy.clone_together(inputs)
    if how.mode == EAGER:
        _call(lambda arguments: module(*arguments), values, how)
    else:
        _call(compile_graph(module, values, how), values, how)
    wait_for_devices(inputs)


def _compare_once(module: Any, inputs: Sequence[Any], how: Judge) -> list[accuracy.Difference]:
    # another stream of random numbers than eager's is no error
    with torch._inductor.config.patch(fallback_random=True):
        original = copy.deepcopy(module)  # a compile rewrites the graph that it is given
        eager = _subjects(lambda arguments: original(*arguments), inputs, how)
        reference = None
        if not how.is_strict:
            reference = accuracy.run_in_float64(
                original,
                inputs,
                lambda exact, values: _call(lambda arguments: exact(*arguments), values, how),
            )
        values = accuracy.clone_together(inputs)
        compiled = _subjects(compile_graph(module, values, how), inputs, how)
    wait_for_devices(inputs)
    return accuracy.compare_all(eager, compiled, reference, how.is_strict)


def _subjects(
    function: Callable[[list[Any]], Any], inputs: Sequence[Any], how: Judge
) -> list[tuple[str, Any]]:
    torch.manual_seed(0)
    values = accuracy.clone_together(inputs)
    return accuracy.list_tensors(_call(function, values, how), values)


def _call(function: Callable[[list[Any]], Any], values: list[Any], how: Judge) -> Any:
    if how.level == "dynamo":
        return _call_with_gradients(function, values)
    with torch.no_grad():
        return function(values)


def _call_with_gradients(function: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    outputs = function(values)
    losses = [
        leaf.sum()
        for leaf in tree_leaves(outputs)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_floating_point()
    ]
    if losses:
        sum(losses).backward()
    return outputs


def wait_for_devices(inputs: Sequence[Any]) -> None:
    """Synchronise accelerators, whose errors are asynchronous."""
    if any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in inputs):
        torch.cuda.synchronize()
