"""A comparison as HTML, Markdown, CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from compileboard.app.comparison.charts import chart_changes
from compileboard.app.comparison.compare import ComparisonScreen
from compileboard.app.comparison.environment import DIFFERS, REFUSES, WARNS
from compileboard.app.comparison.model import (
    ACCURACY_CHANGES,
    KINDS,
    WORDS,
    CompareDistinct,
    ComparedSide,
    Comparison,
    DistinctChange,
    ModelPair,
)
from compileboard.app.comparison.pairs import describe_entry, list_shown
from compileboard.app.comparison.summary import COLUMNS, comparison_row, list_lines
from compileboard.app.comparison.table import (
    DEFAULT_ORDER,
    choose,
    format_change,
    format_share,
    format_value_of,
)
from compileboard.app.core.charts import Chart
from compileboard.app.core.format import format_iso_time
from compileboard.app.core.resources import __version__
from compileboard.app.reports.html import (
    BENCH_STYLES,
    STYLES,
    list_scripts,
    make_environment,
    make_policy,
    read_static,
)
from compileboard.app.reports.text import cell, code, dump, prose, table
from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.contract.verdicts import CHANGED, LABELS, METHODS, RULE

MOST_MODELS, MOST_FUNCTIONS = 250, 100
TEMPLATE_WORDS: dict[str, Any] = {  # of the page too
    "verdicts": LABELS,
    "kinds": KINDS,
    "methods": METHODS,
    "rule": RULE,
    "accuracy_changes": ACCURACY_CHANGES,
    "distinct_words": WORDS,
    "show_change": format_change,
    "show_share": format_share,
    "show_value": format_value_of,
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
        "most_models": MOST_MODELS,
        "most_functions": MOST_FUNCTIONS,
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
    # A point's address leads to the dashboard, which is not there beside a file.
    traces = [
        {key: value for key, value in trace.items() if key != "customdata"}
        for trace in chart.figure["data"]
    ]
    return dataclasses.replace(chart, figure=chart.figure | {"data": traces})


MOST_ROWS = 60


def render_markdown(screen: ComparisonScreen) -> str:
    comparison = screen.comparison
    parts = [
        _head(screen),
        metric_lines(comparison),
        model_lines(comparison),
        left_out_lines(comparison),
    ]
    parts += [
        distinct_lines("Graph breaks", comparison.breaks),
        distinct_lines("Causes of recompiles", comparison.causes),
        _environment(comparison),
        _settings(comparison),
        [f"_CompileBoard {__version__}; a change is new relative to base_"],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(screen: ComparisonScreen) -> list[str]:
    comparison = screen.comparison
    lines = [f"## {prose(comparison.new.title)} against {prose(comparison.base.title)}", ""]
    lines += [f"**{prose(screen.summary.sentence, 1000)}**", ""]
    lines += [
        f"- **{label}**: {_side(side)}"
        for label, side in (("Base", comparison.base), ("New", comparison.new))
    ]
    for reason in comparison.refused:
        lines += ["", f"**Not compared, it would compare machines: {prose(reason)}**"]
    for reason in comparison.warnings:
        lines += ["", f"**Read with care: {prose(reason)}**"]
    tiles = [[tile.label, tile.value, prose(tile.note)] for tile in screen.headlines]
    return [*lines, "", *table(("What", "Change>", "How"), tiles)]


def _side(side: ComparedSide) -> str:
    runs = [
        f"{code(run.id)}" + (f" of commit {code(run.commit[:9])}" if run.commit else "")
        for run in side.runs[:4]
    ]
    more = f" and {len(side.runs) - 4} more" if len(side.runs) > 4 else ""
    return f"{prose(side.title)}: {', '.join(runs)}{more}" if runs else prose(side.title)


def metric_lines(comparison: Comparison) -> list[str]:
    if not comparison.sums:
        return []
    names = ("Metric", "Models>", "Base>", "New>", "Change>", "Worse>", "Better>", "Judged by")
    rows = [
        [
            metric_sum.metric.label,
            str(metric_sum.count),
            format_value_of(metric_sum.metric, metric_sum.base),
            format_value_of(metric_sum.metric, metric_sum.new),
            format_share(metric_sum.change),
            str(metric_sum.verdicts.get("worse", 0)),
            str(metric_sum.verdicts.get("better", 0)),
            ", ".join(METHODS[key] for key in metric_sum.methods),
        ]
        for metric_sum in comparison.sums
    ]
    return [
        "### Every metric (geometric means; counts are sums)",
        "",
        *table(names, rows),
        "",
        prose(RULE, len(RULE)),
    ]


def model_lines(comparison: Comparison) -> list[str]:
    shown = list_shown((*comparison.base.entries, *comparison.new.entries))
    rows = [row for pair in comparison.pairs for row in _changes(pair, shown)]
    if not rows:
        return ["No model changed by more than noise."] if comparison.pairs else []
    cut = f" (the first {MOST_ROWS} of {len(rows)})" if len(rows) > MOST_ROWS else ""
    names = ("Model", "Metric", "Base>", "New>", "Change>", "Verdict", "By", "Rests on")
    return [f"### Changes{cut}", "", *table(names, rows[:MOST_ROWS])]


def _changes(pair: ModelPair, shown: Sequence[str]) -> list[list[str]]:
    name = prose(" · ".join(word for word in (pair.model, describe_entry(pair.new, shown)) if word))
    rows = [
        [
            name,
            delta.metric.label,
            format_value_of(delta.metric, delta.base),
            format_value_of(delta.metric, delta.new),
            format_change(delta),
            delta.label,
            METHODS[delta.method]
            + (
                f"; {prose(pair.warning)}"
                if pair.warning and delta.metric.name == "speedup"
                else ""
            ),
            delta.basis,
        ]
        for delta in pair.deltas.values()
        if delta.word in CHANGED or delta.word == "eager"
    ]
    if pair.accuracy:
        words = [prose(pair.base.accuracy), prose(pair.new.accuracy)]
        rows.append(
            [
                name,
                "Accuracy",
                *words,
                "–",
                ACCURACY_CHANGES[pair.accuracy][0],
                "upstream's verdict",
                "–",
            ]
        )
    return rows


def left_out_lines(comparison: Comparison) -> list[str]:
    shown = list_shown((*comparison.base.entries, *comparison.new.entries))
    rows = [(exclusion.new, exclusion.reason) for exclusion in comparison.excluded]
    rows += [(result, "only on base") for result in comparison.only_base] + [
        (result, "only in new") for result in comparison.only_new
    ]
    if not rows:
        return []
    cut = f" (the first {MOST_ROWS} of {len(rows)})" if len(rows) > MOST_ROWS else ""
    lines = [
        [prose(result.model), prose(describe_entry(result, shown) or "–"), prose(why)]
        for result, why in rows[:MOST_ROWS]
    ]
    return [f"### Left out{cut}", "", *table(("Model", "As", "Why"), lines)]


def distinct_lines(title: str, diff: CompareDistinct) -> list[str]:
    if diff.not_compared:
        return [f"### {title}", "", f"Not compared: {prose(diff.not_compared)}."]
    changed = [change for change in diff.changes if change.word != "unchanged"]
    same = f"{diff.count('unchanged')} unchanged."
    if not changed:
        return [f"### {title}", "", f"None is new or resolved; {same}"]
    rows = [_break(change) for change in changed[:MOST_ROWS]]
    names = ("What", "Model", "Reason", "Kind", "Where", "Base>", "New>")
    return [f"### {title}", "", *table(names, rows), "", same]


def _break(change: DistinctChange) -> list[str]:
    where = (
        f"{change.file}:{change.line}"
        if change.file and change.line
        else change.file or change.function
    )
    kind = change.kind and (
        label_category(change.kind).label if not change.kind.startswith("GB") else change.kind
    )
    words = [
        WORDS[change.word][0],
        prose(change.model or "the whole side"),
        prose(change.reason),
        prose(kind or "–"),
    ]
    return [*words, code(where), str(change.base_count), str(change.new_count)]


def _environment(comparison: Comparison) -> list[str]:
    words = {
        REFUSES: "not compared",
        WARNS: "with care",
        DIFFERS: "differs",
        "intended": "what is compared",
    }
    differing = [difference for difference in comparison.environment if difference.weight != "same"]
    if not differing:
        return []
    rows = [
        [
            difference.name,
            prose(", ".join(difference.base)),
            prose(", ".join(difference.new)),
            words[difference.weight],
        ]
        for difference in differing
    ]
    return ["### Environment", "", *table(("What", "Base", "New", "Weight"), rows)]


def _settings(comparison: Comparison) -> list[str]:
    differing = [setting for setting in comparison.settings if setting.differs]
    if not differing:
        return []
    rows = [
        [
            code(f"{changed_setting.module}.{changed_setting.name}"),
            code(changed_setting.default),
            *(
                "default" if side is None else code(side)
                for side in (changed_setting.base, changed_setting.new)
            ),
        ]
        for changed_setting in differing[:MOST_ROWS]
    ]
    return ["### Configuration", "", *table(("Setting", "Default", "Base", "New"), rows)]


SCHEMA, VERSION = "compileboard.comparison", 1


def write_comparison(screen: ComparisonScreen, format: str, written_us: int) -> Iterator[bytes]:
    comparison = screen.comparison
    if format == "json":
        yield _write_json(comparison, written_us)
    elif format == "csv":
        yield from _write_csv(comparison)
    elif format == "parquet":
        from compileboard.app.reports.parquet import write_comparison_parquet

        yield from write_comparison_parquet(comparison, written_us)
    elif format == "html":
        yield from write_html(screen, written_us)
    else:
        yield render_markdown(screen).encode("utf-8", "replace")


def file_name(comparison: Comparison, format: str) -> str:
    sides = (
        re.sub(r"[^A-Za-z0-9.]+", "-", side.asked)[:30].strip("-")
        for side in (comparison.base, comparison.new)
    )
    return f"compare-{'-to-'.join(sides)}.{format}"


def _write_json(comparison: Comparison, written_us: int) -> bytes:
    head = {
        "schema": SCHEMA,
        "version": VERSION,
        "written_by": f"CompileBoard {__version__}",
        "written_at": format_iso_time(written_us),
    }
    return dump(head | comparison_row(comparison)) + b"\n"


def _write_csv(comparison: Comparison) -> Iterator[bytes]:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for line in list_lines(comparison):
        writer.writerow([cell(line.get(name)) for name in COLUMNS])
    yield buffer.getvalue().encode("utf-8", "replace")
