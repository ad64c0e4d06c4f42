"""A record as torch emitted it, from the live spool or a trace log, so that one decoder serves
both.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from compileboard.collectors.contract import events
from compileboard.collectors.contract.record_names import (
    AOT_METADATA,
    CONFIG,
    EVENTS,
    GUARDS,
    PROCESS_STARTED,
    SNAPSHOT,
    SPAN,
)


@dataclass(slots=True)
class Logged:
    md5: str | None = None  # torch's own, of the text
    size_bytes: int | None = None
    state: str = "none"  # of the text: kept | none | left_out | withheld | damaged
    whole: str | None = None  # of a long span: its payload is only what says what it was and when


@dataclass(slots=True)
class Captured:
    """One record from torch.

    `name` is torch's event name ("dynamo_start", "bwd_compilation_metrics") or, for
    artifacts, "artifact:" and the artifact's name ("artifact:recompile_reasons").
    """

    process_id: str
    sequence: int
    time_us: int
    name: str
    metadata: Any = None
    payload: Any = None
    frame_id: int | None = None
    frame_compile_id: int | None = None
    compiled_autograd_id: int | None = None
    attempt: int | None = None
    rank: int | None = None
    extra: dict[str, Any] = field(
        default_factory=dict
    )  # what only a live hook can know: {"qualname": …}
    logged: Logged | None = None  # None: it came from a live hook
    envelope: dict[str, Any] | None = (
        None  # what else stood around it in its log, stacks with their file names
    )

    @property
    def compile_id(self) -> str | None:
        """The compile ID as torch prints it: 0/1, or !0/1/0 under compiled autograd."""
        if self.compiled_autograd_id is None:
            if self.frame_id is None:
                return None
            return (
                str(self.frame_id)
                if self.frame_compile_id is None
                else f"{self.frame_id}/{self.frame_compile_id}"
            )
        parts = [f"!{self.compiled_autograd_id}"]
        parts += [str(p) for p in (self.frame_id, self.frame_compile_id) if p is not None]
        return "/".join(parts)


_READ = EVENTS | GUARDS | {SPAN, AOT_METADATA}


def is_event(name: str) -> bool:
    return name in EVENTS


def needs_payload(name: str) -> bool:
    return name in _READ


# The hooks write these as the events that they are.
HOOK_EVENTS: dict[str, type[events.Event]] = {
    PROCESS_STARTED: events.ProcessStarted,
    SNAPSHOT: events.SnapshotTaken,
    CONFIG: events.ConfigSeen,
}
_IDENTITY = ("process_id", "sequence", "time_us")


def make_event(captured: Captured) -> events.Event | None:
    cls = HOOK_EVENTS.get(captured.name)
    if cls is None or not isinstance(captured.metadata, dict):
        return None
    values: dict[str, Any] = {}
    for declared in fields(cls):
        if declared.name in _IDENTITY:
            continue
        if declared.name in captured.metadata:
            values[declared.name] = captured.metadata[declared.name]
        elif declared.default is MISSING and declared.default_factory is MISSING:
            return None
    return cls(captured.process_id, captured.sequence, captured.time_us, **values)
