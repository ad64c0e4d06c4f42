"""Read and write raw timings: a NumPy file, float64 of shape (repeat, 2), with eager and compiled
times in seconds.

Source: numpy/lib/format.py (versions 1 to 3). The file is parsed without NumPy, because the
collector does not depend on it.
"""

from __future__ import annotations

import ast
import math
import struct
from array import array
from collections.abc import Sequence

_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 10_000
_ALIGNED_BYTES = 64


def is_npy(head: bytes) -> bool:
    return head.startswith(_MAGIC)


def read_timings(data: bytes) -> list[tuple[float, float]]:
    """Return eager and compiled times in seconds.

    Raises ValueError if the array has another type or shape, or is truncated.
    """
    if not is_npy(data) or len(data) < 12:
        raise ValueError("it does not begin as a NumPy file does")
    form, at = ("<H", 10) if data[6] == 1 else ("<I", 12)
    (size,) = struct.unpack_from(form, data, 8)
    if size > _MAX_HEADER_BYTES:
        raise ValueError(f"its heading says that it has {size:,} bytes")
    try:
        header = ast.literal_eval(data[at : at + size].decode("utf-8"))
        kind, shape, order = header["descr"], header["shape"], header["fortran_order"]
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"its heading cannot be read ({type(error).__name__})") from None
    if (
        kind not in ("<f8", ">f8")
        or not isinstance(shape, tuple)
        or len(shape) != 2
        or shape[1] != 2
    ):
        raise ValueError(
            f"expected float64 of shape (repeats, 2), got {kind!s:.40} of shape {shape!s:.40}"
        )
    body = data[at + size :]
    count = shape[0]
    if not isinstance(count, int) or count < 0 or len(body) < count * 16:
        raise ValueError(f"it ends before its {shape[0]} repeats")
    values = array("d", body[: count * 16])
    if (kind == ">f8") == (struct.pack("=d", 1.0) == struct.pack("<d", 1.0)):
        values.byteswap()
    if order:
        return list(zip(values[:count], values[count:], strict=True))
    return list(zip(values[::2], values[1::2], strict=True))


def to_repeats(timings: Sequence[tuple[float, float]]) -> dict[str, list[float]]:
    """Convert seconds to milliseconds by side; values that are not finite and positive are left
    out.
    """
    pairs = [
        (eager, compiled) for eager, compiled in timings if _is_time(eager) and _is_time(compiled)
    ]
    return {
        "eager": [eager * 1e3 for eager, _ in pairs],
        "compiled": [compiled * 1e3 for _, compiled in pairs],
    }


def _is_time(value: float) -> bool:
    return math.isfinite(value) and value > 0


def write_timings(repeats: dict[str, list[float]]) -> bytes:
    """Write repeats in milliseconds as a NumPy file in seconds."""
    pairs = list(zip(repeats.get("eager", ()), repeats.get("compiled", ()), strict=False))
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(pairs)}, 2), }}"
    padding = -(len(_MAGIC) + 4 + len(header) + 1) % _ALIGNED_BYTES
    text = (header + " " * padding + "\n").encode("ascii")
    body = b"".join(struct.pack("<dd", eager / 1e3, compiled / 1e3) for eager, compiled in pairs)
    return _MAGIC + b"\x01\x00" + struct.pack("<H", len(text)) + text + body
