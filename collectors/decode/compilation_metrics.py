"""Decode CompilationMetrics: times, phases, and the fields by which pages filter."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from compileboard.collectors.contract.fingerprints import config_hash
from compileboard.collectors.decode.records import (
    PathNamer,
    Qualify,
    qualified_name,
    split_resume_name,
)

PHASES = ("dynamo", "aot", "inductor", "codegen", "triton", "cudagraph", "restart")
_SPAN = "end_time_us - start_time_us"
# Fields for a record's duration, with the factor to microseconds: 2.4 and 2.5 have the frame's
# seconds, later ones start and end times, or the sum of what dynamo timed. Keyed by whether it is a
# forward record.
_DURATIONS: Mapping[bool, tuple[tuple[str, float], ...]] = {
    True: (
        ("duration_us", 1),
        ("entire_frame_compile_time_s", 1e6),
        (_SPAN, 1),
        ("dynamo_cumulative_compile_time_us", 1),
        ("backward_cumulative_compile_time_us", 1),
    ),
    False: (
        ("duration_us", 1),
        ("entire_frame_compile_time_s", 1e6),
        ("backward_cumulative_compile_time_us", 1),
        (_SPAN, 1),
        ("inductor_compile_time_s", 1e6),
        ("inductor_cumulative_compile_time_us", 1),
    ),
}


def phases_us(metrics: Mapping[str, Any]) -> dict[str, int]:
    """Split a record's duration in microseconds into exclusive phases that add up to it; empty
    without a duration.

    torch's times are nested (dynamo > AOTAutograd > inductor > code generation > triton) and
    measured separately. An inner time may slightly exceed its outer one, and is then reduced to it.
    """
    total = duration_us(metrics)
    if total is None:
        return {}
    if metrics.get("is_runtime") is True:
        return _runtime_phases(metrics, total)
    left = total
    cudagraph = min(_get_microseconds(metrics, "runtime_cudagraphify_time_us") or 0, left)
    left -= cudagraph
    forward = metrics.get("is_forward") is not False
    backend = _first_known(
        _get_microseconds(metrics, "aot_autograd_cumulative_compile_time_us"),
        _get_seconds(metrics, "backend_compile_time_s"),
    )
    inductor = _first_known(
        _get_microseconds(metrics, "inductor_cumulative_compile_time_us"),
        _get_seconds(metrics, "inductor_compile_time_s"),
    )
    codegen = _first_known(
        _get_microseconds(metrics, "inductor_code_gen_cumulative_compile_time_us"),
        _get_seconds(metrics, "code_gen_time_s"),
    )
    restart = _first_known(
        _get_microseconds(metrics, "dynamo_compile_time_before_restart_us"),
        _get_seconds(metrics, "dynamo_time_before_restart_s"),
    )
    triton = _get_microseconds(metrics, "triton_compile_time_us") or 0
    # A backward compile is entirely AOTAutograd's, without dynamo.
    backend = left if not forward else min(backend if backend is not None else inductor or 0, left)
    inductor = min(inductor or 0, backend)
    codegen = min(codegen or 0, inductor)
    triton = min(triton, codegen) if codegen else min(triton, inductor)
    restart = min(restart or 0, left - backend)
    phases = {
        "dynamo": left - backend - restart,
        "aot": backend - inductor,
        "inductor": inductor - codegen if codegen else inductor - triton,
        "codegen": codegen - triton if codegen else 0,
        "triton": triton,
        "cudagraph": cudagraph,
        "restart": restart,
    }
    return {name: phases[name] for name in PHASES}


def _runtime_phases(metrics: Mapping[str, Any], total: int) -> dict[str, int]:
    phases = dict.fromkeys(PHASES, 0)
    phases["cudagraph"] = min(
        _get_microseconds(metrics, "runtime_cudagraphify_time_us") or 0, total
    )
    phases["triton"] = min(
        _get_microseconds(metrics, "runtime_triton_autotune_time_us") or 0,
        total - phases["cudagraph"],
    )
    phases["inductor"] = total - phases["cudagraph"] - phases["triton"]
    return phases


def duration_us(metrics: Mapping[str, Any]) -> int | None:
    return _find_duration(metrics)[0]


def duration_source(metrics: Mapping[str, Any]) -> str | None:
    return _find_duration(metrics)[1]


def _find_duration(metrics: Mapping[str, Any]) -> tuple[int | None, str | None]:
    for name, factor in _DURATIONS[
        metrics.get("is_runtime") is True or metrics.get("is_forward") is not False
    ]:
        if name == _SPAN:
            start, end = start_us(metrics), _get_microseconds(metrics, "end_time_us")
            value = end - start if start is not None and end is not None and end >= start else None
        else:
            value = _scale(metrics.get(name), factor)
        if value is not None:
            return value, name
    return None, None


def start_us(metrics: Mapping[str, Any]) -> int | None:
    return _first_known(
        _get_microseconds(metrics, "start_time_us"), _get_seconds(metrics, "start_time")
    )


def end_us(metrics: Mapping[str, Any]) -> int | None:
    """Return torch's end time, else start plus duration."""
    end = _get_microseconds(metrics, "end_time_us")
    if end is not None:
        return end
    start, duration = start_us(metrics), duration_us(metrics)
    return start + duration if start is not None and duration is not None else None


def _first_known(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _scale(value: Any, factor: float) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    # Negative numbers, or numbers beyond the store's 64 bits, are invalid.
    return round(value * factor) if 0 <= value < 9e18 / factor else None


def _get_microseconds(metrics: Mapping[str, Any], name: str) -> int | None:
    return _scale(metrics.get(name), 1)


def _get_seconds(metrics: Mapping[str, Any], name: str) -> int | None:
    return _scale(metrics.get(name), 1e6)


CONFIGS = {
    "dynamo_config": "dynamo",
    "inductor_config": "inductor",
    "functorch_config": "functorch",
    "compiler_config": "compiler",
}
# Raised by dynamo to run a frame eagerly; other exceptions reach the program (or are suppressed).
_SKIPS = frozenset(
    (
        "Unsupported",
        "SkipFrame",
        "SkipFrameError",
        "SkipCodeRecursiveException",
        "RecompileLimitExceeded",
        "StepUnsupported",
    )
)
_LIMIT = re.compile(
    r"^Dynamo (?:recompile|cache) limit exceeded"
    r"|^(?:accumulated_)?(?:cache_size_limit|recompile_limit|cache_size|recompile)\b.*\breached"
    r"|^accumulated_(?:cache_size|recompile)_limit"
)
_LIMIT_TYPES = frozenset(
    (
        "RecompileLimitExceeded",
        "CacheLimitExceeded",
        "FailOnRecompileLimitHit",
        "FailOnCacheLimitHit",
    )
)
_COMPILE_ID = re.compile(r"^(?:!(\d{1,9})/?)?(?:(\d{1,9})(?:/(\d{1,9}))?)?$")


def outcome(metrics: Mapping[str, Any], kind: str) -> str:
    """Return compiled, empty, failed, skipped or recompile_limit."""
    fail_type, fail_reason = metrics.get("fail_type"), metrics.get("fail_reason")
    reason = fail_reason.strip() if isinstance(fail_reason, str) else ""
    if fail_type in _LIMIT_TYPES or _LIMIT.match(reason):
        return "recompile_limit"
    if fail_type:
        return "skipped" if fail_type in _SKIPS else "failed"
    if kind == "forward" and (
        metrics.get("has_guarded_code") is False or metrics.get("graph_op_count") == 0
    ):
        return "empty"
    return "compiled"


def context_of(metrics: Mapping[str, Any]) -> dict[str, Any]:
    compile_id = metrics.get("compile_id")
    match = _COMPILE_ID.match(compile_id) if isinstance(compile_id, str) else None
    if not match or not compile_id:
        return {}
    frame, again = match.group(2), match.group(3)
    return {
        "compile_id": compile_id,
        "frame_id": int(frame) if frame else None,
        "frame_compile_id": int(again) if again else None,
    }


def parse_metrics(
    metrics: Mapping[str, Any],
    kind: str,
    namer: PathNamer,
    qualify: Qualify | None = None,
    extra: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    stored = dict(metrics)
    configs = []
    for key, config_kind in CONFIGS.items():
        body = stored.get(key)
        if isinstance(body, str):
            digest = config_hash(body)
            stored[key] = {"config_hash": digest}
            configs.append((config_kind, digest, body))
    # In 2.4 and 2.5 only the event's name tells.
    timed = (
        metrics
        if kind != "backward" or "is_forward" in metrics
        else {**metrics, "is_forward": False}
    )
    path, line = _as_text(metrics.get("co_filename")), _as_number(metrics.get("co_firstlineno"))
    name, resumed_at = split_resume_name(_as_text(metrics.get("co_name")))
    qualname = (extra or {}).get("qualname")
    if isinstance(qualname, str) and qualname:
        name = split_resume_name(qualname)[0]
    elif path:
        name = qualified_name(qualify, path, line, name)
    fields = {
        "record_kind": kind,
        "function": name,
        "file": namer.name(path) if path else None,
        "line": line,
        "resumed_at": resumed_at,
        "outcome": outcome(metrics, kind),
        "start_us": start_us(timed),
        "end_us": end_us(timed),
        "duration_us": duration_us(timed),
        "duration_source": duration_source(timed),
        "phases_us": phases_us(timed),
        "metrics": stored,
        "dynamic_sources": _as_text((extra or {}).get("dynamic_sources")),
    }
    return fields, configs


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _as_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
