"""Schemas of benchmark results."""

from __future__ import annotations

from compileboard.app.api.schema import (
    Schema,
    count,
    decimal,
    flag,
    maybe,
    record,
    ref,
    rows,
    text,
    time_us,
    whole,
    word,
)
from compileboard.app.queries.models import STATUSES

SERIES = {
    "suite": text("The suite that the model is of."),
    "mode": maybe(text("`inference` or `training`.")),
    "dtype": maybe(text("`float32`, `float16`, `bfloat16` or `amp`.")),
    "device": maybe(text("`cpu` or `cuda`.")),
    "hardware": maybe(text("The GPU's model, or the processor's.")),
    "backend": maybe(text("The backend with its config label: `inductor`.")),
    "dynamic": flag("Whether shapes are dynamic."),
    "batch_size": maybe(whole("Batch size.")),
    "world_size": whole("Ranks that it ran on."),
}


def _number(said: str) -> Schema:
    return maybe(decimal(said))


def _count(said: str) -> Schema:
    return maybe(count(said))


RESULT = record(
    "What was measured of one model in one run. null is what was not measured, and never 0.",
    **SERIES,
    model=text("The model's name."),
    gpu=maybe(text("The GPU's model; null for what no GPU made.")),
    status=word("What became of it.", STATUSES),
    reason=maybe(text("Of a failure upstream's word for it (`OOM`, `timeout`); of `skipped` and `not_run` why.")),
    accuracy=maybe(text("Upstream's verdict: `pass`, `fail_accuracy`, …")),
    speedup=_number("Median eager latency ÷ median compiled latency, over interleaved repeats."),
    speedup_low=_number("Where its 95 % interval begins."),
    speedup_high=_number("Where its 95 % interval ends; an interval that spans 1 is no clear difference."),
    abs_latency_ms=_number("Median latency compiled. Milliseconds."),
    eager_latency_ms=_number("Median latency in eager mode. Milliseconds."),
    compilation_latency_s=_number("Compile time with cold caches, of the performance experiment. Seconds."),
    warm_compilation_latency_s=_number("Compile time with warm caches. Seconds."),
    compression_ratio=_number("Peak memory in eager mode ÷ compiled."),
    eager_peak_mem_gb=_number("Peak memory in eager mode. GB of 10^9 bytes."),
    dynamo_peak_mem_gb=_number("Peak memory compiled. GB of 10^9 bytes."),
    cache_lookup_latency_us=_number("dynamo's look-up of the compiled code, a call. Microseconds."),
    calls_captured=_count("Operations in the captured graphs."),
    unique_graphs=_count("Graphs."),
    graph_breaks=_count("Graph breaks as torch's counters have them."),
    unique_graph_breaks=_count("Distinct reasons among them."),
    recompiles=_count("Recompiles."),
    fallbacks_to_eager=_count("Frames that were left to run eagerly."),
    autograd_captures=_count("Graphs that compiled autograd captured."),
    autograd_compiles=_count("Graphs that compiled autograd compiled."),
    cudagraph_skips=_count("CUDA graphs that inductor could not use."),
    message=maybe(text("The exception's own line.")),
    command=maybe(text("The command that makes it again.")),
    experiments=rows({"type": "string"}, "The experiments that it is made of, the leading one first."),
    tasks=rows({"type": "string"}, "The benchmark's tasks: `task` of the processes that worked on it."),
    time_us=time_us("When it was measured."),
    run_id=text("The run that it is of."),
    id=whole("Number of the leading experiment's result in this database."),
)
MODEL = record(
    "One model over time.",
    model=text("Its name."),
    suites=rows({"type": "string"}, "The suites that have a model of this name."),
    series=rows(
        record(
            "Results that can be compared with each other.",
            **SERIES,
            points=rows(ref("Result"), "A result a run, the oldest first."),
        ),
        "The series that was measured last comes first.",
    ),
)
SCHEMAS: dict[str, Schema] = {"Result": RESULT, "Model": MODEL}
