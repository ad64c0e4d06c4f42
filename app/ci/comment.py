"""The pull request's comment: created once, then updated in place through GitHub's API."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from compileboard.app.resources import __version__

TIMEOUT_S = 30
PAGE_SIZE, MOST_PAGES = 100, 100
MOST_BYTES = 60_000  # GitHub takes 65,536 characters
_TRUSTED = ("OWNER", "MEMBER", "COLLABORATOR")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
NAME = re.compile(r"[\w.-]{1,60}")


class CommentNotWritten(Exception):
    """The comment was not written; the message says what to do."""


class NoPullRequest(CommentNotWritten):
    """The workflow's event is no pull request."""


def save_comment(markdown: str, name: str, environment: Mapping[str, str]) -> str:
    """Create or update the pull request's comment of this name; return its URL.

    Raises CommentNotWritten if this is no pull request, or GitHub refuses.
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
    body = {"body": f"{marker}\n{_shorten(markdown)}\n{_link(environment)}"}
    comments = f"{api}/repos/{repository}/issues"
    mine = next(
        (
            comment
            for comment in _list_comments(f"{comments}/{number}/comments", token)
            if _is_ours(comment, marker)
        ),
        None,
    )
    if mine is None:
        answer = _send("POST", f"{comments}/{number}/comments", token, body)
    else:
        answer = _send("PATCH", f"{comments}/comments/{int(mine['id'])}", token, body)
    return str(answer.get("html_url", "") if isinstance(answer, dict) else "")


def _is_ours(comment: Any, marker: str) -> bool:
    user = comment.get("user") or {}
    is_trusted = user.get("type") == "Bot" or comment.get("author_association") in _TRUSTED
    return is_trusted and str(comment.get("body") or "").startswith(marker)


def _list_comments(address: str, token: str) -> Iterator[Any]:
    for page in range(1, MOST_PAGES + 1):
        comments = _send("GET", f"{address}?per_page={PAGE_SIZE}&page={page}", token)
        if not isinstance(comments, list):
            raise CommentNotWritten("GitHub answered something else than a list of comments")
        yield from comments
        if len(comments) < PAGE_SIZE:
            return


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """No redirect is followed: the token is for one address."""

    def redirect_request(self, *_words: Any) -> None:
        return None


def _send(method: str, address: str, token: str, body: Mapping[str, str] | None = None) -> Any:
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "User-Agent": f"CompileBoard/{__version__}",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, headers, method=method)  # noqa: S310  http or https, checked above
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 404):
            raise CommentNotWritten(
                f"GitHub answered {error.code}: the token may not comment. A pull request from "
                "a fork has a "
                "read-only token; otherwise the job needs `permissions: pull-requests: write`"
            ) from None
        raise CommentNotWritten(f"GitHub answered {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        raise CommentNotWritten(f"cannot reach {urlsplit(address).hostname}: {error}") from None


def _read_number(environment: Mapping[str, str]) -> int:
    try:
        with open(environment.get("GITHUB_EVENT_PATH") or "", encoding="utf-8") as file:
            number = json.load(file)["pull_request"]["number"]
    except (OSError, ValueError, KeyError, TypeError):
        number = None
    if not isinstance(number, int):
        raise NoPullRequest(
            "the workflow's event is no pull request, so there is nothing to comment on"
        )
    return number


def _shorten(markdown: str) -> str:
    size, lines = 0, list[str]()
    for line in markdown.splitlines():
        size += len(line.encode()) + 1
        if size > MOST_BYTES:
            opened = sum(other.startswith("<details>") for other in lines) - lines.count(
                "</details>"
            )
            return "\n".join(
                [*lines, "", *["</details>"] * opened, "", "… the rest is in the job summary"]
            )
        lines.append(line)
    return "\n".join(lines)


def _link(environment: Mapping[str, str]) -> str:
    parts = [
        environment.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID")
    ]
    return f"\n[Job summary]({parts[0]}/{parts[1]}/actions/runs/{parts[2]})\n" if all(parts) else ""
