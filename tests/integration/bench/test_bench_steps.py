"""The step that `bench` measures."""

from __future__ import annotations

import contextlib

import pytest
import torch

from compileboard.collectors.bench.plan.model_facts import facts_for
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.steps import Steps

pytestmark = pytest.mark.torch


def test_a_mixed_precision_step_on_cuda_leaves_the_gradients_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(BenchSettings(mode="training", dtype="amp", device="cuda"), None, facts_for("builtin", "mlp"))
    monkeypatch.setattr(steps, "autocast", contextlib.nullcontext)  # there is no CUDA here
    module, plain = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
    plain.load_state_dict(module.state_dict())
    inputs = (torch.ones(2, 4),)
    steps.step()(module, inputs)
    plain(*inputs).mean().backward()
    for ours, theirs in zip(module.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad)
