"""Records that only the live hooks send: their metadata's fields are the event's own."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from compileboard.collectors import events
from compileboard.collectors.decode.captured import Captured

NAMES: dict[str, type[events.Event]] = {
    "process_started": events.ProcessStarted,
    "snapshot": events.SnapshotTaken,
    "config": events.ConfigSeen,
}
_IDENTITY = ("process_id", "sequence", "time_us")


def make_event(captured: Captured) -> events.Event | None:
    """Make the event, or None where the metadata lacks a field that it must have."""
    cls = NAMES.get(captured.name)
    if cls is None or not isinstance(captured.metadata, dict):
        return None
    values: dict[str, Any] = {}
    for one in fields(cls):
        if one.name in _IDENTITY:
            continue
        if one.name in captured.metadata:
            values[one.name] = captured.metadata[one.name]
        elif one.default is MISSING and one.default_factory is MISSING:
            return None
    return cls(captured.process_id, captured.sequence, captured.time_us, **values)
