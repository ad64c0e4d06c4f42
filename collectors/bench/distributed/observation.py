"""What a rank's step consists of: DDPOptimizer's pieces, DDP's buckets, collectives; and the same step alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from compileboard.collectors.bench.distributed.parallel import RankWorkbench
from compileboard.collectors.bench.worker.timing import time_call
from compileboard.collectors.bench.worker.workbench import Workbench


def count_splits() -> list[int]:
    """Return a list that gets the number of pieces of each graph that DDPOptimizer cuts from now on."""
    from torch._dynamo.backends.distributed import DDPOptimizer

    counts: list[int] = []
    compile_fn: Callable[..., Any] = DDPOptimizer.compile_fn

    def counting(self: Any, *arguments: Any, **words: Any) -> Any:
        compiled = compile_fn(self, *arguments, **words)
        if len(self.buckets) > 1:
            counts.append(len(self.buckets))
        return compiled

    DDPOptimizer.compile_fn = counting
    return counts


def describe_ddp(bench: RankWorkbench) -> dict[str, int]:
    """Return how many buckets DDP reduces gradients in; nothing of FSDP."""
    read = getattr(bench.parallel, "_get_ddp_logging_data", None)
    sizes = read().get("rebuilt_bucket_sizes") or read().get("bucket_sizes") if read else None
    return {"bucket_count": len(str(sizes).split(","))} if sizes else {}


def count_collectives(bench: RankWorkbench) -> int:
    """Count the collectives of one compiled step, by torch's profiler."""
    compiled = torch._dynamo.run(bench.compiled)
    bench.synchronize()
    with bench.grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        compiled(bench.module, bench.inputs, collect_outputs=False)
    bench.synchronize()
    return sum(event.count for event in profile.key_averages() if event.key.startswith("c10d::"))


def time_alone(bench: RankWorkbench) -> list[float]:
    """Time the plain compiled model of one process.

    Units: milliseconds.
    """
    bench.parallel = None
    bench.free()
    torch._dynamo.reset()
    alone = Workbench(bench.ref, bench.settings, bench.stages)
    alone.loaded, alone.steps = bench.loaded, bench.steps
    alone.module.to(alone.settings.device)
    with alone.grad():
        alone.steps.use(alone.module)
        compiled = alone.compile(alone.steps.step())
        alone.warm_up(compiled, alone.module)
        frozen = torch._dynamo.run(compiled)
        return [time_call(alone, frozen, alone.module, alone.inputs)[0] for _ in range(alone.settings.repeat)]
