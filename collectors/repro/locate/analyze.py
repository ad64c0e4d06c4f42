"""Find the operation that a compiled graph computes wrongly. Imports torch, so only in workers.

The graph is compiled with every intermediate as an output, in parts if memory requires it, and each
node is compared on the compiled values of its inputs. A wrong node explains the failure if the
outputs pass once eager computes that node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch._inductor.config
from torch.utils._pytree import tree_leaves

from compileboard.collectors.repro import findings
from compileboard.collectors.repro.findings import Analysis, JudgedNode
from compileboard.collectors.repro.graph_loading import list_calls, list_placeholders
from compileboard.collectors.repro.judging import Judge, clone_together, compile_graph, judge
from compileboard.collectors.repro.locate.node_error import NodeOperation, judge_node
from compileboard.collectors.repro.locate.surgery import (
    Key,
    Survey,
    copy_module,
    expose,
    find_call,
    find_key,
    find_operation,
    find_source,
    list_inputs,
    name_operation,
    replace_by_inputs,
    survey_graph,
)
from compileboard.collectors.repro.repro import PASSED, WRONG_ANSWERS, Failure, raised

DEFAULT_MEMORY_BYTES = 4 << 30  # Intermediate values kept at a time.
MAX_EXPLAINED = 5  # nodes computed by eager, one by one
WITHOUT_DECOMPOSITIONS, WITH_DECOMPOSITIONS = "aot_eager", "aot_eager_decomp_partition"


def judge_here(module: Any, inputs: Sequence[Any], how: Judge) -> Failure:
    try:
        return Failure(**judge(copy_module(module), inputs, how)["failure"])
    except Exception as error:
        return raised(type(error).__name__, str(error))


@dataclass
class Analyzer:
    module: Any
    inputs: Sequence[Any]
    how: Judge
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    compile_count: int = 0
    survey: Survey = field(init=False)
    originals: dict[str, Any] = field(init=False)
    _nodes: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.survey = survey_graph(self.module, clone_together(self.inputs))
        self._nodes = {node.name: node for node in self.module.graph.nodes}
        names = [node.name for node in list_placeholders(self.module)]
        self.originals = dict(zip(names, self.inputs))

    def judge_nodes(self, backend: str | None = None) -> list[JudgedNode]:
        how = self.how if backend is None else replace(self.how, backend=backend)
        return [row for names in self._split() for row in self._judge_part(names, how)]

    def _judge_part(self, names: Sequence[str], how: Judge) -> list[JudgedNode]:
        exposed, keys = expose(self.module, self._add_inputs(names), self.survey)
        try:
            first, second = self._run_twice(exposed, keys, how)
        except Exception as error:
            if len(names) > 1:
                middle = len(names) // 2
                return [
                    *self._judge_part(names[:middle], how),
                    *self._judge_part(names[middle:], how),
                ]
            node = self._nodes[names[0]]
            operation = name_operation(self.module, node)
            reason = f"it cannot be returned: {type(error).__name__}"
            return [
                JudgedNode(node.name, operation, self.how.level, findings.NOT_JUDGED, reason=reason)
            ]
        rows = [self._judge_node(self._nodes[name], first, second) for name in names]
        return [row for row in rows if row is not None]

    def _split(self) -> Iterator[list[str]]:
        names: list[str] = []
        byte_count = 0
        for node in list_calls(self.module):
            facts = self.survey.nodes[node.name]
            if not facts.is_tensor:
                continue
            needed = [node, *list_inputs(node, self.survey)]
            size = 2 * sum(self.survey.nodes[part.name].byte_count for part in needed)
            if names and byte_count + size > self.memory_bytes:
                yield names
                names, byte_count = [], 0
            names.append(node.name)
            byte_count += size
        if names:
            yield names

    def _add_inputs(self, names: Sequence[str]) -> list[str]:
        nodes = [self._nodes[name] for name in names]
        parts = [part.name for node in nodes for part in (*list_inputs(node, self.survey), node)]
        return [name for name in dict.fromkeys(parts) if self.survey.nodes[name].is_tensor]

    def _run_twice(
        self, exposed: Any, keys: Sequence[Key], how: Judge
    ) -> tuple[dict[Key, Any], dict[Key, Any]]:
        self.compile_count += 1
        # eager's random numbers; a CUDA graph's second run would overwrite the first one's outputs
        settings = {"fallback_random": True, "triton.cudagraphs": False}
        with torch._inductor.config.patch(settings), torch.no_grad():
            values = clone_together([_detach_value(value) for value in self.inputs])
            compiled = compile_graph(exposed, values, how)
            runs = []
            for _ in range(2):
                torch.manual_seed(0)
                outputs = compiled(clone_together([_detach_value(value) for value in self.inputs]))
                runs.append(dict(zip(keys, list(outputs)[len(outputs) - len(keys) :])))
        return runs[0], runs[1]

    def _judge_node(
        self, node: Any, first: dict[Key, Any], second: dict[Key, Any]
    ) -> JudgedNode | None:
        name, call = node.name, find_call(node, self.survey)
        try:
            operation = _find_part(find_operation(self.module, call), node, call)
        except KeyError:
            return None
        compiled = first[name, None]
        row = JudgedNode(name, operation.name, level=self.how.level, source=find_source(call))
        if not isinstance(compiled, torch.Tensor):
            return replace(row, verdict=findings.NOT_JUDGED, reason="it returned no tensor")
        try:
            args, kwargs = self._read_inputs(call, first)
            others = self._read_inputs(call, second)
        except KeyError as error:
            return replace(
                row, verdict=findings.NOT_JUDGED, reason=f"its input {error} is not a value"
            )
        judged = judge_node(row, operation, args, kwargs, compiled)
        if _are_equal((args, kwargs), others):
            is_equal = _are_equal(compiled, second[name, None])
            judged = replace(judged, is_deterministic=is_equal)
            if not is_equal and judged.verdict == findings.RIGHT:
                again = judge_node(row, operation, args, kwargs, second[name, None])
                if again.verdict in findings.WRONG_VERDICTS:
                    judged = replace(again, verdict=findings.UNSTABLE, is_deterministic=False)
        return judged

    def _read_inputs(self, call: Any, values: dict[Key, Any]) -> tuple[Any, Any]:
        def read(argument: Any) -> Any:
            if not isinstance(argument, torch.fx.Node):
                return argument
            key = find_key(call, argument, self.survey)
            if key in values:
                return values[key]
            if argument.op == "placeholder":
                return _detach_value(self.originals[argument.name])
            if argument.op == "get_attr":
                return _read_attribute(self.module, argument.target)
            facts = self.survey.nodes[argument.name]
            if facts.is_tensor:
                raise KeyError(argument.name)
            if facts.value is None:
                return self._read_tuple(argument, values)
            return facts.value

        return (
            torch.fx.node.map_arg(call.args, read),
            torch.fx.node.map_arg(call.kwargs, read),
        )

    def _read_tuple(self, argument: Any, values: dict[Key, Any]) -> Any:
        parts = {
            user.args[1]: values.get((user.name, None))
            for user in argument.users
            if len(user.args) == 2
        }
        if not parts:
            return None
        if any(value is None for value in parts.values()) or sorted(parts) != list(
            range(len(parts))
        ):
            raise KeyError(argument.name)
        return [parts[index] for index in sorted(parts)]

    def explains(self, rows: Sequence[JudgedNode]) -> bool:
        names = [row.node for row in rows]
        survey = survey_graph(self.module, clone_together(self.inputs), names)
        values = [survey.values[name] for name in names]
        module = replace_by_inputs(self.module, names)
        self.compile_count += 1
        inputs = clone_together(self.inputs)
        return judge_here(module, [*inputs, *values], self.how).status == PASSED


def analyze_graph(
    module: Any, inputs: Sequence[Any], how: Judge, memory_bytes: int = DEFAULT_MEMORY_BYTES
) -> Analysis:
    failure = judge_here(module, inputs, how)
    if failure.fails and failure.status not in WRONG_ANSWERS:  # no result to judge
        return Analysis(
            findings.NOT_REPRODUCED, level=how.level, failure=failure.describe(), compile_count=1
        )
    analyzer = Analyzer(module, inputs, how, memory_bytes, compile_count=1)
    if how.level == "dynamo":
        rows = analyzer.judge_nodes(WITH_DECOMPOSITIONS)
        if wrong := _list_wrong(rows):
            return _name_decomposition(analyzer, rows, wrong, failure)
    rows = analyzer.judge_nodes()
    wrong = _list_wrong(rows)
    if not wrong:
        status = findings.UNEXPLAINED if failure.fails else findings.NOT_REPRODUCED
        return _make_answer(analyzer, status, rows, failure)
    explained = [_add_explanation(analyzer, row, failure) for row in wrong[:MAX_EXPLAINED]]
    notes: tuple[str, ...] = ()
    if failure.fails and len(wrong) > 1 and not any(row.explains for row in explained):
        together = analyzer.explains(wrong[:MAX_EXPLAINED])
        notes = (
            "No operation alone explains the outputs"
            + ("; all of them together do" if together else ""),
        )
    rows = findings.sort_rows(
        [*explained, *wrong[MAX_EXPLAINED:], *(row for row in rows if row not in wrong)]
    )
    return _make_answer(analyzer, findings.NAMED, rows, failure, rows[0], findings.COMPILER, notes)


def _add_explanation(analyzer: Analyzer, row: JudgedNode, failure: Failure) -> JudgedNode:
    return replace(row, explains=analyzer.explains([row]) if failure.fails else None)


def _name_decomposition(
    analyzer: Analyzer, rows: list[JudgedNode], wrong: list[JudgedNode], failure: Failure
) -> Analysis:
    names = {row.node for row in _list_wrong(analyzer.judge_nodes(WITHOUT_DECOMPOSITIONS))}
    decomposed = [row for row in wrong if row.node not in names]
    chosen = decomposed or wrong
    explained = [_add_explanation(analyzer, row, failure) for row in chosen[:MAX_EXPLAINED]]
    others = [row for row in rows if row.node not in {entry.node for entry in explained}]
    rows = findings.sort_rows([*explained, *others])
    first = next(row for row in rows if row.node in {entry.node for entry in explained})
    cause = findings.DECOMPOSITION if decomposed else findings.BACKEND
    return _make_answer(analyzer, findings.NAMED, rows, failure, first, cause)


def _make_answer(
    analyzer: Analyzer,
    status: str,
    rows: Sequence[JudgedNode],
    failure: Failure,
    first: JudgedNode | None = None,
    cause: str | None = None,
    notes: tuple[str, ...] = (),
) -> Analysis:
    verdicts = [row.verdict for row in rows]
    if first is not None and not failure.fails:
        notes = (*notes, "The outputs pass here: the error is within what they may differ")
    return Analysis(
        status,
        operation=first.operation if first else None,
        node=first.node if first else None,
        level=analyzer.how.level,
        cause=cause,
        explains=first.explains if first else None,
        is_deterministic=first.is_deterministic if first else None,
        failure=failure.describe(),
        rows=tuple(rows),
        judged_count=len(rows)
        - verdicts.count(findings.RANDOM)
        - verdicts.count(findings.NOT_JUDGED),
        random_count=verdicts.count(findings.RANDOM),
        not_judged_count=verdicts.count(findings.NOT_JUDGED),
        compile_count=analyzer.compile_count,
        notes=notes,
    )


def _list_wrong(rows: Sequence[JudgedNode]) -> list[JudgedNode]:
    return findings.sort_rows([row for row in rows if row.verdict in findings.WRONG_VERDICTS])


def _find_part(operation: NodeOperation, node: Any, call: Any) -> NodeOperation:
    if node is call:
        return operation
    path = []
    while node is not call:
        path.append(node.args[1])
        node = node.args[0]
    if len(path) == 1:
        return replace(operation, key=path[0])
    raise KeyError(node.name)


def _detach_value(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _read_attribute(module: Any, target: str) -> Any:
    value = module
    for part in target.split("."):
        value = getattr(value, part)
    return _detach_value(value)


def _are_equal(value: Any, other: Any) -> bool:
    pairs = list(zip(tree_leaves(value), tree_leaves(other)))
    return all(_is_equal(*pair) for pair in pairs)


def _is_equal(value: Any, other: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(value is other or value == other)
    if value.shape != other.shape or value.dtype != other.dtype or value.layout != torch.strided:
        return value is other
    return bool(((value == other) | ((value != value) & (other != other))).all())
