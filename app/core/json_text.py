"""JSON that every parser accepts, even with lone surrogates or numbers beyond 64 bits."""

from __future__ import annotations

import math
from typing import Any

import orjson

from compileboard.app.core.schema import get_row, is_model

OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
_LARGEST = 2**63 - 1


def dump_json(value: Any, option: int = OPTIONS) -> bytes:
    option |= orjson.OPT_PASSTHROUGH_DATACLASS
    try:
        return orjson.dumps(value, get_row, option)
    except TypeError:
        return orjson.dumps(_make_encodable(value), get_row, option)


def _make_encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -_LARGEST <= value <= _LARGEST else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_make_encodable(key): _make_encodable(entry) for key, entry in value.items()}
    if is_model(type(value)):
        return _make_encodable(get_row(value))
    if isinstance(value, list | tuple):
        return [_make_encodable(entry) for entry in value]
    return value
