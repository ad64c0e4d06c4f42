"""Payloads as torch wrote them: 2.11 on CUDA (DDP, recompiles), and C++ by 2.13 on CPU."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parents[3] / "data" / "code" / "artifacts.json.xz"


@cache
def artifacts() -> dict[str, str]:
    """Unpack the recorded payloads, by the name of their record."""
    payloads: dict[str, str] = json.loads(lzma.decompress(_FILE.read_bytes()))
    return payloads
