"""Names of records that torch and the hooks write. This module is imported in the observed process.

An artifact's name is prefixed by "artifact:". Source: the calls of trace_structured in torch 2.4 to
2.13.
"""

from __future__ import annotations

ARTIFACT = "artifact:"

# Written only by the hooks.
PROCESS_STARTED = "process_started"
SNAPSHOT = "snapshot"
CONFIG = "config"
RUNTIME_FAILED = "runtime_failed"
CUDAGRAPH_SKIP = "cudagraph_skip"
CUDAGRAPH = "cuda_graph"
PATH_NOT_ENDED = "PathNotEnded"  # why one is recorded again, where torch gives no reason
STEPS_PREFIX = "compileboard "  # Begins the names of a window's ranges in a trace.
STEPS_TRACE = "steps_trace"  # the artifact that keeps it
STEPS = "step_window"  # payload: the trace of a few steps, in torch's profiler format
# Metadata: ReproCaptured's fields without its programs; payload: {"program": …, "dynamo_program":
# …}
REPRO = "repro"
REPRO_VALUES = "repro_values"  # metadata: position and digest; payload: the body
GRAPH_CHECKED = "graph_checked"  # metadata: a graph's verdict of --repro=accuracy

# Records that become events, from the hooks or a log.
COMPILE_START = "dynamo_start"
GRAPH_BREAK = "artifact:dynamo_graph_break_reason"
RECOMPILE = "artifact:recompile_reasons"
COMPILE_ERROR = "artifact:dynamo_error"
FORWARD_METRICS, BACKWARD_METRICS = "compilation_metrics", "bwd_compilation_metrics"
FORWARD_RUNTIME_METRICS, BACKWARD_RUNTIME_METRICS = (
    "compilation_metrics_runtime",
    "bwd_compilation_metrics_runtime",
)
METRICS: dict[str, str] = {
    FORWARD_METRICS: "forward",
    BACKWARD_METRICS: "backward",
    "aot_autograd_backward_compilation_metrics": "backward",
    FORWARD_RUNTIME_METRICS: "runtime",
    BACKWARD_RUNTIME_METRICS: "runtime",
}
# Cache and result; 2.5 and 2.6 have one name with the state in the payload, later ones have it in
# the name.
CACHE_ARTIFACTS: dict[str, tuple[str, str | None]] = {
    "fx_graph_cache_hit": ("fx_graph", "hit"),
    "fx_graph_cache_miss": ("fx_graph", "miss"),
    "fx_graph_cache_bypass": ("fx_graph", "bypass"),
    "fx_graph_bundled_cache_hit": ("fx_graph", "hit"),
    "fx_graph_cache_hash": ("fx_graph", None),
    "aotautograd_cache_hit": ("aot_autograd", "hit"),
    "aotautograd_cache_miss": ("aot_autograd", "miss"),
    "aotautograd_cache_bypass": ("aot_autograd", "bypass"),
    "aotautograd_cache_hash": ("aot_autograd", None),
}
CACHES = frozenset(ARTIFACT + name for name in CACHE_ARTIFACTS)
# Without a decoder: such a record is kept whole, under its own name.
KEPT_WHOLE = frozenset(
    (
        "artifact:dynamo_cache_bypass",
        "artifact:precompile_cache_bypass",
        "artifact:compiled_autograd_compile_reasons",
        GRAPH_CHECKED,
    )
)
EVENTS = frozenset(
    (COMPILE_START, GRAPH_BREAK, RECOMPILE, COMPILE_ERROR, *METRICS, *CACHES, *KEPT_WHOLE)
)
TAPPED_ARTIFACTS = frozenset(
    name.removeprefix(ARTIFACT) for name in EVENTS if name.startswith(ARTIFACT)
)

# Other records of a log; every other name is an artifact that is kept with its text.
SPAN = "chromium_event"
STRING = "str"  # a number for a file name; consumed by the reader
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
GUARDS = frozenset(("dynamo_cpp_guards_str", "dynamo_guards"))
AOT_METADATA = "artifact:aot_forward_graph_fw_metadata"
