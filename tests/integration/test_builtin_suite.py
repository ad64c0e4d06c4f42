"""Every built-in model builds, runs, learns, repeats itself bit by bit, and takes each size."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.suites.builtin import MODELS

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
every_model = pytest.mark.parametrize("ref", MODELS, ids=lambda ref: ref.name)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """Leave the other cores to the tests beside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load(ref: ModelRef, batch_size: int = 2) -> Any:
    module, function = ref.builder.split(":")
    return getattr(importlib.import_module(module), function)(batch_size)


def call(module: Any, inputs: Any) -> Any:
    return module(**inputs) if isinstance(inputs, dict) else module(*inputs)


def tensors(output: Any) -> list[Any]:
    return [
        leaf for leaf in torch.utils._pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)
    ]


def inputs_of(loaded: Any) -> list[Any]:
    return tensors(loaded.inputs)


@pytest.mark.sampled(4)
@every_model
def test_two_builds_have_the_same_weights_and_inputs_and_leave_the_generator_alone(
    ref: ModelRef,
) -> None:
    state = torch.get_rng_state()
    first, second = load(ref), load(ref)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, first.module.parameters(), second.module.parameters()))
    assert all(map(torch.equal, inputs_of(first), inputs_of(second)))


@pytest.mark.sampled(4)
@every_model
def test_weights_and_inputs_are_on_the_cpu_in_the_types_the_harness_casts(ref: ModelRef) -> None:
    loaded = load(ref)
    assert {weight.dtype for weight in loaded.module.parameters()} == {torch.float32}
    given = inputs_of(loaded)
    assert {item.dtype for item in given} <= {torch.float32, torch.int64, torch.bool}
    assert {item.device.type for item in given} == {"cpu"}


@pytest.mark.sampled(4)
@every_model
def test_two_eager_runs_agree_bit_by_bit(ref: ModelRef) -> None:
    loaded = load(ref)
    loaded.module.eval()
    with torch.no_grad():
        first, second = (tensors(call(loaded.module, loaded.inputs)) for _ in range(2))
    assert first and all(map(torch.equal, first, second))
    assert all(item.numel() and item.isfinite().all() for item in first)


@pytest.mark.sampled(4)
@every_model
def test_the_answer_depends_on_the_input_so_that_a_wrong_one_shows(ref: ModelRef) -> None:
    loaded = load(ref, 4)
    with torch.no_grad():
        answer = next(
            tensor
            for tensor in tensors(call(loaded.module.eval(), loaded.inputs))
            if tensor.is_floating_point()
        )
    assert answer.std(dim=0).mean() > 0.01 * answer.abs().mean()


@pytest.mark.sampled(4)
@every_model
def test_the_batch_size_is_the_one_asked_for(ref: ModelRef) -> None:
    small, big = load(ref, 1), load(ref, 3)
    assert (small.batch_size, big.batch_size) == (1, 3)
    counts = [
        sum(
            tensor.numel()
            for tensor in tensors(call(loaded.module.eval(), loaded.inputs))
            if tensor.is_floating_point()
        )
        for loaded in (small, big)
    ]
    assert counts[1] > counts[0]


@pytest.mark.sampled(4)
@every_model
def test_every_size_it_offers_runs_and_differs(ref: ModelRef) -> None:
    loaded = load(ref)
    loaded.module.eval()
    assert 3 <= len(loaded.sizes) <= 5
    shapes = set()
    for size in loaded.sizes:
        inputs = loaded.resize(size)
        with torch.no_grad():
            assert tensors(call(loaded.module, inputs))
        shapes.add(tuple(tensor.shape for tensor in tensors(inputs)))
    assert len(shapes) == len(loaded.sizes)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ref", [ref for ref in MODELS if ref.trains], ids=lambda ref: ref.name)
def test_every_weight_learns_from_the_loss(ref: ModelRef) -> None:
    loaded = load(ref, 4)
    loaded.module.train()
    loss = loaded.loss(call(loaded.module, loaded.inputs))
    assert loss.shape == () and loss.isfinite()
    loss.backward()
    assert all(
        weight.grad is not None and weight.grad.isfinite().all()
        for weight in loaded.module.parameters()
    )


@pytest.mark.sampled(4)
@every_model
def test_it_runs_in_double_precision_which_accuracy_is_checked_against(ref: ModelRef) -> None:
    loaded = load(ref)
    wide = {
        tensor: tensor.double() if tensor.is_floating_point() else tensor
        for tensor in inputs_of(loaded)
    }
    inputs = torch.utils._pytree.tree_map(lambda item: wide[item], loaded.inputs)
    with torch.no_grad():
        output = tensors(call(loaded.module.double().eval(), inputs))
    assert {item.dtype for item in output if item.is_floating_point()} == {torch.float64}


def test_what_the_detector_finds_depends_on_the_image() -> None:
    loaded = load(next(ref for ref in MODELS if ref.name == "detector"), 4)
    with torch.no_grad():
        answer = call(loaded.module.eval(), loaded.inputs)
    assert len({len(item["boxes"]) for item in answer}) > 1
    assert all((item["scores"].diff() <= 0).all() for item in answer)
