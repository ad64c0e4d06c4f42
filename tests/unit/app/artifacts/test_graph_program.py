"""Printed AOT graphs as programs: what is read of their types, and recorded ones run by torch."""

from __future__ import annotations

import ast
import lzma
import re
import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.artifacts.graph_program import (
    RUNNABLE,
    TensorType,
    build_graph_program,
    parse_tensor_type,
)
from tests.unit.app.explored import LOGS

_RECORD = re.compile(
    r'\n[^\t\n]*"(aot_(?:forward|backward|inference)_graph)": \{\}[^\n]*\n((?:\t[^\n]*\n)+)'
)


def recorded_graphs() -> list[tuple[str, str]]:
    """List the AOT graphs of the whole logs: name and text."""
    logs = [lzma.decompress(log.read_bytes()).decode() for log in LOGS.values()]
    return [
        (name, re.sub("(?m)^\t", "", body)) for log in logs for name, body in _RECORD.findall(log)
    ]


SYMBOLIC = """class <lambda>(torch.nn.Module):
    def forward(
        self,
        primals_1: "Sym(s77)",  # PlainAOTInput(idx=0)
        primals_2: "Sym(2*s77 + 1)",
        primals_3: "f32[s77, Max(2, s27)][1, s77]cpu",
        primals_4: "i64[u0][1]cpu",
    ):
        _tensor_constant0: "f32[2][1]cpu" = self._tensor_constant0;  _tensor_constant0 = None
        sin: "f32[s77, Max(2, s27)][1, s77]cpu" = torch.ops.aten.sin.default(primals_3)
        full: "f32[2][1]cpu" = torch.ops.aten.full.default([2], 1.0, device = device(type='cpu'))
        return (sin, primals_2, full, primals_4)
"""


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("f32[8, 128][128, 1]cuda:0", TensorType("f32", ("8", "128"), ("128", "1"), "cuda")),
        ("b8[][]cpu", TensorType("b8", (), (), "cpu")),
        ("bf16[s0*s1, Max(1, s0)]", TensorType("bf16", ("s0*s1", "Max(1, s0)"), None, "")),
        ("Sym(s0)", None),
        ("x99[2]", None),
        ("", None),
    ],
)
def test_parse_tensor_type_reads_what_torch_prints(text: str, read: TensorType | None) -> None:
    assert parse_tensor_type(text) == read


def test_bytes_and_strides_follow_the_symbols() -> None:
    tensor = parse_tensor_type("bf16[s0, Max(4, s1)]")
    assert tensor is not None
    assert tensor.count_bytes({"s0": 3, "s1": 2}) == 2 * 3 * 4
    assert tensor.strides({"s0": 3, "s1": 2}) == (4, 1)
    with pytest.raises(ValueError, match="s1"):
        tensor.count_bytes({"s0": 3})


def test_program_has_sizes_as_numbers_and_names_symbols_without_a_value() -> None:
    program = build_graph_program(SYMBOLIC, {"s77": 3, "s27": 5}, 'a "title"', "graph.py")
    ast.parse(program)
    assert 'primals_3: "f32[3, 5]"' in program
    assert "# not recorded, so 8: u0" in program
    assert "NUMBERS = {'primals_2': 7}" in program


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a class"),
        ("def f(x): pass", "expected a class"),
        ("class G:\n  def forward(", "not a graph that Python can parse"),
        (
            "class G(torch.nn.Module):\n    def forward(self, x):\n        return x\n",
            "input x: .*no type",
        ),
    ],
)
def test_what_is_no_graph_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_graph_program(text, {}, "", "")


@given(st.text(alphabet='clas G():\n"def forward(self,x)[]f32,s0*{}\\', max_size=200))
def test_odd_text_is_refused_or_becomes_a_program(text: str) -> None:
    try:
        program = build_graph_program(
            f"class G(M):\n  def forward(self, x: {text}): return x", {}, text, "x.py"
        )
    except ValueError:
        return
    ast.parse(program)


@pytest.mark.torch
def test_symbolic_graph_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph.py"
    monkeypatch.setattr("sys.argv", [str(path)])
    path.write_text(build_graph_program(SYMBOLIC, {"s77": 3, "s27": 5}, "", path.name))
    runpy.run_path(str(path), run_name="__main__")
    assert (
        "output 0 float32 [3, 5]\noutput 1 7\noutput 2 float32 [2]\noutput 3 int64 [8]"
        in capsys.readouterr().out
    )


@pytest.mark.torch
@pytest.mark.parametrize(
    "graph", recorded_graphs(), ids=lambda graph: f"{graph[0]}-{len(graph[1])}"
)
def test_recorded_graphs_run(
    graph: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, text = graph
    assert name in RUNNABLE
    path = tmp_path / "graph.py"
    path.write_text(build_graph_program(text, {"s77": 4, "s27": 32}, name, path.name))
    monkeypatch.setattr("sys.argv", [str(path), "cpu"])
    runpy.run_path(str(path), run_name="__main__")
    assert re.search(r"output 0 \w+ \[", capsys.readouterr().out)
