"""Components of cache keys that torch 2.11 (CUDA) and 2.13 (CPU) wrote, whole and damaged."""

from __future__ import annotations

import json
import lzma
from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.decode.caches import Component, parse_components
from tests.unit.decode.recorded_logs import FOLDER


@cache
def payloads() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = json.loads(
        lzma.decompress((FOLDER / "cache-keys.json.xz").read_bytes())
    )
    return loaded


def components(name: str) -> list[Component]:
    components = parse_components(json.dumps(payloads()[name]))
    assert components is not None
    return components


def test_parse_keeps_every_component() -> None:
    for name in ("fx_graph 2.13 base", "aot_autograd 2.11 cuda"):
        parsed = components(name)
        assert [
            f"[{component.digest}] {component.name}: {component.value}" for component in parsed
        ] == payloads()[name]["components"]
    names = [component.name for component in components("fx_graph 2.13 base")]
    assert names[:3] == ["gm", "example_inputs[0]", "example_inputs[1]"]
    assert "inductor_config[epilogue_fusion]" in names


def test_parse_reads_lines_joined_to_one_text() -> None:
    payload = payloads()["fx_graph 2.13 base"]
    parsed = parse_components({"lines": "\n".join(payload["components"])})
    assert parsed is not None
    assert [(component.name, component.digest) for component in parsed] == [
        (component.name, component.digest) for component in components("fx_graph 2.13 base")
    ]
    assert "torch.ops.aten.relu" in parsed[0].value


def test_a_look_up_without_components_has_none() -> None:
    assert parse_components(payloads()["aot_autograd 2.13"]) == []
    assert parse_components(payloads()["aot_autograd 2.11 bypass"]) == []
    assert [parse_components(text) for text in ("", "[1]", "{", 3, {"components": 7})] == [None] * 5


def test_components_of_another_form_keep_their_text() -> None:
    components = parse_components({"components": ["config: x", "[ab]", None, "", "[abc] a b: c"]})
    assert components == [
        Component("config", "", "x"),
        Component("[ab]", "", ""),
        Component("[abc] a b", "", "c"),
    ]


@given(st.sampled_from(["fx_graph 2.13 base", "aot_autograd 2.11 cuda"]), st.data())
def test_damage_never_raises(name: str, data: st.DataObject) -> None:
    text = json.dumps(payloads()[name])
    start = data.draw(st.integers(0, len(text)))
    damaged = (
        text[:start]
        + data.draw(st.text(max_size=20))
        + text[start + data.draw(st.integers(0, 200)) :]
    )
    components = parse_components(damaged)
    assert components is None or all(isinstance(component.value, str) for component in components)
