"""A graph's nodes, their eager values, and the key of a question about it. Imports torch."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch._functorch.fx_minifier import is_tuple

from compileboard.collectors.repro import accuracy
from compileboard.collectors.repro.judging import Judge, is_symbolic, wait_for_devices

# What torch's minifier puts where a node returns several values: it then looks at those that take
# one of them.
_MANY: Any = is_tuple


def call_nodes(graph: Any) -> list[Any]:
    return [
        node for node in graph.nodes if node.op in ("call_function", "call_method", "call_module")
    ]


def operation_name(node: Any) -> str:
    target = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target)
    return (
        f"{getattr(target, '__module__', None) or 'builtins'}.{getattr(target, '__name__', target)}"
    )


def graph_key(module: Any, inputs: Sequence[Any], how: Judge) -> str:
    """Hash a question: graph, inputs' properties and sharing, symbolic sizes, and judge."""
    storages: dict[int, int] = {}
    specs: list[Any] = []
    for value in inputs:
        if isinstance(value, torch.Tensor):
            pointer = value.untyped_storage().data_ptr() if value.layout == torch.strided else 0
            storage = storages.setdefault(pointer, len(storages)) if pointer else -1
            position = (storage, value.storage_offset()) if value.layout == torch.strided else ()
            stride = tuple(value.stride()) if value.layout == torch.strided else ()
            specs.append(
                (
                    str(value.dtype),
                    tuple(value.shape),
                    stride,
                    str(value.device),
                    position,
                    value.requires_grad,
                )
            )
        else:
            specs.append((type(value).__name__, str(value)))
    values = [node.meta.get("val") for node in placeholders(module.graph)]
    symbolic = [str(value) for value in values if is_symbolic(value)]
    body = repr((module.code, specs, symbolic, how))
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def isolate_node(module: Any, inputs: Sequence[Any], node: Any) -> tuple[Any, list[Any]] | None:
    graph, arguments = torch.fx.Graph(), []
    given = dict(zip(placeholders(module.graph), inputs))
    environment: dict[Any, Any] = {}
    for source in node.all_input_nodes:
        if source.op == "get_attr":
            environment[source] = graph.node_copy(source)
            continue
        value = given.get(source, source.meta.get("concrete_value"))
        if not isinstance(value, (torch.Tensor, int, float, bool)):
            return None
        environment[source] = (
            graph.node_copy(source)
            if source.op == "placeholder"
            else graph.placeholder(source.name)
        )
        environment[source].meta = copy.copy(source.meta)
        arguments.append(value)
    copied = graph.node_copy(node, lambda entry: environment[entry])
    graph.output((copied,))
    return torch.fx.GraphModule(module, graph), arguments


def placeholders(graph: Any) -> list[Any]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def annotate(module: Any, inputs: Sequence[Any], level: str, limit: int | None = None) -> None:
    """Store at each node its eager value, on copies of the inputs; runs at most `limit` nodes.

    Nodes with unknown values get none and are not replaced by inputs.
    """
    graph = module.graph
    is_writing = any(writes(node) for node in graph.nodes)

    class Values(torch.fx.Interpreter):  # type: ignore[misc]
        left = len(graph.nodes) if limit is None else limit

        def run_node(self, node: Any) -> Any:
            if node.op not in ("placeholder", "get_attr", "output"):
                if self.left <= 0:
                    raise _NodeLimit
                self.left -= 1
            result = super().run_node(node)
            if isinstance(result, torch.Tensor):
                value = accuracy.clone_together([result])[0] if is_writing else result.detach()
                node.meta["concrete_value"] = value.requires_grad_(result.requires_grad)
            else:
                node.meta["concrete_value"] = _MANY
            return result

    with torch.set_grad_enabled(level == "dynamo"), contextlib.suppress(Exception):
        Values(module).run(*accuracy.clone_together(inputs))


def count_nodes(module: Any, inputs: Sequence[Any], path: str) -> None:
    """Run a graph in eager, writing the number of finished nodes to a file that survives a
    crash.
    """
    descriptor = os.open(path, os.O_WRONLY)

    class Counting(torch.fx.Interpreter):  # type: ignore[misc]
        count = 0

        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            if node.op not in ("placeholder", "get_attr", "output"):
                wait_for_devices(inputs)
                self.count += 1
                os.pwrite(descriptor, self.count.to_bytes(8, "little"), 0)
            return result

    with torch.no_grad():
        Counting(module).run(*accuracy.clone_together(inputs))


class _NodeLimit(Exception):
    pass


def writes(node: Any) -> bool:
    if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.op in ("call_method", "call_function") and (
        (name.endswith("_") and not name.endswith("__"))
        or name in ("setitem", "__setitem__")
        or "out" in node.kwargs
    )
