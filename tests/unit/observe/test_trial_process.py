"""What a trial does in the observed process: settings after torch, seeds, notes, and calls with
what they returned.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from compileboard.collectors.observe.applied_trial import ProcessTrial
from compileboard.collectors.observe.trial_plan import PLAN_NAME, TrialPlan, read_plan
from compileboard.collectors.trials.execution import read_calls, read_notes


@pytest.fixture
def torch(monkeypatch):
    """Stand in for torch where a trial only needs its names."""
    fake = SimpleNamespace(
        manual_seed=lambda seed: None, compile=lambda model=None, **rest: model, flags={}
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_settings_share_their_names_and_failures_are_noted(tmp_path, torch):
    settings = ("import json", "torch.flags['x'] = json.loads('3')", "torch.absent.x = 1", "1 +")
    ProcessTrial(TrialPlan(str(tmp_path), settings=settings)).after_torch()
    assert torch.flags == {"x": 3}
    kinds = [(kind, text.partition(":")[0]) for kind, text in read_notes(tmp_path)]
    assert kinds == [
        ("setting_applied", "import json"),
        ("setting_applied", "torch.flags['x'] = json.loads('3')"),
        ("setting_failed", "torch.absent.x = 1"),
        ("setting_failed", "1 +"),
    ]


def test_torchs_own_compile_workers_are_left_alone(tmp_path, torch, monkeypatch):
    monkeypatch.setattr(
        sys, "orig_argv", ["python", "/site-packages/torch/_inductor/compile_worker/__main__.py"]
    )
    ProcessTrial(TrialPlan(str(tmp_path), settings=("torch.flags['x'] = 1",))).after_torch()
    assert (torch.flags, read_notes(tmp_path)) == ({}, [])


def test_a_plan_is_read_as_it_was_written(tmp_path):
    plan = TrialPlan(str(tmp_path), {"/a.py": "/b.py"}, ("x = 1",), "/probe")
    assert read_plan(str(plan.write())) == plan
    assert (tmp_path / PLAN_NAME).is_file()


@dataclass
class Output:
    """A result of a library's own class."""

    loss: object
    extra: object = None


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """Return torch, whose compiled calls and backward passes are recorded in `tmp_path`."""
    import torch
    from torch._dynamo.eval_frame import OptimizedModule

    from compileboard.collectors.observe.compiled_calls import CallRecorder

    for owner, name in (
        (OptimizedModule, "__call__"),
        (torch, "compile"),
        (torch.autograd, "_engine_run_backward"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back at the end
    CallRecorder(str(tmp_path), str(tmp_path)).watch(torch)
    yield torch
    torch._dynamo.reset()


@pytest.mark.torch
def test_calls_are_recorded_with_what_they_returned(tmp_path, watched):
    torch = watched

    @torch.compile(backend="eager")
    def inner(x):
        return x + 1

    @torch.compile(backend="eager")
    def outer(x):
        torch._dynamo.graph_break()
        return Output({"a": inner(x), "n": [2, "t"]}, torch.arange(2000).float())

    module = torch.compile(torch.nn.Identity(), backend="eager")
    for _ in range(2):
        outer(torch.ones(2))
        module(torch.zeros(1))
        inner(torch.rand(2))
    (process,) = read_calls(tmp_path)
    names = [call.name for call in process.calls]
    assert [name.rsplit(".", 1)[-1] for name in names] == ["outer", "Identity", "inner"] * 2
    assert [call.has_compiled for call in process.calls] == [True, True, True, False, False, False]
    first = process.calls[0].values
    assert [leaf[:4] for leaf in first[:3]] == [
        [".loss['a']", "tensor", "float32", [2.0, 2.0]],
        [".loss['n'][0]", "number", "int", [2]],
        [".loss['n'][1]", "text", "str", "'t'"],
    ]
    assert (len(first[3][3]), first[3][4:]) == (500, [[2000], [999.5, 999.5, 0.0, 1999.0]])


@pytest.mark.torch
def test_what_a_call_raises_is_the_programs_own_and_is_recorded(tmp_path, watched):
    @watched.compile(backend="eager")
    def check(x):
        watched._dynamo.graph_break()
        raise KeyError(f"no {x.shape[0]}\nand more")

    with pytest.raises(KeyError, match="no 2"):
        check(watched.ones(2))
    ((call,),) = [process.calls for process in read_calls(tmp_path)]
    assert call.values == [["", "raised", "KeyError", "'no 2\\nand more'"]]
    assert call.has_compiled


@pytest.mark.torch
def test_gradients_are_recorded_of_each_backward_pass(tmp_path, watched):
    torch = watched
    layer = torch.nn.Linear(2, 1, bias=False)
    compiled = torch.compile(layer, backend="aot_eager")  # which traces a backward pass first
    compiled(torch.tensor([[2.0, 5.0]])).sum().backward()
    leaf = torch.ones(3, requires_grad=True)
    torch.autograd.grad((leaf * 4).sum(), leaf)
    ((_, accumulated, returned),) = [process.calls for process in read_calls(tmp_path)]
    assert [call.is_backward for call in (accumulated, returned)] == [True, True]
    assert accumulated.values == [["", "tensor", "float32", [2.0, 5.0], [1, 2], []]]
    assert returned.values[-1][3] == [4.0, 4.0, 4.0]
    assert layer.weight.grad.tolist() == [[2.0, 5.0]]
