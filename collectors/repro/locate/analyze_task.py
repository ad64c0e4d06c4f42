"""Find the operation that is wrong or fails, for `repro analyze` in the driver.

A wrong result is compared node by node, at each level. If every node is right once its value is
returned, the failure is in a fusion: find the shortest failing prefix of the graph, then the nodes
whose values must not be returned. For errors and crashes, the answer is the last operation of the
shortest failing prefix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from compileboard.collectors.contract.repros import find_operation
from compileboard.collectors.repro import findings
from compileboard.collectors.repro.findings import Analysis
from compileboard.collectors.repro.graph_loading import list_random_inputs, load_graph
from compileboard.collectors.repro.isolation import ReproTask
from compileboard.collectors.repro.judging import Judge
from compileboard.collectors.repro.locate.analyze import DEFAULT_MEMORY_BYTES, analyze_graph
from compileboard.collectors.repro.locate.graph_trial import (
    GraphEdit,
    RepeatedTry,
    find_hidden,
    find_shortest_failing,
    list_judges,
    list_operations,
    read_value,
)
from compileboard.collectors.repro.repro import Repro

MAX_FUSED_NODES = 400  # Hidden nodes are searched in graphs up to this size.


def analyze(task: ReproTask) -> dict[str, Any]:
    judges = list_judges(task)
    analyses: list[Analysis] = []
    for how in judges:
        find = _judge_operations if how.kind == "accuracy" else _find_failing_operation
        analyses.append(find(task, how))
        if analyses[-1].status in (findings.NAMED, findings.ONLY_FUSED):
            break
    analysis = min(analyses, key=lambda entry: findings.STATUSES.index(entry.status))
    if analysis.status == findings.UNEXPLAINED and analysis.cause is None:
        analysis = _find_fusion(task, judges[0], analysis)
    return analysis.dump()


def _judge_operations(task: ReproTask, how: Judge) -> Analysis:
    task.progress({"text": f"judging the operations of the {how.level} graph"})
    task.load_compiler(how.level)
    outcome = task.runner.run(
        analyze_loaded, task.repro, task.device, how, task.options.get("memory_bytes")
    )
    analysis: Analysis = read_value(outcome)
    return analysis


def analyze_loaded(
    repro: Repro, device: str | None, how: Judge, memory_bytes: int | None
) -> Analysis:
    module, inputs = load_graph(repro, how.level, device=device)
    analysis = analyze_graph(module, inputs, how, (memory_bytes or DEFAULT_MEMORY_BYTES * 2) // 2)
    if names := list_random_inputs(repro, how.level):
        text = (
            f"Values of {len(names)} of {len(inputs)} inputs are not recorded: seeded random "
            "ones were taken"
        )
        analysis = replace(analysis, notes=(*analysis.notes, text))
    return analysis


def _find_failing_operation(task: ReproTask, how: Judge) -> Analysis:
    tries = RepeatedTry(task, how)
    first = tries.attempt()
    analysis = Analysis(
        findings.NOT_REPRODUCED,
        level=how.level,
        failure=first.describe(),
        compile_count=tries.count,
    )
    if not tries.is_reproduced:
        return analysis
    calls = read_value(tries.run(list_operations))
    named = find_operation(first.message)
    nodes = [node for node, operation in calls if operation == named]
    analysis = replace(analysis, cause=findings.BACKEND, compile_count=tries.count)
    if len(nodes) == 1:
        answer = replace(analysis, status=findings.NAMED, operation=named, node=nodes[0])
        return replace(answer, notes=("The error itself names it",))
    count = find_shortest_failing(len(calls), lambda length: tries.fails(GraphEdit(cut=length)))
    analysis = replace(analysis, compile_count=tries.count)
    if count is None and nodes:
        text = f"The error itself names it, and {len(nodes)} operations of the graph are one"
        return replace(analysis, status=findings.NAMED, operation=named, notes=(text,))
    if count is None:
        text = (
            "The graph fails only with its own outputs, not with every value returned that "
            "nothing takes"
        )
        return replace(analysis, status=findings.UNEXPLAINED, notes=(text,))
    node, operation = calls[count - 1]
    text = f"The first {count} of {len(calls)} operations fail, the first {count - 1} pass"
    return replace(
        analysis,
        status=findings.NAMED,
        operation=operation,
        node=node,
        notes=(text, *tries.describe_others()),
    )


def _find_fusion(task: ReproTask, how: Judge, analysis: Analysis) -> Analysis:
    tries = RepeatedTry(task, how)
    tries.attempt()
    if not tries.is_reproduced:
        return analysis
    calls = read_value(tries.run(list_operations))
    count = find_shortest_failing(len(calls), lambda length: tries.fails(GraphEdit(cut=length)))
    considered = calls[: count or len(calls)]
    names = [name for name, _ in considered[: -1 if count else None]]
    if len(names) > MAX_FUSED_NODES:
        text = (
            f"It fails only fused; the first {len(names)} operations are too many to be taken apart"
        )
        return replace(analysis, notes=(*analysis.notes, text))
    cut = GraphEdit(cut=count)
    hidden = find_hidden(names, lambda exposed: tries.fails(replace(cut, exposed=exposed)))
    together = [*hidden, *([considered[-1][0]] if count else [])]
    if not hidden:
        return replace(analysis, compile_count=analysis.compile_count + tries.count)
    operations = dict(considered)
    return replace(
        analysis,
        status=findings.ONLY_FUSED,
        level=how.level,
        node=together[-1],
        operation=operations[together[-1]],
        cause=findings.COMPILER,
        nodes=tuple(together),
        operations=tuple(operations[name] for name in together),
        compile_count=analysis.compile_count + tries.count,
        notes=(*analysis.notes, *tries.describe_others()),
    )
