"""Annotations of GitHub Actions: new findings on the lines that a pull request changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from compileboard.app.checks.decision import Report
from compileboard.app.checks.rules.distinct import NEW_BREAKS_RULE, describe
from compileboard.app.checks.rules.model import RuleDistinct
from compileboard.app.ci.changed_lines import ChangedLines
from compileboard.app.format import format_plural
from compileboard.app.reports.checks import NO_FIXES

MOST = 10  # warnings of one step that GitHub shows
_LONGEST = 1000


@dataclass(frozen=True)
class Annotation:
    file: str
    line: int
    title: str
    message: str
    count: int  # how often it came, to put the worst first


def list_annotations(
    report: Report,
    changed: ChangedLines,
    workspace: str,
    fixes: Mapping[str, str] = NO_FIXES,
    subject: str = "this PR",
) -> list[Annotation]:
    """List new findings on changed lines, the worst first. `fixes` are titles by fingerprint."""
    by_line: dict[tuple[bool, str, int], list[RuleDistinct]] = {}
    for checked in report.rules:
        is_break = checked.rule.name == NEW_BREAKS_RULE.name
        for verdict in checked.verdicts:
            new = verdict.new
            file = changed.find(new.file, new.line) if new is not None else None
            if new is not None and new.line and file:
                by_line.setdefault((not is_break, file, new.line), []).append(new)
    annotations = []
    for (is_cause, file, line), items in by_line.items():
        # Models that share the line have the same break.
        distinct = len({item.fingerprint for item in items})
        counted = format_plural(distinct, "recompile cause" if is_cause else "graph break")
        messages = [
            f"{item.model}: {describe(item)}" if item.model else describe(item) for item in items
        ]
        titles = dict.fromkeys(
            fixes[item.fingerprint] for item in items if item.fingerprint in fixes
        )
        messages += [f"Fix: {title}" for title in titles]
        total = sum(item.count for item in items)
        text = "\n".join([f"{subject} adds {counted} at {file}:{line}", *messages])[:_LONGEST]
        path = os.path.relpath(changed.root / file, Path(workspace).resolve())
        if not path.startswith(os.pardir):
            annotations.append((is_cause, Annotation(path, line, f"{counted} added", text, total)))
    annotations.sort(key=lambda pair: (pair[0], -pair[1].count, pair[1].file, pair[1].line))
    return [annotation for _is_cause, annotation in annotations]


def format_annotations(annotations: Iterable[Annotation]) -> Iterator[str]:
    rows = list(annotations)
    for row in rows[:MOST]:
        yield format_command("warning", row.message, file=row.file, line=row.line, title=row.title)
    if len(rows) > MOST:
        yield format_command(
            "notice", f"{len(rows) - MOST} more are in the job summary", title="CompileBoard"
        )


def format_command(kind: str, message: str, **properties: object) -> str:
    told = ",".join(f"{name}={_escape_property(str(value))}" for name, value in properties.items())
    return f"::{kind}{' ' if told else ''}{told}::{_escape(message)}"


def _escape(text: str) -> str:
    clean = "".join(letter if letter.isprintable() or letter in "\r\n" else " " for letter in text)
    return clean.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
