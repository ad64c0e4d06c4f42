"""What becomes of each of torch's trace records.

Source: an AST walk over every trace_structured call of torch 2.13, and the wheels of 2.4 to 2.11.
"""

from __future__ import annotations

METRICS: dict[str, str] = {
    "compilation_metrics": "forward",
    "bwd_compilation_metrics": "backward",
    "aot_autograd_backward_compilation_metrics": "backward",
    "compilation_metrics_runtime": "runtime",
    "bwd_compilation_metrics_runtime": "runtime",
}

SPAN = "chromium_event"
STRING = "str"  # a number for a file's name; consumed by the reader

SYMBOLS: dict[str, str] = {
    "create_symbol": "created",
    "create_unbacked_symbol": "unbacked",
    "symbolic_shape_specialization": "specialized",
    "guard_added_fast": "guarded",
    "guard_added": "guarded",
    "guard_on_data_dependent_error": "other",
    "expression_created": "other",
    "propagate_real_tensors": "other",
    "propagate_real_tensors_provenance": "other",
}

CACHES = frozenset(
    f"artifact:{name}"
    for name in (
        "fx_graph_cache_hit",
        "fx_graph_cache_miss",
        "fx_graph_cache_bypass",
        "fx_graph_bundled_cache_hit",
        "fx_graph_cache_hash",  # 2.5
        "aotautograd_cache_hit",
        "aotautograd_cache_miss",
        "aotautograd_cache_bypass",
        "aotautograd_cache_hash",  # 2.5, 2.6
    )
)

# Records that are events, seen alike by the hooks and in a log; the last three have no decoder and are kept whole.
EVENTS = frozenset(
    (
        *METRICS,
        *CACHES,
        "dynamo_start",
        "artifact:dynamo_graph_break_reason",
        "artifact:recompile_reasons",
        "artifact:dynamo_error",
        "artifact:dynamo_cache_bypass",
        "artifact:precompile_cache_bypass",
        "artifact:compiled_autograd_compile_reasons",
    )
)

GUARDS = frozenset(("dynamo_cpp_guards_str", "dynamo_guards"))
AOT_METADATA = "artifact:aot_forward_graph_fw_metadata"
_READ = EVENTS | GUARDS | {SPAN, AOT_METADATA}


def is_event(name: str) -> bool:
    """Say whether a record becomes an event; every other one is an artifact, a span or a symbol of its log."""
    return name in EVENTS


def needs_payload(name: str) -> bool:
    """Say whether more is made of a record's text than keeping it."""
    return name in _READ
