"""A repro's manifest: written and read back, and named alike wherever the same failure is seen."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract import repros
from compileboard.collectors.contract.repros import ReproInput, ReproManifest

SIZES = st.one_of(st.integers(0, 2**40), st.sampled_from(["s0", "2*s0 + 1", "u3"]))
TENSORS = st.builds(
    ReproInput,
    name=st.text(min_size=1, max_size=20),
    dtype=st.sampled_from(["float32", "bfloat16", "int64"]),
    shape=st.lists(SIZES, max_size=4).map(tuple),
    stride=st.lists(SIZES, max_size=4).map(tuple),
    storage_offset=SIZES,
    requires_grad=st.booleans(),
    storage=st.none() | st.integers(0, 9),
    values=st.sampled_from(repros.VALUE_STATES),
)
NUMBERS = st.builds(
    ReproInput,
    name=st.text(min_size=1, max_size=20),
    kind=st.sampled_from(["symint", "int", "float", "none"]),
    value=st.none() | st.integers() | st.booleans(),
    expression=st.none() | st.just("s0"),
)
MANIFESTS = st.builds(
    ReproManifest,
    kind=st.sampled_from(repros.KINDS),
    level=st.sampled_from(repros.LEVELS),
    message=st.none() | st.text(),
    inputs=st.lists(st.one_of(TENSORS, NUMBERS), max_size=4).map(tuple),
    symbols=st.dictionaries(st.sampled_from(["s0", "s1"]), st.integers()),
    preload=st.lists(st.text(), max_size=2).map(tuple),
)


@given(MANIFESTS)
def test_a_manifest_is_read_back_from_its_json(manifest: ReproManifest) -> None:
    assert repros.load_manifest(json.loads(json.dumps(repros.dump_manifest(manifest)))) == manifest


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "not a repro"),
        ([], "not a repro"),
        ({"kind": "compile", "level": "aot", "format": 2}, "format 2"),
        ({"kind": "compile", "level": "aot", "format": 1, "inputs": [{}]}, "has no name"),
    ],
)
def test_what_is_no_manifest_is_refused_in_one_sentence(body: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        repros.load_manifest(body)  # type: ignore[arg-type]


def test_a_field_of_a_later_version_is_passed_over() -> None:
    body = {
        "kind": "crash",
        "level": "aot",
        "format": 1,
        "colour": "red",
        "inputs": [{"name": "x", "colour": "red"}],
    }
    assert repros.load_manifest(body) == ReproManifest("crash", "aot", inputs=(ReproInput("x"),))


def test_an_errors_pattern_has_no_values() -> None:
    first, second = (
        f"could not read /tmp/{name}/x.cpp at 0x7f{digits}: expected {digits} of 3.5e-2\nmore"
        for name, digits in (("a", 12), ("b", 99))
    )
    assert (
        repros.normalize_error_message(first)
        == repros.normalize_error_message(second)
        == "could not read /… at 0x…: expected N of N"
    )
    assert repros.normalize_error_message(None) == ""


def test_failures_are_told_apart_by_error_and_operation_and_by_nothing_else() -> None:
    manifest = ReproManifest(
        "compile", "aot", error_type="LoweringException", message="no size 5", operation="aten.pad"
    )
    named = repros.failure_fingerprint(manifest)
    assert named == repros.failure_fingerprint(
        replace(manifest, message="no size 7", function="other", line=3)
    )
    assert named != repros.failure_fingerprint(replace(manifest, operation="aten.atan"))
    assert named != repros.failure_fingerprint(replace(manifest, error_type="TypeError"))


def test_a_graph_is_the_same_without_its_comments() -> None:
    first = (
        "def forward(self, x):\n    y = x + 1  # File: a.py:3 in f, code: y = x + 1\n    return y\n"
    )
    assert repros.program_digest(first) == repros.program_digest(first.replace("a.py:3", "b.py:9"))
    assert repros.program_digest(first) != repros.program_digest(first.replace("+ 1", "+ 2"))
