"""Torch's scripts are read as text, and what is another machine's is left out."""

from __future__ import annotations

import pytest

from compileboard.collectors.contract.repros import ReproInput
from compileboard.collectors.observe.repro import script

SCRIPT = """
s77 = 19

import os
os.environ['TORCHINDUCTOR_CACHE_DIR'] = '/home/jo/cache'
os.environ['TORCH_API_TOKEN'] = 'hunter2'
os.environ.pop('TORCHDYNAMO_REPRO_AFTER', None)
import torch
from torch import tensor, device

torch._inductor.config.max_autotune = True

class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, arg0_1, arg1_1):
        # File: /home/jo/model.py:3 in forward, code: y = x.sin()
        sin = torch.ops.aten.sin.default(arg1_1);  arg1_1 = None
        add = torch.ops.aten.add.Tensor(sin, 1);  sin = None
        return (add,)

def load_args(reader):
    reader.symint(19, expr='s77')  # arg0_1
    buf0 = reader.storage(None, 128*s77, device=device(type='cuda', index=1))
    reader.tensor(buf0, (s77, 32), is_leaf=True)  # arg1_1
    buf1 = reader.storage('ab12', 64, dtype_hint=torch.bfloat16)
    reader.tensor(buf1, (4, 4), (1, 4), dtype=torch.bfloat16, storage_offset=2, \
requires_grad=True)  # arg2_1
    reader.tensor(buf1, (2,))  # arg3_1
    reader.const('arg4_1')  # arg4_1, filtered out during compilation
    reader.symint(s3)  # arg5_1
    reader.unsupported('arg6_1')  # unsupported type for dumping: <class 'x.Y'>
load_args._version = 0
mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
"""


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        ("{'a': -1.5, 'b': (None, inf)}", True),
        ("{ _warnings.warn, print }", True),
        ("<__main__.Mine object at 0x7f669c21ac10>", False),
        ("[<function wrong at 0x7f>,\n <function other at 0x7f>]", False),
        ("Mine(level=2)", False),
        ("__main__.wrong", False),
    ],
)
def test_setting_whose_value_is_an_object_is_left_out(value: str, is_kept: bool) -> None:
    name = "torch._inductor.config.custom_partitioner_fn"
    setting = f"import _warnings\nimport __main__\n{name} = {value}\n\n"
    text = script.trim_script(SCRIPT.replace("class Repro", f"{setting}class Repro"), {})
    assert script.is_python(text) and "max_autotune = True\n" in text
    assert (f"{name} = {value}\n" in text) is is_kept
    assert (f"# left out: {name}, whose" in text) is not is_kept


def test_inputs_are_read_with_their_storages_and_symbols() -> None:
    assert script.read_inputs(SCRIPT) == (
        ReproInput("arg0_1", kind="symint", value=19, expression="s77"),
        ReproInput(
            "arg1_1",
            dtype="float32",
            shape=("s77", 32),
            stride=(32, 1),
            device="cuda:1",
            storage=0,
            storage_bytes=128 * 19,
        ),
        ReproInput(
            "arg2_1",
            dtype="bfloat16",
            shape=(4, 4),
            stride=(1, 4),
            storage_offset=2,
            device="cpu",
            requires_grad=True,
            storage=1,
            storage_bytes=64,
        ),
        ReproInput(
            "arg3_1",
            dtype="float32",
            shape=(2,),
            stride=(1,),
            device="cpu",
            storage=1,
            storage_bytes=64,
        ),
        ReproInput("arg4_1", kind="none"),
        ReproInput("arg5_1", kind="symint", expression="s3"),
        ReproInput("arg6_1", kind="other", value="<class 'x.Y'>"),
    )


def test_what_is_kept_of_a_script_is_the_graph_and_its_settings() -> None:
    text = script.trim_script(
        SCRIPT, {"TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TORCH_API_TOKEN": "x", "HOME": "/home/jo"}
    )
    assert text.startswith(
        "s77 = 19\nimport os\nos.environ['TORCHINDUCTOR_MAX_AUTOTUNE'] = '1'\nimport torch\n"
    )
    assert "hunter2" not in text and "CACHE_DIR" not in text and "__main__" not in text
    assert text.endswith("mod = Repro()\n") and "y = x.sin()" in text
    assert script.count_calls(text) == 2


def test_without_source_the_programs_lines_go() -> None:
    assert "model.py" not in script.trim_script(SCRIPT, {}, keep_source=False)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2*s0 + 1", 7),
        ("Max(1, s0)", 3),
        ("s0//2", 1),
        ("s1", None),
        ("9**9**9", None),
        ("__import__('os')", None),
    ],
)
def test_expressions_of_symbols_are_worked_out_and_nothing_else(
    expression: str, value: int | None
) -> None:
    assert script.evaluate(expression, {"s0": 3}) == value


def test_strides_of_a_contiguous_tensor_may_be_expressions() -> None:
    assert script.contiguous_stride((2, "s0", "s1 + 1", 4)) == ("4*s0*(s1 + 1)", "4*(s1 + 1)", 4, 1)


@pytest.mark.parametrize(
    "text", ["", "print(1)", "def load_args(reader):\n    reader.tensor(((, (1,))  # x"]
)
def test_what_is_no_script_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="load_args"):
        script.read_inputs(text)
