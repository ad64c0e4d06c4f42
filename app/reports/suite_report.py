"""The report of a suite over a period."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from compileboard.app.benchmarks.metrics import SUMMARY_METRICS, Metric
from compileboard.app.benchmarks.suite import (
    REPORT_ROWS,
    SUITE_TABLES,
    SuiteScreen,
    suite_period_row,
)
from compileboard.app.benchmarks.summaries import format_number
from compileboard.app.benchmarks.trend_charts import chart_metric, list_table_rows, share_runs
from compileboard.app.benchmarks.trend_lines import TrendLine, build_suite_line
from compileboard.app.comparison.model import GROUPS, Comparison
from compileboard.app.comparison.pairs import describe_entry, list_shown
from compileboard.app.comparison.table import DEFAULT_ORDER, TableSelection, choose
from compileboard.app.core.resources import __version__
from compileboard.app.incidents import model as messages
from compileboard.app.reports import TABULAR
from compileboard.app.reports.comparison_report import MARKDOWN_WORDS, TEMPLATE_WORDS
from compileboard.app.reports.csv_report import describe_document, dump, write_csv
from compileboard.app.reports.html import (
    BENCH_STYLES,
    STYLES,
    TREND_STYLES,
    list_scripts,
    make_environment,
    make_policy,
    read_static,
)
from compileboard.app.reports.markdown import render_markdown

TILES = (
    "pass_ratio",
    "geomean_speedup",
    "compilation_latency_s",
    "compression_ratio",
    "graph_breaks_per_model",
    "recompiles_per_model",
)
FAILURE_WORDS = {
    "new": ("new", "bad"),
    "resolved": ("resolved", "good"),
    "still": ("still fails", "quiet"),
}


def policy_of(suite: SuiteScreen) -> str:
    charted = bool(_build_lines(suite))
    return make_policy(charted, charted)


def write_html(suite: SuiteScreen, written_us: int) -> bytes:
    drawn = _build_lines(suite)
    charts = [
        chart_metric(
            metric, [line], suite.axis, chart_id=f"trend-{number}", names_changes=number == 0
        )
        for number, (metric, line) in enumerate(drawn)
    ]
    columns, table_rows = list_table_rows([(metric, [line]) for metric, line in drawn], suite.axis)
    values = {
        **_list_values(suite, written_us),
        "charts": charts,
        "shared": share_runs(suite.axis, links=False),
        "columns": columns,
        "table_rows": table_rows,
        "tiles": _list_tiles(suite),
        "moved": list_changed_tables(suite.comparison) if suite.comparison else [],
        "summaries": {summary.run_id: summary for summary in suite.summaries},
        "scripts": list_scripts(bool(charts), bool(charts)),
        "policy": make_policy(bool(charts), bool(charts)),
        "styles": read_static((*STYLES, *BENCH_STYLES, *TREND_STYLES)),
        **TEMPLATE_WORDS,
        "version": __version__,
        "live": False,
    }
    return (
        make_environment()
        .get_template("reports/suite/index.html")
        .render(**values)
        .encode("utf-8", "replace")
    )


def _list_values(suite: SuiteScreen, written_us: int) -> dict[str, Any]:
    compared = suite.comparison
    shown = list_shown((*compared.base.entries, *compared.new.entries)) if compared else []
    return {
        "suite": suite,
        "comparison": compared,
        "describe": lambda entry: describe_entry(entry, shown),
        "show_number": lambda metric, value: format_number(metric, value, suite.definition),
        "failure_words": FAILURE_WORDS,
        "words": messages,
        "most": REPORT_ROWS,
        "written_us": written_us,
    }


def _build_lines(suite: SuiteScreen) -> list[tuple[Metric, TrendLine]]:
    drawn = [
        (metric, build_suite_line(metric, suite.summaries, suite.chosen.suite))
        for metric in SUMMARY_METRICS
    ]
    return [
        (metric, line)
        for metric, line in drawn
        if any(point.value is not None for point in line.points)
    ]


def _list_tiles(suite: SuiteScreen) -> list[tuple[str, str, str, None]]:
    tiles = []
    for headline in suite.headlines:
        metric, delta = headline.delta.metric, headline.delta
        if metric.name in TILES:
            was = (
                f"{delta.text}, {delta.word}"
                if delta.text
                else delta.word
                if suite.base
                else "nothing to compare with"
            )
            tiles.append(
                (metric.label, format_number(metric, headline.new, suite.definition), was, None)
            )
    return tiles


def list_changed_tables(comparison: Comparison) -> list[tuple[str, TableSelection]]:
    known = {metric_sum.metric.name for metric_sum in comparison.sums}
    groups = [(key, label) for key, (label, names) in GROUPS.items() if known & set(names)]
    return [(label, choose(comparison, key, DEFAULT_ORDER, True)) for key, label in groups]


def _write_markdown(suite: SuiteScreen, written_us: int) -> str:
    changes = [
        (change.run, *part) for change in reversed(suite.axis.changes) for part in change.parts
    ]
    return render_markdown(
        "suite/report.md", **MARKDOWN_WORDS, **_list_values(suite, written_us), changes=changes
    )


def write_suite(suite: SuiteScreen, format: str, written_us: int, table: str) -> Iterator[bytes]:
    if format == "json":
        document = describe_document("suite", written_us) | suite_period_row(suite)
        yield dump(document) + b"\n"
    elif format == "csv":
        yield from write_csv(SUITE_TABLES[table].columns, SUITE_TABLES[table].list(suite))
    elif format == "parquet":
        from compileboard.app.reports.parquet import write_suite_parquet

        yield from write_suite_parquet(suite, table, written_us)
    elif format == "html":
        yield write_html(suite, written_us)
    else:
        yield _write_markdown(suite, written_us).encode("utf-8", "replace")


def name_part(text: str) -> str:
    """Make a part of a file name from text. If characters had to be replaced, a hash keeps names
    distinct.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:60]
    if plain == text:
        return plain
    return "-".join(
        filter(None, (plain, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6]))
    )


def file_name(suite: SuiteScreen, format: str, table: str) -> str:
    first, last = suite.period.days
    part = f"-{table}" if format in TABULAR else ""
    return f"{name_part(suite.chosen.suite)}-{first}-{last}{part}.{format}"
