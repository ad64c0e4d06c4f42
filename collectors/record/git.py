"""Read commit, branch, changes and history from git."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.events import CommitsSeen
from compileboard.collectors.contract.secrets import scrub_text
from compileboard.collectors.store.ingest.commit_history import StoredCommit

GIT_TIMEOUT_S = 300.0
# Set by git in its own hooks; inherited, they would name another repository or index.
OF_GIT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")


def ask_git(
    words: list[str],
    folder: str,
    *,
    timeout_s: float = GIT_TIMEOUT_S,
    also: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run git without the user's hooks, in a session of its own so that Ctrl-C does not interrupt
    its cleanup.

    Raises OSError if git or the folder is missing; subprocess.TimeoutExpired.
    """
    environment = {name: value for name, value in os.environ.items() if name not in OF_GIT}
    return subprocess.run(
        ["git", "-c", "core.hooksPath=/dev/null", *words],
        cwd=folder,
        env={**environment, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **(also or {})},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )


FIRST_PARENTS = 300  # more than a day of a busy repository, so that daily runs leave no gap
EVENT_BYTES = 40_000  # their maximum size as an event, which may hold fewer commits
SEQUENCE = -1  # The recorder's own event; 0 is the run's start, 1 its end.
LINE_LIMIT = 120  # Characters of a subject or an author.
_FORMAT = "--format=%H%x00%P%x00%ct%x00%an%x00%s"
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read_commits(folder: str, revision: str, *, limit: int, timeout_s: float) -> list[StoredCommit]:
    """Return a revision's first-parent history, newest first.

    Raises ValueError with git's message if there is none; OSError; subprocess.TimeoutExpired.
    """
    # The user's settings for `git log` (signatures, another encoding) must not apply.
    options = [
        "--first-parent",
        "--no-show-signature",
        "--no-color",
        "--encoding=UTF-8",
        _FORMAT,
        "-n",
        str(limit),
    ]
    completed = ask_git(
        ["log", *options, "--end-of-options", revision, "--"], folder, timeout_s=timeout_s
    )
    if completed.returncode:
        raise ValueError(completed.stderr.strip() or f"git log ended with {completed.returncode}")
    lines = [line.split("\0") for line in completed.stdout.split("\n")]
    return [
        _read_commit(*parts) for parts in lines if len(parts) == 5 and _HASH.fullmatch(parts[0])
    ]


def _read_commit(hash_: str, parents: str, time_s: str, author: str, subject: str) -> StoredCommit:
    parent = parents.partition(" ")[0]
    time_us = int(time_s) * 1_000_000 if time_s.isdigit() and len(time_s) < 12 else 0
    return StoredCommit(hash_, parent or None, time_us, _scrub_line(author), _scrub_line(subject))


@lru_cache(1_000)  # authors repeat
def _scrub_line(text: str) -> str | None:
    line = " ".join(scrub_text(text).split())
    return (line if len(line) <= LINE_LIMIT else line[: LINE_LIMIT - 1] + "…") or None


def build_history_event(
    git: Mapping[str, Any], process_id: str, *, timeout_s: float
) -> CommitsSeen | None:
    root, commit = git.get("root"), git.get("commit")
    if not root or not commit:
        return None
    try:
        commits = read_commits(root, commit, limit=FIRST_PARENTS, timeout_s=timeout_s)
    except (ValueError, OSError):  # the folder is gone, or not a repository
        return None
    return pack_commits(commits, process_id) if commits else None


def pack_commits(commits: Sequence[StoredCommit], process_id: str) -> CommitsSeen:
    rows: list[tuple[str, int, str | None, str | None]] = []
    room = EVENT_BYTES
    for commit in commits:
        row = (commit.hash, commit.time_us, commit.author, commit.subject)
        room -= len(json.dumps(row))
        if room < 0:
            break
        rows.append(row)
    last = commits[len(rows) - 1]
    return CommitsSeen(process_id, SEQUENCE, read_clock_us(), rows, last.parent_hash)


_NO_COMMIT = "0" * 40  # before the first push of a branch


def find_base(environment: Mapping[str, str], folder: str) -> str:
    """Return the hash of the commit to compare with: a pull request's base or the commit before a
    push.

    A pull request's merge commit is compared with its first parent, a new branch with the default
    branch. Raises ValueError if the event has none or it cannot be fetched.
    """
    event = _read_event(environment)
    pull_request = _as_dict(event.get("pull_request"))
    base = _as_dict(pull_request.get("base")).get("sha")
    head = _as_dict(pull_request.get("head")).get("sha")
    if head:
        if _is_shallow(folder):
            tip = _ask_or_raise(folder, "rev-parse", "HEAD")
            ask_git(["fetch", "--quiet", "--no-tags", "--depth=2", "origin", tip], folder)
        parents = _ask_or_raise(folder, "rev-list", "--parents", "-n", "1", "HEAD").split()[1:]
        if len(parents) == 2 and parents[1] == head:
            return parents[0]
    base = base or _as_dict(event.get("merge_group")).get("base_sha") or event.get("before")
    default = _as_dict(event.get("repository")).get("default_branch")
    if base == _NO_COMMIT and default and event.get("ref") != f"refs/heads/{default}":
        return resolve_commit(str(default), folder)
    if not isinstance(base, str) or not _HASH.fullmatch(base) or not base.strip("0"):
        raise ValueError(
            f"the event {environment.get('GITHUB_EVENT_NAME') or '(no GITHUB_EVENT_PATH)'} "
            "names no commit to compare "
            "with; expected a pull request, a merge group or a push; name one with `base`"
        )
    return resolve_commit(base, folder)


def resolve_commit(ref: str, folder: str) -> str:
    for is_fetched in (False, True):
        if is_fetched:
            shallow = ["--depth=1"] if _is_shallow(folder) else []
            ask_git(
                ["fetch", "--quiet", "--no-tags", *shallow, "--end-of-options", "origin", ref],
                folder,
            )
        name = "FETCH_HEAD" if is_fetched and not _HASH.fullmatch(ref) else ref
        parsed = ask_git(
            ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"], folder
        )
        if parsed.returncode == 0:
            return parsed.stdout.strip()
    raise ValueError(
        f"there is no commit {ref[:80]!r} in this clone or its origin; expected a branch, tag "
        "or hash; "
        "actions/checkout fetches more with `fetch-depth: 0`"
    )


def _is_shallow(folder: str) -> bool:
    return _ask_or_raise(folder, "rev-parse", "--is-shallow-repository") == "true"


def _ask_or_raise(folder: str, *words: str) -> str:
    answer = ask_git(list(words), folder)
    if answer.returncode:
        raise ValueError(
            f"{os.path.abspath(folder)}: git {words[0]}: {answer.stderr.strip()}; expected a "
            "git checkout"
        )
    return answer.stdout.strip()


def _read_event(environment: Mapping[str, str]) -> dict[str, Any]:
    path = environment.get("GITHUB_EVENT_PATH")
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            return _as_dict(json.load(file))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"cannot read the event {path}: {error}; expected the JSON that GitHub Actions writes"
        ) from None


def _as_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
