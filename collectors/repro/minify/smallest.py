"""Convert the smallest graph to a repro: program, input descriptions and values. Imports torch."""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

import torch
from torch._functorch.fx_minifier import is_tuple

from compileboard.collectors.contract.repros import ABSENT, DEFAULT_VALUES_BYTES, ReproInput
from compileboard.collectors.observe.repro.inputs import InputReader, keep_values
from compileboard.collectors.repro import judging as accuracy
from compileboard.collectors.repro.graph_loading import list_calls, list_placeholders
from compileboard.collectors.repro.judging import (
    Judge,
    is_symbolic,
    symbolic_inputs,
    wait_for_devices,
)
from compileboard.collectors.repro.repro import Repro

# torch's minifier skips nodes that return several values; it looks at those that take one of them.
_MANY: Any = is_tuple


def graph_key(module: Any, inputs: Sequence[Any], how: Judge) -> str:
    """Hash a question: the graph, its inputs' properties and sharing, symbolic sizes, and the
    judge.
    """
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
    values = [node.meta.get("val") for node in list_placeholders(module)]
    symbolic = [str(value) for value in values if is_symbolic(value)]
    body = repr((module.code, specs, symbolic, how))
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def isolate_node(module: Any, inputs: Sequence[Any], node: Any) -> tuple[Any, list[Any]] | None:
    graph, arguments = torch.fx.Graph(), []
    given = dict(zip(list_placeholders(module), inputs))
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


def annotate(module: Any, inputs: Sequence[Any], level: str, limit: int | None = None) -> None:
    """Store each node's eager value, computed on copies of the inputs. At most `limit` nodes are
    run.

    Nodes whose value is unknown are never replaced by inputs.
    """
    graph = module.graph
    is_writing = any(is_mutating(node) for node in graph.nodes)

    class Values(torch.fx.Interpreter):  # type: ignore[misc]
        left = len(graph.nodes) if limit is None else limit

        def run_node(self, node: Any) -> Any:
            if node.op not in ("placeholder", "get_attr", "output"):
                if self.left <= 0:
                    raise _NodeLimitReached
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
    """Run a graph in eager, and write the number of finished nodes to a file that survives
    a crash.
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


class _NodeLimitReached(Exception):
    pass


def is_mutating(node: Any) -> bool:
    if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return node.op in ("call_method", "call_function") and (
        (name.endswith("_") and not name.endswith("__"))
        or name in ("setitem", "__setitem__")
        or "out" in node.kwargs
    )


_MODULE = re.compile(r"^from torch\.nn import \*\s*\nclass Repro\b|^class Repro\b", re.MULTILINE)
_HEADER = (
    "import torch\nfrom torch import device, tensor\nfrom math import inf, nan\nimport "
    "torch.fx as fx\n"
)


def describe_inputs(
    module: Any, inputs: Sequence[Any]
) -> tuple[tuple[ReproInput, ...], dict[str, int]]:
    names = [str(node.target) for node in list_placeholders(module)]
    reader = InputReader()
    described = reader.describe(names, symbolic_inputs(module, inputs))
    real = InputReader().describe(names, inputs)
    merged = tuple(
        replace(
            entry,
            storage=actual.storage,
            storage_bytes=actual.storage_bytes,
            requires_grad=actual.requires_grad,
            is_parameter=actual.is_parameter,
        )
        if entry.kind == "tensor"
        else entry
        for entry, actual in zip(described, real)
    )
    return merged, reader.symbols


def to_repro(
    repro: Repro, level: str, module: Any, inputs: Sequence[Any], operation: str | None
) -> Repro:
    specs, symbols = describe_inputs(module, inputs)
    values: dict[str, bytes] = {}

    def write(digest: str, body: str) -> None:
        values[digest] = zlib.decompress(base64.b64decode(body))

    manifest = replace(
        repro.manifest,
        level=level,
        inputs=keep_values(specs, inputs, DEFAULT_VALUES_BYTES, write),
        symbols=symbols,
        operation=operation or repro.manifest.operation,
        node_count=len(list_calls(module)),
        dynamo_inputs=(),
    )
    return Repro(
        manifest, _write_program(repro, level, module), None, values, name=f"{repro.name}, minified"
    )


def without_values(repro: Repro) -> Repro:
    inputs = tuple(
        replace(entry, values=ABSENT, digest=None) if entry.kind == "tensor" else entry
        for entry in repro.manifest.inputs
    )
    return replace(repro, manifest=replace(repro.manifest, inputs=inputs), values={})


def _write_program(repro: Repro, level: str, module: Any) -> str:
    original = repro.text(level)
    start = _MODULE.search(original)
    header = original[: start.start()].rstrip() if start is not None else _HEADER.rstrip()
    # Before 2.13, modules that torch cannot construct were always written by their repr.
    from torch._dynamo.debug_utils import NNModuleToString

    named = signature(NNModuleToString.convert).parameters
    allowed = {"allow_unsafe_repr": True} if "allow_unsafe_repr" in named else {}
    return f"{header}\n\n{NNModuleToString.convert(module, **allowed).strip()}\n\nmod = Repro()\n"
