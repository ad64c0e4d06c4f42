"""The headline numbers of a suite on the overview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import median
from typing import Annotated

from compileboard.app.analysis.metrics import SUMMARY_BY_NAME, Metric, format_short
from compileboard.app.analysis.models.summaries import SummaryDelta
from compileboard.app.queries.fields import RunId
from compileboard.app.queries.fleet.trends import StoredSummary
from compileboard.app.schema import one_of

HEADLINE_METRICS = (
    "geomean_speedup",
    "compilation_latency_s",
    "graph_breaks_per_model",
    "recompiles_per_model",
    "compression_ratio",
    "pass_ratio",
)
LABELS = {"compilation_latency_s": "Cold compile time per model"}
REFERENCE_RUN_COUNT = 10
SPARK_RUN_COUNT = 30
LEAST_JUDGED = 3  # values before; with fewer nobody knows how they scatter
_OWN_SHARE = (
    0.5  # of a speedup's change that the compiled latency has to explain, as Compare has it
)
WORDS = ("better", "worse", "same", "moved", "first")


@dataclass(frozen=True)
class HeadlineTile:
    """One number of a suite; `incomplete` has the positions of values that lack models, which are
    no headline.
    """

    metric: Annotated[str, "Name of the metric."]
    label: Annotated[str, "Its label."]
    run_id: RunId
    value: Annotated[float, "Value in the newest complete run."]
    text: Annotated[str, "The value with its unit."]
    reference: Annotated[
        float | None,
        "The level before the oldest open incident, else the median of the 10 runs before.",
    ]
    verdict: Annotated[
        str,
        one_of(WORDS),
        "Against the reference; `moved` is a change that noise or eager mode may have made.",
    ]
    change: Annotated[str, "The change in words."]
    values: Annotated[list[float | None], "Values of the newest runs, the oldest first."]
    incomplete: Annotated[list[int], "Positions of values of runs in which models failed."]
    changed_from: Annotated[int | None, "Position of the first run of the oldest open incident."]


def build_tiles(
    summaries: Sequence[StoredSummary],
    incident_us: int | None,
    recovered: Sequence[tuple[int, int]] = (),
) -> list[HeadlineTile]:
    """Build a tile for each metric with a value; `summaries` are newest first.

    `recovered` has the periods of recovered incidents, whose runs are no reference.
    """
    metrics = [SUMMARY_BY_NAME[name] for name in HEADLINE_METRICS]
    return [
        tile
        for metric in metrics
        if (tile := _build_tile(metric, summaries, incident_us, recovered))
    ]


def _build_tile(
    metric: Metric,
    summaries: Sequence[StoredSummary],
    incident_us: int | None,
    recovered: Sequence[tuple[int, int]],
) -> HeadlineTile | None:
    is_rate = (
        metric.name == "pass_ratio"
    )  # counts what failed; the others are means of the models left
    complete = [
        (summary, value)
        for summary in summaries
        if (is_rate or not summary.is_incomplete)
        and (value := getattr(summary, metric.name)) is not None
    ]
    if not complete:
        return None
    newest, value = complete[0]
    before = [
        (older, older_value)
        for older, older_value in complete[1:]
        if (incident_us is None or older.started_us < incident_us)
        and not any(begun_us <= older.started_us < ended_us for begun_us, ended_us in recovered)
    ][:REFERENCE_RUN_COUNT]
    values = [older_value for _older, older_value in before]
    reference = median(values) if values else None
    shown = list(reversed(summaries[:SPARK_RUN_COUNT]))
    starts = [
        position
        for position, summary in enumerate(shown)
        if incident_us and summary.started_us >= incident_us
    ]
    is_judged = _is_beyond_noise(metric, before, newest, value)
    verdict, change = _describe_change(metric, reference, value, is_judged)
    return HeadlineTile(
        metric=metric.name,
        label=LABELS.get(metric.name, metric.label),
        run_id=newest.run_id,
        value=value,
        text=format_short(metric, value),
        reference=reference,
        verdict=verdict,
        change=change,
        values=[getattr(summary, metric.name) for summary in shown],
        incomplete=[
            position
            for position, summary in enumerate(shown)
            if summary.is_incomplete and not is_rate
        ],
        changed_from=starts[0] if starts else None,
    )


def _is_beyond_noise(
    metric: Metric,
    before: Sequence[tuple[StoredSummary, float]],
    newest: StoredSummary,
    value: float,
) -> bool:
    """Return True for a value outside all of those before, unless eager mode moved the speedup."""
    values = [older_value for _older, older_value in before]
    if len(values) < (1 if metric.name == "pass_ratio" else LEAST_JUDGED) or min(
        values
    ) <= value <= max(values):
        return False
    times = [older.abs_latency_ms for older, _value in before if older.abs_latency_ms]
    if metric.name != "geomean_speedup" or not times or not newest.abs_latency_ms:
        return True
    reference = median(values)
    return (
        -log(newest.abs_latency_ms / median(times)) / log(value / reference) >= _OWN_SHARE
        if reference
        else True
    )


def _describe_change(
    metric: Metric, reference: float | None, value: float, is_judged: bool
) -> tuple[str, str]:
    if reference is None:
        return "first", "First run"
    word = SummaryDelta(metric, reference, value, 0).word
    level = format_short(metric, reference)
    if word not in ("better", "worse"):
        return "same", "Unchanged" if level == format_short(
            metric, value
        ) else f"≈ {level}, within noise"
    share = f" {format_share(value / reference - 1)}" if reference else ""
    change = f"{'▲' if value > reference else '▼'}{share} from {level}"
    return (word, change) if is_judged else ("moved", f"{change}, not judged")


def format_share(share: float) -> str:
    percent = 100 * abs(share)
    return f"{percent:.0f}%" if percent >= 9.5 else f"{percent:.1f}%"
