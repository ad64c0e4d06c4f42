"""Trials of GPU graphs, pickled to a process that was forked before CUDA was initialised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from compileboard.collectors.repro.minify.search import TrialRunner
from compileboard.collectors.repro.trials import Outcome, TrialLimits


class DeviceTrials:
    def __init__(self, trials: TrialRunner) -> None:
        self._trials = trials
        self.limits = trials.limits

    def run(
        self, function: Callable[..., Any], *arguments: Any, limits: TrialLimits | None = None
    ) -> Outcome:
        module, inputs, *rest = arguments
        devices = [
            str(value.device) if isinstance(value, torch.Tensor) else None for value in inputs
        ]
        return self._trials.run(
            call_on_devices, function, module, list(inputs), devices, rest, limits=limits
        )


def call_on_devices(
    function: Callable[..., Any],
    module: Any,
    inputs: Sequence[Any],
    devices: Sequence[str | None],
    rest: Sequence[Any],
) -> Any:
    accelerator = next((device for device in devices if device not in (None, "cpu")), None)
    if accelerator is not None:
        module = module.to(accelerator)
    return function(module, move_together(inputs, devices), *rest)


def move_together(values: Sequence[Any], devices: Sequence[str | None]) -> list[Any]:
    storages: dict[Any, Any] = {}
    moved = []
    for value, device in zip(values, devices):
        if not isinstance(value, torch.Tensor) or device is None or str(value.device) == device:
            moved.append(value)
            continue
        if value.layout != torch.strided:
            moved.append(value.detach().to(device).requires_grad_(value.requires_grad))
            continue
        storage = value.untyped_storage()
        key = (storage.data_ptr(), value.dtype, device)
        if key not in storages:
            whole = torch.as_strided(
                value.detach(), (storage.nbytes() // value.element_size(),), (1,), 0
            )
            storages[key] = whole.to(device)
        view = torch.as_strided(storages[key], value.shape, value.stride(), value.storage_offset())
        moved.append(view.requires_grad_(value.requires_grad))
    return moved
