"""Read torch's trace events without making torch build all of them.

`trace_structured` builds payloads only if its logger has a handler, and then for every event:
57 KB per compile. The tap in front of it evaluates only the events we need. If TORCH_TRACE is set,
torch builds them anyway, and a second handler leaves that log unchanged.
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
    def trace_structured(
        name: str, metadata_fn: Any = dict, *, payload_fn: Any = _nothing, **rest: Any
    ) -> Any:
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
                    emit(
                        f"{ARTIFACT}{metadata['name']}",
                        None,
                        skip_unused_events(metadata["name"], payload),
                        context,
                    )
        return original(name, metadata_fn, payload_fn=payload_fn, **rest)

    trace_structured.__compileboard__ = original  # type: ignore[attr-defined]
    return trace_structured


def _returning(value: Any) -> Callable[[], Any]:
    return lambda: value


class TapHandler(logging.Handler):
    def __init__(self, emit: Emit, guard: HookGuard) -> None:
        super().__init__(logging.DEBUG)
        self._emit = emit
        self._guard = guard

    def emit(self, record: logging.LogRecord) -> None:
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
    if name not in CACHE_ARTIFACTS:
        return payload
    body = json.loads(payload) if isinstance(payload, str) else dict(payload or {})
    components = body.pop("components", None)
    if components is not None:
        body["component_count"] = len(components)
    return body
