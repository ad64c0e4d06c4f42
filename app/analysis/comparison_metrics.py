"""What a comparison adds to the metrics: their groups, which repeats tell their noise, what counts as a change."""

from __future__ import annotations

from compileboard.app.analysis.metrics import BY_NAME, Metric

# Key, label and the metrics' names; the first of a group is the one that is drawn.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "speed": ("Speed", ("speedup", "abs_latency_ms", "eager_latency_ms")),
    "compile": (
        "Compile time",
        ("compilation_latency_s", "warm_compilation_latency_s", "cache_lookup_latency_us"),
    ),
    "memory": ("Memory", ("dynamo_peak_mem_gb", "compression_ratio", "eager_peak_mem_gb")),
    "graphs": (
        "Graphs and breaks",
        (
            "graph_breaks",
            "recompiles",
            "unique_graph_breaks",
            "unique_graphs",
            "calls_captured",
            "fallbacks_to_eager",
            "cudagraph_skips",
        ),
    ),
}
COMPARED = tuple(BY_NAME[name] for _label, names in GROUPS.values() for name in names)
# What the others are measured against: where eager mode changes, the machine or torch did, and no model is worse.
YARDSTICKS = ("eager_latency_ms", "eager_peak_mem_gb")
# Which samples tell the noise of a metric; of two names, the first ÷ the second of what was measured together.
SAMPLES: dict[str, tuple[str, ...]] = {
    "speedup": ("eager", "compiled"),
    "abs_latency_ms": ("compiled",),
    "eager_latency_ms": ("eager",),
    "compilation_latency_s": ("cold_compile_s",),
    "warm_compilation_latency_s": ("warm_compile_s",),
    "dynamo_peak_mem_gb": ("compiled_peak_gb",),
    "eager_peak_mem_gb": ("eager_peak_gb",),
    "compression_ratio": ("eager_peak_gb", "compiled_peak_gb"),
}
# Medians of many repeats, also where these were not kept; every other number was measured once where it has no samples.
MEDIANS = ("speedup", "abs_latency_ms", "eager_latency_ms", "geomean_speedup")
# What a change must exceed where few samples tell the noise, or none. Compiling varies more.
_THRESHOLD, _COMPILE_THRESHOLD = 0.05, 0.1
_COMPILING = (*GROUPS["compile"][1], "compile_s")
# Of whole runs, with and without a benchmark.
TOTALS = (
    Metric("compile_s", "Compile time", "s", "down_is_good", None, "value", "torch", "all compilation records"),
    Metric("compile_count", "Compiles", "", "neutral", 0, "count", "torch", "attempts to compile a frame"),
    Metric("graph_break_count", "Graph breaks", "", "down_is_good", 0, "count", "torch", "events"),
    Metric("recompile_count", "Recompiles", "", "down_is_good", 0, "count", "torch", "events"),
    Metric("recompile_limit_count", "Limit hits", "", "down_is_good", 0, "count", "torch", "frames given up"),
    Metric("failure_count", "Failures", "", "down_is_good", 0, "count", "torch", "of compiles, and of compiled code"),
    Metric("cache_miss_count", "Cache misses", "", "down_is_good", 0, "count", "torch", "look-ups without a hit"),
)


def threshold_of(metric: Metric) -> float:
    """Return the share that a change of a single number must exceed."""
    return _COMPILE_THRESHOLD if metric.name in _COMPILING else _THRESHOLD


def group_of(name: str) -> str:
    """Return the key of the group that a metric is in."""
    return next(key for key, (_label, names) in GROUPS.items() if name in names)
