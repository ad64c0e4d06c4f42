"""Graph and inputs of a repro as torch has them: the same bits, strides, offsets and sharing;
symbols stay symbols.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.collectors.contract.repros import KEPT, ReproInput, ReproManifest
from compileboard.collectors.formats.repro_archive import (
    read_archive,
    read_script,
    write_archive,
    write_script,
)
from compileboard.collectors.repro.describing import describe_repro
from compileboard.collectors.repro.loading import load_path
from compileboard.collectors.repro.repro import NotRunnable, Repro

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
DATA = Path(__file__).parents[2] / "data" / "repros"
DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "uint8",
    "bool",
    "complex64",
    "float8_e4m3fn",
)
PROGRAM = """
import torch
class Repro(torch.nn.Module):
    def forward(self, {names}):
        return ({names},)
mod = Repro()
"""


@st.composite
def views(draw: st.DrawFn) -> list[list[Any]]:
    """Return storages of bytes, and views of them: dtype, shape, stride and offset within the
    storage.
    """
    inputs = []
    for number in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from(DTYPES))
        body = draw(st.binary(min_size=0, max_size=256))
        itemsize = getattr(torch, dtype).itemsize
        if dtype == "bool":
            body = bytes(byte & 1 for byte in body)
        body = body[: len(body) // itemsize * itemsize]
        count = len(body) // itemsize
        for _ in range(draw(st.integers(1, 2))):
            offset = draw(st.integers(0, max(count - 1, 0)))
            shape, stride, room = [], [], count - offset
            for _dimension in range(draw(st.integers(0, 3))):
                step = draw(st.integers(0, 5))
                most = (room - 1) // step + 1 if step and room > 0 else (3 if room > 0 else 0)
                size = draw(st.integers(0 if room <= 0 else 1, max(min(most, 4), 0)))
                shape, stride = [*shape, size], [*stride, step]
                room -= (size - 1) * step if size else 0
            if count or 0 in shape:
                inputs.append([number, dtype, shape, stride, offset, body])
    return inputs


def _repro_of(rows: list[list[Any]]) -> Repro:
    values, specs = {}, []
    for position, (number, dtype, shape, stride, offset, body) in enumerate(rows):
        digest = hashlib.sha256(body).hexdigest()
        values[digest] = body
        specs.append(
            ReproInput(
                f"arg{position}",
                dtype=dtype,
                shape=tuple(shape),
                stride=tuple(stride),
                storage_offset=offset,
                device="cpu",
                storage=number,
                storage_bytes=len(body),
                values=KEPT,
                digest=digest,
            )
        )
    program = PROGRAM.format(names=", ".join(spec.name for spec in specs))
    return Repro(
        ReproManifest(kind="compile", level="aot", inputs=tuple(specs)), program, values=values
    )


def _bits(tensor: Any) -> bytes:
    storage = tensor.untyped_storage()
    return bytes(storage.tolist()) if storage.nbytes() else b""


def _check_inputs(inputs: list[Any], rows: list[list[Any]]) -> None:
    for tensor, (_, dtype, shape, stride, offset, body) in zip(inputs, rows):
        assert str(tensor.dtype) == f"torch.{dtype}"
        assert (list(tensor.shape), list(tensor.stride()), tensor.storage_offset()) == (
            shape,
            stride,
            offset,
        )
        assert _bits(tensor) == body
    for tensor, row in zip(inputs, rows):
        for other, other_row in zip(inputs, rows):
            shares = tensor.untyped_storage()._cdata == other.untyped_storage()._cdata
            assert shares == (row[0] == other_row[0])


@settings(max_examples=60)
@given(views())
def test_inputs_are_read_back_with_equal_bits_strides_offsets_and_sharing(
    rows: list[list[Any]],
) -> None:
    from compileboard.collectors.repro.graph_loading import load_graph

    repro = _repro_of(rows)
    if not rows:
        return
    parts = read_archive(
        io.BytesIO(write_archive(repro.manifest, repro.program, None, repro.values))
    )
    assert parts.manifest == repro.manifest
    _, inputs = load_graph(Repro(*parts))
    _check_inputs(inputs, rows)


@settings(max_examples=30)
@given(views())
def test_exported_script_makes_the_same_inputs_and_is_read_back(rows: list[list[Any]]) -> None:
    repro = _repro_of(rows)
    if not rows:
        return
    text, is_whole = write_script(repro.manifest, repro.program, None, repro.values)
    parts = read_script(text)
    assert is_whole and parts.manifest == repro.manifest and parts.values == repro.values
    names: dict[str, Any] = {"__name__": "exported"}
    exec(compile(text, "exported.py", "exec"), names)
    _check_inputs(names["make_inputs"](), rows)


@pytest.mark.parametrize("compiler", [None, "refuse_backward"])
def test_a_graph_of_a_programs_own_compiler_suggests_no_command(compiler: str | None) -> None:
    manifest = ReproManifest("compile", "aot", "backward", compiler=compiler)
    last = describe_repro(Repro(manifest, "", name="repro.py")).splitlines()[-1]
    assert ("repro run" in last) == (compiler is None)
    assert ("own compiler refuse_backward got this graph" in last) == (compiler is not None)


@pytest.mark.parametrize("place", ["beside", "root", "nowhere"])
def test_exported_script_finds_what_it_preloads_beside_itself_or_in_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    manifest = ReproManifest("compile", "aot", preload=("registers.py",))
    text, _ = write_script(manifest, PROGRAM.format(names="x"), None, {})
    (tmp_path / ".git").mkdir()
    script = tmp_path / "out" / "Net_repro.py"
    script.parent.mkdir()
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    if place != "nowhere":
        folder = script.parent if place == "beside" else tmp_path
        (folder / "registers.py").write_text("print('registered')\n")
    names: dict[str, Any] = {"__name__": "exported", "__file__": str(script)}
    exec(compile(text, str(script), "exec"), names)
    if place == "nowhere":
        with pytest.raises(SystemExit, match=r"needs .* run it where that file is"):
            names["preload"]()
    else:
        names["preload"]()
        assert sys.modules.pop("registers").__file__ == str(folder / "registers.py")


RUNS_ON_IMPORT = """
import torch

def refuse(graph, inputs):
    raise RuntimeError("compiled on import")

answer = torch.compile(torch.sin, backend=refuse)(torch.ones(2))
"""


def test_exported_script_compiles_nothing_of_what_it_preloads(tmp_path: Path) -> None:
    manifest = ReproManifest("compile", "aot", preload=("runs.py",))
    text, _ = write_script(manifest, PROGRAM.format(names="x"), None, {})
    (tmp_path / "runs.py").write_text(RUNS_ON_IMPORT)
    names: dict[str, Any] = {"__name__": "exported", "__file__": str(tmp_path / "repro.py")}
    exec(compile(text, "repro.py", "exec"), names)
    names["preload"]()
    assert torch.equal(sys.modules.pop("runs").answer, torch.ones(2).sin())


def test_exported_script_that_never_ends_says_what_it_may_take() -> None:
    text, _ = write_script(ReproManifest("compile", "aot"), PROGRAM.format(names="x"), None, {})
    limits = text[text.index("MEMORY_SHARE,") : text.index("def preload")]
    program = f"{limits.replace('600', '1', 1)}\nlimit()\nimport time\ntime.sleep(60)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.endswith("This script may run 1 seconds: see SECONDS in it.\n")


def test_symbolic_sizes_stay_symbols_however_few_inputs_are_left(tmp_path: Path) -> None:
    from compileboard.collectors.repro.graph_loading import load_graph
    from compileboard.collectors.repro.judging import symbolic_inputs

    lines = (DATA / "dynamic_pad.txt").read_text().splitlines(True)
    recorded = tmp_path / "repro.py"  # less the settings that this torch may not have
    recorded.write_text("".join(line for line in lines if "_inductor.config." not in line))
    gm, inputs = load_graph(load_path(recorded))
    nodes = {node.name: node for node in gm.graph.nodes}
    assert list(inputs[2].shape) == [19, 32] and inputs[1] == 19
    assert len(nodes["arg2_1"].meta["val"].shape[0].node.expr.free_symbols) == 1
    assert str(nodes["constant_pad_nd"].meta["val"].shape[0]).endswith("+ 2")
    gm.graph.erase_node(nodes["arg1_1"])  # as a minifier takes out what is not used
    gm.recompile()
    given_to_compiler = symbolic_inputs(gm, [inputs[0], *inputs[2:]])
    assert isinstance(given_to_compiler[1].shape[0], torch.SymInt)


def test_drawn_integers_are_within_what_they_index() -> None:
    from compileboard.collectors.repro.graph_loading import load_graph

    program = """
import torch
class Repro(torch.nn.Module):
    def forward(self, weight, index, other):
        rows = torch.ops.aten.embedding.default(weight, index)
        return (rows, other)
mod = Repro()
"""
    specs = (
        ReproInput("weight", dtype="float32", shape=(3, 2), stride=(2, 1), storage=0),
        ReproInput("index", dtype="int64", shape=(500,), stride=(1,), storage=1),
        ReproInput("other", dtype="int64", shape=(500,), stride=(1,), storage=2),
    )
    repro = Repro(ReproManifest(kind="compile", level="aot", inputs=specs), program)
    gm, inputs = load_graph(repro)
    assert (int(inputs[1].min()), int(inputs[1].max())) == (0, 2) and int(inputs[2].max()) == 7
    assert gm(*inputs)[0].shape == (500, 2)
    assert torch.equal(inputs[0], load_graph(repro)[1][0])  # the same values every time


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("import absent_library_x", "needs absent_library_x, which is not installed here"),
        (
            "x = torch.ops.planted_absent.refuse",
            "needs torch.ops.planted_absent.refuse, which nothing here registers",
        ),
        ("x = torch.ops.aten.of_a_newer_torch", "recorded with 99.0: AttributeError"),
        ("x = absent_name", "NameError"),
        ("x = (", "SyntaxError"),
    ],
)
def test_program_that_this_torch_cannot_load_is_one_sentence(line: str, sentence: str) -> None:
    from compileboard.collectors.repro.graph_loading import load_graph

    manifest = ReproManifest(kind="compile", level="aot", versions={"torch": "99.0"})
    with pytest.raises(NotRunnable, match=sentence):
        load_graph(Repro(manifest, f"import torch\n{line}\n" + PROGRAM.format(names="a")))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"storage_bytes": 1 << 60}, "has inputs of 1,152,921,504.6 GB, and .* GB are free here"),
        ({"dtype": "float999"}, "is of type float999, which torch"),
        ({"shape": ("s9",)}, "input x: the size of symbol 's9' is not recorded"),
        ({"kind": "other", "value": "BackwardState"}, "is a BackwardState that cannot be recorded"),
        ({"device": "xpu:3"}, "needs xpu:3.*try --device cpu"),
    ],
)
def test_input_that_cannot_be_made_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    from compileboard.collectors.repro.graph_loading import load_graph

    fields = {
        "dtype": "float32",
        "shape": (2,),
        "stride": (1,),
        "storage": 0,
        "device": "cpu",
        **change,
    }
    manifest = ReproManifest(kind="compile", level="aot", inputs=(ReproInput("x", **fields),))
    with pytest.raises(NotRunnable, match=sentence):
        load_graph(Repro(manifest, PROGRAM.format(names="x")))


FACTORIES = """
import torch
class Repro(torch.nn.Module):
    def forward(self, x):
        entered = torch._C._set_grad_enabled(False)
        steps = torch.ops.aten.arange.start_step(0, 8, 0, device=torch.device("cuda"))
        large = torch.zeros(800_000_000_000)
        drawn = torch.ops.aten.rand.default([4])
        add = x + steps
        return (add, large, drawn)
mod = Repro()
"""


def test_loading_runs_none_of_a_graphs_operations() -> None:
    from compileboard.collectors.repro.graph_loading import list_calls, load_graph

    spec = ReproInput("x", dtype="float32", shape=(8,), stride=(1,), storage=0)
    repro = Repro(ReproManifest(kind="compile", level="aot", inputs=(spec,)), FACTORIES)
    gm, _inputs = load_graph(repro, device="cpu")
    nodes = {node.name: node for node in list_calls(gm)}
    assert list(nodes) == ["entered", "steps", "large", "drawn", "add"]
    assert nodes["steps"].kwargs["device"] == torch.device("cpu") and torch.is_grad_enabled()
