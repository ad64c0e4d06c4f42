"""Kernels joined to nodes and source lines, from logs of torch 2.11 with CUDA and 2.13 on a CPU."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from compileboard.app.artifacts import run_queries as artifacts
from compileboard.app.artifacts.artifact_labels import OUTPUT_CODE, PROVENANCE_NAMES
from compileboard.app.artifacts.model import ProvenanceScreen, build_provenance, group_artifacts
from compileboard.app.artifacts.provenance import (
    Frame,
    Kernel,
    Provenance,
    ProvenanceTexts,
    read_graph,
    read_stack,
    trace_provenance,
)
from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.logs.log_loader import LoadOptions
from tests.tools.make_db import DATA

Store = sqlite3.Connection


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("provenance") / "runs.db"
    for name in ("torch2.11-cuda", "torch2.13"):
        log = DATA / "provenance" / f"{name}.log.xz"
        import_paths([str(log)], str(path), LoadOptions(name=name), print_line=lambda _line: None)
    with closing(sqlite3.connect(path)) as reader:
        reader.row_factory = sqlite3.Row
        yield reader


def build(store: Store, run: str, compile_id: str, number: int = 0) -> ProvenanceScreen:
    sql = """
    select r.id, a.id from artifacts as a join runs as r on r.id = a.run_id
    where r.name = ? and a.compile_id = ? and a.name = ? order by a.sequence
    """
    run_id, artifact_id = store.execute(sql, (run, compile_id, OUTPUT_CODE)).fetchall()[number]
    artifact = artifacts.get_artifact(store, run_id, artifact_id)
    assert artifact is not None
    screen = build_provenance(store, artifact)
    assert screen is not None
    return screen


def read_texts(store: Store, screen: ProvenanceScreen) -> ProvenanceTexts:
    """Read the texts that a screen was made of."""
    key = screen.artifact.compile_key
    rows = [
        row
        for name in PROVENANCE_NAMES
        for row in artifacts.list_named(store, compile_key=key, name=name)
    ]
    [group] = [group for group in group_artifacts(rows) if group.code == screen.artifact]
    texts = [row and artifacts.get_artifact(store, row.run_id, row.id) for row in group.rows]
    return ProvenanceTexts(*((artifact.text or "") if artifact else "" for artifact in texts))


def find(found: Provenance, name: str) -> list[Kernel]:
    return [kernel for kernel in found.kernels if kernel.name == name]


def test_a_kernel_has_the_nodes_and_lines_that_torch_mapped(store: Store) -> None:
    found = build(store, "torch2.11-cuda", "0/0").provenance
    [kernel] = find(found, "triton_per_fused_add_native_layer_norm_view_1")
    assert {"var_mean_1", "rsqrt_1", "add_2"} < set(kernel.post_nodes)
    assert set(kernel.pre_nodes) == {"linear_1", "x_1", "layer_norm_1"}
    assert {frame.line for frame in kernel.sources} == {11, 12}
    assert [frame.line for frame in kernel.callers] == [18]
    assert kernel.handle == 5 and kernel.nodes_from == "mapping"


def test_calls_of_one_kernel_are_kept_apart(store: Store) -> None:
    found = build(store, "torch2.11-cuda", "0/0").provenance
    first, again = find(found, "triton_poi_fused_gelu_view_2")
    assert (first.pre_nodes, again.pre_nodes) == (("linear_2", "gelu"), ("linear_6", "gelu_1"))
    assert first.line < again.line and first.definition == again.definition
    assert not set(first.post_nodes) & set(again.post_nodes)


@pytest.mark.parametrize(
    ("run", "name", "node"),
    [
        ("torch2.11-cuda", "extern_kernels.addmm", "addmm"),
        ("torch2.13", "extern_kernels.addmm", "addmm"),
        ("torch2.13", "cpp_fused_gelu_0", "erf"),
        (
            "torch2.11-cuda",
            "torch.ops.aten._scaled_dot_product_efficient_attention.default",
            "_scaled_dot_product_efficient_attention",
        ),
    ],
)
def test_extern_and_cpp_kernels_are_joined(store: Store, run: str, name: str, node: str) -> None:
    screen = build(store, run, "0/0")
    kernel = find(screen.provenance, name)[0]
    assert node in kernel.post_nodes and kernel.sources
    code = next(pane.view for pane in screen.panes if pane.key == "code")
    assert code is not None and f"{name}(" in code.lines[kernel.line - 1].striptags()


def test_a_backward_kernel_has_nodes_by_comments_and_lines_by_stacks(store: Store) -> None:
    screen = build(store, "torch2.11-cuda", "0/0", number=1)
    found = screen.provenance
    assert found.is_backward and not found.is_mapped
    assert all(kernel.sources and kernel.nodes_from == "comments" for kernel in found.kernels)
    first = find(found, "extern_kernels.mm")[0]
    assert first.post_nodes == ("view_22", "permute_13", "mm")
    assert [frame.code for frame in first.sources] == ["return s.h(x)"]
    assert not found.links["pre"] and [pane.key for pane in screen.panes] == ["post", "code"]


def test_a_backward_has_none_of_the_kernels_of_backwards_before_it(store: Store) -> None:
    screen = build(store, "torch2.13", "1/0", number=1)
    traces = json.loads(read_texts(store, screen).stack_traces)
    assert len(traces) > len(screen.provenance.kernels) == 2  # torch's list grows with each
    functions = {frame.function for kernel in screen.provenance.kernels for frame in kernel.sources}
    assert functions == {"second"}


def test_a_foreach_kernel_is_joined(store: Store) -> None:
    found = build(store, "torch2.11-cuda", "3/0").provenance
    kernel = find(found, "triton_for_fused_0")[0]
    assert kernel.post_nodes == ("_foreach_add",) and kernel.pre_nodes == ("_foreach_add_",)
    assert [frame.function for frame in kernel.sources] == ["_multi_tensor_adam"]


def test_comments_name_the_nodes_that_the_mapping_does(store: Store) -> None:
    """The same code without its mapping: each fused kernel's first call has the same nodes."""
    screen = build(store, "torch2.11-cuda", "0/0")
    texts = replace(read_texts(store, screen), mapping="null", stack_traces="null")
    found = trace_provenance(texts)
    assert not found.is_mapped and not found.malformed_count
    compared = Counter()
    for mapped, named in zip(screen.provenance.kernels, found.kernels, strict=True):
        assert (named.name, named.line) == (mapped.name, mapped.line)
        assert set(mapped.pre_nodes) <= set(named.pre_nodes)
        if named.post_nodes:
            assert named.post_nodes == mapped.post_nodes
            compared[named.nodes_from] += 1
    assert compared == {"comments": 6}


def test_links_go_both_ways_and_name_lines_that_exist(store: Store) -> None:
    screen = build(store, "torch2.13", "0/0")
    links = screen.links
    for pane, lines in links.items():
        for line, partners in lines.items():
            for other, targets in partners.items():
                assert all(line in links[other][target][pane] for target in targets)
    lengths = {pane.key: len(pane.view.lines) for pane in screen.panes if pane.view}
    lengths["source"] = len(screen.provenance.sources)
    assert all(max(lines) <= lengths[pane] for pane, lines in links.items())


@pytest.mark.parametrize(
    ("mapping", "malformed_count"),
    [
        ("", 0),
        ("null", 0),
        ('{"version": 2.0}', 0),
        ("{", 1),
        ("[]", 1),
        ('{"cppCodeToPost": [1], "postToPre": "x"}', 2),
        ('{"cppCodeToPost": {"extern_kernels.addmm:1": "addmm", "b:2": [1, "c"]}}', 2),
        ("[" * 100_000, 1),
    ],
)
def test_a_malformed_mapping_costs_itself(store: Store, mapping: str, malformed_count: int) -> None:
    screen = build(store, "torch2.13", "0/0")
    found = trace_provenance(replace(read_texts(store, screen), mapping=mapping))
    assert found.malformed_count == malformed_count
    assert [kernel.line for kernel in found.kernels] == [
        kernel.line for kernel in screen.provenance.kernels
    ]
    assert all(kernel.sources for kernel in found.kernels)


def test_a_mapping_of_torch_2_8_is_of_names_without_a_call(store: Store) -> None:
    screen = build(store, "torch2.11-cuda", "0/0")
    texts = read_texts(store, screen)
    lines = [line for line in texts.code.split("\n") if "Provenance debug handles" not in line]
    mapping = json.loads(texts.mapping)
    mapping["cppCodeToPost"] = {
        name.partition(":")[0]: nodes for name, nodes in mapping["cppCodeToPost"].items()
    }
    older = replace(texts, code="\n".join(lines), mapping=json.dumps(mapping), stack_traces="")
    found = trace_provenance(older)
    assert [kernel.name for kernel in found.kernels] == [
        kernel.name for kernel in screen.provenance.kernels
    ]
    assert all(kernel.nodes_from == "mapping" and kernel.sources for kernel in found.kernels)


def test_measured_times_are_those_of_the_kernels_name(store: Store) -> None:
    texts = read_texts(store, build(store, "torch2.11-cuda", "0/0"))
    found = trace_provenance(
        texts, {(False, (name := "triton_poi_fused_gelu_view_2")): 12.5, (True, name): 3.0}
    )
    measured = Counter((kernel.name, kernel.measured_us) for kernel in found.kernels)
    assert measured["triton_poi_fused_gelu_view_2", 12.5] == 2
    assert sum(us is None for _name, us in measured.elements()) == len(found.kernels) - 2


def test_a_code_without_anything_else_has_its_calls(store: Store) -> None:
    code = read_texts(store, build(store, "torch2.13", "2/0")).code
    found = trace_provenance(ProvenanceTexts(code))
    assert [kernel.name for kernel in found.kernels if kernel.handle == 1] == ["extern_kernels.mm"]
    assert not any(found.links.values())
    assert trace_provenance(ProvenanceTexts("")).kernels == ()


def test_of_nodes_with_one_name_the_outermost_counts() -> None:
    graph = read_graph(
        "class <lambda>(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        # File: a.py:3 in f, code: y = g(x), code: z\n"
        '        add: "f32[2][1]cpu" = torch.ops.aten.add(x, 1);  x = None\r\n'
        "        return (add,)\n"
        "    class body(torch.nn.Module):\n"
        "        def forward(self, x):\n"
        "            # No stacktrace found for following nodes\n"
        "            add = torch.ops.aten.add(x, 2)\n"
        "            mul = torch.ops.aten.mul(x, 2)\n"
    )
    assert graph.nodes == {"add": 4, "mul": 10}
    assert graph.frames == {"add": Frame("a.py", 3, "f", "y = g(x), code: z")}


def test_frames_are_read_without_marks_and_notes() -> None:
    text = (
        '  File "a.py", line 1, in <module>\n'
        '  File "b c.py", line 20, in f\n    y = g(x)\n        ^^^^\n'
        "Gradient addition node due to multiple use of tensor around:"
    )
    assert read_stack(text) == [
        Frame("a.py", 1, "<module>", ""),
        Frame("b c.py", 20, "f", "y = g(x)"),
    ]
    assert read_stack("") == []


def test_graphs_of_one_compile_are_grouped_in_order(store: Store) -> None:
    screen = build(store, "torch2.13", "0/0", number=1)
    assert [label for _row, label in screen.choices] == [
        "forward of graph 0",
        "backward of graph 0",
    ]
    assert screen.artifact == screen.choices[1][0]
    mapping = screen.mapping_rows[0]
    artifact = artifacts.get_artifact(store, mapping.run_id, mapping.id)
    assert artifact is not None
    again = build_provenance(store, artifact)
    assert again is not None and again.artifact == screen.artifact


def test_a_node_that_runs_twice_is_of_both_calls() -> None:
    code = (
        "# AOT ID: ['0_inference']\n"
        "def call(args):\n"
        "    # [Provenance debug handles] extern_kernels.mm:1\n"
        "    extern_kernels.mm(a, b, out=c)\n"
        "    # [Provenance debug handles] extern_kernels.mm:2\n"
        "    extern_kernels.mm(a, c, out=d)\n"
    )
    mapping = '{"cppCodeToPost": {"extern_kernels.mm:1": ["mm"], "extern_kernels.mm:2": ["mm"]}}'
    post_grad = "    def forward(self, a, b):\n        mm = torch.ops.aten.mm.default(a, b)\n"
    found = trace_provenance(ProvenanceTexts(code, post_grad=post_grad, mapping=mapping))
    assert found.links["post"] == {2: {"code": [4, 6]}}
    assert found.links["code"] == {4: {"post": [2]}, 6: {"post": [2]}}
