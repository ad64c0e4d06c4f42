"""One CompilationMetrics record, to the fields of a Compiled event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from compileboard.collectors.decode.hashing import config_hash
from compileboard.collectors.decode.metrics import duration_source, duration_us, end_us, phases_us, start_us
from compileboard.collectors.decode.paths import PathNamer, Qualify, function_name, qualified_name

CONFIGS = {
    "dynamo_config": "dynamo",
    "inductor_config": "inductor",
    "functorch_config": "functorch",
    "compiler_config": "compiler",
}
# What dynamo raises to run a frame eagerly; anything else reaches the program (or is suppressed as an error).
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
    ("RecompileLimitExceeded", "CacheLimitExceeded", "FailOnRecompileLimitHit", "FailOnCacheLimitHit")
)
_COMPILE_ID = re.compile(r"^(?:!(\d{1,9})/?)?(?:(\d{1,9})(?:/(\d{1,9}))?)?$")


def outcome(metrics: Mapping[str, Any], kind: str) -> str:
    """Say how a compile ended: compiled, empty, failed, skipped or recompile_limit."""
    fail_type, fail_reason = metrics.get("fail_type"), metrics.get("fail_reason")
    reason = fail_reason.strip() if isinstance(fail_reason, str) else ""
    if fail_type in _LIMIT_TYPES or _LIMIT.match(reason):
        return "recompile_limit"
    if fail_type:
        return "skipped" if fail_type in _SKIPS else "failed"
    if kind == "forward" and (metrics.get("has_guarded_code") is False or metrics.get("graph_op_count") == 0):
        return "empty"
    return "compiled"


def context_of(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Read the compile id that the record itself carries, for where torch had no compile in flight."""
    compile_id = metrics.get("compile_id")
    found = _COMPILE_ID.match(compile_id) if isinstance(compile_id, str) else None
    if not found or not compile_id:
        return {}
    frame, again = found.group(2), found.group(3)
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
    """Read a record into a Compiled event's fields, and its config texts as (kind, hash, body)."""
    kept = dict(metrics)
    configs = []
    for key, config_kind in CONFIGS.items():
        body = kept.get(key)
        if isinstance(body, str):
            digest = config_hash(body)
            kept[key] = {"config_hash": digest}
            configs.append((config_kind, digest, body))
    # 2.4 and 2.5 say it by the event's name alone.
    timed = metrics if kind != "backward" or "is_forward" in metrics else {**metrics, "is_forward": False}
    path, line = _text(metrics.get("co_filename")), _number(metrics.get("co_firstlineno"))
    name, resumed_at = function_name(_text(metrics.get("co_name")))
    qualname = (extra or {}).get("qualname")
    if isinstance(qualname, str) and qualname:
        name = function_name(qualname)[0]
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
        "metrics": kept,
    }
    return fields, configs


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
