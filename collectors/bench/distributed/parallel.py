"""A rank's workbench: the model in DistributedDataParallel or FSDP2, with inputs of its own."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._dynamo.testing import reset_rng_state
from torch.utils import _pytree

from compileboard.collectors.bench.execution.task_process import DIED
from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.steps import StepRunner, cast_inputs, list_tensors, move_inputs
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome, Stages, describe_error
from compileboard.collectors.bench.worker.same_as_eager import (
    describe_difference,
    is_same,
    output_error,
)
from compileboard.collectors.bench.worker.timing import randomized, time_call
from compileboard.collectors.bench.worker.torch_setup import SEED
from compileboard.collectors.bench.worker.workbench import FAILURES, Workbench, eagerly, is_oom

AGREEMENT_S = 5.0
WRAPPED_PARAMETERS = 100_000  # upstream's minimum for a module to be sharded individually
Gradients = dict[str, torch.Tensor]


class RankFailed(BaseException):
    """A failure of this rank. The other ranks wait for it, so no handler may catch it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RankWorkbench(Workbench):
    def __init__(
        self, ref: ModelRef, settings: BenchSettings, stages: Stages, store: dist.Store
    ) -> None:
        super().__init__(ref, settings, stages)
        self.store = store
        self.failure_count = 0
        self.rank: int = dist.get_rank()
        self.home = "cpu"
        self.parallel: nn.Module | None = None
        self.compiled: Callable[..., Any] | None = None  # the last step
        self.gradients: Gradients = {}  # Gradients of the first step of the last unsharded module.
        self.are_inputs_alike = False  # the same on every rank, whatever was drawn

    def build(self) -> Loaded:
        loaded = super().build()
        device = torch.device(self.settings.device)
        with torch.no_grad():
            for tensor in (*loaded.module.parameters(), *loaded.module.buffers()):
                moved = tensor.detach().to(device).contiguous()
                dist.broadcast(moved, 0)
                tensor.copy_(moved)
        if are_alike(loaded.inputs):  # the builder sets its own seed
            torch.random.manual_seed(SEED + self.rank)
            loaded.inputs = randomized(loaded.inputs)
            self.are_inputs_alike = are_alike(loaded.inputs)
        return loaded

    def seed(self) -> None:
        super().seed()
        torch.random.manual_seed(SEED + self.rank)
        random.seed(SEED + self.rank)

    def cast(self) -> None:
        super().cast()
        self.parallel = self.copy_module()

    def compile(self, step: Callable[..., Any], **changes: Any) -> Callable[..., Any]:
        """Compile a step, and keep it for later counting.

        For FSDP2 only the sharded parts are compiled, as in its tutorials: dynamo would trace into
        the hooks that gather and free parameters during backward, which fails in torch 2.11
        ("modified by an inplace operation").
        """
        self.compiled = (
            self._compile_parts(step, changes)
            if self.settings.fsdp
            else super().compile(step, **changes)
        )
        return self.compiled

    def _compile_parts(
        self, step: Callable[..., Any], changes: dict[str, Any]
    ) -> Callable[..., Any]:
        calls: dict[nn.Module, Callable[..., Any]] = {}

        def compiled(module: nn.Module, inputs: Any, collect_outputs: bool = True) -> Any:
            for part in list_sharded(module):
                if part not in calls:
                    # `Module.compile` does nothing for a part of torch's own class.
                    calls[part] = super(RankWorkbench, self).compile(part.forward, **changes)
                part.forward = calls[part]
            try:
                return step(module, inputs, collect_outputs=collect_outputs)
            finally:
                for part in list_sharded(module):
                    del part.forward  # restores the class's method

        return compiled

    @property
    def module(self) -> nn.Module:
        return self.loaded.module if self.parallel is None else self.parallel

    def copy_module(self, dtype: torch.dtype | None = None) -> nn.Module:
        module = copy.deepcopy(self.loaded.module)
        return distribute(module.to(dtype) if dtype else module, self.settings, self.wrapped_class)

    @property
    def wrapped_class(self) -> str | None:
        """Return the class whose modules FSDP shards individually, None if modules are chosen by
        size.
        """
        fact = self.facts.find("fsdp_wrap")
        return str(fact.value) if fact else None

    def synchronize(self) -> None:
        super().synchronize()
        dist.barrier()
        super().synchronize()

    def warm_up(self, *args: Any, **kwargs: Any) -> float:
        with self._agreeing():
            return super().warm_up(*args, **kwargs)

    def run_iterations(self, step: Callable[..., Any], module: nn.Module, *rest: Any) -> Any:
        self.gradients = {}

        def noting(module: nn.Module, inputs: Any, collect_outputs: bool = True) -> Any:
            result = step(module, inputs, collect_outputs=collect_outputs)
            if not self.gradients:
                self.gradients = read_gradients(module)
            return result

        with self._agreeing():
            return _pytree.tree_map(gather_tensor, super().run_iterations(noting, module, *rest))

    def run_compiled(self, module: nn.Module) -> Any:
        return self.run_iterations(self.compile(self.steps.step()), module, self.inputs)

    @contextlib.contextmanager
    def _agreeing(self) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            self.failure_count += 1
            key, deadline_s = f"failure {self.failure_count}", time.monotonic() + AGREEMENT_S
            self.store.add(key, 1)
            while self.store.add(key, 0) < dist.get_world_size():
                if time.monotonic() > deadline_s:
                    reason = DIED.get(self.stages.name, "fail_to_run")
                    oom = "eager_1st_run_OOM" if reason == DIED["eager"] else "OOM"
                    raise RankFailed(oom if is_oom(error) else reason) from error
                time.sleep(0.05)
            raise


def distribute(module: nn.Module, settings: BenchSettings, wrapped_class: str | None) -> nn.Module:
    if settings.fsdp:
        return shard(module, settings.device, wrapped_class)
    from torch.nn.parallel import DistributedDataParallel

    replica: nn.Module = DistributedDataParallel(
        module.to(settings.device), find_unused_parameters=True
    )  # as upstream
    replica.training = module.training
    return replica


def shard(module: nn.Module, device: str, wrapped_class: str | None) -> nn.Module:
    """Shard a module's blocks of a class individually, or its larger parts if no class is given,
    and then the rest.

    Source: get_fsdp_auto_wrap_policy of upstream's benchmarks/dynamo/common.py.
    """
    from torch.distributed.device_mesh import init_device_mesh

    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # its location before torch 2.6
        from torch.distributed._composable.fsdp import fully_shard

    mesh = init_device_mesh(device, (dist.get_world_size(),))
    blocks = [part for part in module.modules() if type(part).__name__ == wrapped_class]
    for part in (*(blocks or list_parts(module)), module):
        fully_shard(part, mesh=mesh)
    return module


def list_sharded(module: nn.Module) -> list[nn.Module]:
    return [
        part for part in module.modules() if hasattr(part, "unshard")
    ]  # the base class that fully_shard adds


def list_parts(root: nn.Module) -> list[nn.Module]:
    """Return the modules to shard individually, inner ones first; each has enough parameters
    outside inner ones.

    Containers without a forward, and parameters shared between modules, belong to the root.
    """
    owners = Counter(id(parameter) for parameter in _list_all(root))
    tied = {key for key, count in owners.items() if count > 1}
    parts: list[nn.Module] = []

    def visit(module: nn.Module) -> int:
        is_whole = isinstance(
            module, nn.MultiheadAttention
        )  # reads its children's weights without calling them
        taken = 0 if is_whole else sum(visit(child) for child in module.children())
        own = sum(parameter.numel() for parameter in module.parameters())
        is_callable = not isinstance(
            module, (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
        )
        is_tied = any(id(parameter) in tied for parameter in module.parameters())
        if module is root or not is_callable or is_tied or own - taken < WRAPPED_PARAMETERS:
            return taken
        parts.append(module)
        return own

    visit(root)
    return parts


def _list_all(root: nn.Module) -> list[nn.Parameter]:
    return [
        parameter for module in root.modules() for parameter in module.parameters(recurse=False)
    ]


def gather_tensor(leaf: Any) -> Any:
    """Return an unsharded tensor. For a sharded one this is a collective, so every rank must call
    it in the same order.
    """
    gather = getattr(leaf, "full_tensor", None)
    return gather() if gather is not None else leaf


def read_gradients(module: nn.Module) -> Gradients:
    return {
        name.removeprefix("module."): gather_tensor(parameter.grad).detach().clone()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def are_alike(inputs: Any) -> bool:
    digest = hashlib.sha256()
    for leaf in list_tensors(inputs):
        if leaf.layout == torch.strided:
            digest.update(
                leaf.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            )
    digests: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest.hexdigest())
    return len(set(digests)) == 1


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
    except FAILURES as failed:  # it may be too large for one GPU: keep the ranks' verdict
        facts["one_process_error"] = describe_error(failed)
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
    steps = StepRunner(
        bench.settings, bench.loaded.loss, bench.facts
    )  # without an optimizer: the first step's gradients
    step = steps.step()
    sums: Gradients = {}
    with bench.grad(), eagerly():
        for part in parts:
            inputs = move_inputs(part, device)
            reset_rng_state()  # as in each rank
            step(module, cast_inputs(inputs, dtype) if dtype else inputs, collect_outputs=False)
            for name, gradient in read_gradients(module).items():
                sums[name] = sums[name] + gradient if name in sums else gradient
    return {name: gradient / len(parts) for name, gradient in sums.items()}


MAX_NAMED = 20  # modules that run eagerly, by name


def count_splits() -> list[int]:
    """Return a list that receives, for each graph compiled from now on, the number of pieces into
    which DDPOptimizer splits it.
    """
    from torch._dynamo.backends.distributed import DDPOptimizer

    counts: list[int] = []
    compile_fn: Callable[..., Any] = DDPOptimizer.compile_fn

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = compile_fn(self, *args, **kwargs)
        if len(self.buckets) > 1:
            counts.append(len(self.buckets))
        return compiled

    DDPOptimizer.compile_fn = counting
    return counts


def describe_parts(bench: RankWorkbench) -> dict[str, Any]:
    """Return FSDP's parts, or DDP's gradient buckets, and the modules that run eagerly."""
    if bench.settings.fsdp:
        parts = list_sharded(bench.module)
        return {"part_count": len(parts), "wrapped_class": bench.wrapped_class}
    read = getattr(bench.parallel, "_get_ddp_logging_data", None)
    sizes = read().get("rebuilt_bucket_sizes") or read().get("bucket_sizes") if read else None
    described: dict[str, Any] = {"bucket_count": len(str(sizes).split(","))} if sizes else {}
    # With the Python reducer dynamo inlines the model into the step; else each of its frames is
    # compiled separately.
    if not bench.settings.optimize_ddp_mode.startswith("python_reducer"):
        eager = [
            f"{name} ({type(module).__name__})" for name, module in list_eager(bench.loaded.module)
        ]
        described |= (
            {"eager_module_count": len(eager), "eager_modules": eager[:MAX_NAMED]} if eager else {}
        )
    return described


def list_eager(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """List the innermost modules that dynamo compiled neither individually nor in a parent module.

    Dynamo skips frames of torch.nn: the layers of an nn.Sequential run eagerly if it is the
    outermost frame.
    """
    code = getattr(module.forward, "__code__", None)  # a scripted module has none
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
