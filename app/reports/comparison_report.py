"""A comparison as HTML, Markdown, CSV, JSON or Parquet."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from compileboard.app.comparison.charts import chart_changes
from compileboard.app.comparison.compare import ComparisonScreen
from compileboard.app.comparison.environment import DIFFERS, REFUSES, WARNS
from compileboard.app.comparison.model import (
    ACCURACY_CHANGES,
    KINDS,
    WORDS,
    Comparison,
    MetricDelta,
    ModelPair,
    ModelResult,
)
from compileboard.app.comparison.summary import COLUMNS, comparison_row, list_lines
from compileboard.app.comparison.table import (
    DEFAULT_ORDER,
    choose,
    format_change,
    format_share,
    format_value_or_dash,
)
from compileboard.app.core.charts import Chart
from compileboard.app.core.resources import __version__
from compileboard.app.reports.csv_report import describe_document, dump, write_csv
from compileboard.app.reports.html import (
    BENCH_STYLES,
    STYLES,
    list_scripts,
    make_environment,
    make_policy,
    read_static,
)
from compileboard.app.reports.markdown import render_markdown
from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.contract.verdicts import CHANGED, LABELS, METHODS, RULE

MAX_MODELS, MAX_FUNCTIONS = 250, 100
TEMPLATE_WORDS: dict[str, Any] = {  # shared with the page
    "verdicts": LABELS,
    "kinds": KINDS,
    "methods": METHODS,
    "rule": RULE,
    "accuracy_changes": ACCURACY_CHANGES,
    "distinct_words": WORDS,
    "show_change": format_change,
    "show_share": format_share,
    "show_value": format_value_or_dash,
    "label_category": label_category,
}


def policy_of(comparison: Comparison) -> str:
    return make_policy(_build_chart(comparison) is not None)


def write_html(screen: ComparisonScreen, written_us: int) -> Iterator[bytes]:
    comparison = screen.comparison
    chart = _build_chart(comparison)
    values: dict[str, Any] = {
        "comparison": comparison,
        "summary": screen.summary,
        "chart": chart,
        "scripts": list_scripts(chart is not None),
        "policy": make_policy(chart is not None),
        "styles": read_static((*STYLES, *BENCH_STYLES)),
        "tiles": [
            (
                headline.label,
                headline.value,
                headline.note,
                f"#{headline.anchor}" if headline.anchor else None,
            )
            for headline in screen.headlines
        ],
        "parts": screen.parts,
        "most_models": MAX_MODELS,
        "most_functions": MAX_FUNCTIONS,
        "pair_address": None,
        "describe": screen.describe,
        **TEMPLATE_WORDS,
        "written_us": written_us,
        "version": __version__,
        "live": False,
    }
    yield (
        make_environment()
        .get_template("reports/comparison/index.html")
        .render(**values)
        .encode("utf-8", "replace")
    )


def _build_chart(comparison: Comparison) -> Chart | None:
    metrics = choose(comparison, None, DEFAULT_ORDER, False).metrics
    chart = chart_changes(metrics[0], comparison.pairs, lambda _pair: "") if metrics else None
    if chart is None:
        return None
    # A point's address leads to the dashboard, which a file may not be near.
    traces = [
        {key: value for key, value in trace.items() if key != "customdata"}
        for trace in chart.figure["data"]
    ]
    return dataclasses.replace(chart, figure=chart.figure | {"data": traces})


def list_changes(comparison: Comparison) -> list[tuple[ModelPair, MetricDelta | None]]:
    """Return the metrics that changed by more than noise; None represents a pair's accuracy."""
    changes: list[tuple[ModelPair, MetricDelta | None]] = []
    for pair in comparison.pairs:
        changes += [
            (pair, delta)
            for delta in pair.deltas.values()
            if delta.word in CHANGED or delta.word == "eager"
        ]
        if pair.accuracy:
            changes.append((pair, None))
    return changes


def list_excluded(comparison: Comparison) -> list[tuple[ModelResult, str]]:
    return [
        *((exclusion.new, exclusion.reason) for exclusion in comparison.excluded),
        *((result, "only on base") for result in comparison.only_base),
        *((result, "only in new") for result in comparison.only_new),
    ]


MARKDOWN_WORDS: dict[str, Any] = {
    **TEMPLATE_WORDS,
    "list_changes": list_changes,
    "list_excluded": list_excluded,
    "most_rows": 60,
    "weights": {
        REFUSES: "not compared",
        WARNS: "with care",
        DIFFERS: "differs",
        "intended": "what is compared",
    },
}


def write_comparison(screen: ComparisonScreen, format: str, written_us: int) -> Iterator[bytes]:
    comparison = screen.comparison
    if format == "json":
        document = describe_document("comparison", written_us) | comparison_row(comparison)
        yield dump(document) + b"\n"
    elif format == "csv":
        yield from write_csv(COLUMNS, list_lines(comparison))
    elif format == "parquet":
        from compileboard.app.reports.parquet import write_comparison_parquet

        yield from write_comparison_parquet(comparison, written_us)
    elif format == "html":
        yield from write_html(screen, written_us)
    else:
        yield render_markdown(
            "comparison/report.md",
            comparison=comparison,
            summary=screen.summary,
            headlines=screen.headlines,
            describe=screen.describe,
            **MARKDOWN_WORDS,
        ).encode("utf-8", "replace")


def file_name(comparison: Comparison, format: str) -> str:
    sides = (
        re.sub(r"[^A-Za-z0-9.]+", "-", side.asked)[:30].strip("-")
        for side in (comparison.base, comparison.new)
    )
    return f"compare-{'-to-'.join(sides)}.{format}"
