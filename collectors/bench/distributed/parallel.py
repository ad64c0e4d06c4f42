"""A rank's workbench: the model in DistributedDataParallel or sharded by FSDP2, with inputs of its
own.
"""

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
from torch.utils import _pytree

from compileboard.collectors.bench.execution.endings import DIED
from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.worker.outcome import Stages
from compileboard.collectors.bench.worker.timing import randomized
from compileboard.collectors.bench.worker.torch_setup import SEED
from compileboard.collectors.bench.worker.workbench import FAILURES, Workbench, is_oom

AGREEMENT_S = 5.0
WRAPPED_PARAMETERS = 100_000  # upstream's size of a module that FSDP shards by itself
Gradients = dict[str, torch.Tensor]


class RankFailed(BaseException):
    """A failure that other ranks do not have. They wait for this one, so no handler may catch
    it.
    """

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
        self.gradients: Gradients = {}  # of the last module's first step, whole
        self.are_inputs_alike = False  # on every rank, whatever was drawn

    def build(self) -> Loaded:
        loaded = super().build()
        device = torch.device(self.settings.device)
        with torch.no_grad():
            for tensor in (*loaded.module.parameters(), *loaded.module.buffers()):
                moved = tensor.detach().to(device).contiguous()
                dist.broadcast(moved, 0)
                tensor.copy_(moved)
        if are_alike(loaded.inputs):  # a builder that seeds for itself
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
        the hooks that gather and free parameters during backward, which fails in torch
        2.11 ("modified by an inplace operation").
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
                if (
                    part not in calls
                ):  # not `Module.compile`, which compiles nothing of a part that is torch's own class
                    calls[part] = super(RankWorkbench, self).compile(part.forward, **changes)
                part.forward = calls[part]
            try:
                return step(module, inputs, collect_outputs=collect_outputs)
            finally:
                for part in list_sharded(module):
                    del part.forward  # the class's own again

        return compiled

    @property
    def module(self) -> nn.Module:
        return self.loaded.module if self.parallel is None else self.parallel

    def copy_module(self, dtype: torch.dtype | None = None) -> nn.Module:
        module = copy.deepcopy(self.loaded.module)
        return distribute(module.to(dtype) if dtype else module, self.settings, self.wrapped_class)

    @property
    def wrapped_class(self) -> str | None:
        """Return the class whose modules FSDP shards by themselves; none where their size
        decides.
        """
        fact = self.facts.find("fsdp_wrap")
        return str(fact.value) if fact else None

    def synchronize(self) -> None:
        super().synchronize()
        dist.barrier()
        super().synchronize()

    def warm_up(self, *arguments: Any, **words: Any) -> float:
        with self._agreeing():
            return super().warm_up(*arguments, **words)

    def run_iterations(self, step: Callable[..., Any], module: nn.Module, *rest: Any) -> Any:
        self.gradients = {}

        def noting(module: nn.Module, inputs: Any, collect_outputs: bool = True) -> Any:
            result = step(module, inputs, collect_outputs=collect_outputs)
            if not self.gradients:
                self.gradients = read_gradients(module)
            return result

        with self._agreeing():
            return _pytree.tree_map(whole, super().run_iterations(noting, module, *rest))

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
    """Shard a module's blocks of a class, or else its larger parts, by themselves and then the
    rest.

    Source: get_fsdp_auto_wrap_policy of upstream's benchmarks/dynamo/common.py.
    """
    from torch.distributed.device_mesh import init_device_mesh

    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # its place before torch 2.6
        from torch.distributed._composable.fsdp import fully_shard

    mesh = init_device_mesh(device, (dist.get_world_size(),))
    blocks = [part for part in module.modules() if type(part).__name__ == wrapped_class]
    for part in (*(blocks or list_parts(module)), module):
        fully_shard(part, mesh=mesh)
    return module


def list_sharded(module: nn.Module) -> list[nn.Module]:
    return [
        part for part in module.modules() if hasattr(part, "unshard")
    ]  # the base that fully_shard adds


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
        )  # reads its children's weights, and calls none of them
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


def whole(leaf: Any) -> Any:
    """Return an unsharded tensor. A collective for a sharded one, so every rank must call it in the
    same order.
    """
    gather = getattr(leaf, "full_tensor", None)
    return gather() if gather is not None else leaf


def read_gradients(module: nn.Module) -> Gradients:
    return {
        name.removeprefix("module."): whole(parameter.grad).detach().clone()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def are_alike(inputs: Any) -> bool:
    digest = hashlib.sha256()
    for leaf in _pytree.tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
            digest.update(
                leaf.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            )
    digests: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest.hexdigest())
    return len(set(digests)) == 1
