"""The time a second process saves if torch also caches dynamo's result, so that its first call
compiles no frame.

`second_process_latency` is the first call of later processes. Source:
--caching-precompile of upstream's benchmarks/dynamo/common.py.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import torch

from compileboard.collectors.bench.plan.models import NotAvailable
from compileboard.collectors.bench.worker.outcome import COLD, FIRST_CALL, ExperimentOutcome
from compileboard.collectors.bench.worker.statistics import counted_since, dynamo_counts, summarize
from compileboard.collectors.bench.worker.timing import interleave
from compileboard.collectors.bench.worker.workbench import (
    Workbench,
    eagerly,
    failing_as,
    mark_batch,
)


def run(bench: Workbench) -> ExperimentOutcome:
    config: Any = torch._dynamo.config
    if not hasattr(config, "caching_precompile"):
        raise NotAvailable(f"torch {torch.__version__} has no caching precompile")
    config.caching_precompile = True
    bench.cast()
    mark_batch(bench)
    step = bench.steps.step()
    bench.steps.use(bench.module)
    with bench.grad():
        bench.stage("eager")
        with failing_as("eager_1st_run_fail", "eager_1st_run_OOM"), eagerly():
            bench.warm_up(step, bench.module, 1)  # the first call of all pays for libraries
            eager_s = bench.warm_up(step, bench.module, 1)
        bench.stage("compile")
        start = dynamo_counts()
        with failing_as("fail_to_run"):
            begin_s = time.perf_counter()
            compiled = bench.compile(step)
            compiled(bench.module, bench.inputs, collect_outputs=False)
            bench.synchronize()
            first_s = time.perf_counter() - begin_s
            counts = counted_since(start)
            import_module(
                "torch._dynamo.precompile_context"
            ).PrecompileContext.save_to_dynamo_cache()
            bench.stage("measure")
            turns = interleave(bench, step, compiled)
    values = {**counts, **turns.fault_values(), FIRST_CALL: first_s}
    if first_s > eager_s:
        values[COLD.value] = first_s - eager_s
    return summarize(values, turns.repeats)
