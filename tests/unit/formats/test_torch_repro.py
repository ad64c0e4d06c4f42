"""Torch's own repro scripts, read as text."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.formats.torch_repro import (
    NoTorchRepro,
    evaluate_size,
    list_results,
    list_symbols,
    parse_torch_script,
)

DATA = Path(__file__).parents[2] / "data" / "repros"
RECORDED = (DATA / "dynamic_pad.txt").read_text()  # of torch 2.13
LOAD = """
class Repro: pass
def load_args(reader):
    buf0 = reader.storage('d41d8', 4096, device=device(type='cuda', index=1), \
dtype_hint=torch.bfloat16)
    reader.tensor(buf0, (2, 3), (1, 2), dtype=torch.bfloat16, storage_offset=7, \
requires_grad=True)  # x
    reader.tensor(buf0, (4,), dtype=torch.bfloat16)  # y
    reader.const('z')  # z, filtered out during compilation
    reader.unsupported('w')  # unsupported type
if __name__ == '__main__':
    from torch._dynamo.repro.after_dynamo import run_repro
    run_repro(mod, load_args, accuracy=True, command='minify', save_dir='/tmp/x', backend='mine')
"""


def test_recorded_script_has_symbols_shapes_and_versions() -> None:
    script = parse_torch_script(RECORDED)
    assert [entry.name for entry in script.manifest.inputs] == [
        "arg0_1",
        "arg1_1",
        "arg2_1",
        "arg3_1",
        "arg4_1",
    ]
    assert script.manifest.symbols == {"s77": 19}
    assert (
        script.manifest.inputs[2].shape == ("s77", 32)
        and script.manifest.inputs[2].storage_bytes == 128 * 19
    )
    assert (script.manifest.level, script.manifest.kind, script.manifest.node_count) == (
        "aot",
        "compile",
        25,
    )
    assert script.manifest.versions == {"torch": "2.13.0+cpu"}
    assert "__main__" not in script.program and script.program.rstrip().endswith("mod = Repro()")


def test_storage_shared_by_two_inputs_and_values_are_named() -> None:
    script = parse_torch_script(LOAD)
    x, y, z, w = script.manifest.inputs
    assert (x.device, x.dtype, x.stride, x.storage_offset, x.requires_grad) == (
        "cuda:1",
        "bfloat16",
        (1, 2),
        7,
        True,
    )
    assert x.storage == y.storage == 0 and script.hashes == {0: "d41d8"} and y.stride == (1,)
    assert (z.kind, w.kind) == ("none", "other")
    assert (script.manifest.level, script.manifest.backend, script.manifest.kind) == (
        "dynamo",
        "mine",
        "accuracy",
    )
    assert script.save_dir == "/tmp/x"


@pytest.mark.parametrize("text", ["", "print(1)", "class Repro(", "\0", "(" * 10_000])
def test_text_that_is_no_repro_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(NoTorchRepro, match="this "):
        parse_torch_script(text)


def test_results_are_named_as_the_code_names_them() -> None:
    names = list_results(RECORDED)
    assert names[:3] == ["addmm", "sigmoid", "mul_4"] and len(names) == 25
    assert list_results("def (") == []


@pytest.mark.parametrize(
    ("size", "number"),
    [
        (7, 7),
        ("s0", 19),
        ("2*s0 + 1", 39),
        ("s0//2", 9),
        ("Max(1, s0)", 19),
        ("s0**2", 361),
        ("Mod(s0, 4)", 3),
    ],
)
def test_size_is_evaluated(size: int | str, number: int) -> None:
    assert evaluate_size(size, {"s0": 19}) == number


@given(st.text(max_size=60))
def test_any_text_is_a_size_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(evaluate_size(text, {}), int)
    assert list_symbols(text) == sorted(list_symbols(text))


def test_size_never_evaluates_code(tmp_path: Path) -> None:
    for text in ("__import__('os').abort()", "s0.real", "9**9**9**9", "(lambda: 1)()", "[1][0]"):
        with pytest.raises(ValueError):
            evaluate_size(text, {"s0": 1})
