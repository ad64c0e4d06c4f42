"""The numbers of a benchmark result, each with upstream's name, its unit, column and table.

Source: benchmarks/dynamo/common.py of PyTorch, output_csv and speedup_experiment; HUD's tables for
the aliases.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ResultColumn:
    """One number of a result; `unit` is its displayed unit: "%" is stored as a share of one, "MB"
    in bytes.
    """

    upstream: str  # its name in the harness and in BenchMeasured.values
    unit: str = ""
    name: str | None = (
        # The store's column, which names its unit; None: one of the result's other values
        None
    )
    is_count: bool = False
    # In upstream's tables; models is performance, accuracy and overhead; "" is ours, after
    # upstream's
    table: str = ""
    aliases: tuple[str, ...] = ()  # HUD's names


def _count_column(name: str) -> ResultColumn:
    return ResultColumn(name, name=name, is_count=True, table="models")


RESULT_COLUMNS = (
    # In upstream's order.
    ResultColumn("speedup", "×", "speedup", table="models"),
    ResultColumn(
        "abs_latency",
        "ms",
        "abs_latency_ms",
        table="models",
        aliases=("abslatency", "absolute_latency"),
    ),
    ResultColumn("baseline", table="models"),
    ResultColumn("speedup_vs_baseline", "×", table="models"),
    ResultColumn(
        "compilation_latency",
        "s",
        "compilation_latency_s",
        table="models",
        aliases=("comptime", "compile_time", "compilation_time"),
    ),
    ResultColumn(
        "compression_ratio",
        "×",
        "compression_ratio",
        table="models",
        aliases=("memory_compression", "memorycompression"),
    ),
    ResultColumn(
        "eager_peak_mem", "GB", "eager_peak_mem_gb", table="models", aliases=("eager_peak_memory",)
    ),
    ResultColumn(
        "dynamo_peak_mem",
        "GB",
        "dynamo_peak_mem_gb",
        table="models",
        aliases=("dynamopeakmemory", "dynamo_peak_memory"),
    ),
    ResultColumn("cache_lookup_latency", "µs", "cache_lookup_latency_us", table="models"),
    _count_column("calls_captured"),
    _count_column("unique_graphs"),
    _count_column("fallbacks_to_eager"),
    _count_column("graph_breaks"),
    _count_column("unique_graph_breaks"),
    _count_column("autograd_captures"),
    _count_column("autograd_compiles"),
    _count_column("cudagraph_skips"),
    ResultColumn("graphs", is_count=True, table="coverage"),
    ResultColumn("graph_calls", is_count=True, table="coverage"),
    ResultColumn("captured_ops", is_count=True, table="coverage"),
    ResultColumn("total_ops", is_count=True, table="coverage"),
    ResultColumn("pct_ops", table="coverage"),
    ResultColumn("pct_time", table="coverage"),
    ResultColumn("max", table="tolerance"),
    ResultColumn("mean", table="tolerance"),
    ResultColumn("std", table="tolerance"),
    ResultColumn("time_baseline", table="xla"),
    ResultColumn("time_xla", table="xla"),
    # Ours.
    ResultColumn("speedup_low", "×", "speedup_low"),
    ResultColumn("speedup_high", "×", "speedup_high"),
    ResultColumn("eager_latency", "ms", "eager_latency_ms"),
    ResultColumn("warm_compilation_latency", "s", "warm_compilation_latency_s"),
    ResultColumn("first_compilation_latency", "s"),
    ResultColumn("eager_page_faults"),
    ResultColumn("compiled_page_faults"),
    ResultColumn("recompiles", name="recompiles", is_count=True),
    ResultColumn("export_latency", "s", "export_latency_s"),
    ResultColumn("load_latency", "s", "load_latency_s"),
    ResultColumn("second_process_latency", "s", "second_process_latency_s"),
    ResultColumn("package_bytes", "MB", "package_bytes"),
    ResultColumn("scaling_efficiency", "%", "scaling_efficiency"),
    ResultColumn("output_error", name="output_error"),
    ResultColumn("quantized_error", "%", "quantized_error"),
    ResultColumn("quantized_eager_error", name="quantized_eager_error"),
)
STORED = {column.name: column for column in RESULT_COLUMNS if column.name is not None}
STORE_NAMES = {column.upstream: name for name, column in STORED.items()}
ALIASES = {alias: column.upstream for column in RESULT_COLUMNS for alias in column.aliases}


def list_upstream(table: str, *, counts: bool) -> tuple[str, ...]:
    return tuple(
        column.upstream
        for column in RESULT_COLUMNS
        if column.table == table and column.is_count is counts
    )
