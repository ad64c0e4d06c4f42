"""Our words on AOTAutograd's wrappers against those that torch 2.13 wrote of the same graphs."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.aot.wrappers import (
    DECISIVE,
    WrapperAction,
    explain_graph,
    list_unknown,
    name_numbers,
)
from compileboard.collectors.decode.aot import (
    WRAPPER_ARTIFACTS,
    add_wrappers,
    parse_metadata,
    summarize,
)

RECORDED = Path(__file__).parents[3] / "data" / "trace" / "aot-metadata.jsonl.xz"
# A wrapper that torch wrote → how the titles of its findings begin.
TITLES = {
    "mutation_epilogue": ("Copied back after", "Given new sizes", "Given other memory"),
    "output_alias_wrapper": (
        "Returned as it was",
        "Views of inputs",
        "Views of a result that is not",
        "Views of another",
    ),
    "compiled_function_forward": ("Forward and backward",),
    "subclass_wrapper": ("Tensor subclasses",),
    "effect_tokens_wrapper": ("Side effects",),
    "functionalized_rng_wrapper": ("Random numbers",),
    "dedup_wrapper": ("The same tensor",),
    "synthetic_base_wrapper": ("Inputs that share memory",),
}


@cache
def graphs() -> tuple[dict[str, Any], ...]:
    """Load the recorded graphs, each with its summary."""
    lines = [
        json.loads(line) for line in lzma.decompress(RECORDED.read_bytes()).decode().splitlines()
    ]
    return tuple(
        line | {"summary": summarize(parse_metadata(line["metadata_text"]) or {})} for line in lines
    )


def explain(case: str, which: int = 0) -> list[WrapperAction]:
    return explain_graph([graph["summary"] for graph in graphs() if graph["name"] == case][which])


def titles(case: str, which: int = 0) -> list[str]:
    return [wrapper_cost.title for wrapper_cost in explain(case, which)]


@pytest.mark.parametrize(
    "graph", [graph for graph in graphs() if graph["wrappers"]], ids=lambda graph: graph["name"]
)
def test_explain_graph_finds_the_wrappers_that_torch_made(graph: dict[str, Any]) -> None:
    findings = explain_graph(add_wrappers(graph["summary"], graph["wrappers"]))
    explained = {
        name
        for name, begins in TITLES.items()
        for finding in findings
        if finding.title.startswith(begins)
    }
    assert explained == set(graph["wrappers"]) - {"runtime_wrapper_orchestration"}
    assert {WRAPPER_ARTIFACTS[name] for name in explained} <= {
        finding.wrapper for finding in findings
    }


def test_explain_graph_does_not_guess_without_the_wrappers() -> None:
    assert titles("synthetic_base") == [
        "Inputs were merged: one tensor passed twice, or views of one tensor",
        "Copied back after the graph: input 0",
    ]
    assert titles("synthetic_base") == titles("duplicated_arguments")
    assert explain("synthetic_base_trained")[0].wrapper == "AOTSyntheticBaseWrapper"


@pytest.mark.parametrize(
    "case", ["nothing_special", "tv_resnet18 0/0", "hf_GPT2 0/0", "intermediate_aliased_inference"]
)
def test_explain_graph_says_when_there_is_nothing(case: str) -> None:
    [finding] = explain(case)
    assert (finding.title, finding.wrapper) == ("Nothing but the plain wrapper", "RuntimeWrapper")


@pytest.mark.parametrize(
    ("case", "title", "why", "advice"),
    [
        (
            "input_mutated_in_epilogue",
            "Copied back after the graph: input 0",
            "needs gradients",
            "no_grad",
        ),
        (
            "input_mutated_not_kept",
            "Copied back after the graph: input 0",
            "is off",
            "keep_inference_input_mutations",
        ),
        (
            "several_inputs_mutated",
            "Written by the graph itself: inputs 0–5",
            "in place",
            "CUDA graphs",
        ),
        (
            "metadata_mutated",
            "Given new sizes or strides after the graph: input 0",
            "shape",
            "x.t()",
        ),
        (
            "input_view_returned",
            "Views of inputs, made again: outputs 0–1",
            "from input 0",
            "clone()",
        ),
        (
            "intermediate_aliased",
            "Views of a result that is not returned: outputs 0–1",
            "intermediate",
            "outside",
        ),
        (
            "grad_mode_changed",
            "Gradient mode is turned off at the end",
            "gradient mode",
            "with block",
        ),
        ("dynamic_shapes", "Marked as dynamic: outputs 0–1", "symbolic", "recompiles"),
    ],
)
def test_explain_graph_says_what_and_how_to_avoid_it(
    case: str, title: str, why: str, advice: str
) -> None:
    [finding] = [wrapper_cost for wrapper_cost in explain(case) if wrapper_cost.title == title]
    assert why in finding.what
    assert advice in finding.avoid
    assert finding.cost


def test_explain_graph_gives_each_reason_for_a_copy_its_own_finding() -> None:
    mutation = {"applied_in": "epilogue", "data": True, "keep_input_mutations": True}
    mutated = [
        mutation | {"index": 4, "metadata": True},
        *(mutation | {"index": i, "metadata": False} for i in (0, 1, 2, 7)),
    ]
    first, second = explain_graph({"inputs_mutated": mutated})
    assert first.title.endswith(": input 4")
    assert "t_, transpose_" in first.avoid
    assert second.title.endswith(": inputs 0–2 and 7")


def test_unknown_stays_unknown() -> None:
    assert explain_graph({}) == []
    assert len(list_unknown({})) == 8
    [finding] = explain_graph({"inputs_mutated": [{"index": 3, "data": True, "applied_in": None}]})
    assert finding.cost.startswith("Unknown")
    [finding] = explain_graph(
        {"outputs": [{"index": 1, "output_type": "alias_of_the_moon", "base_index": None}]}
    )
    assert "alias_of_the_moon" in finding.what
    assert finding.avoid == "Unknown."


def test_list_unknown_names_what_only_other_artifacts_tell() -> None:
    [plain] = [graph for graph in graphs() if graph["name"] == "trained"]
    assert list_unknown(plain["summary"]) == [
        (
            "Not in the metadata: whether random numbers are functionalised "
            "(torch._functorch.config says it)."
        )
    ]
    assert list_unknown(add_wrappers(plain["summary"], plain["wrappers"])) == []
    assert (
        add_wrappers(plain["summary"], ["dynamo_output_graph"]) == plain["summary"]
    )  # 2.11 writes no wrappers


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([0], "input 0"),
        ([3, 1, 2, 1], "inputs 1–3"),
        ([0, 1, 2, 3, 7, 9], "inputs 0–3, 7 and 9"),
        (range(0, 40, 2), "inputs 0, 2, 4, 6, 8, 10 and 14 more"),
    ],
)
def test_name_numbers_writes_like_things_together(numbers: list[int], text: str) -> None:
    assert name_numbers("input", numbers) == text


@given(st.data())
def test_explain_graph_takes_any_summary_with_holes(data: st.DataObject) -> None:
    summary = data.draw(st.sampled_from(graphs()))["summary"]
    holes = data.draw(st.sets(st.sampled_from(sorted(summary))))
    costs = explain_graph(summary | dict.fromkeys(holes))
    if holes.intersection(DECISIVE) or len(costs) > 1:
        assert "Nothing but the plain wrapper" not in [wrapper_cost.title for wrapper_cost in costs]
    assert all(
        wrapper_cost.what and wrapper_cost.cost and wrapper_cost.avoid and wrapper_cost.wrapper
        for wrapper_cost in costs
    )
