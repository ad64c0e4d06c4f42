"""Saved tensors, donated buffers, lazy backwards, checked inputs: a log of torch 2.13, and graphs
that DDP cut.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.aot.model import (
    AotScreen,
    SavedTensors,
    build_aot,
    measure_saved,
    sum_up_graphs,
)
from compileboard.app.aot.wrappers import explain_graph
from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.logs.log_loader import LoadOptions
from tests.tools.make_db import DATA

LOG = DATA / "trace" / "torch2.13-aot-wrappers.log.xz"
RNG_LOG = (
    DATA / "trace" / "torch2.11-cuda-functionalized_rng.log.xz"
)  # tests/programs/functionalized_rng.py, an H100


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> AotScreen:
    return build_screen(LOG, tmp_path_factory.mktemp("aot") / "aot.db")


def build_screen(log: Path, path: Path) -> AotScreen:
    import_paths([str(log)], str(path), LoadOptions(name="aot"), print_line=lambda _line: None)
    with closing(sqlite3.connect(path)) as reader:
        reader.row_factory = sqlite3.Row
        return build_aot(reader, reader.execute("select id from runs").fetchone()[0])


def test_functionalised_random_numbers_of_a_gpu_are_told_of_their_graph_alone(
    tmp_path: Path,
) -> None:
    screen = build_screen(RNG_LOG, tmp_path / "rng.db")
    functionalized, recomputed = screen.graphs
    assert (functionalized.function, recomputed.function) == ("step", "recomputed")
    assert functionalized.wrappers[0] == "FunctionalizedRngRuntimeWrapper"
    assert "FunctionalizedRngRuntimeWrapper" not in recomputed.wrappers
    # The mask is saved and written over; seeds and offsets of the generator are no saved tensors.
    assert functionalized.saved == SavedTensors(2, 4 * 64 * 64 + 64 * 64, 4 * 64 * 64, 64 * 64)
    [cost] = [cost for cost in screen.report.findings if "Random numbers" in cost.title]
    assert (cost.graph_count, cost.graphs[0].id) == (1, functionalized.id)


def test_saved_tensors_are_measured(screen: AotScreen) -> None:
    fixed, symbolic, _checked = screen.graphs
    matrix = 8 * 8
    # sin's input, relu's mask, x and w transposed; the mask and the first are nobody else's.
    assert fixed.saved == SavedTensors(4, 3 * 4 * matrix + matrix, 0, 4 * matrix + matrix)
    rows = 6
    assert symbolic.saved == SavedTensors(
        4, 2 * 4 * 8 * rows + 4 * matrix + 8 * rows, 0, 4 * 8 * rows + 8 * rows
    )
    assert symbolic.summary["donated_buffer_indices"] == [1, 2]


def test_backward_is_lazy_without_saved_sizes(screen: AotScreen) -> None:
    titles = [{finding.title for finding in graph.findings} for graph in screen.graphs]
    assert ["Backward compiled at its first call" in title for title in titles] == [
        True,
        False,
        True,
    ]
    assert ["Backward compiled together with the forward" in title for title in titles] == [
        False,
        True,
        False,
    ]
    assert ["Donated buffers: 2" in title for title in titles] == [True, True, False]
    assert "Gradients are expected in a guessed layout: 2" in titles[0]


def test_checked_inputs_are_those_of_the_graph_that_torch_says(screen: AotScreen) -> None:
    assert [("DebugAssertWrapper" in graph.wrappers) for graph in screen.graphs] == [
        False,
        False,
        True,
    ]
    [cost] = [
        cost for cost in screen.report.findings if cost.example.wrapper == "DebugAssertWrapper"
    ]
    assert cost.graph_count == 1


def test_each_graph_that_ddp_cut_returns_fake_outputs_once() -> None:
    rows = [(1, 5, "0/0", "{}"), (2, 5, "0/0", "{}"), (3, 6, "1/0", "{}")]
    report = sum_up_graphs(rows, {5: frozenset(("optimize_ddp_split_graph", "dedup_wrapper"))}, {})
    assert [(cost.example.wrapper, cost.graph_count) for cost in report.findings] == [
        ("FakifiedOutWrapper", 2)
    ]


def test_unknown_sizes_have_no_bytes() -> None:
    text = (
        'class G(M):\n    def forward(self, primals_1: "f32[s0]", tangents_1: "f32[2]"):\n     '
        "   return ()\n"
    )
    assert measure_saved(text, {}, None) == SavedTensors(1, None, None, None)
    assert measure_saved(text, {"s0": 3}, None) == SavedTensors(1, 12, 12, None)
    assert measure_saved("no graph", {}, None) is None
    assert explain_graph({"trained": None}) == []


@given(
    st.text(alphabet='def forward(self, x: "f32[s0]"):\n', max_size=150),
    st.lists(st.integers(-3, 9)),
)
def test_odd_text_never_raises(text: str, donated: list[int]) -> None:
    saved = measure_saved(f"class G(M):\n    def forward(self, {text}", {}, donated)
    assert saved is None or saved.tensor_count >= 0
