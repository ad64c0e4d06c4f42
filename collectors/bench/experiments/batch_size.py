"""The largest batch that runs eagerly, halved from 1024, whatever --batch-size says.

On a CPU, allocations beyond a share of the free memory fail, so that the machine is never
exhausted. Source: batch_size_finder and decay_batch_exp of upstream's benchmarks/dynamo/common.py.
"""

from __future__ import annotations

import contextlib
from typing import Any

from compileboard.collectors.bench.steps import Steps, cast, move_inputs
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.bench.worker.timing import bounded
from compileboard.collectors.bench.worker.workbench import (
    TORCH_DTYPES,
    Workbench,
    build,
    eagerly,
    is_oom,
    list_shapes,
)

FIRST = 1024


def run(bench: Workbench) -> ExperimentOutcome:
    other = build(bench.ref, (bench.batch_size or 1) + 1)
    if list_shapes(other.inputs) == list_shapes(bench.inputs):
        return ExperimentOutcome(
            status="skipped", reason="its inputs do not change with the batch size it is asked for"
        )
    bench.stage("measure")
    refused: dict[str, str] = {}
    size = FIRST
    with bounded() if bench.settings.device == "cpu" else contextlib.nullcontext() as bound_bytes:
        facts: dict[str, Any] = {"tried_from": size, "bound_bytes": bound_bytes, "refused": refused}
        while size >= 1:
            error = _try(bench, size)
            if error is None:
                return ExperimentOutcome(values={"batch_size_found": float(size)}, facts=facts)
            refused[str(size)] = error
            size = smaller(size)
    reason = "eager_1st_run_OOM" if "OOM" in refused["1"] else "eager_1st_run_fail"
    return ExperimentOutcome(
        status="failed",
        reason=reason,
        message=f"not even a batch of 1 runs: {refused['1']}",
        facts=facts,
    )


def smaller(size: int) -> int:
    return (size // 2 + 1) // 2 * 2 if size // 2 > 2 else size - 1


def _try(bench: Workbench, size: int) -> str | None:
    bench.free()
    try:
        loaded = build(bench.ref, size)
        loaded.module.train(bench.module.training).to(bench.settings.device)
        loaded.inputs = move_inputs(loaded.inputs, bench.settings.device)
        if bench.settings.dtype in TORCH_DTYPES:
            cast(loaded, TORCH_DTYPES[bench.settings.dtype])
        steps = Steps(bench.settings, loaded.loss, bench.facts)
        steps.use(loaded.module)
        with bench.grad(), eagerly():
            steps.step()(loaded.module, loaded.inputs, collect_outputs=False)
        bench.synchronize()
    except Exception as error:  # memory runs out under many names; what it was is said
        cause = error.__cause__ or error
        return f"{'OOM' if is_oom(cause) else type(cause).__name__}: {cause}"[:500]
    return None
