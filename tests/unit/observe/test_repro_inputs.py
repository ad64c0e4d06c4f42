"""Inputs written and read back: equal bits, strides, offsets and sharing."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.repros import MAX_STORAGE_BYTES, ReproInput
from compileboard.collectors.observe.repro.inputs import InputReader, keep_values

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "int8",
    "uint8",
    "bool",
    "complex64",
)


def write(
    tensors: list[Any], max_bytes: int = 1 << 20
) -> tuple[tuple[ReproInput, ...], dict[str, bytes]]:
    bodies: dict[str, bytes] = {}

    def keep(digest: str, body: str) -> None:
        bodies[digest] = zlib.decompress(base64.b64decode(body))

    described = InputReader().describe([f"arg{n}" for n in range(len(tensors))], tensors)
    return keep_values(described, tensors, max_bytes, keep), bodies


def read(inputs: tuple[ReproInput, ...], bodies: dict[str, bytes]) -> list[Any]:
    """Make the tensors again, as whoever runs a repro does."""
    storages: dict[int | None, Any] = {}
    tensors = []
    for entry in inputs:
        body = bytearray(bodies[entry.digest or ""])
        if entry.storage not in storages:
            made = (
                torch.frombuffer(body, dtype=torch.uint8)
                if body
                else torch.empty(0, dtype=torch.uint8)
            )
            storages[entry.storage] = made.untyped_storage()
        tensor = torch.empty(0, dtype=getattr(torch, entry.dtype or ""))
        tensors.append(
            tensor.set_(storages[entry.storage], entry.storage_offset, entry.shape, entry.stride)
        )
    return tensors


@st.composite
def views(draw: st.DrawFn) -> list[Any]:
    """Make tensors of which some share a storage, with odd strides and offsets."""
    tensors = []
    for _ in range(draw(st.integers(1, 3))):
        dtype = getattr(torch, draw(st.sampled_from(DTYPES)))
        count = draw(st.integers(0, 40))
        body = draw(st.binary(min_size=count * 16, max_size=count * 16))
        size = count * 16 // torch.empty(0, dtype=dtype).element_size()
        base = (
            torch.frombuffer(bytearray(body), dtype=dtype) if count else torch.empty(0, dtype=dtype)
        )
        for _ in range(draw(st.integers(1, 2))):
            rows, columns = draw(st.integers(0, 4)), draw(st.integers(0, 4))
            steps = draw(st.integers(0, 5)), draw(st.integers(0, 5))
            offset = draw(st.integers(0, 4))
            last = offset + (rows - 1) * steps[0] + (columns - 1) * steps[1]
            is_inside = last < size if rows and columns else True
            tensors.append(base.as_strided((rows, columns), steps, offset) if is_inside else base)
    return tensors


def bits(tensor: Any) -> bytes:
    copy = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    return bytes(copy.flatten().view(torch.uint8).tolist()) if tensor.numel() else b""


@given(views())
def test_what_is_read_back_is_what_was_written(tensors: list[Any]) -> None:
    inputs, bodies = write(tensors)
    again = read(inputs, bodies)
    for mine, other in zip(tensors, again, strict=True):
        assert (mine.dtype, mine.shape, mine.stride()) == (other.dtype, other.shape, other.stride())
        assert mine.storage_offset() == other.storage_offset() and bits(mine) == bits(other)
    shared = [
        [a.untyped_storage()._cdata == b.untyped_storage()._cdata for a in tensors] for b in tensors
    ]
    assert shared == [
        [a.untyped_storage()._cdata == b.untyped_storage()._cdata for a in again] for b in again
    ]
    assert all(hashlib.sha256(body).hexdigest() == digest for digest, body in bodies.items())


def test_what_is_gone_or_too_large_has_no_values() -> None:
    alive, other, large = torch.ones(4), torch.ones(5), torch.ones(100)
    described = InputReader().describe("abcd", [alive, other, large, 7])
    written = keep_values(described, [alive, alive, large, 7], 100, lambda digest, body: None)
    assert [entry.values for entry in written] == ["kept", "freed", "too_large", "absent"]
    assert written[1].digest is None and MAX_STORAGE_BYTES > 100


def test_values_that_cannot_be_read_cost_the_values_alone() -> None:
    def refuse(digest: str, body: str) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    values = [torch.ones(4), torch.ones(5)]
    written = keep_values(InputReader().describe("ab", values), values, 100, refuse)
    assert [(entry.values, entry.digest) for entry in written] == [("absent", None)] * 2


def test_parameters_numbers_and_odd_things_are_told_apart() -> None:
    values = [
        torch.nn.Parameter(torch.ones(2)),
        3,
        2.5,
        True,
        None,
        object(),
        torch.ones(2).to_sparse(),
    ]
    described = InputReader().describe("abcdefg", values)
    assert [entry.kind for entry in described] == [
        "tensor",
        "int",
        "float",
        "bool",
        "none",
        "other",
        "tensor",
    ]
    assert described[0].is_parameter and described[0].requires_grad
    assert (described[5].value, described[6].stride) == ("builtins.object", None)
