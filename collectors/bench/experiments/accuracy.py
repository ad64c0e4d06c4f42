"""Compare the compiled model's output with eager's: upstream's verdict, or the distance.

The distance is from eager on the CPU: |eager - compiled| / (1 + |eager|). Source: check_accuracy
and check_tolerance of upstream's benchmarks/dynamo/common.py, which define the columns max, mean
and std.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.testing import reset_rng_state
from torch._dynamo.utils import calculate_time_spent, clone_inputs

from compileboard.collectors.bench.steps import list_tensors, move_inputs
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.same_as_eager import flatten_result, judge
from compileboard.collectors.bench.worker.statistics import count_since, dynamo_counts
from compileboard.collectors.bench.worker.workbench import (
    StageFailed,
    Workbench,
    failing_as,
    first_eager_run,
    mark_batch,
)


def check_accuracy(bench: Workbench) -> ExperimentOutcome:
    start = dynamo_counts()
    if skip := bench.facts.reason("accuracy_skip"):
        return ExperimentOutcome(accuracy="pass_due_to_skip", facts={"skip": skip})
    outcome = judge(bench, lambda: _run_compiled(bench))
    # Without `output_error`, because upstream's table of verdicts has no such column.
    outcome.values = count_since(start)
    outcome.values["compilation_latency"] = float(
        calculate_time_spent().get("total_wall_time", 0.0)
    )
    return outcome


def _run_compiled(bench: Workbench) -> Any:
    module = bench.copy_module()
    bench.steps.use(module)
    return bench.run_compiled(module)


REFERENCE_DEVICE = "cpu"


def measure_tolerance(bench: Workbench) -> ExperimentOutcome:
    if skip := bench.facts.reason("accuracy_skip"):
        return ExperimentOutcome(status="skipped", reason=skip)
    bench.cast()
    mark_batch(bench)
    with bench.grad():
        bench.stage("eager")
        reference = _run_reference(bench)
        bench.stage("compile")
        start = dynamo_counts()
        reset_rng_state()
        torch._dynamo.reset()
        with failing_as("fail_to_run"):
            result = _run_compiled(bench)
    bench.stage("compare")
    with failing_as("fail_accuracy"):
        errors = torch.cat([torch.zeros(0), *measure_distances(reference, result)])
    if not len(errors):
        return ExperimentOutcome(status="skipped", reason="its result has no tensor to compare")
    missed = int((~errors.isfinite()).sum())
    if missed:
        message = (
            f"{missed} of {len(errors)} numbers are finite in one of eager and compiled, and "
            "not in the other"
        )
        return ExperimentOutcome(
            status="failed", reason="fail_accuracy", message=message, values=count_since(start)
        )
    spread = float(errors.std()) if len(errors) > 1 else 0.0
    values = {"max": float(errors.max()), "mean": float(errors.mean()), "std": spread}
    return ExperimentOutcome(
        values={**values, **count_since(start)}, facts={"compared_count": len(errors)}
    )


def _run_reference(bench: Workbench) -> Any:
    reset_rng_state()
    with first_eager_run():
        module = bench.copy_module().to(REFERENCE_DEVICE)
        bench.steps.use(module)
        for group in bench.steps.optimizer.param_groups if bench.steps.optimizer else ():
            group["capturable"] = False  # implies CUDA graphs, which reject parameters on the CPU
        return bench.run_iterations(
            bench.steps.step(), module, move_inputs(clone_inputs(bench.inputs), REFERENCE_DEVICE)
        )


def measure_distances(reference: Any, result: Any) -> Iterator[torch.Tensor]:
    """Return the distances of all tensors. Raises StageFailed, caused by a ValueError, if the two
    results have different tensors.
    """
    left, right = (list_tensors(flatten_result(output)) for output in (reference, result))
    shapes = [tuple(tensor.shape) for tensor in left], [tuple(tensor.shape) for tensor in right]
    if shapes[0] != shapes[1]:
        error = ValueError(
            f"the compiled result has other tensors than eager's: {shapes[1]} instead of "
            f"{shapes[0]}"
        )
        raise StageFailed("fail_accuracy") from error
    for left_tensor, right_tensor in zip(left, right):
        left_tensor, right_tensor = _to_double(left_tensor), _to_double(right_tensor)
        distance = (left_tensor - right_tensor).abs() / (1 + left_tensor.abs())
        alike = (left_tensor == right_tensor) | (left_tensor.isnan() & right_tensor.isnan())
        yield torch.where(alike, 0.0, distance).flatten().to(torch.float32)


def _to_double(output: torch.Tensor) -> torch.Tensor:
    return output.detach().cpu().to(torch.complex128 if output.is_complex() else torch.float64)
