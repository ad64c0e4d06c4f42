"""Export the model with `torch.export`, strict or not, and compare the program with eager."""

from __future__ import annotations

import time
from typing import Any

from torch._dynamo.testing import reset_rng_state

from compileboard.collectors.bench.worker.exporting import (
    add_export_times,
    begin_stage,
    count_dynamic,
    dynamic_shapes,
    export_module,
    noting_failure,
    split_inputs,
)
from compileboard.collectors.bench.worker.judging import judge
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.statistics import counted_since, dynamo_counts
from compileboard.collectors.bench.worker.workbench import Workbench


def run(bench: Workbench) -> ExperimentOutcome:
    """Export, then check one forward of the program.

    If the export fails, its facts describe the cause and a draft export. A draft is not checked: it
    may be right for these inputs only.
    """
    dynamic_shapes(bench)  # what this torch lacks is no failure of the model's
    strict = bench.settings.backend == "export_strict"
    values: dict[str, float] = {}
    facts: dict[str, Any] = {}

    def compute() -> Any:
        start = dynamo_counts()
        with noting_failure(bench, facts):
            module = bench.copy_module()
            begin_s = time.perf_counter()
            program = export_module(bench, module, strict=strict)
            values["export_latency"] = time.perf_counter() - begin_s
            values.update(
                counted_since(start) if strict else {}
            )  # by running it, dynamo has no part in it
            facts["node_count"] = len(program.graph.nodes)
            if bench.settings.dynamic:
                facts["dynamic_dimension_count"] = count_dynamic(program)
            begin_stage(bench, facts, "run")
            args, kwargs = split_inputs(bench.inputs)
            reset_rng_state()  # tracing may have drawn some
            with bench.steps.autocast():
                return program.module()(*args, **kwargs)

    outcome = judge(bench, compute, iterations=1)
    outcome.values |= values
    outcome.facts["export"] = facts
    add_export_times(
        bench, outcome, facts, lambda module: export_module(bench, module, strict=strict)
    )
    return outcome
