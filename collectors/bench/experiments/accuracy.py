"""Check that the compiled model computes the same as eager, with upstream's rules and verdicts."""

from __future__ import annotations

from typing import Any

from torch._dynamo.utils import calculate_time_spent

from compileboard.collectors.bench.worker.judging import judge
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.statistics import counted_since, dynamo_counts
from compileboard.collectors.bench.worker.workbench import Workbench


def run(bench: Workbench) -> ExperimentOutcome:
    start = dynamo_counts()
    if skip := bench.facts.reason("accuracy_skip"):
        return ExperimentOutcome(accuracy="pass_due_to_skip", facts={"skip": skip})
    outcome = judge(bench, lambda: _compiled(bench))
    # Without `output_error`: upstream's table of verdicts has no column of it.
    outcome.values = counted_since(start)
    outcome.values["compilation_latency"] = float(
        calculate_time_spent().get("total_wall_time", 0.0)
    )
    return outcome


def _compiled(bench: Workbench) -> Any:
    module = bench.copy_module()
    bench.steps.use(module)
    return bench.run_compiled(module)
