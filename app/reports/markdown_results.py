"""What Markdown says of a benchmark's results: the suite as a table, what needs a look first."""

from __future__ import annotations

from compileboard.app.analysis.result_words import describe_missing, describe_speedup, describe_status, describe_verdict
from compileboard.app.analysis.summaries import SuiteSummary
from compileboard.app.format import format_count, format_duration, format_percent, format_ratio
from compileboard.app.queries.result_rows import ResultRow
from compileboard.app.reports.benched import ShownResults
from compileboard.app.reports.markdown_words import prose, table

MOST_ROWS = 60
_COLUMNS = ("Model", "Status", "Speedup>", "95 % interval>", "Compile time>", "Breaks>", "Recompiles>", "Ops>")


def write_results(shown: ShownResults | None) -> list[str]:
    """Write the section; nothing for a run that measured none."""
    if shown is None:
        return []
    cut = f" (the first {MOST_ROWS} of {format_count(shown.count)})" if shown.count > MOST_ROWS else ""
    lines = [f"### Benchmark results{cut}", ""]
    lines += table(
        ("By the definition of", "Pass rate>", "Geomean speedup>", "Compile time>", "Memory compression>"),
        [
            [
                it.definition.label,
                _pass_rate(it),
                "not measured" if it.geomean_speedup is None else f"{it.geomean_speedup:.3f}×",
                _seconds(it.compilation_latency_s, "not measured"),
                "not measured" if it.compression_ratio is None else format_ratio(it.compression_ratio),
            ]
            for it in shown.summaries
        ],
    )
    return [*lines, "", *table(_COLUMNS, [_row(it) for it in shown.rows[:MOST_ROWS]])]


def _pass_rate(it: SuiteSummary) -> str:
    if it.pass_ratio is None:
        return "not measured" if it.definition.has_pass_rate else "–"
    return f"{format_percent(it.pass_ratio)}, {it.passed_count}/{it.total_count}"


def _row(it: ResultRow) -> list[str]:
    missing = describe_missing(it)
    verdict = describe_speedup(it)
    status = describe_status(it).word
    judged = describe_verdict(it)
    if judged is not None:
        status += f"; accuracy: {judged.word}"
    speedup = missing if it.speedup is None else f"{it.speedup:.3f}×"
    interval = "–"
    if verdict is not None:
        interval = f"{it.speedup_low:.3f}–{it.speedup_high:.3f}, {verdict.word}"
    counts = (it.graph_breaks, it.recompiles, it.calls_captured)
    return [
        prose(it.model),
        prose(status),
        speedup,
        interval,
        _seconds(it.compilation_latency_s, missing),
        *(missing if value is None else format_count(value) for value in counts),
    ]


def _seconds(value: float | None, missing: str) -> str:
    return missing if value is None else format_duration(value * 1e6)
