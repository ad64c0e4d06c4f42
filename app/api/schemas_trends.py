"""Schemas of summaries and trends."""

from __future__ import annotations

from compileboard.app.analysis.summaries import DEFINITIONS
from compileboard.app.analysis.trends import AXES, ENVIRONMENT
from compileboard.app.api.schema import Schema, count, decimal, flag, maybe, record, rows, text, time_us, word
from compileboard.app.api.schemas_results import SERIES

_SET = {name: schema for name, schema in SERIES.items() if name != "batch_size"}
_RUN = {
    "name": text("The run's title, or its name."),
    "state": text("The run's state."),
    "started_us": time_us("When it started."),
    "git_commit": maybe(text("Its commit.")),
    "git_branch": maybe(text("Its branch.")),
    "git_subject": maybe(text("The first line of the commit's message.")),
    "git_dirty": maybe(flag("Whether files differed from the commit.")),
    "torch_version": maybe(text("Its version of torch.")),
    "gpu_name": maybe(text("Its GPU.")),
    "driver_version": maybe(text("The GPU driver's version.")),
    "triton_version": maybe(text("Its version of triton.")),
    "python_version": maybe(text("Its version of Python.")),
}


def _mean(said: str) -> Schema:
    return maybe(decimal(said))


SUMMARY = record(
    "What a run's benchmark results come to, by one definition.",
    run=record("The run.", id=text("Its id."), **_RUN),
    definition=record(
        "How it counts.",
        name=word("Its name.", DEFINITIONS),
        label=text("Whose it is."),
        pass_rate=text("What its pass rate is."),
        geomean=text("What its geomean is over."),
    ),
    summaries=rows(
        record(
            "What the models that were measured alike come to. null is what was not measured, and never 0.",
            **_SET,
            total_count=count("Models."),
            measured_count=count("Models that were measured."),
            failed_count=count("Models that failed."),
            passed_count=maybe(count("Models that pass; null where nothing tells.")),
            pass_ratio=_mean("Models that pass ÷ models."),
            speedup_count=count("Models that the geomean is over."),
            geomean_speedup=_mean("Geometric mean of the speedups."),
            compilation_latency_s=_mean("Mean compile time, cold. Seconds."),
            abs_latency_ms=_mean("Mean latency, compiled. Milliseconds."),
            compression_ratio=_mean("Peak memory eager ÷ compiled, over the models."),
            dynamo_peak_mem_gb=_mean("Mean peak memory, compiled. GB of 10^9 bytes."),
            graph_breaks_per_model=_mean("Mean of the models that were counted; alike by every definition."),
            recompiles_per_model=_mean("Mean of the models that were counted; alike by every definition."),
            is_incomplete=flag("Whether models failed that a usual run measures: its means are of the others."),
        ),
        "One for each suite, mode, dtype, device, hardware, backend, dynamic or not, and world size.",
    ),
)
TREND = record(
    "A metric over time.",
    metric=record(
        "What is drawn.",
        name=text("Its name."),
        label=text("Its name in words."),
        unit=text("Its unit; a `%` is written as a share of one; empty for a count."),
        direction=word("Which way is better.", ("up_is_good", "down_is_good", "neutral")),
    ),
    axis=word("What the points are ordered by.", [name for name, _label in AXES]),
    definition=maybe(word("By which definition a suite was summed up.", DEFINITIONS)),
    notes=rows({"type": "string"}, "What is left out, in words."),
    series=rows(
        record(
            "Points that can be compared with each other.",
            label=text("What it is of."),
            **{name: schema if isinstance(schema["type"], list) else maybe(schema) for name, schema in _SET.items()},
            model=maybe(text("The model; null for a suite.")),
            points=rows(
                record(
                    "One run. A point that is missing is not there; nothing is interpolated.",
                    run_id=text("The run."),
                    **_RUN,
                    environment_changes=rows(
                        word("What differs from the point before, in time.", [name for name, _field in ENVIRONMENT]),
                        "What of the environment is new at this point.",
                    ),
                    value=_mean("The value; null where none was measured."),
                    low=_mean("Where its 95 % interval begins."),
                    high=_mean("Where its 95 % interval ends."),
                    status=word("What became of it.", ("measured", "failed", "skipped", "not_run")),
                    reason=maybe(text("Why it has no value.")),
                    is_incomplete=flag("Whether models failed that a usual run measures: the value is of the others."),
                ),
                "In the order of the axis.",
            ),
        ),
        "The newest first.",
    ),
)
SCHEMAS: dict[str, Schema] = {"Summary": SUMMARY, "Trend": TREND}
