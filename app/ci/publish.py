"""Publish a check's results to GitHub Actions: summary, annotations, comment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from compileboard.app.checks.decision import Report
from compileboard.app.ci.annotations import (
    MOST,
    format_annotations,
    format_command,
    list_annotations,
)
from compileboard.app.ci.changed_lines import list_changed_lines
from compileboard.app.ci.comment import CommentNotWritten, NoPullRequest, save_comment
from compileboard.app.reports.checks import NO_FIXES
from compileboard.app.reports.markdown import prose


@dataclass(frozen=True)
class GithubOutputs:
    summary: bool = False
    changed_since: str | None = None
    comment: str | None = None


def publish(
    report: Report | None,
    markdown: str,
    outputs: GithubOutputs,
    environment: Mapping[str, str],
    folder: str,
    fixes: Mapping[str, str] = NO_FIXES,
) -> None:
    """Publish a check's results; `report` is None if nothing was compared.

    What GitHub rejects becomes a notice in the job. Raises OSError if the summary cannot be
    written.
    """
    note = ""
    if report is not None and outputs.changed_since:
        note = _annotate(report, outputs.changed_since, environment, folder, fixes)
    text = f"{markdown}\n{prose(note, 400)}\n" if note else markdown
    if outputs.comment:
        try:
            address = save_comment(text, outputs.comment, environment)
            sys.stderr.write(f"compileboard: comment written: {address}\n")
        except NoPullRequest as error:  # a push: as it should be
            sys.stderr.write(f"compileboard: {error}\n")
        except CommentNotWritten as error:
            text += f"\nNo comment on the pull request: {prose(str(error), 400)}\n"
            _print(
                format_command(
                    "notice", f"no comment on the pull request: {error}", title="CompileBoard"
                )
            )
    if outputs.summary:
        with open(environment["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as file:
            file.write(text + "\n")


def _annotate(
    report: Report, base: str, environment: Mapping[str, str], folder: str, fixes: Mapping[str, str]
) -> str:
    new = [
        verdict.new for rule in report.rules for verdict in rule.verdicts if verdict.new is not None
    ]
    if not new:
        return ""
    try:
        changed = list_changed_lines(folder, base)
    except (ValueError, OSError) as error:
        _print(format_command("notice", f"nothing is annotated: {error}", title="CompileBoard"))
        return f"Nothing is annotated: {error}"
    is_pull_request = environment.get("GITHUB_EVENT_NAME", "pull_request").startswith(
        "pull_request"
    )
    subject = "this PR" if is_pull_request else "this push"
    annotations = list_annotations(
        report, changed, environment.get("GITHUB_WORKSPACE") or folder, fixes, subject
    )
    for line in format_annotations(annotations):
        _print(line)
    elsewhere = len({item.fingerprint for item in new if not changed.find(item.file, item.line)})
    notes = []
    if len(annotations) > MOST:
        notes.append(f"{MOST} of {len(annotations)} changed lines are annotated.")
    if elsewhere:
        distinct = len({item.fingerprint for item in new})
        notes.append(f"On lines without a change, so not annotated: {elsewhere} of {distinct} new.")
    return " ".join(notes)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
