"""What turns torch.compile off, and what ends a compile without torch's record of it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from compileboard.collectors.contract.run_config import describe_uncompiled
from compileboard.collectors.observe import torch_compat


@pytest.mark.parametrize(
    ("environment", "disable", "stance", "expected"),
    [
        ({}, False, "default", []),
        ({"TORCHDYNAMO_DISABLE": "1"}, True, "default", ["TORCHDYNAMO_DISABLE=1"]),
        ({"TORCHDYNAMO_DISABLE": "0"}, False, "eager_on_recompile", []),
        ({}, True, "default", ["torch._dynamo.config.disable = True"]),
        ({}, False, "force_eager", ['torch.compiler.set_stance("force_eager")']),
    ],
)
def test_what_turns_compiling_off_is_named(monkeypatch, environment, disable, stance, expected):
    for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = SimpleNamespace(disable=disable)
    frames = SimpleNamespace(_stance=SimpleNamespace(stance=stance))
    monkeypatch.setitem(sys.modules, "torch._dynamo.config", config)
    monkeypatch.setitem(sys.modules, "torch._dynamo.eval_frame", frames)
    assert torch_compat.list_disabling() == expected
    if expected:
        reason = f"nothing was compiled: compiling is turned off by {expected[0]}"
        assert describe_uncompiled("finished", "2.13.0", expected) == reason


COMPILE = """
class Record:
    def __enter__(self): return self
    def __exit__(self, *error): found.append(find_abort())

def compile_frame(error):
    with Record():
        if error: raise error
"""


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), ValueError()])
def test_what_ends_a_compile_and_torch_does_not_record_is_found(error):
    found = []
    names = {"find_abort": torch_compat.find_abort, "found": found}
    exec(compile(COMPILE, "torch/_dynamo/convert_frame.py", "exec"), names)
    with pytest.raises(type(error)):
        names["compile_frame"](error)
    assert found == [None if isinstance(error, Exception) else error]
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        names["compile_frame"](None)  # the program compiles while it handles one
    assert found[1] is None
