"""Edit a graph: return intermediates, truncate it, replace nodes by values. Only in workers."""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from compileboard.collectors.repro.graph_loading import CALLS, list_calls, list_placeholders
from compileboard.collectors.repro.locate.node_error import NodeOperation, is_random

_SOURCE = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass
class NodeFacts:
    position: int
    storage: int | None = None  # address of a tensor's memory
    byte_count: int = 0
    value: Any = None  # The value of a node that is not a tensor: a size, None.
    is_tensor: bool = False
    writes: bool = False  # whether it writes to one of its inputs


@dataclass
class Survey:
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    writes: dict[int, list[int]] = field(default_factory=dict)  # positions, by address
    values: dict[str, Any] = field(default_factory=dict)  # eager's, of the requested nodes

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
    places = _SOURCE.findall(node.meta.get("stack_trace") or "")
    return f"{places[-1][0]}:{places[-1][1]}" if places else None


Key = tuple[str, str | None]  # a node and, for its value just before another node, that node


def copy_module(module: Any) -> Any:
    return torch.fx.GraphModule(module, copy.deepcopy(module.graph))


def expose(module: Any, names: Collection[str], survey: Survey) -> tuple[Any, tuple[Key, ...]]:
    """Return a copy of the graph that also outputs the named nodes' values, and the key of each
    added output. A value is cloned if its memory is modified later.
    """
    changed = copy_module(module)
    by_name = {node.name: node for node in changed.graph.nodes}
    keys: dict[Key, None] = {}
    values = []
    for name in names:
        node = by_name[name]
        if node.op in CALLS and survey.nodes[name].is_tensor:
            keys[name, None] = None
            values.append(_add_copy(changed, node) if survey.is_written_after(name) else node)
    for name in names:
        node = by_name[name]
        position = survey.nodes[name].position
        source = find_call(node, survey)
        for argument in source.all_input_nodes:
            if argument.name not in survey.nodes or not survey.nodes[argument.name].is_tensor:
                continue
            if (argument.name, source.name) not in keys and _needs_copy(survey, argument, position):
                keys[argument.name, source.name] = None
                values.append(_add_copy(changed, argument, source))
    _return_values(changed, values)
    return changed, tuple(keys)


def find_key(node: Any, argument: Any, survey: Survey) -> Key:
    source = find_call(node, survey)
    return (
        argument.name,
        source.name if _needs_copy(survey, argument, survey.nodes[node.name].position) else None,
    )


def list_inputs(node: Any, survey: Survey) -> list[Any]:
    return list(find_call(node, survey).all_input_nodes)


def find_call(node: Any, survey: Survey) -> Any:
    while node.op == "call_function" and node.target is operator.getitem:
        parent = node.args[0]
        if not isinstance(parent, torch.fx.Node) or survey.nodes[parent.name].is_tensor:
            break
        node = parent
    return node


def _needs_copy(survey: Survey, argument: Any, position: int) -> bool:
    if argument.op in ("placeholder", "get_attr"):
        return survey.is_written_between(argument.name, position)
    return survey.is_written_after(argument.name)


def _add_copy(module: Any, node: Any, before: Any = None) -> Any:
    graph = module.graph
    with graph.inserting_before(before) if before else graph.inserting_after(node):
        clone = graph.call_function(torch.ops.aten.clone.default, (node,))
    clone.meta = _value_meta(node)
    return clone


def _value_meta(node: Any) -> dict[str, Any]:
    return {name: node.meta[name] for name in ("val", "example_value") if name in node.meta}


def _find_output(module: Any) -> Any:
    return next(iter(reversed(module.graph.nodes)))  # Graph.output_node() is newer than torch 2.4


def _return_values(module: Any, values: Sequence[Any]) -> None:
    output = _find_output(module)
    old = output.args[0]
    own = list(old) if isinstance(old, (tuple, list)) else [old]
    output.args = ((*own, *values),)
    # metadata of the outputs describes another number of them
    output.meta = {}
    module.graph.lint()
    module.recompile()


def cut_after(module: Any, count: int, inputs: Sequence[Any]) -> Any:
    """Return a graph of the first `count` calls that returns every tensor no later call uses.

    The graph is run once in eager mode to find the tensors, which may modify `inputs`.
    """
    changed = copy_module(module)
    calls = list_calls(changed)
    for node in (_find_output(changed), *reversed(calls[count:])):
        changed.graph.erase_node(node)
    values = [node for node in calls[:count] if not node.users]
    output = changed.graph.output(tuple(values))
    changed.graph.lint()
    changed.recompile()
    survey = survey_graph(changed, inputs)
    output.args = (tuple(node for node in values if survey.nodes[node.name].is_tensor),)
    changed.recompile()
    return changed


def replace_by_inputs(module: Any, names: Sequence[str]) -> Any:
    """Replace nodes by additional inputs in this order. Their writes to memory are dropped."""
    changed = copy_module(module)
    by_name = {node.name: node for node in changed.graph.nodes}
    graph, last = changed.graph, next(reversed(list_placeholders(changed)), None)
    for name in names:
        node = by_name[name]
        with graph.inserting_after(last) if last is not None else graph.inserting_before():
            placeholder = last = changed.graph.placeholder(f"eager_{name}")
        placeholder.meta = _value_meta(node)
        parent = node.args[0] if node.target is operator.getitem else None
        node.replace_all_uses_with(placeholder)
        changed.graph.erase_node(node)
        if isinstance(parent, torch.fx.Node) and parent.op in CALLS and not parent.users:
            changed.graph.erase_node(parent)
    changed.graph.lint()
    changed.recompile()
    return changed
