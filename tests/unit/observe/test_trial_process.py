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


@pytest.mark.torch
def test_calls_are_recorded_with_what_they_returned(tmp_path, monkeypatch):
    import torch
    from torch._dynamo.eval_frame import OptimizedModule

    from compileboard.collectors.observe.compiled_calls import CallRecorder

    monkeypatch.setattr(
        OptimizedModule, "__call__", OptimizedModule.__call__
    )  # put back at the end
    recorder, original = CallRecorder(str(tmp_path), str(tmp_path)), torch.compile
    recorder.watch(torch)
    try:

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
    finally:
        torch.compile = original
        torch._dynamo.reset()
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
def test_what_a_call_raises_is_the_programs_own(tmp_path, monkeypatch):
    import torch
    from torch._dynamo.eval_frame import OptimizedModule

    from compileboard.collectors.observe.compiled_calls import CallRecorder

    original = torch.compile
    monkeypatch.setattr(OptimizedModule, "__call__", OptimizedModule.__call__)
    CallRecorder(str(tmp_path), str(tmp_path)).watch(torch)
    try:
        compiled = torch.compile(lambda x: x.view(7), backend="eager")
        with pytest.raises(Exception, match=r"view|shape"):
            compiled(torch.ones(2))
    finally:
        torch.compile = original
        torch._dynamo.reset()
    assert read_calls(tmp_path) == []
