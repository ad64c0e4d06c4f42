"""Describe a graph's inputs, including symbolic sizes, and read their storages on request."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...contract.repros import ABSENT, FREED, KEPT, MAX_STORAGE_BYTES, TOO_LARGE, ReproInput, Size

WriteValues = Callable[[str, str], object]  # a storage's digest and body


class InputReader:
    def __init__(self) -> None:
        self.symbols: dict[str, int] = {}
        self._storages: dict[int, int] = {}
        self._torch = sys.modules["torch"]

    def describe(self, names: Iterable[str], values: Sequence[Any]) -> tuple[ReproInput, ...]:
        known = list(names)[: len(values)]
        known += [f"input_{index}" for index in range(len(known), len(values))]
        return tuple(self._describe(name, value) for name, value in zip(known, values))

    def _describe(self, name: str, value: Any) -> ReproInput:
        torch = self._torch
        if isinstance(value, torch.Tensor):
            return self._describe_tensor(name, value)
        if isinstance(value, torch.SymInt):
            size = self._size(value)
            if isinstance(size, int):
                return ReproInput(name=name, kind="int", value=size)
            return ReproInput(name=name, kind="symint", value=_hint(value), expression=size)
        if value is None:
            return ReproInput(name=name, kind="none")
        if isinstance(value, (bool, int, float)):
            return ReproInput(name=name, kind=type(value).__name__, value=value)
        return ReproInput(
            name=name, kind="other", value=f"{type(value).__module__}.{type(value).__qualname__}"
        )

    def _describe_tensor(self, name: str, tensor: Any) -> ReproInput:
        torch = self._torch
        is_strided = tensor.layout is torch.strided
        storage = tensor.untyped_storage() if is_strided else None
        size = self._size(storage.nbytes()) if storage is not None else None
        return ReproInput(
            name=name,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(self._size(size) for size in tensor.shape),
            stride=tuple(self._size(step) for step in tensor.stride()) if is_strided else None,
            storage_offset=self._size(tensor.storage_offset()) if is_strided else 0,
            device=str(tensor.device),
            requires_grad=bool(tensor.requires_grad),
            is_parameter=isinstance(tensor, torch.nn.Parameter),
            storage=self._storages.setdefault(storage._cdata, len(self._storages))
            if storage is not None
            else None,
            storage_bytes=size
            if isinstance(size, int)
            else _hint(storage.nbytes())
            if storage is not None
            else None,
        )

    def _size(self, size: Any) -> Size:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression.is_number:
            return int(expression)
        environment = size.node.shape_env
        hints = (
            getattr(environment, "backed_var_to_val", None)
            or getattr(environment, "var_to_val", None)
            or {}
        )
        for symbol in expression.free_symbols:
            if symbol in hints:
                self.symbols[str(symbol)] = int(hints[symbol])
        return str(expression)


def _hint(size: Any) -> int | None:
    hint = getattr(size.node, "hint", None)
    if isinstance(hint, int):
        return hint
    return int(hint) if hint is not None and getattr(hint, "is_number", False) else None


def keep_values(
    inputs: Sequence[ReproInput], live: Sequence[Any], max_bytes: int, write: WriteValues
) -> tuple[ReproInput, ...]:
    """Write the storages of live inputs; return the inputs, each with whether its values were kept.

    `live` has the tensor of each input, or None if it was freed.
    """
    states: dict[int, tuple[str, str | None]] = {}  # by address of the storage
    left = max_bytes
    described = []
    for entry, tensor in zip(inputs, [*live, *[None] * len(inputs)]):
        if entry.kind != "tensor":
            described.append(entry)
            continue
        storage = _storage_of(entry, tensor)
        if storage is None:
            described.append(replace(entry, values=FREED))
            continue
        if storage._cdata not in states:
            size = storage.nbytes()
            if size > left or size > MAX_STORAGE_BYTES:
                states[storage._cdata] = (TOO_LARGE, None)
            else:
                try:
                    states[storage._cdata] = (KEPT, _write_storage(storage, size, write))
                except Exception:  # after a device's error nothing can be read from it
                    states[storage._cdata] = (ABSENT, None)
                left -= size
        state, digest = states[storage._cdata]
        number = {"storage_bytes": storage.nbytes()} if state == KEPT else {}
        described.append(replace(entry, values=state, digest=digest, **number))
    return tuple(described)


def _storage_of(entry: ReproInput, tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return None
    if tensor.device.type == "meta" or tensor.is_conj() or tensor.is_neg():
        return None
    fits = str(tensor.dtype).removeprefix("torch.") == entry.dtype and len(tensor.shape) == len(
        entry.shape or ()
    )
    sizes = zip((*tensor.shape, *tensor.stride()), (*(entry.shape or ()), *(entry.stride or ())))
    if not fits or any(isinstance(expected, int) and size != expected for size, expected in sizes):
        return None
    return tensor.untyped_storage()


def _write_storage(storage: Any, size: int, write: WriteValues) -> str:
    on_host = storage if storage.device.type == "cpu" else storage.cpu()
    body = ctypes.string_at(on_host.data_ptr(), size) if size else b""
    digest = hashlib.sha256(body).hexdigest()
    write(digest, base64.b64encode(zlib.compress(body, 1)).decode("ascii"))
    return digest
