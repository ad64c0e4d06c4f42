"""AOTAutograd's metadata: real texts of torch 2.13 (CPU) and 2.11 (CUDA), whole and damaged."""

from __future__ import annotations

import json
import lzma
import time
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.decode.aot import MAX_DEPTH, parse_metadata, summarize
from tests.unit.decode.recorded_logs import FOLDER


@cache
def texts() -> tuple[tuple[str, str, str], ...]:
    """Unpack the recorded texts: (case, torch's version, text)."""
    lines = lzma.decompress((FOLDER / "aot-metadata.jsonl.xz").read_bytes()).decode().splitlines()
    return tuple(
        (graph["name"], graph["torch"], graph["metadata_text"]) for graph in map(json.loads, lines)
    )


def summary(case: str, which: int = 0) -> dict[str, Any]:
    text = [text for name, _torch, text in texts() if name == case][which]
    meta = parse_metadata(text)
    assert meta is not None
    return summarize(meta)


def test_parse_metadata_reads_every_recorded_text() -> None:
    assert {torch for _name, torch, _text in texts()} == {"2.11", "2.13.0"}
    for name, _torch, text in texts():
        meta = parse_metadata(text)
        assert meta is not None, name
        assert meta["_class"] == "ViewAndMutationMeta"
        assert isinstance(meta["input_info"], list)
        assert len(meta["input_info"]) == text.count("InputAliasInfo("), name
        json.dumps(meta)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("s0 // 2 + 1", "s0 // 2 + 1"),
        ("(8, s27, 512)", [8, "s27", 512]),
        ("set()", []),
        ("{0, 1}", [0, 1]),
        ("torch.Size([2, 3])", [2, 3]),
        ("<class 'torch.Tensor'>", "torch.Tensor"),
        ("<OutputType.alias_of_input: 2>", "OutputType.alias_of_input"),
        ("{<EffectType.ORDERED: 'Ordered'>: 1}", {"EffectType.ORDERED": 1}),
        ("<function f at 0x7f01>", "<function f at 0x7f01>"),
        ("'  File ' '\"/a.py\", ' 'line 1\\n'", '  File "/a.py", line 1\n'),
        ("FakeTensor(..., size=(2,))", {"_class": "FakeTensor", "_args": ["..."], "size": [2]}),
        ("99999999999999999999", "99999999999999999999"),
        ("[-1, 0.5, nan]", [-1, 0.5, "nan"]),
    ],
)
def test_parse_metadata_reads_values(written: str, read: object) -> None:
    assert parse_metadata(f"M(field={written},\n  after=True)") == {
        "_class": "M",
        "field": read,
        "after": True,
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "None",
        "[1]",
        "M(a=1",
        "M(a=1))",
        "M(a=[1)]",
        "M(a='x)",
        "M(a=1) and more",
        "M(a=1), M(a=2)",
        "\n",
    ],
)
def test_parse_metadata_gives_none_for_what_is_no_whole_object(text: str) -> None:
    assert parse_metadata(text) is None


def test_parse_metadata_keeps_what_lies_too_deep_as_text() -> None:
    value: Any = parse_metadata("M(a=" * 60 + "1" + ")" * 60)
    while isinstance(value, dict):
        value = value["a"]
    assert value == "M(a=" * (60 - MAX_DEPTH) + "1" + ")" * (60 - MAX_DEPTH)


def test_summary_tells_where_an_input_is_written() -> None:
    [mutation] = summary("input_mutated")["inputs_mutated"]
    assert (
        mutation["index"],
        mutation["data"],
        mutation["requires_grad"],
        mutation["applied_in"],
    ) == (
        0,
        True,
        False,
        "graph",
    )
    [copied] = summary("input_mutated_in_epilogue")["inputs_mutated"]
    assert (copied["requires_grad"], copied["applied_in"]) == (True, "epilogue")
    [moved] = summary("metadata_mutated")["inputs_mutated"]
    assert (moved["data"], moved["metadata"], moved["applied_in"]) == (False, True, "epilogue")
    [replaced] = summary("storage_set")["inputs_mutated"]
    assert (replaced["storage"], replaced["applied_in"]) == (True, "graph")
    assert (
        summary("input_mutated_in_epilogue")["output_count"] == 2
    )  # the new value beside the user's one
    assert [
        mutation["index"] for mutation in summary("several_inputs_mutated")["inputs_mutated"]
    ] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("nothing_special", []),
        ("input_returned", [("is_input", 0, None)]),
        ("input_view_returned", [("alias_of_input", 0, ["view"]), ("alias_of_input", 0, ["t"])]),
        (
            "intermediate_aliased",
            [
                ("alias_of_intermediate_save_as_output", 0, ["view"]),
                ("alias_of_intermediate", 0, ["t"]),
            ],
        ),
        (
            "intermediate_aliased_by_user_output",
            [("alias_of_intermediate_base_is_user_output", 0, ["view"])],
        ),
        ("custom_function_view", [("unsafe_view_alias", None, None)]),
    ],
)
def test_summary_lists_outputs_that_alias(
    case: str, expected: list[tuple[str, int | None, list[str] | None]]
) -> None:
    outputs = summary(case)["outputs"]
    assert [
        (output["output_type"], output["base_index"], output["views"]) for output in outputs
    ] == expected


def test_summary_says_of_merged_arguments_only_what_the_text_says() -> None:
    def merges(case: str) -> tuple[bool | None, ...]:
        aot_summary = summary(case)
        return (
            aot_summary["arguments_merged"],
            aot_summary["synthetic_base"],
            aot_summary["deduplicated"],
        )

    assert merges("input_mutated") == (False, False, False)
    assert merges("duplicated_arguments_only_read") == (False, False, False)
    assert merges("synthetic_base_trained") == (True, True, None)
    # Torch writes the same text for both: which of the two it was is unknown.
    assert merges("synthetic_base") == merges("duplicated_arguments") == (True, None, None)
    assert summary("duplicated_arguments") == summary("synthetic_base")


def test_summary_counts_the_rest() -> None:
    assert (
        summary("subclass_trained")["subclass_input_count"],
        summary("trained")["subclass_input_count"],
    ) == (1, 0)
    assert summary("effect_tokens")["effect_token_count"] == 1
    assert summary("grad_mode_changed")["grad_enabled_after"] is False
    assert summary("dynamic_shapes")["dynamic_output_indices"] == [0, 1]
    assert summary("running_statistics")["static_input_count"] == 5
    assert summary("trained")["rng_functionalized"] is None  # no version's text has it
    assert [
        summary(case)["trained"] for case in ("trained", "no_grad_inference", "hf_Bert_train 0/0")
    ] == [
        True,
        False,
        True,
    ]


def test_summary_of_metadata_from_the_cache_is_that_of_the_compile() -> None:
    compiled, cached = summary("found_in_cache", 0), summary("found_in_cache", 1)
    assert compiled["traced_tangent_count"] == 1
    assert compiled == cached


def test_summary_of_nothing_is_none_throughout() -> None:
    assert set(summarize({"_class": "ViewAndMutationMeta"}).values()) == {None}
    odd = summarize(
        {"input_info": [None, {"mutates_data": True}], "output_info": ["x"], "subclass_inp_meta": 3}
    )
    assert odd["inputs_mutated"][0]["applied_in"] is None  # type: ignore[index,call-overload]
    assert odd["output_count"] is None


@given(st.data())
def test_damaged_text_never_raises(data: st.DataObject) -> None:
    text = data.draw(
        st.sampled_from([text for _name, _torch, text in texts() if len(text) < 12_000])
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        put = data.draw(
            st.sampled_from(
                ["", "(", ")", "[", "]", "{", "'", '"', "<", ">", ",", "=", ":", "\\", "\0", "é"]
            )
        )
        text = text[:at] + put + text[at + data.draw(st.sampled_from([0, 1, 50, len(text)])) :]
    meta = parse_metadata(text)
    assert meta is None or meta["_class"], "a class, or nothing"
    summary = summarize(meta) if meta is not None else {}
    assert json.loads(json.dumps(summary)) == summary
    assert all(
        value is None or value >= 0 for name, value in summary.items() if name.endswith("_count")
    )


@given(
    st.text(alphabet="(){}[]<>,=:'\"\\ \n.aM1-+", min_size=1, max_size=8),
    st.sampled_from(["", "M(a="]),
)
def test_parse_metadata_takes_linear_time(unit: str, before: str) -> None:
    text = before + unit * (40_000 // len(unit))
    began = time.process_time()
    parse_metadata(text)
    # 10 ms here; a look at every pair of 40 000 characters takes a minute.
    assert time.process_time() - began < 2
