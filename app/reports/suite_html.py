"""A suite over a period as one HTML file that opens offline, drawn as /trends and worded as /compare."""

from __future__ import annotations

from typing import Any

from compileboard.app.analysis import finding_words
from compileboard.app.analysis.comparison_metrics import GROUPS
from compileboard.app.analysis.comparison_model import Comparison
from compileboard.app.analysis.comparison_pairs import describe_entry, list_shown
from compileboard.app.analysis.comparison_table import DEFAULT_ORDER, Choice, choose
from compileboard.app.analysis.headline import show_number
from compileboard.app.analysis.metrics import SUMMARY_METRICS, Metric
from compileboard.app.analysis.result_words import describe_accuracy
from compileboard.app.analysis.suite_period import SuitePeriod
from compileboard.app.analysis.trend_lines import draw_suite
from compileboard.app.analysis.trends import TrendLine
from compileboard.app.charts.metric_trends import chart_metric, list_twin, share_runs
from compileboard.app.reports.comparison_html import TEMPLATE_WORDS
from compileboard.app.reports.page import (
    BENCH_STYLES,
    STYLES,
    TREND_STYLES,
    list_scripts,
    make_environment,
    make_policy,
    read_static,
)
from compileboard.app.resources import __version__

MOST_MOVED, MOST_RUNS, MOST_FAILURES, MOST_COMMITS, MOST_FINDINGS, MOST_CHANGES = 50, 200, 200, 200, 100, 50
TILES = (
    "pass_ratio",
    "geomean_speedup",
    "compilation_latency_s",
    "compression_ratio",
    "graph_breaks_per_model",
    "recompiles_per_model",
)
FAILURE_WORDS = {"new": ("new", "bad"), "resolved": ("resolved", "good"), "still": ("still fails", "quiet")}


def policy_of(found: SuitePeriod) -> str:
    """Return the Content-Security-Policy that this report needs."""
    charted = bool(_draw(found))
    return make_policy(charted, charted)


def write_html(found: SuitePeriod, written_us: int) -> bytes:
    """Write a suite over a period as one HTML file."""
    drawn = _draw(found)
    charts = [
        chart_metric(metric, [line], found.axis, chart_id=f"trend-{number}", words=number == 0)
        for number, (metric, line) in enumerate(drawn)
    ]
    columns, twin = list_twin([(metric, [line]) for metric, line in drawn], found.axis)
    compared = found.comparison
    shown = list_shown((*compared.base.entries, *compared.new.entries)) if compared else []
    values: dict[str, Any] = {
        "suite": found,
        "it": compared,
        "charts": charts,
        "shared": share_runs(found.axis, links=False),
        "columns": columns,
        "twin": twin,
        "tiles": _list_tiles(found),
        "show_number": lambda metric, value: show_number(metric, value, found.definition),
        "moved": list_moved(compared) if compared else [],
        "describe": lambda entry: describe_entry(entry, shown),
        "describe_accuracy": describe_accuracy,
        "failure_words": FAILURE_WORDS,
        "words": finding_words,
        "summaries": {it.run_id: it for it in found.summaries},
        "most": {
            "moved": MOST_MOVED,
            "runs": MOST_RUNS,
            "failures": MOST_FAILURES,
            "commits": MOST_COMMITS,
            "findings": MOST_FINDINGS,
            "changes": MOST_CHANGES,
        },
        "scripts": list_scripts(bool(charts), bool(charts)),
        "policy": make_policy(bool(charts), bool(charts)),
        "styles": read_static((*STYLES, *BENCH_STYLES, *TREND_STYLES)),
        **TEMPLATE_WORDS,
        "written_us": written_us,
        "version": __version__,
        "live": False,
    }
    return make_environment().get_template("reports/suite.html").render(**values).encode("utf-8", "replace")


def _draw(found: SuitePeriod) -> list[tuple[Metric, TrendLine]]:
    """Draw the metrics that a run of the period has, as /trends does."""
    drawn = [(metric, draw_suite(metric, found.summaries, found.chosen.suite)) for metric in SUMMARY_METRICS]
    return [(metric, line) for metric, line in drawn if any(it.value is not None for it in line.points)]


def _list_tiles(found: SuitePeriod) -> list[tuple[str, str, str, None]]:
    tiles = []
    for it in found.headlines:
        metric, delta = it.delta.metric, it.delta
        if metric.name in TILES:
            was = (
                f"{delta.text}, {delta.word}" if delta.text else delta.word if found.base else "nothing to compare with"
            )
            tiles.append((metric.label, show_number(metric, it.new, found.definition), was, None))
    return tiles


def list_moved(found: Comparison) -> list[tuple[str, Choice]]:
    """List the groups of metrics that both sides measured, each with the models that changed, the worst first."""
    known = {it.metric.name for it in found.sums}
    groups = [(key, label) for key, (label, names) in GROUPS.items() if known & set(names)]
    return [(label, choose(found, key, DEFAULT_ORDER, True)) for key, label in groups]
