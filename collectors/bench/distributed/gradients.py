"""Compare the ranks' gradients with those of one process that runs each rank's batch in turn.

Not with those of one joined batch: batch norm's statistics are per rank, and an edge list cannot be
joined. The ranks' exchange must give the mean of the parts' gradients, and a missing exchange gives
another.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch._dynamo.testing import reset_rng_state

from compileboard.collectors.bench.distributed.parallel import (
    Gradients,
    RankWorkbench,
    read_gradients,
)
from compileboard.collectors.bench.steps import Steps, cast_inputs, move_inputs
from compileboard.collectors.bench.worker.judging import is_same
from compileboard.collectors.bench.worker.mismatch import describe_difference, output_error
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.workbench import FAILURES, eagerly


def check_gradients(bench: RankWorkbench, outcome: ExperimentOutcome) -> None:
    if outcome.accuracy != "pass" or not bench.gradients:
        return
    bench.stage("one process")
    facts = outcome.facts.setdefault("distributed", {})
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, move_inputs(bench.inputs, "cpu"))
    try:
        alone = sum_up_parts(bench, parts, None)
        reference = (
            None if bench.settings.skip_fp64_check else sum_up_parts(bench, parts, torch.float64)
        )
    except FAILURES as failed:  # it may be too large for one GPU: the ranks' verdict stands
        facts["one_process_error"] = f"{type(failed).__name__}: {failed}"
        return
    if (error := output_error(alone, bench.gradients)) is not None:
        facts["gradient_error"] = error
    tolerance, cosine = outcome.facts["tolerance"], outcome.facts["cosine"]
    if not is_same(alone, bench.gradients, reference, bench, tolerance=tolerance, cosine=cosine):
        outcome.status, outcome.reason, outcome.accuracy = (
            "failed",
            "fail_accuracy",
            "fail_accuracy",
        )
        difference = describe_difference(alone, bench.gradients, reference)
        outcome.message = f"gradients are not those of one process: {difference}"


def sum_up_parts(bench: RankWorkbench, parts: list[Any], dtype: torch.dtype | None) -> Gradients:
    device = bench.settings.device
    module = copy.deepcopy(bench.loaded.module).to(device)
    module = module.to(dtype) if dtype else module
    steps = Steps(
        bench.settings, bench.loaded.loss, bench.facts
    )  # without an optimizer: the first step's gradients
    step = steps.step()
    sums: Gradients = {}
    with bench.grad(), eagerly():
        for part in parts:
            inputs = move_inputs(part, device)
            reset_rng_state()  # as each rank does
            step(module, cast_inputs(inputs, dtype) if dtype else inputs, collect_outputs=False)
            for name, gradient in read_gradients(module).items():
                sums[name] = sums[name] + gradient if name in sums else gradient
    return {name: gradient / len(parts) for name, gradient in sums.items()}
