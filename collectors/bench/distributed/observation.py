"""What a rank's step consists of: compiled pieces, parts, eager modules, buckets, collectives; and
the step alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

from compileboard.collectors.bench.distributed.parallel import RankWorkbench, list_sharded
from compileboard.collectors.bench.worker.timing import time_call
from compileboard.collectors.bench.worker.workbench import Workbench

MOST_NAMED = 20  # of the modules that run eagerly


def count_splits() -> list[int]:
    """Return a list that receives the number of pieces of each graph DDPOptimizer splits from now
    on.
    """
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


def describe_parts(bench: RankWorkbench) -> dict[str, Any]:
    """Return FSDP's parts, or DDP's buckets of gradients and the modules that run eagerly within
    it.
    """
    if bench.settings.fsdp:
        parts = list_sharded(bench.module)
        return {"part_count": len(parts), "wrapped_class": bench.wrapped_class}
    read = getattr(bench.parallel, "_get_ddp_logging_data", None)
    sizes = read().get("rebuilt_bucket_sizes") or read().get("bucket_sizes") if read else None
    described: dict[str, Any] = {"bucket_count": len(str(sizes).split(","))} if sizes else {}
    # With the Python reducer dynamo inlines the model into the step; else each of its frames is
    # compiled by itself.
    if not bench.settings.optimize_ddp_mode.startswith("python_reducer"):
        eager = [
            f"{name} ({type(module).__name__})" for name, module in list_eager(bench.loaded.module)
        ]
        described |= (
            {"eager_module_count": len(eager), "eager_modules": eager[:MOST_NAMED]} if eager else {}
        )
    return described


def list_eager(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """List the innermost modules that dynamo compiled neither by themselves nor in a module around
    them.

    Dynamo skips frames of torch.nn: the layers of an nn.Sequential run eagerly where it is the
    outermost frame.
    """
    code = getattr(module.forward, "__code__", None)  # none of a scripted module
    if code is not None and _debug_get_cache_entry_list(code):
        return
    children = list(module.named_children())
    for child_name, child in children:
        yield from list_eager(child, f"{name}.{child_name}" if name else child_name)
    if not children:
        yield name or "the model", module


def count_collectives(bench: RankWorkbench) -> int:
    compiled = torch._dynamo.run(bench.compiled)
    bench.synchronize()
    with (
        bench.grad(),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile,
    ):
        compiled(bench.module, bench.inputs, collect_outputs=False)
    bench.synchronize()
    return sum(event.count for event in profile.key_averages() if event.key.startswith("c10d::"))


def time_alone(bench: RankWorkbench) -> list[float]:
    """Time the plain compiled model in one process, in milliseconds."""
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
        return [
            time_call(alone, frozen, alone.module, alone.inputs)[0]
            for _ in range(alone.settings.repeat)
        ]
