"""Publish what a check found to GitHub Actions: summary, annotations, comment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from compileboard.app.checks.decision import Report
from compileboard.app.ci.annotations import MOST, format_annotations, format_command, list_annotations
from compileboard.app.ci.changed_lines import list_changed_lines
from compileboard.app.ci.comment import CommentNotWritten, save_comment
from compileboard.app.format import format_plural
from compileboard.app.reports.markdown import prose


@dataclass(frozen=True)
class GithubOutputs:
    """What GitHub is told; `changed_since` is the commit whose changes are annotated, `comment` the comment's name."""

    summary: bool = False
    changed_since: str | None = None
    comment: str | None = None


def publish(
    report: Report | None, markdown: str, outputs: GithubOutputs, environment: Mapping[str, str], folder: str
) -> None:
    """Print annotations, make or update the comment, and append the summary; `report` is None if nothing was compared.

    What GitHub does not take is a warning in the job, and a line of the summary.
    Raises: OSError if the summary cannot be written.
    """
    notes = []
    if report is not None and outputs.changed_since:
        notes.append(_annotate(report, outputs.changed_since, environment, folder))
    text = "\n".join([markdown, *(f"\n{prose(note, 400)}" for note in notes if note)])
    if outputs.comment:
        try:
            address = save_comment(text, outputs.comment, environment)
            sys.stderr.write(f"compileboard: comment written: {address}\n")
        except CommentNotWritten as error:
            text += f"\n\nNo comment on the pull request: {prose(str(error), 400)}\n"
            _print(format_command("notice", f"no comment on the pull request: {error}", title="CompileBoard"))
    if outputs.summary:
        with open(environment["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as file:
            file.write(text + "\n")


def _annotate(report: Report, base: str, environment: Mapping[str, str], folder: str) -> str:
    """Print annotations; return how many of what is new lie on changed lines."""
    new_count = sum(verdict.new is not None for rule in report.rules for verdict in rule.verdicts)
    if not new_count:
        return ""
    try:
        changed = list_changed_lines(folder, base)
    except (ValueError, OSError) as error:
        _print(format_command("notice", f"nothing is annotated: {error}", title="CompileBoard"))
        return f"Nothing is annotated: {error}"
    annotations = list_annotations(report, changed, environment.get("GITHUB_WORKSPACE") or folder)
    for line in format_annotations(annotations):
        _print(line)
    shown = f", {MOST} of them annotated" if len(annotations) > MOST else ", annotated"
    counted = format_plural(len(annotations), "changed line")
    return f"{counted} with something new{shown if annotations else ''}; {new_count} new in all."


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
