"""One record as torch emitted it, before anything was made of it.

The live spool and torch's own trace log both become this, so that one decoder serves both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Logged:
    """Hold what a record was in its log."""

    md5: str | None = None  # torch's own, of the text
    size_bytes: int | None = None
    state: str = "none"  # of the text: kept | none | left_out | withheld | damaged
    whole: str | None = None  # of a long span: its payload is only what says what it was and when


@dataclass(slots=True)
class Captured:
    """Hold what torch handed over.

    `name` is torch's event name ("dynamo_start", "bwd_compilation_metrics") or, for artifacts, "artifact:" and the
    artifact's name ("artifact:recompile_reasons").
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
    extra: dict[str, Any] = field(default_factory=dict)  # what only a live hook can know: {"qualname": …}
    logged: Logged | None = None  # None: it came from a live hook
    envelope: dict[str, Any] | None = None  # what else stood around it in its log, stacks with their file names

    @property
    def compile_id(self) -> str | None:
        """Print the compile id as torch does: 0/1, or !0/1/0 under compiled autograd."""
        if self.compiled_autograd_id is None:
            if self.frame_id is None:
                return None
            return str(self.frame_id) if self.frame_compile_id is None else f"{self.frame_id}/{self.frame_compile_id}"
        parts = [f"!{self.compiled_autograd_id}"]
        parts += [str(p) for p in (self.frame_id, self.frame_compile_id) if p is not None]
        return "/".join(parts)
