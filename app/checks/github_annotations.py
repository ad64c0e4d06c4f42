"""GitHub Actions annotations: new findings on the lines that a pull request changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import responses
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from compileboard.app.checks.decision import Check
from compileboard.app.checks.rules.counts import NEW_BREAKS, describe
from compileboard.app.comparison.queries import DistinctItem
from compileboard.app.core.format import format_plural
from compileboard.app.reports.markdown import prose
from compileboard.collectors.wire.http import Connection, ServerUnavailable

_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
_SIDE = "b/"
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_LETTERS = dict(zip("abtnvfr", "\a\b\t\n\v\f\r"))
_OPTIONS = (
    "--unified=0",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--find-renames",
    "--dst-prefix=b/",
)
TIMEOUT_S = 120


@dataclass(frozen=True)
class ChangedLines:
    root: Path
    ranges: dict[str, list[range]] = field(default_factory=dict)
    folder: str = "."

    def find(self, file: str | None, line: int | None) -> str | None:
        if file is None or line is None:
            return None
        names = (os.path.normpath(os.path.join(self.folder, file)), file)
        name = next(
            (name for name in names if (self.root / name).is_file() or name in self.ranges), file
        )
        return name if any(line in lines for lines in self.ranges.get(name, ())) else None


def list_changed_lines(folder: str, base: str) -> ChangedLines:
    """List the lines of HEAD that are not in `base`, or in the merge base if the clone has it.

    Raises ValueError with git's message if the clone lacks the commit.
    """
    root = _run_git(folder, "rev-parse", "--show-toplevel").stdout.strip()
    for sides in (f"{base}...HEAD", f"{base}..HEAD"):
        answer = _run_git(folder, "diff", *_OPTIONS, "--end-of-options", sides, "--")
        if answer.returncode == 0:
            top = Path(root).resolve()
            return ChangedLines(
                top, parse_diff(answer.stdout), os.path.relpath(Path(folder).resolve(), top)
            )
    raise ValueError(
        f"cannot tell what changed since {base[:80]}: git: {answer.stderr.strip()[:300]}"
    )


def parse_diff(text: str) -> dict[str, list[range]]:
    ranges: dict[str, list[range]] = {}
    file, left_count = None, 0
    for line in text.splitlines():
        if left_count > 0 and line[:1] in "+-\\":  # a line of code may look like a heading
            left_count -= line[:1] != "\\"
            continue
        left_count = 0
        if line.startswith("+++ "):
            name = _unquote_path(line.removeprefix("+++ ").rstrip("\t"))
            file = name.removeprefix(_SIDE) if name.startswith(_SIDE) else None
        elif (hunk := _HUNK.match(line)) and file:
            first, count = int(hunk[1]), int(hunk[2] or 1)
            old = line.split(" ", 2)[1].partition(",")[2]
            left_count = count + (int(old) if old else 1)
            if count:
                ranges.setdefault(file, []).append(range(first, first + count))
    return ranges


def _unquote_path(name: str) -> str:
    if not (name.startswith('"') and name.endswith('"') and len(name) > 1):
        return name
    return _ESCAPE.sub(
        lambda match: (
            chr(int(match[1], 8)) if len(match[1]) == 3 else _LETTERS.get(match[1], match[1])
        ),
        name[1:-1],
    )


def _run_git(folder: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-c", "core.quotePath=false", *args],
        cwd=folder,
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )


MOST = 10  # warnings of one step that GitHub shows
_LONGEST = 1000


@dataclass(frozen=True)
class Annotation:
    file: str
    line: int
    title: str
    message: str
    count: int  # occurrences, to put the worst first


def list_annotations(
    report: Check,
    changed: ChangedLines,
    workspace: str,
    fixes: Mapping[str, str],
    subject: str,
) -> list[Annotation]:
    """List new findings on changed lines, the worst first. `fixes` are titles by fingerprint."""
    by_line: dict[tuple[bool, str, int], list[DistinctItem]] = {}
    for checked in report.rules:
        is_break = checked.name == NEW_BREAKS.name
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


PAGE_SIZE, MAX_PAGES = 100, 100
MAX_BYTES = 60_000  # GitHub takes 65,536 characters
MAX_ANSWER_BYTES = PAGE_SIZE * 400_000  # a comment's characters have up to six bytes in JSON
_TRUSTED = ("OWNER", "MEMBER", "COLLABORATOR")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
NAME = re.compile(r"[\w.-]{1,60}")


class CommentNotWritten(Exception):
    """The comment was not written; the message says what to do."""


class NoPullRequest(CommentNotWritten):
    """The workflow's event is not a pull request."""


def save_comment(markdown: str, name: str, environment: Mapping[str, str]) -> str:
    """Create or update the pull request's comment of this name; return its URL.

    Raises CommentNotWritten if there is no pull request, or GitHub refuses.
    """
    number = _read_number(environment)
    token, repository = (
        environment.get("GITHUB_TOKEN", ""),
        environment.get("GITHUB_REPOSITORY", ""),
    )
    api = environment.get("GITHUB_API_URL") or "https://api.github.com"
    if (
        not token
        or not _REPOSITORY.fullmatch(repository)
        or urlsplit(api).scheme not in ("http", "https")
    ):
        raise CommentNotWritten(
            "no GITHUB_TOKEN, GITHUB_REPOSITORY or GITHUB_API_URL; pass the token to this step"
        )
    marker = f"<!-- compileboard: {name} -->"
    body = {"body": f"{marker}\n{_shorten(markdown)}\n{_run_url(environment)}"}
    with closing(_GitHubClient(api, token, environment)) as github:
        issues = f"repos/{repository}/issues"
        comments = github.list_comments(f"{issues}/{number}/comments")
        mine = next((comment for comment in comments if _is_ours(comment, marker)), None)
        if mine is None:
            answer = github.send("POST", f"{issues}/{number}/comments", body)
        else:
            answer = github.send("PATCH", f"{issues}/comments/{int(mine['id'])}", body)
    return str(answer.get("html_url", "") if isinstance(answer, dict) else "")


def _is_ours(comment: Any, marker: str) -> bool:
    user = comment.get("user") or {}
    is_trusted = user.get("type") == "Bot" or comment.get("author_association") in _TRUSTED
    return is_trusted and str(comment.get("body") or "").startswith(marker)


class _GitHubClient:
    def __init__(self, address: str, token: str, environ: Mapping[str, str]) -> None:
        self._connection, self._base = Connection(address, environ), urlsplit(address).path
        self._headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "X-GitHub-Api-Version": "2022-11-28",
        }

    def close(self) -> None:
        self._connection.close()

    def list_comments(self, path: str) -> Iterator[Any]:
        for page in range(1, MAX_PAGES + 1):
            comments = self.send("GET", f"{path}?per_page={PAGE_SIZE}&page={page}")
            if not isinstance(comments, list):
                raise CommentNotWritten("GitHub answered something else than a list of comments")
            yield from comments
            if len(comments) < PAGE_SIZE:
                return

    def send(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._connection.request(
                method, f"{self._base}/{path}", data, self._headers, MAX_ANSWER_BYTES
            )
        except ServerUnavailable as error:
            raise CommentNotWritten(str(error)) from None
        if answer.status in (401, 403, 404):
            raise CommentNotWritten(
                f"GitHub answered {answer.status}: the token may not comment. A pull request "
                "from a fork has a "
                "read-only token; otherwise the job needs `permissions: pull-requests: write`"
            )
        if not 200 <= answer.status < 300:
            raise CommentNotWritten(
                f"GitHub answered {answer.status} {responses.get(answer.status, '')}".rstrip()
            )
        return answer.document


def _read_number(environment: Mapping[str, str]) -> int:
    try:
        with open(environment.get("GITHUB_EVENT_PATH") or "", encoding="utf-8") as file:
            number = json.load(file)["pull_request"]["number"]
    except (OSError, ValueError, KeyError, TypeError):
        number = None
    if not isinstance(number, int):
        raise NoPullRequest(
            "the workflow's event is not a pull request, so there is nothing to comment on"
        )
    return number


def _shorten(markdown: str) -> str:
    size, lines = 0, list[str]()
    for line in markdown.splitlines():
        size += len(line.encode()) + 1
        if size > MAX_BYTES:
            opened = sum(other.startswith("<details>") for other in lines) - lines.count(
                "</details>"
            )
            return "\n".join(
                [*lines, "", *["</details>"] * opened, "", "… the rest is in the job summary"]
            )
        lines.append(line)
    return "\n".join(lines)


def _run_url(environment: Mapping[str, str]) -> str:
    parts = [
        environment.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID")
    ]
    return f"\n[Job summary]({parts[0]}/{parts[1]}/actions/runs/{parts[2]})\n" if all(parts) else ""


def publish(
    report: Check | None,
    markdown: str,
    fixes: Mapping[str, str],
    environment: Mapping[str, str],
    folder: str,
    *,
    summary: bool,
    changed_since: str | None,
    comment: str | None,
) -> None:
    """Publish a check's results; `report` is None if nothing was compared.

    A rejection by GitHub becomes a notice in the job. Raises OSError if the summary cannot be
    written.
    """
    note = ""
    if report is not None and changed_since:
        note = _print_annotations(report, changed_since, environment, folder, fixes)
    text = f"{markdown}\n{prose(note, 400)}\n" if note else markdown
    if comment:
        try:
            address = save_comment(text, comment, environment)
            sys.stderr.write(f"compileboard: comment written: {address}\n")
        except NoPullRequest as error:  # expected on a push
            sys.stderr.write(f"compileboard: {error}\n")
        except CommentNotWritten as error:
            text += f"\nNo comment on the pull request: {prose(str(error), 400)}\n"
            _print_line(
                format_command(
                    "notice", f"no comment on the pull request: {error}", title="CompileBoard"
                )
            )
    if summary:
        with open(environment["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as file:
            file.write(text + "\n")


def _print_annotations(
    report: Check, base: str, environment: Mapping[str, str], folder: str, fixes: Mapping[str, str]
) -> str:
    new = [
        verdict.new for rule in report.rules for verdict in rule.verdicts if verdict.new is not None
    ]
    if not new:
        return ""
    try:
        changed = list_changed_lines(folder, base)
    except (ValueError, OSError) as error:
        _print_line(
            format_command("notice", f"nothing is annotated: {error}", title="CompileBoard")
        )
        return f"Nothing is annotated: {error}"
    is_pull_request = environment.get("GITHUB_EVENT_NAME", "pull_request").startswith(
        "pull_request"
    )
    subject = "this PR" if is_pull_request else "this push"
    annotations = list_annotations(
        report, changed, environment.get("GITHUB_WORKSPACE") or folder, fixes, subject
    )
    for line in format_annotations(annotations):
        _print_line(line)
    elsewhere = len({item.fingerprint for item in new if not changed.find(item.file, item.line)})
    notes = []
    if len(annotations) > MOST:
        notes.append(f"{MOST} of {len(annotations)} changed lines are annotated.")
    if elsewhere:
        distinct = len({item.fingerprint for item in new})
        notes.append(f"On lines without a change, so not annotated: {elsewhere} of {distinct} new.")
    return " ".join(notes)


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
