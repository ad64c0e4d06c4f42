"""Why a look-up missed, from keys that torch wrote for one program and three variants of it."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.artifacts.text import FieldChange, read_fields, split_arguments
from compileboard.app.caches.model import (
    compare_keys,
    explain_component,
    find_nearest_earlier,
    fingerprint_key,
)
from compileboard.collectors.store.payloads import Component
from tests.unit.decode.test_cache_key_components import components

BASE = "fx_graph 2.13 base"
VARIANTS = ("fx_graph 2.13 setting", "fx_graph 2.13 dtype", "fx_graph 2.13 graph")


def test_compare_names_the_setting() -> None:
    diff = compare_keys(components("fx_graph 2.13 setting"), components(BASE))
    (change,) = diff.changed
    assert change.summary == "inductor setting epilogue_fusion: True → False"
    assert (diff.count, diff.same_count) == (1, len(components(BASE)) - 1)
    assert "options=" in change.explanation


def test_compare_spells_out_what_of_a_tensor_differs() -> None:
    diff = compare_keys(components("fx_graph 2.13 dtype"), components(BASE))
    assert [change.summary for change in diff.changed] == [
        "input 0: dtype torch.float32 → torch.float64, shape [4, 8] → [6, 8]",
        "input 1: dtype torch.float32 → torch.float64",
    ]
    assert diff.changed[1].fields == (FieldChange("dtype", "torch.float32", "torch.float64"),)


def test_compare_says_that_the_graph_differs() -> None:
    (change,) = compare_keys(components("fx_graph 2.13 graph"), components(BASE)).changed
    assert change.summary == "the graph differs"
    assert change.before is not None and "aten.relu" in change.before
    assert change.after is not None and "aten.tanh" in change.after


def test_compare_of_two_torches_says_what_cannot_be_read() -> None:
    diff = compare_keys(components("aot_autograd 2.11 cuda"), components(BASE))
    changes = {
        change.name: change for change in (*diff.changed, *diff.only_in_miss, *diff.only_in_earlier)
    }
    assert changes["torch_version"].summary == "torch_version differs; torch records it as bytes"
    assert (changes["torch_version"].before, changes["torch_version"].after) == (None, None)
    assert changes["grad_enabled"].summary == "grad_enabled: only in the miss"
    assert diff.changed[0].name == "gm"
    assert diff.only_in_miss[0].name == "example_inputs[2]"


def test_a_hash_without_a_visible_difference_is_said() -> None:
    (change,) = compare_keys(
        [Component("aot_config", "a", "x")], [Component("aot_config", "b", "x")]
    ).changed
    assert change.summary == "aot_config differs in its hash; torch's text for it is the same"
    assert (
        compare_keys([Component("f", "a", "<f at 0x1>")], [Component("f", "a", "<f at 0x2>")]).count
        == 0
    )


@given(st.sampled_from(VARIANTS), st.randoms(use_true_random=False))
def test_compare_does_not_hang_on_the_order(name: str, chance: random.Random) -> None:
    miss, earlier = components(name), components(BASE)
    expected = compare_keys(miss, earlier)
    chance.shuffle(miss)
    chance.shuffle(earlier)
    assert compare_keys(miss, earlier) == expected


def test_nearest_is_the_one_with_the_fewest_differences_and_the_latest_of_equals() -> None:
    graph, dtype, setting = (components(name) for name in (VARIANTS[2], VARIANTS[1], VARIANTS[0]))
    assert find_nearest_earlier(components(BASE), [dtype, graph, dtype]) == 1
    assert find_nearest_earlier(components(BASE), [graph, setting, dtype]) == 1
    assert (
        find_nearest_earlier(fingerprint_key(components(BASE)), iter([fingerprint_key(dtype)])) == 0
    )
    assert find_nearest_earlier(components(BASE), []) is None


@given(
    st.lists(st.dictionaries(st.sampled_from("abcde"), st.sampled_from("xyz")), min_size=1),
    st.data(),
)
def test_nearest_agrees_with_comparing_them_all(
    keys: list[dict[str, str]], data: st.DataObject
) -> None:
    miss, *earlier = [[Component(name, digest, "") for name, digest in key.items()] for key in keys]
    counts = [compare_keys(miss, key).count for key in earlier]
    expected = max(range(len(counts)), key=lambda at: (-counts[at], at)) if counts else None
    assert find_nearest_earlier(miss, earlier) == expected


def test_every_recorded_component_is_explained() -> None:
    names = [
        component.name
        for name in (BASE, "aot_autograd 2.11 cuda")
        for component in components(name)
    ]
    assert [name for name in names if not explain_component(name)] == []
    assert explain_component("of_torch_3") == ""


@given(st.text(alphabet="TensorMetadata(=,[]) '\\\"x1"))
def test_reprs_of_any_text_are_split_without_loss(text: str) -> None:
    joined = "".join(split_arguments(text))
    assert [character for character in joined if character not in ", "] == [
        character for character in text if character not in ", "
    ]
    assert all(name in text and value in text for name, value in (read_fields(text) or {}).items())
