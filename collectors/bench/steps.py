"""The measured step: one forward pass, or forward, backward and optimizer.

The frames match upstream's `forward_pass` and `forward_and_backward_pass`, so that counts start at
the same frame.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._dynamo.testing import collect_results
from torch._dynamo.utils import clone_inputs
from torch.utils import _pytree

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.plan.model_facts import ModelFacts
from compileboard.collectors.bench.plan.settings import BenchSettings

LEARNING_RATE = 0.01
T = TypeVar("T")


class StepRunner:
    def __init__(
        self, settings: BenchSettings, loss: Callable[[Any], torch.Tensor] | None, facts: ModelFacts
    ) -> None:
        self.settings = settings
        self.facts = facts
        self.loss, self.loss_divisor = loss or mean_of_all, facts.loss_divisor
        self.optimizer: Any = None

    def autocast(self) -> Any:
        if self.settings.dtype != "amp":
            return contextlib.nullcontext()
        return torch.autocast(
            self.settings.device, dtype=getattr(torch, self.settings.autocast_dtype)
        )

    def use(self, module: torch.nn.Module) -> None:
        """Create the optimizer as upstream does, only on CUDA: Adam, or SGD if Adam is known to
        fail.
        """
        self.optimizer = None
        if not (self.settings.is_training and self.settings.is_cuda) or self.facts.find(
            "no_optimizer"
        ):
            return
        if self.facts.find("use_sgd", ci=self.settings.ci):
            self.optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE, foreach=True)
            self.optimizer.step = torch._dynamo.disable(self.optimizer.step)
        else:
            self.optimizer = torch.optim.Adam(
                module.parameters(), lr=LEARNING_RATE, capturable=True, foreach=True
            )

    def step(self) -> Callable[..., Any]:
        return self.forward_and_backward_pass if self.settings.is_training else self.forward_pass

    def forward_pass(
        self, module: torch.nn.Module, inputs: Any, collect_outputs: bool = True
    ) -> Any:
        with self.autocast():
            if isinstance(inputs, dict):
                return module(**inputs)
            return module(*inputs)

    def forward_and_backward_pass(
        self, module: torch.nn.Module, inputs: Any, collect_outputs: bool = True
    ) -> Any:
        cloned = clone_inputs(inputs)
        self.zero_grad(module)
        with self.autocast():
            output = module(**cloned) if isinstance(cloned, dict) else module(*cloned)
            loss = self.compute_loss(output)
        # Unscaled, as upstream: a scaler's state would differ between eager and compiled
        loss.backward()
        if self.optimizer is not None:
            self.optimizer.step()
        if collect_outputs:
            return collect_results(module, None, loss, cloned)
        return None

    def compute_loss(self, output: Any) -> torch.Tensor:
        loss = self.loss(output)
        return loss if self.loss_divisor == 1.0 else loss / self.loss_divisor

    @torch._dynamo.disable
    def zero_grad(self, module: torch.nn.Module) -> None:
        if self.optimizer is not None:
            self.optimizer.zero_grad(True)
        else:
            module.zero_grad(True)


def run_iterations(
    step: Callable[..., Any], module: torch.nn.Module, inputs: Any, count: int
) -> Any:
    """Call a step `count` times and return the last result.

    Source: run_n_iterations of upstream's benchmarks/dynamo/common.py.
    """
    for _ in range(count - 1):
        step(module, inputs, collect_outputs=False)
    return step(module, inputs, collect_outputs=True)


def mean_of_all(output: Any) -> torch.Tensor:
    """Reduce any output to one number for a model without a loss; dynamo traces it.

    Upstream's suites use its `reduce_to_scalar_loss`, which dynamo does not trace.
    """
    tensors = [tensor for tensor in list_tensors(output) if tensor.is_floating_point()]
    if not tensors:
        raise ValueError(
            "the model's output has no floating-point tensor to make a loss of; give its "
            "Loaded a `loss`"
        )
    means = [tensor.float().sum() / max(tensor.numel(), 1) for tensor in tensors]
    return torch.stack(means).sum() / len(tensors)


def list_tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def map_tensors(change: Callable[[torch.Tensor], torch.Tensor], values: T) -> T:
    changed: T = _pytree.tree_map_only(torch.Tensor, change, values)
    return changed


def cast(loaded: Loaded, dtype: torch.dtype) -> None:
    loaded.module.to(dtype)
    loaded.inputs = cast_inputs(loaded.inputs, dtype)


def cast_inputs(inputs: T, dtype: torch.dtype) -> T:
    return map_tensors(
        lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, inputs
    )


def move_inputs(inputs: T, device: str) -> T:
    return map_tensors(lambda tensor: tensor.to(device), inputs)
