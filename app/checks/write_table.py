"""Write what a check found for a terminal and a CI log: what fails first, then a line a rule."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from compileboard.app.analysis.gates import findings
from compileboard.app.analysis.gates.model import IMPROVED, PASS, Verdict
from compileboard.app.checks.decide import Report, RuleReport

_MOST_WIDTH = 60


def write_table(report: Report, *, every: bool = False) -> Iterator[str]:
    """Yield the lines; with `every` also the verdicts that pass."""
    yield report.headline
    for warning in report.warnings:
        yield f"warning: {warning}"
    shown = [it for rule in report.rules for it in rule.verdicts if every or it.outcome != PASS]
    shown.sort(key=lambda it: not report.fails(it))
    if shown:
        yield ""
        yield from _columns([_cells(it) for it in shown])
    yield ""
    yield from _columns([(it.rule.name, _sum_up(it)) for it in report.rules])
    if report.failures or report.due:
        yield ""
        yield textwrap.fill(what_to_do(report), 110)


def _cells(it: Verdict) -> tuple[str, ...]:
    return (it.word, it.rule, one_line(it.name), one_line(it.detail))


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [min(_MOST_WIDTH, max(len(row[n]) for row in rows)) for n in range(len(rows[0]) - 1)]
    for row in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[-1]]).rstrip()


def _sum_up(it: RuleReport) -> str:
    if it.lacks:
        return f"not compared: {it.lacks}"
    return ", ".join(f"{count} {word}" for word, count in it.counts.items()) or "nothing to compare"


def what_to_do(report: Report) -> str:
    """Say what to do about a check that did not pass."""
    if not report.failures:
        names = ", ".join(it.rule.name for it in report.due)
        return (
            f"The baseline has what {names} compare{'' if len(report.due) > 1 else 's'} and the run has not: measure "
            "it, or name the rules that are wanted (--rule)."
        )
    if all(it.rule == findings.RULE.name for it in report.failures):
        return "Mend what got worse, or acknowledge the finding, or ignore it with a reason, at /findings/ID."
    if report.baseline is None:
        return "Mend what fails, or tell the rule another number (--threshold, --threshold-scale, --metric)."
    kind, _space, name = report.baseline.partition(" ")
    keep = f"compileboard baseline update {name}" if kind == "baseline" else "compileboard baseline save NAME"
    keep = "change that file" if report.baseline.endswith(".csv") else f"{keep} --run ID"
    if any(it.outcome == IMPROVED for it in report.failures):
        better = "--allow-improvement lets what got better pass"
        return f"If these changes are meant, keep them as the new baseline ({keep}); {better}."
    return f"If these changes are meant, keep them as the new baseline: {keep}."


def one_line(text: str) -> str:
    """Write other people's text on one line, without what moves a terminal's cursor."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
