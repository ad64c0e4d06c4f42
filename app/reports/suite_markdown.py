"""A suite over a period as Markdown: what fits a message or a comment."""

from __future__ import annotations

from collections.abc import Sequence

from compileboard.app.analysis.finding_words import DIRECTION_WORDS, describe_finding, describe_state
from compileboard.app.analysis.headline import show_number
from compileboard.app.analysis.suite_period import SuitePeriod
from compileboard.app.format import format_plural, format_time
from compileboard.app.queries.trends import TrendRun
from compileboard.app.reports.comparison_markdown import distinct_lines, left_out_lines, metric_lines, model_lines
from compileboard.app.reports.markdown_words import code, prose, table
from compileboard.app.reports.suite_html import FAILURE_WORDS
from compileboard.app.resources import __version__

MOST_ROWS = 40


def render_markdown(found: SuitePeriod, written_us: int) -> str:
    """Write a suite over a period as Markdown that GitHub shows as it should."""
    parts = [_head(found), _headlines(found), _findings(found), _failures(found)]
    compared = found.comparison
    if compared:
        parts += [model_lines(compared), metric_lines(compared), left_out_lines(compared)]
        parts += [distinct_lines("Graph breaks", compared.breaks)]
        parts += [distinct_lines("Causes of recompiles", compared.causes)]
    parts += [_environment(found), _commits(found)]
    parts += [[f"_CompileBoard {__version__} at {format_time(written_us)} UTC; a change is new relative to base_"]]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(found: SuitePeriod) -> list[str]:
    branch = f", branch {prose(found.branch)}" if found.branch else ""
    count = format_plural(found.run_count, "run")
    lines = [f"## {prose(found.chosen.suite)}, {found.period.text}", ""]
    lines += [f"{prose(found.title)}{branch}. {count} in this period (UTC), by {found.definition.label}."]
    for note in found.notes:
        lines += ["", f"{prose(note, 1000)}."]
    if found.comparison is None:
        return [
            *lines,
            "",
            "No other run, of this period or before it, measured one of these models: no change can be told.",
        ]
    for said in (*found.comparison.refused, *found.comparison.warnings):
        lines += ["", f"**Read with care: {prose(said)}**"]
    return lines


def _headlines(found: SuitePeriod) -> list[str]:
    sides = [f"- **New**, the last run that timed models: {_run(found.find_run(found.new.run_id))}"]
    if found.base is None:
        rows = [
            [it.delta.metric.label, show_number(it.delta.metric, it.new, found.definition)] for it in found.headlines
        ]
        return ["### At the end", "", *sides, "", *table(("Number", "At the end>"), rows)]
    where = "the last run before this period" if found.is_base_before else "the first run of this period"
    sides.insert(0, f"- **Base**, {where}: {_run(found.find_run(found.base.run_id))}")
    rows = [
        [
            it.delta.metric.label,
            *(show_number(it.delta.metric, value, found.definition) for value in (it.base, it.new)),
            it.delta.text or "–",
            it.delta.word,
            str(it.delta.model_count),
        ]
        for it in found.headlines
    ]
    names = ("Number", "At the start>", "At the end>", "Change>", "Verdict", "Models of both>")
    return ["### Start and end", "", *sides, "", *table(names, rows)]


def _run(run: TrendRun) -> str:
    commit = f" of commit {code(run.git_commit[:9])}" if run.git_commit else ""
    return f"{prose(run.name)} {code(run.id)}, {format_time(run.started_us)[:16]}{commit}"


def _cut(rows: Sequence[object]) -> str:
    return f" (the first {MOST_ROWS} of {len(rows)})" if len(rows) > MOST_ROWS else ""


def _findings(found: SuitePeriod) -> list[str]:
    if not found.findings:
        return []
    rows = [
        [
            DIRECTION_WORDS.get(it.direction, (it.direction, ""))[0],
            prose(describe_finding(it), 300),
            f"{it.state}, {it.handling}; {prose(describe_state(it))}",
            format_time(it.first_us)[:16],
        ]
        for it in found.findings[:MOST_ROWS]
    ]
    return [f"### Findings{_cut(found.findings)}", "", *table(("What", "Finding", "State", "Since"), rows)]


def _failures(found: SuitePeriod) -> list[str]:
    if not found.failures:
        return ["No model fails."]
    rows = [
        [
            FAILURE_WORDS[it.word][0] if found.base else "fails",
            prose(it.row.model),
            prose(it.base or "did not fail") if found.base else "–",
            prose(it.new or "does not fail"),
        ]
        for it in found.failures[:MOST_ROWS]
    ]
    return [f"### Failures{_cut(found.failures)}", "", *table(("What", "Model", "At the start", "At the end"), rows)]


def _environment(found: SuitePeriod) -> list[str]:
    rows = [
        [format_time(it.run.started_us)[:16], word, code(before), code(now)]
        for it in reversed(found.axis.changes)
        for word, before, now in it.parts
    ]
    if not rows:
        return []
    title = f"### Changes of the environment{_cut(rows)}"
    return [title, "", *table(("First run with it", "What", "Before", "Now"), rows[:MOST_ROWS])]


def _commits(found: SuitePeriod) -> list[str]:
    if not found.commits:
        return []
    rows = [
        [format_time(it.run.started_us)[:16], code(it.hash[:9]), prose(it.subject, 120), str(it.run_count)]
        for it in reversed(found.commits)
    ]
    title = f"### Commits{_cut(rows)}"
    return [title, "", *table(("First measured", "Commit", "Subject", "Runs>"), rows[:MOST_ROWS])]
