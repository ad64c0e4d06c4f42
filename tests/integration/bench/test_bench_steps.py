"""The step that `bench` measures."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.plan.model_facts import facts_for
from compileboard.collectors.bench.plan.models import ModelRef, NotAvailable
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.steps import StepRunner
from compileboard.collectors.bench.worker.child import run_experiment
from compileboard.collectors.bench.worker.outcome import Stages
from compileboard.collectors.bench.worker.timing import (
    TimedCall,
    draw_batch_sizes,
    resize_batch,
    take_turns,
    vary_batch,
)
from compileboard.collectors.bench.worker.workbench import Workbench
from compileboard.collectors.record.garbage import without_collections

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.torch


def test_a_mixed_precision_step_on_cuda_leaves_the_gradients_of_the_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    steps = StepRunner(
        BenchSettings(mode="training", dtype="amp", device="cuda"),
        None,
        facts_for("builtin", "mlp"),
    )
    monkeypatch.setattr(steps, "autocast", contextlib.nullcontext)  # there is no CUDA here
    module, plain = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
    plain.load_state_dict(module.state_dict())
    inputs = (torch.ones(2, 4),)
    steps.step()(module, inputs)
    plain(*inputs).mean().backward()
    for ours, theirs in zip(module.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_mixed_precision_has_the_dtype_that_is_asked_for() -> None:
    import torch

    module, inputs = torch.nn.Linear(4, 4), (torch.ones(2, 4),)
    facts = facts_for("builtin", "mlp")
    for asked, expected in ((None, torch.bfloat16), ("float16", torch.float16)):
        steps = StepRunner(BenchSettings(dtype="amp", amp_dtype=asked), None, facts)
        assert steps.step()(module, inputs).dtype == expected


def test_settings_of_dynamo_are_set_in_the_child() -> None:
    program = """
import torch, torch._dynamo, torch._functorch.config
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.torch_setup import configure_torch
settings = BenchSettings(
    specialize_int=True, propagate_real_tensors=True, suppress_errors=True, deterministic=True,
    inductor_config=(
        "split_reductions=0", "triton.persistent_reductions=0", "triton.divisible_by_16=0"))
configure_torch(Task("performance", ModelRef("builtin", "mlp", "m:f"), settings))
dynamo, functorch = torch._dynamo.config, torch._functorch.config
assert dynamo.specialize_int and dynamo.suppress_errors and dynamo.capture_scalar_outputs
assert dynamo.capture_dynamic_output_shape_ops and functorch.fake_tensor_propagate_real_tensors
assert torch.are_deterministic_algorithms_enabled()
from torch._inductor import config
assert not config.split_reductions
assert not (config.triton.persistent_reductions or config.triton.divisible_by_16)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def prepare(
    settings: BenchSettings, module: torch.nn.Module, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Workbench:
    """Return a workbench that will load a module."""
    import torch

    loaded = Loaded(module, (torch.ones(2, 4),), keeps_mode=True)
    monkeypatch.setattr(Workbench, "build", lambda _: loaded)
    return Workbench(ModelRef("builtin", "mlp", "m:f"), settings, Stages(folder))


def load(
    settings: BenchSettings, module: torch.nn.Module, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Workbench:
    """Load a module as the workbench does."""
    bench = prepare(settings, module, monkeypatch, folder)
    bench.load()
    return bench


@pytest.mark.sampled(2)
@pytest.mark.parametrize("experiment", ["nothing", "performance"])
def test_collections_search_the_imports_from_the_first_call_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, experiment: str
) -> None:
    import torch._dynamo

    frozen: list[int] = []
    module = torch.nn.Linear(4, 4)
    module.register_forward_hook(
        torch._dynamo.disable(lambda *_: frozen.append(gc.get_freeze_count()))
    )
    settings = BenchSettings(backend="eager", quick=True, repeat=2, no_stack_room=True)
    task = Task(experiment, ModelRef("builtin", "mlp", "m:f"), settings)
    with without_collections():
        bench = prepare(settings, module, monkeypatch, tmp_path)
    assert gc.get_freeze_count() > 0
    assert run_experiment(task, bench).status == "measured"
    assert len(frozen) > 4 and set(frozen) == {0}, "eager's first call among them"


def test_checkpointing_is_enabled_where_a_model_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    settings = BenchSettings(activation_checkpointing=True)
    with pytest.raises(NotAvailable, match="only models of transformers"):
        load(settings, torch.nn.Linear(4, 4), monkeypatch, tmp_path)
    module = torch.nn.Linear(4, 4)
    calls: list[bool] = []
    module.gradient_checkpointing_enable = lambda: calls.append(True)  # type: ignore[assignment]
    load(settings, module, monkeypatch, tmp_path)
    assert calls == [True]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # dynamo's own
def test_a_checks_iterations_have_upstreams_graphs_and_breaks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch
    from torch._dynamo.testing import reduce_to_scalar_loss
    from torch._dynamo.utils import counters

    settings = BenchSettings(mode="training", dtype="amp", backend="eager")
    bench = load(settings, torch.nn.Linear(4, 4), monkeypatch, tmp_path)
    bench.steps.loss = reduce_to_scalar_loss
    torch._dynamo.reset()
    counters.clear()
    bench.run_compiled(bench.module)
    # The inputs' copy, zero_grad, the loss in the step and in its own frame, backward: as
    # upstream's harness counts.
    assert sum(counters["graph_break"].values()) == 5 and len(counters["graph_break"]) == 4
    assert counters["stats"]["unique_graphs"] == 2


def test_a_mode_is_compiled_without_its_cuda_graphs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    bench = load(
        BenchSettings(compile_mode="max-autotune"), torch.nn.Linear(4, 4), monkeypatch, tmp_path
    )
    given: dict[str, Any] = {}
    monkeypatch.setattr(torch, "compile", lambda step, **options: given.update(options))
    bench.settings = replace(bench.settings, device="cuda", disable_cudagraphs=True)
    bench.compile(bench.steps.step())
    assert given["mode"] is None and given["options"]["triton.cudagraphs"] is False
    assert given["options"]["max_autotune"] is True


def test_batch_sizes_stay_within_a_fifth_and_are_the_same_for_every_run() -> None:
    sizes = draw_batch_sizes(100, 200)
    assert sizes == draw_batch_sizes(100, 200) and 80 <= min(sizes) < 85 and 115 < max(sizes) <= 120
    assert set(draw_batch_sizes(2, 50)) == {2}


def test_another_batch_repeats_the_last_row_and_leaves_other_inputs() -> None:
    import torch

    rows, other = torch.arange(8.0).reshape(4, 2), torch.ones(3)
    larger = resize_batch({"x": rows, "y": other, "z": 4}, 4, 6)
    assert larger["x"].tolist() == [*rows.tolist(), [6.0, 7.0], [6.0, 7.0]]
    assert larger["y"] is other and larger["z"] == 4
    assert resize_batch((rows.T,), 4, 3)[0].tolist() == rows.T[:, :3].tolist()


@pytest.mark.nightly
def test_the_batch_varies_on_both_sides_where_it_alone_is_dynamic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    settings = BenchSettings(backend="eager", dynamic_batch_only=True, repeat=6)
    sizes: list[int] = []
    fixed = torch.nn.Linear(4, 4)
    fixed.register_forward_pre_hook(lambda _module, given: given[0].reshape(8, 4))
    for module, fact in (
        (torch.nn.Linear(4, 4), "batch_sizes"),
        (fixed, "batch_variation_error"),
    ):
        loaded = Loaded(module, (torch.ones(8, 4),), keeps_mode=True)
        monkeypatch.setattr(Workbench, "build", lambda _, loaded=loaded: loaded)
        bench = Workbench(ModelRef("builtin", "mlp", "m:f"), settings, Stages(tmp_path))
        bench.load()
        module.register_forward_hook(lambda _module, given, _result: sizes.append(len(given[0])))
        step = bench.steps.step()
        facts = vary_batch(bench, step, step)
        assert list(facts) == [fact]
        sizes.clear()
        take_turns(bench, TimedCall(step, module), TimedCall(step, module))
        assert sizes[::2] == sizes[1::2] == (bench.batch_sizes or [8] * 6)
    assert facts["batch_variation_error"].startswith("RuntimeError: shape")
