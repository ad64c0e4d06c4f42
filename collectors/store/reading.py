"""Read columns of JSON. A bundle's come as they are: a value that does not fit is not there, and
its row stands.
"""

from __future__ import annotations

import json
from typing import Any

from compileboard.collectors.contract.events import Event, build_event, dump_event
from compileboard.collectors.contract.values import fit_event, fit_json
from compileboard.collectors.store.codec import unpack


def read_json(shape: Any, column: str | bytes | None) -> Any:
    """Return a column of JSON, packed or not, as a type; None where it is of another, or no JSON.

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
    """Return a packed text; None where there is none, or it is damaged."""
    try:
        return None if column is None else unpack(column)
    except ValueError:
        return None


def read_event(column: bytes) -> Event | None:
    """Return a stored event; None where it is none."""
    try:
        return fit_event(build_event(json.loads(unpack(column))))[0]
    except (ValueError, RecursionError, AttributeError):
        return None


def read_body(column: bytes | None) -> dict[str, Any]:
    """Return a stored event as JSON; empty where there is none."""
    event = None if column is None else read_event(column)
    return {} if event is None else json.loads(dump_event(event))
