"""Torch's trace events, without making torch build those that nobody reads.

`trace_structured` evaluates an event's functions only if its logger has a handler, and then for every event: graphs,
code, guards, 57 KB a compile. The tap stands in front of it, looks at the names, evaluates the few wanted events once
and hands their values on. Where somebody reads the trace anyway (TORCH_TRACE), torch has already paid, and a handler
beside theirs leaves their log as it would have been.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from ..contract.record_names import ARTIFACT, CACHE_ARTIFACTS, COMPILE_START, TAPPED_ARTIFACTS
from ..contract.spool_format import CONTEXT_KEYS
from . import torch_compat
from .hook_guard import HookGuard

Emit = Callable[[str, Any, Any, Any], None]


def _nothing() -> None:
    return None


def make_tap(original: Callable[..., Any], emit: Emit, guard: HookGuard) -> Callable[..., Any]:
    """Return a function to stand in for `original` (torch's trace_structured)."""

    def trace_structured(name: str, metadata_fn: Any = dict, *, payload_fn: Any = _nothing, **rest: Any) -> Any:
        if name == "artifact" or name == COMPILE_START:
            with guard:
                metadata = metadata_fn()
                metadata_fn = _returning(metadata)
                if name == COMPILE_START:
                    emit(name, metadata, None, torch_compat.context_of(rest.get("compile_id")))
                elif metadata.get("name") in TAPPED_ARTIFACTS:
                    payload = None
                    if metadata["name"] in CACHE_ARTIFACTS:
                        payload = torch_compat.cache_info(payload_fn)
                    if payload is None:
                        payload = payload_fn()
                        payload_fn = _returning(payload)
                    context = torch_compat.context_of(rest.get("compile_id"))
                    emit(f"{ARTIFACT}{metadata['name']}", None, skip_unused_events(metadata["name"], payload), context)
        return original(name, metadata_fn, payload_fn=payload_fn, **rest)

    trace_structured.__compileboard__ = original  # type: ignore[attr-defined]
    return trace_structured


def _returning(value: Any) -> Callable[[], Any]:
    return lambda: value


class TapHandler(logging.Handler):
    """A handler for the same events, where somebody else's handler has made torch build them."""

    def __init__(self, emit: Emit, guard: HookGuard) -> None:
        super().__init__(logging.DEBUG)
        self._emit = emit
        self._guard = guard

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a wanted event on; never raise into torch's compile."""
        with self._guard:
            envelope = getattr(record, "metadata", None)
            if not isinstance(envelope, dict):
                return
            payload = getattr(record, "payload", None)
            context = [envelope.get(key) for key in CONTEXT_KEYS]
            if COMPILE_START in envelope:
                self._emit(COMPILE_START, envelope[COMPILE_START], None, context)
            elif "artifact" in envelope and envelope["artifact"].get("name") in TAPPED_ARTIFACTS:
                name = envelope["artifact"]["name"]
                self._emit(f"{ARTIFACT}{name}", None, skip_unused_events(name, payload), context)


def skip_unused_events(name: str, payload: Any) -> Any:
    """Drop the part of a cache event that is not worth its size: 80 KB of key components become their number."""
    if name not in CACHE_ARTIFACTS:
        return payload
    body = json.loads(payload) if isinstance(payload, str) else dict(payload or {})
    components = body.pop("components", None)
    if components is not None:
        body["component_count"] = len(components)
    return body
