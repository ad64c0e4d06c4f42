"""The share of the model's ops, and of their time, that dynamo captures.

The columns are those of upstream's coverage file. torch._dynamo.profiler is not used: it counts the
marks that newer versions set around compiled regions as ops, and finds none captured (seen with
torch 2.13). Source: coverage_experiment of upstream's benchmarks/dynamo/common.py,
torch/_dynamo/profiler.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.statistics import counted_since, dynamo_counts
from compileboard.collectors.bench.worker.workbench import (
    Workbench,
    eagerly,
    failing_as,
    mark_batch,
)

CAPTURED = "compileboard: captured"
WARM_UPS = 2


def run(bench: Workbench) -> ExperimentOutcome:
    bench.cast()
    mark_batch(bench)
    bench.steps.use(bench.module)
    graphs: list[torch.fx.GraphModule] = []
    with bench.grad(), failing_as("eager_1st_run_fail", "eager_1st_run_OOM"), eagerly():
        bench.stage("eager")
        bench.warm_up(bench.steps.step(), bench.module, 1)
    with bench.grad(), failing_as("fail_to_run"):
        bench.stage("compile")
        start = dynamo_counts()
        compiled = bench.compile(bench.steps.step(), backend=_marking(graphs))
        bench.warm_up(compiled, bench.module, WARM_UPS)
        counted = counted_since(start)
        bench.stage("measure")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            torch._dynamo.run(compiled)(bench.module, bench.inputs, collect_outputs=False)
    spans = [
        (event.name, event.time_range.start, event.time_range.end)
        for event in profile.events() or []
    ]
    return ExperimentOutcome(values={"graphs": float(len(graphs)), **share(spans), **counted})


def _marking(graphs: list[torch.fx.GraphModule]) -> Callable[..., Any]:
    def mark(graph: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)

        def call(*args: Any) -> Any:
            with torch.profiler.record_function(CAPTURED):
                return graph.forward(*args)

        return call

    return mark


def share(spans: Iterable[tuple[str, float, float]]) -> dict[str, float]:
    calls, captured, total = 0, [0, 0.0], [0, 0.0]
    op_end, captured_end = float("-inf"), float("-inf")
    for name, begin, end in sorted(spans, key=lambda span: (span[1], -span[2])):
        if name == CAPTURED:
            calls, captured_end = calls + 1, end
        elif "::" in name and begin >= op_end:
            op_end = end
            for counter in (total, captured) if end <= captured_end else (total,):
                counter[0] += 1
                counter[1] += end - begin
    return {
        "graph_calls": float(calls),
        "captured_ops": float(captured[0]),
        "total_ops": float(total[0]),
        "pct_ops": captured[0] / max(1, total[0]),
        "pct_time": captured[1] / total[1] if total[1] else 0.0,
    }
