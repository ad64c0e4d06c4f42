"""The groups of metrics in a comparison, and the kinds of its verdicts."""

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
    "packages": (
        "Packages and ranks",
        (
            "package_bytes",
            "export_latency_s",
            "load_latency_s",
            "second_process_latency_s",
            "scaling_efficiency",
            "quantized_error",
        ),
    ),
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
# Of whole runs, with and without a benchmark.
TOTALS = (
    Metric(
        "compile_s",
        "Compile time",
        "s",
        "down_is_good",
        None,
        "value",
        "torch",
        "all compilation records",
    ),
    Metric("compile_count", "Compiles", "", "neutral", 0, "count", "torch", "compiled functions"),
    Metric("graph_break_count", "Graph breaks", "", "down_is_good", 0, "count", "torch", "events"),
    Metric("recompile_count", "Recompiles", "", "down_is_good", 0, "count", "torch", "events"),
    Metric(
        "recompile_limit_count",
        "Recompile limit reached",
        "",
        "down_is_good",
        0,
        "count",
        "torch",
        "functions that fell back to eager",
    ),
    Metric(
        "failure_count",
        "Failures",
        "",
        "down_is_good",
        0,
        "count",
        "torch",
        "of compiles, and of compiled code",
    ),
    Metric(
        "cache_miss_count",
        "Cache misses",
        "",
        "down_is_good",
        0,
        "count",
        "torch",
        "cache lookups without a hit",
    ),
)


def group_of(name: str) -> str:
    return next(key for key, (_label, names) in GROUPS.items() if name in names)


KINDS = {"worse": "bad", "better": "good", "changed": "warn"} | dict.fromkeys(
    ("eager", "wrong", "negligible", "noise", "single", "same"), "quiet"
)
# Of an accuracy that changed: the word and its kind.
ACCURACY_CHANGES = {"broke": ("now wrong", "bad"), "fixed": ("now right", "good")}
