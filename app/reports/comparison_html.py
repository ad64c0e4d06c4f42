"""A comparison as one HTML file that opens offline, with the templates of the Compare page."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from compileboard.app.analysis.chains import label_category
from compileboard.app.analysis.comparison_distinct import WORDS
from compileboard.app.analysis.comparison_headline import list_headlines
from compileboard.app.analysis.comparison_metrics import GROUPS
from compileboard.app.analysis.comparison_model import Comparison
from compileboard.app.analysis.comparison_pairs import describe_entry, list_shown
from compileboard.app.analysis.comparison_table import (
    DEFAULT_ORDER,
    Choice,
    choose,
    show_change,
    show_share,
    show_value,
)
from compileboard.app.analysis.comparison_verdicts import ACCURACY_CHANGES, KINDS, METHODS, RULE, VERDICTS
from compileboard.app.charts.base import Chart
from compileboard.app.charts.comparison import chart_changes
from compileboard.app.reports.page import BENCH_STYLES, STYLES, list_scripts, make_environment, make_policy, read_static
from compileboard.app.resources import __version__

MOST_MODELS, MOST_FUNCTIONS = 250, 100
TEMPLATE_WORDS: dict[str, Any] = {  # of the page too
    "verdicts": VERDICTS,
    "kinds": KINDS,
    "methods": METHODS,
    "rule": RULE,
    "accuracy_changes": ACCURACY_CHANGES,
    "distinct_words": WORDS,
    "show_change": show_change,
    "show_share": show_share,
    "show_value": show_value,
    "label_category": label_category,
}


def policy_of(found: Comparison) -> str:
    """Return the Content-Security-Policy that this comparison's report needs."""
    return make_policy(_draw(found) is not None)


def write_html(found: Comparison, written_us: int) -> Iterator[bytes]:
    """Yield a comparison as one HTML file."""
    chart = _draw(found)
    shown = list_shown((*found.base.entries, *found.new.entries))
    values: dict[str, Any] = {
        "it": found,
        "chart": chart,
        "scripts": list_scripts(chart is not None),
        "policy": make_policy(chart is not None),
        "styles": read_static((*STYLES, *BENCH_STYLES)),
        "tiles": [(it.label, it.value, it.note, f"#{it.place}" if it.place else None) for it in list_headlines(found)],
        "parts": _list_parts(found),
        "most_models": MOST_MODELS,
        "most_functions": MOST_FUNCTIONS,
        "describe": lambda entry: describe_entry(entry, shown),
        **TEMPLATE_WORDS,
        "written_us": written_us,
        "version": __version__,
        "live": False,
    }
    yield make_environment().get_template("reports/comparison.html").render(**values).encode("utf-8", "replace")


def _draw(found: Comparison) -> Chart | None:
    metrics = choose(found, None, DEFAULT_ORDER, False).metrics
    chart = chart_changes(metrics[0], found.pairs, lambda _pair: "") if metrics else None
    if chart is None:
        return None
    # A point's address leads to the dashboard, which is not there beside a file.
    traces = [{key: value for key, value in trace.items() if key != "customdata"} for trace in chart.figure["data"]]
    return dataclasses.replace(chart, figure=chart.figure | {"data": traces})


def _list_parts(found: Comparison) -> list[tuple[str, Choice]]:
    """List the groups of metrics: every model of the first, of the others those that changed."""
    known = {it.metric.name for it in found.sums}
    groups = [(key, label) for key, (label, names) in GROUPS.items() if known & set(names)]
    return [(label, choose(found, key, DEFAULT_ORDER, n > 0)) for n, (key, label) in enumerate(groups)]
