"""A report on a suite over a period."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from compileboard.app.benchmarks.lines import TrendLine, build_suite_line
from compileboard.app.benchmarks.metrics import SUMMARY_METRICS, Metric
from compileboard.app.benchmarks.suite import (
    REPORT_ROWS,
    SUITE_TABLES,
    SuiteScreen,
    suite_period_row,
)
from compileboard.app.benchmarks.summaries import format_number
from compileboard.app.benchmarks.trend_charts import chart_metric, list_table_rows, share_runs
from compileboard.app.benchmarks.trend_queries import TrendRun
from compileboard.app.comparison.model import GROUPS, Comparison
from compileboard.app.comparison.pairs import describe_entry, list_shown
from compileboard.app.comparison.table import DEFAULT_ORDER, TableSelection, choose
from compileboard.app.core.format import format_iso_time, format_plural, format_time
from compileboard.app.core.resources import __version__
from compileboard.app.incidents import model as messages
from compileboard.app.incidents.model import INCIDENT_LABELS
from compileboard.app.reports import TABULAR
from compileboard.app.reports.comparison_report import (
    TEMPLATE_WORDS,
    distinct_lines,
    left_out_lines,
    metric_lines,
    model_lines,
)
from compileboard.app.reports.html import (
    BENCH_STYLES,
    STYLES,
    TREND_STYLES,
    list_scripts,
    make_environment,
    make_policy,
    read_static,
)
from compileboard.app.reports.text import cell, code, dump, prose, table

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
        chart_metric(metric, [line], suite.axis, chart_id=f"trend-{number}", words=number == 0)
        for number, (metric, line) in enumerate(drawn)
    ]
    columns, table_rows = list_table_rows([(metric, [line]) for metric, line in drawn], suite.axis)
    compared = suite.comparison
    shown = list_shown((*compared.base.entries, *compared.new.entries)) if compared else []
    values: dict[str, Any] = {
        "suite": suite,
        "comparison": compared,
        "charts": charts,
        "shared": share_runs(suite.axis, links=False),
        "columns": columns,
        "table_rows": table_rows,
        "tiles": _list_tiles(suite),
        "show_number": lambda metric, value: format_number(metric, value, suite.definition),
        "moved": list_moved(compared) if compared else [],
        "describe": lambda entry: describe_entry(entry, shown),
        "failure_words": FAILURE_WORDS,
        "words": messages,
        "summaries": {summary.run_id: summary for summary in suite.summaries},
        "most": REPORT_ROWS,
        "scripts": list_scripts(bool(charts), bool(charts)),
        "policy": make_policy(bool(charts), bool(charts)),
        "styles": read_static((*STYLES, *BENCH_STYLES, *TREND_STYLES)),
        **TEMPLATE_WORDS,
        "written_us": written_us,
        "version": __version__,
        "live": False,
    }
    return (
        make_environment()
        .get_template("reports/suite/index.html")
        .render(**values)
        .encode("utf-8", "replace")
    )


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


def list_moved(comparison: Comparison) -> list[tuple[str, TableSelection]]:
    known = {metric_sum.metric.name for metric_sum in comparison.sums}
    groups = [(key, label) for key, (label, names) in GROUPS.items() if known & set(names)]
    return [(label, choose(comparison, key, DEFAULT_ORDER, True)) for key, label in groups]


def render_markdown(suite: SuiteScreen, written_us: int) -> str:
    parts = [_head(suite), _headlines(suite), _incidents(suite), _failures(suite)]
    compared = suite.comparison
    if compared:
        parts += [model_lines(compared), metric_lines(compared), left_out_lines(compared)]
        parts += [distinct_lines("Graph breaks", compared.breaks)]
        parts += [distinct_lines("Causes of recompiles", compared.causes)]
    parts += [_environment(suite), _commits(suite)]
    parts += [
        [
            (
                f"_CompileBoard {__version__} at {format_time(written_us)} UTC; a change is new "
                "relative to base_"
            )
        ]
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(suite: SuiteScreen) -> list[str]:
    branch = f", branch {prose(suite.branch)}" if suite.branch else ""
    count = format_plural(suite.run_count, "run")
    lines = [f"## {prose(suite.chosen.suite)}, {suite.period.text}", ""]
    lines += [
        f"**{prose(suite.verdict.sentence, 300)}.** {prose(suite.verdict.context, 300)}".rstrip(),
        "",
    ]
    lines += [
        f"{prose(suite.title)}{branch}. {count} in this period (UTC), by {suite.definition.label}."
    ]
    for note in suite.notes:
        lines += ["", f"{prose(note, 1000)}."]
    if suite.comparison is None:
        return [
            *lines,
            "",
            (
                "No other run, of this period or before it, measured one of these models: no "
                "change can be told."
            ),
        ]
    for reason in (*suite.comparison.refused, *suite.comparison.warnings):
        lines += ["", f"**Read with care: {prose(reason)}**"]
    return lines


def _headlines(suite: SuiteScreen) -> list[str]:
    sides = [f"- **New**, the last run that timed models: {_run(suite.find_run(suite.new.run_id))}"]
    if suite.base is None:
        rows = [
            [
                headline.delta.metric.label,
                format_number(headline.delta.metric, headline.new, suite.definition),
            ]
            for headline in suite.headlines
        ]
        return ["### At the end", "", *sides, "", *table(("Number", "At the end>"), rows)]
    where = (
        "the last run before this period"
        if suite.is_base_before
        else "the first run of this period"
    )
    sides.insert(0, f"- **Base**, {where}: {_run(suite.find_run(suite.base.run_id))}")
    rows = [
        [
            headline.delta.metric.label,
            *(
                format_number(headline.delta.metric, value, suite.definition)
                for value in (headline.base, headline.new)
            ),
            headline.delta.text or "–",
            headline.delta.word,
            str(headline.delta.model_count),
        ]
        for headline in suite.headlines
    ]
    names = ("Number", "At the start>", "At the end>", "Change>", "Verdict", "Models of both>")
    return ["### Start and end", "", *sides, "", *table(names, rows)]


def _run(run: TrendRun) -> str:
    commit = f" of commit {code(run.git_commit[:9])}" if run.git_commit else ""
    return f"{prose(run.name)} {code(run.id)}, {format_time(run.started_us)[:16]}{commit}"


def _cut(rows: Sequence[object], kind: str) -> str:
    most = REPORT_ROWS[kind]
    return f" (the first {most} of {len(rows)})" if len(rows) > most else ""


def _incidents(suite: SuiteScreen) -> list[str]:
    if not suite.incidents:
        return []
    rows = [
        [
            prose(incident.title, 300),
            INCIDENT_LABELS[incident.state][0]
            + (f", {incident.status} by {incident.owner}" if incident.owner else ""),
            f"{code(incident.first_bad.short_commit)} " * bool(incident.first_bad.short_commit)
            + format_time(incident.first_us)[:16],
        ]
        for incident in suite.incidents[: REPORT_ROWS["incidents"]]
    ]
    return [
        f"### Incidents{_cut(suite.incidents, 'incidents')}",
        "",
        *table(("Incident", "State", "Since"), rows),
    ]


def _failures(suite: SuiteScreen) -> list[str]:
    if not suite.failures:
        return ["No model fails."]
    rows = [
        [
            FAILURE_WORDS[failure.word][0] if suite.base else "fails",
            prose(failure.row.model),
            prose(failure.base or "did not fail") if suite.base else "–",
            prose(failure.new or "does not fail"),
        ]
        for failure in suite.failures[: REPORT_ROWS["failures"]]
    ]
    return [
        f"### Failures{_cut(suite.failures, 'failures')}",
        "",
        *table(("What", "Model", "At the start", "At the end"), rows),
    ]


def _environment(suite: SuiteScreen) -> list[str]:
    rows = [
        [format_time(change.run.started_us)[:16], word, code(before), code(now)]
        for change in reversed(suite.axis.changes)
        for word, before, now in change.parts
    ]
    if not rows:
        return []
    title = f"### Changes of the environment{_cut(rows, 'changes')}"
    return [
        title,
        "",
        *table(("First run with it", "What", "Before", "Now"), rows[: REPORT_ROWS["changes"]]),
    ]


def _commits(suite: SuiteScreen) -> list[str]:
    if not suite.commits:
        return []
    rows = [
        [
            format_time(commit.run.started_us)[:16],
            code(commit.hash[:9]),
            prose(commit.subject, 120),
            str(commit.run_count),
        ]
        for commit in reversed(suite.commits)
    ]
    title = f"### Commits{_cut(rows, 'commits')}"
    return [
        title,
        "",
        *table(("First measured", "Commit", "Subject", "Runs>"), rows[: REPORT_ROWS["commits"]]),
    ]


SCHEMA, VERSION = "compileboard.suite", 1


def write_suite(suite: SuiteScreen, format: str, written_us: int, table: str) -> Iterator[bytes]:
    if format == "json":
        yield _write_json(suite, written_us)
    elif format == "csv":
        yield _write_csv(suite, table)
    elif format == "parquet":
        from compileboard.app.reports.parquet import write_suite_parquet

        yield from write_suite_parquet(suite, table, written_us)
    elif format == "html":
        yield write_html(suite, written_us)
    else:
        yield render_markdown(suite, written_us).encode("utf-8", "replace")


def name_part(text: str) -> str:
    """Make a file name part from text; if characters had to change, a hash keeps names distinct."""
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


def _write_json(suite: SuiteScreen, written_us: int) -> bytes:
    head = {
        "schema": SCHEMA,
        "version": VERSION,
        "written_by": f"CompileBoard {__version__}",
        "written_at": format_iso_time(written_us),
    }
    return dump(head | suite_period_row(suite)) + b"\n"


def _write_csv(suite: SuiteScreen, table: str) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    columns = SUITE_TABLES[table].columns
    writer.writerow(columns)
    for row in SUITE_TABLES[table].list(suite):
        writer.writerow([cell(row.get(name)) for name in columns])
    return buffer.getvalue().encode("utf-8", "replace")
