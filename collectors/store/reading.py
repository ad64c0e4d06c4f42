"""Read JSON columns.

Those of a bundle are not checked on import, so a value of another type counts as missing.
"""

from __future__ import annotations

import json
from typing import Any

from compileboard.collectors.contract.events import Event, build_event, dump_event
from compileboard.collectors.contract.values import fit_event, fit_json
from compileboard.collectors.store.codec import unpack


def read_json(shape: Any, column: str | bytes | None) -> Any:
    """Return a JSON column, packed or not, as a type; None if it has another type or is not JSON.

    >>> read_json(dict[str, int], '{"queue": 3, "x": "y"}')
    {'queue': 3}
    """
    try:
        return fit_json(
            shape, json.loads(unpack(column) if isinstance(column, bytes) else column or "null")
        )
    except (ValueError, RecursionError):
        return None


def read_text(column: bytes | None) -> str | None:
    """Return a packed text; None if it is missing or damaged."""
    try:
        return None if column is None else unpack(column)
    except ValueError:
        return None


def read_event(column: bytes) -> Event | None:
    """Return a stored event; None if it cannot be read."""
    try:
        return fit_event(build_event(json.loads(unpack(column))))[0]
    except (ValueError, RecursionError, AttributeError):
        return None


def read_body(column: bytes | None) -> dict[str, Any]:
    """Return a stored event as JSON; empty if it is missing."""
    event = None if column is None else read_event(column)
    return {} if event is None else json.loads(dump_event(event))
