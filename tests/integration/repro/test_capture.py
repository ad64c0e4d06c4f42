"""What fails in a compile or in compiled code is captured as a graph that can be run again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compileboard.collectors.contract.repros import MAX_REPROS
from tests.integration.repro.spooled_repros import PLANTED, Spooled, observe
from tests.programs import planted

pytestmark = pytest.mark.torch
RUNTIME = """
import torch

def pick(x, i, y):
    return (x[i] * 2 + y).sum()

x = torch.randn(8, 4, requires_grad=True)
"""
REFUSED = """
import sys
import torch

def refuse(gm, inputs):
    raise ValueError("token=hunter2hunter2 refused")  # the backend's own words

def f(x, n):
    return x.sin() + n

for n in range(int(sys.argv[1])):
    torch._dynamo.reset()
    try:
        torch.compile(f, backend=refuse)(torch.randn(3 + n), 1)
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def compiles(tmp_path_factory: pytest.TempPathFactory) -> Spooled:
    """Observe three planted failures of compiles."""
    folder = tmp_path_factory.mktemp("compiles")
    return observe(folder, PLANTED, "backend_refuses_op", "relu_compile_error", "dynamic_only")


def test_each_compile_that_fails_is_captured_once(compiles: Spooled) -> None:
    assert compiles.returncode == 0, compiles.stderr
    assert [repro.manifest.kind for repro in compiles.repros] == ["compile"] * 3
    assert [repro.manifest.level for repro in compiles.repros] == ["dynamo", "aot", "aot"]
    assert [repro.context[1:3] for repro in compiles.repros] == [[0, 0], [0, 0], [0, 1]]
    assert compiles.losses == {}


@pytest.mark.parametrize(
    ("position", "name"), [(0, "backend_refuses_op"), (1, "relu_compile_error")]
)
def test_the_graph_holds_the_planted_operation(compiles: Spooled, position: int, name: str) -> None:
    repro = compiles.repros[position]
    operation = {"backend_refuses_op": "erfinv", "relu_compile_error": "relu"}[name]
    assert (
        operation in repro.program
        and "def forward" in repro.program
        and "__main__" not in repro.program
    )
    assert repro.manifest.node_count in (25, 26)
    assert len(repro.manifest.inputs) == 4
    # Code has no qualified name in Python 3.10.
    qualified = "_body.<locals>." if sys.version_info >= (3, 11) else ""
    assert repro.manifest.function == f"{qualified}program"
    assert (repro.manifest.file, repro.manifest.versions["torch"] is not None) == (
        "tests/programs/planted.py",
        True,
    )


def test_an_error_is_named_as_it_was_raised_first(compiles: Spooled) -> None:
    refused, relu, padded = (repro.manifest for repro in compiles.repros)
    assert (refused.error_type, refused.message) == (
        "NotImplementedError",
        "planted: this backend has no erfinv",
    )
    assert (refused.backend, refused.preload) == ("planted_refuses", ("planted",))
    assert relu.error_type == "CppCompileError" and relu.settings["inductor"]
    assert padded.operation == "aten.constant_pad_nd.default" and padded.preload == ("planted",)


def test_symbolic_sizes_are_expressions_with_hints(compiles: Spooled) -> None:
    manifest = compiles.repros[2].manifest
    (symbol,) = manifest.symbols
    assert manifest.symbols[symbol] == 19
    assert (symbol, 32) in {entry.shape for entry in manifest.inputs}
    assert {entry.expression for entry in manifest.inputs if entry.kind == "symint"} == {symbol}
    assert [entry.shape for entry in manifest.dynamo_inputs] == [
        entry.shape for entry in manifest.inputs
    ]
    assert (
        compiles.repros[2].dynamo_program is not None and "pad" in compiles.repros[2].dynamo_program
    )


def test_no_values_are_kept_unless_asked_for(compiles: Spooled) -> None:
    assert {entry.values for repro in compiles.repros for entry in repro.manifest.inputs} == {
        "absent"
    }
    assert all(repro.values == {} for repro in compiles.repros)


def write(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


@pytest.mark.nightly
def test_what_raises_while_it_runs_is_captured_with_its_arguments(tmp_path: Path) -> None:
    program = write(
        tmp_path, f"{RUNTIME}torch.compile(pick)(x, torch.tensor([1, 20]), torch.randn(4))\n"
    )
    spooled = observe(tmp_path, program, repro_inputs_bytes=1 << 20)
    (repro,) = spooled.repros
    assert spooled.returncode == 1 and "index out of bounds" in spooled.stderr
    assert (repro.manifest.kind, repro.manifest.phase, repro.fields["failure_position"]) == (
        "runtime",
        "forward",
        0,
    )
    assert [entry.values for entry in repro.manifest.inputs] == ["kept"] * 3
    index = repro.manifest.inputs[1]
    assert repro.values[index.digest or ""] == (1).to_bytes(8, "little") + (20).to_bytes(
        8, "little"
    )


@pytest.mark.nightly
def test_values_beyond_the_limit_are_said_to_be(tmp_path: Path) -> None:
    program = write(
        tmp_path, f"{RUNTIME}torch.compile(pick)(x, torch.tensor([1, 20]), torch.randn(4))\n"
    )
    (repro,) = observe(tmp_path, program, repro_inputs_bytes=40).repros
    assert [entry.values for entry in repro.manifest.inputs] == ["too_large", "kept", "kept"]


@pytest.mark.parametrize(
    "backend", [pytest.param("inductor", marks=pytest.mark.nightly), "aot_eager"]
)
def test_a_backward_that_raises_is_captured_as_one(tmp_path: Path, backend: str) -> None:
    program = write(
        tmp_path,
        f"""{RUNTIME}
@torch.library.custom_op("mine::copy", mutates_args=())
def copy(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@torch.library.custom_op("mine::broken", mutates_args=())
def broken(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no gradient today")

copy.register_fake(torch.empty_like)
broken.register_fake(torch.empty_like)
copy.register_autograd(lambda context, gradient: broken(gradient))
torch.compile(lambda x: (copy(x.sin()) * 3).sum(), backend={backend!r})(x).backward()
""",
    )
    (repro,) = observe(tmp_path, program).repros
    manifest = repro.manifest
    assert (manifest.kind, manifest.phase, manifest.error_type) == (
        "runtime",
        "backward",
        "ValueError",
    )
    assert (manifest.level, manifest.backend) == ("aot", backend)
    assert "mine.broken" in repro.program and repro.manifest.preload == ("program.py",)


@pytest.mark.nightly
def test_a_backward_that_a_programs_own_compiler_refuses_is_captured(tmp_path: Path) -> None:
    program = write(
        tmp_path,
        f"""{RUNTIME}
from torch._dynamo.backends.common import aot_autograd

def run_as_it_is(gm, inputs):
    return gm.forward

def refuse_backward(gm, inputs):
    raise ValueError("no gradient today")

backend = aot_autograd(fw_compiler=run_as_it_is, bw_compiler=refuse_backward)
torch.compile(lambda x: (x.sin() * 3).sum(), backend=backend)(x).backward()
""",
    )
    (repro,) = observe(tmp_path, program).repros
    manifest = repro.manifest
    assert (manifest.kind, manifest.level, manifest.phase) == ("compile", "aot", "backward")
    assert (manifest.error_type, manifest.compiler) == ("ValueError", "refuse_backward")
    assert (repro.fields["failure_position"], manifest.preload) == (0, ("program.py",))
    assert "aten.cos" in repro.program and len(manifest.inputs) == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("backend", "train", "level", "phase"),
    [
        ("eager", False, "dynamo", "forward"),
        ("aot_eager", False, "aot", "inference"),
        ("aot_eager", True, "aot", "forward"),
    ],
)
def test_a_forward_that_raises_names_level_phase_and_backend(
    tmp_path: Path, backend: str, train: bool, level: str, phase: str
) -> None:
    call = (
        f"torch.compile(pick, backend={backend!r})(x.requires_grad_({train}), torch.tensor([1, "
        "20]), torch.randn(4))"
    )
    (repro,) = observe(
        tmp_path, write(tmp_path, f"{RUNTIME}{call}\n".replace(", requires_grad=True", ""))
    ).repros
    assert (repro.manifest.level, repro.manifest.phase, repro.manifest.backend) == (
        level,
        phase,
        backend,
    )
    assert (
        "args_list" not in repro.program
    )  # its inputs one by one, as whoever loads it passes them


def test_a_graph_that_an_interpreter_runs_is_captured(tmp_path: Path) -> None:
    """As the backend aot_eager runs its graphs up to torch 2.12."""
    call = (
        "torch.compile(pick, backend=lambda graph, _: torch.fx.Interpreter(graph).run)"
        "(x, torch.tensor([1, 20]), torch.randn(4))\n"
    )
    (repro,) = observe(tmp_path, write(tmp_path, RUNTIME + call)).repros
    assert (repro.manifest.level, repro.manifest.kind) == ("dynamo", "runtime")
    assert repro.manifest.inputs[0].shape == (8, 4)


def test_the_script_that_registered_an_operation_is_named_for_the_graph_of_dynamo(
    tmp_path: Path,
) -> None:
    program = write(
        tmp_path,
        f"""{RUNTIME}
import sys
sys.modules["__mp_main__"] = sys.modules["__main__"]
library = torch.library.Library("mine", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")

def refuse(graph, inputs):
    raise ValueError("refused")
refuse.__module__ = "torch"
torch.compile(lambda x: torch.ops.mine.twice(x).sin(), backend=refuse)(x)
""",
    )
    (repro,) = observe(tmp_path, program).repros
    assert repro.manifest.level == "dynamo" and repro.manifest.preload == ("program.py",)


@pytest.mark.nightly
def test_a_process_captures_a_bounded_number_each_once(tmp_path: Path) -> None:
    spooled = observe(tmp_path, write(tmp_path, REFUSED), str(MAX_REPROS + 2), "again")
    assert spooled.stdout.split() == ["BackendCompilerFailed"] * (MAX_REPROS + 2)
    assert len(spooled.repros) == MAX_REPROS
    assert spooled.losses == {f"repros beyond the first {MAX_REPROS} of this process": 2}


def test_without_source_no_line_no_module_and_no_value_is_kept(tmp_path: Path) -> None:
    (repro,) = observe(
        tmp_path, write(tmp_path, REFUSED), "1", keep_source=False, repro_inputs_bytes=1 << 20
    ).repros
    text = f"{repro.manifest}{repro.program}{repro.dynamo_program}"
    assert "hunter2" not in text and "the backend's own words" not in text and "File:" not in text
    assert repro.manifest.preload == ()
    assert {entry.values for entry in repro.manifest.inputs if entry.kind == "tensor"} == {
        "withheld"
    }


def test_the_planted_failures_are_all_there() -> None:
    assert len(planted.PLANTED) == 10
