"""Write what a check found as Markdown, for a CI job's summary or a pull request's comment."""

from __future__ import annotations

from collections.abc import Iterator

from compileboard.app.analysis.gates.model import PASS, Verdict
from compileboard.app.checks.decide import Report
from compileboard.app.checks.write_table import what_to_do
from compileboard.app.reports.markdown_words import code, prose, table

_MOST_ROWS = 200  # GitHub takes 1 MiB of a step's summary
_DETAIL = 400


def write_markdown(report: Report) -> Iterator[str]:
    """Yield the lines."""
    mark = {0: "✅", 1: "❌"}.get(report.exit_code, "⚠️")
    yield f"### {mark} {prose(report.headline, 300)}"
    yield ""
    for warning in report.warnings:
        yield f"> ⚠️ {prose(warning, _DETAIL)}"
        yield ""
    yield from table(["Rule", "Result"], [[code(it.rule.name), _sum_up(it.counts, it.lacks)] for it in report.rules])
    if report.failures:
        yield from _section("What fails", report.failures)
    if report.exit_code:
        yield ""
        yield prose(what_to_do(report), _DETAIL)
    notes = [it for rule in report.rules for it in rule.verdicts if it.outcome != PASS and not report.fails(it)]
    if notes:
        yield ""
        yield f"<details><summary>What does not fail and is worth a look ({len(notes)})</summary>"
        yield from _section("", notes)
        yield ""
        yield "</details>"


def _sum_up(counts: dict[str, int], lacks: str) -> str:
    if lacks:
        return f"not compared: {prose(lacks)}"
    return ", ".join(f"{count} {prose(word)}" for word, count in counts.items()) or "nothing to compare"


def _section(title: str, verdicts: list[Verdict]) -> Iterator[str]:
    yield ""
    if title:
        yield f"#### {title}"
        yield ""
    rows = [
        [code(it.word), code(it.rule), prose(it.name), prose(it.detail, _DETAIL) if it.detail else ""]
        for it in verdicts
    ]
    yield from table(["Verdict", "Rule", "Model", "Why"], rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        yield ""
        yield f"… and {len(rows) - _MOST_ROWS} more"
