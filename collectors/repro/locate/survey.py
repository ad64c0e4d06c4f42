"""Run a graph in eager and record each node's properties and memory writes. In workers only."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from compileboard.collectors.repro.locate.node_error import NodeOperation, is_random

_SOURCE = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass
class NodeFacts:
    position: int
    storage: int | None = None  # address of a tensor's memory
    byte_count: int = 0
    value: Any = None  # of a node that is no tensor: a size, None
    is_tensor: bool = False
    writes: bool = False  # to one of its inputs


@dataclass
class Survey:
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    writes: dict[int, list[int]] = field(default_factory=dict)  # positions, by address
    values: dict[str, Any] = field(
        default_factory=dict
    )  # eager's, of the nodes that were asked for

    def is_written_after(self, name: str) -> bool:
        facts = self.nodes[name]
        return any(
            position > facts.position for position in self.writes.get(facts.storage or 0, ())
        )

    def is_written_between(self, name: str, position: int) -> bool:
        facts = self.nodes[name]
        return any(
            facts.position < write < position for write in self.writes.get(facts.storage or 0, ())
        )


def survey_graph(module: Any, inputs: Sequence[Any], kept_names: Collection[str] = ()) -> Survey:
    survey = Survey()
    interpreter = _Surveyor(module, survey, kept_names)
    with torch.no_grad():
        interpreter.run(*inputs)
    return survey


class _Surveyor(torch.fx.Interpreter):  # type: ignore[misc]
    def __init__(self, module: Any, survey: Survey, kept_names: Collection[str]) -> None:
        super().__init__(module)
        self._survey = survey
        self._kept_names = kept_names
        self._position = 0

    def run_node(self, node: Any) -> Any:
        arguments = []
        if node.op not in ("placeholder", "output"):
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            arguments = [
                (value, value._version) for value in tree_leaves((args, kwargs)) if _is_plain(value)
            ]
        value = super().run_node(node)
        facts = NodeFacts(self._position)
        for argument, version in arguments:
            if argument._version != version:
                facts.writes = True
                self._survey.writes.setdefault(_find_storage(argument), []).append(self._position)
        if isinstance(value, torch.Tensor):
            facts.is_tensor = True
            facts.storage = _find_storage(value) if _is_plain(value) else None
            facts.byte_count = value.numel() * value.element_size()
        elif not isinstance(value, (tuple, list)):
            facts.value = value
        if node.name in self._kept_names and isinstance(value, torch.Tensor):
            self._survey.values[node.name] = value.detach().clone()
        self._survey.nodes[node.name] = facts
        self._position += 1
        return value


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _find_storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def find_operation(module: Any, node: Any) -> NodeOperation:
    if node.op == "call_method":
        return NodeOperation(
            f"Tensor.{node.target}", _call_method(node.target), is_random=is_random(node.target)
        )
    if node.op == "call_module":
        submodule = module.get_submodule(node.target)
        is_noisy = "dropout" in type(submodule).__name__.lower()
        return NodeOperation(f"nn.{type(submodule).__name__}", submodule, is_random=is_noisy)
    if node.op != "call_function":
        raise KeyError(node.op)
    return NodeOperation(name_target(node.target), node.target, is_random=is_random(node.target))


def name_operation(module: Any, node: Any) -> str:
    while (
        node.op == "call_function"
        and node.target is operator.getitem
        and isinstance(node.args[0], torch.fx.Node)
    ):
        parent = node.args[0]
        if (
            not isinstance(parent.target, torch._ops.OpOverload)
            or len(parent.target._schema.returns) < 2
        ):
            break
        node = parent
    return find_operation(module, node).name


def _call_method(name: str) -> Callable[..., Any]:
    return lambda value, *args, **kwargs: getattr(value, name)(*args, **kwargs)


def name_target(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target}"
    name = getattr(target, "__name__", str(target))
    home = (getattr(target, "__module__", None) or "torch").split(".")[0].lstrip("_")
    return f"{home}.{name}"


def find_source(node: Any) -> str | None:
    places = (
        _SOURCE.findall(node.meta.get("stack_trace") or "") if isinstance(node.meta, dict) else []
    )
    return f"{places[-1][0]}:{places[-1][1]}" if places else None
