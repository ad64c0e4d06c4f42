"""Which commits a run's commit came after: the first-parent history of its repository, asked of git once a run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from compileboard.collectors.events import CommitsSeen
from compileboard.collectors.record.git import ask_git
from compileboard.collectors.scrub import scrub_text
from compileboard.collectors.store.commits import Commit

FIRST_PARENTS = 300  # more than a day of a busy repository: a run a day leaves no gap
EVENT_BYTES = 40_000  # what they may take as an event; with long subjects it holds fewer commits
SEQUENCE = -1  # of the recorder's own events: 0 is the run's start, 1 its end
WORDS_LIMIT = 120  # of a subject or an author
_FORMAT = "--format=%H%x00%P%x00%ct%x00%an%x00%s"
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read_commits(folder: str, revision: str, *, limit: int, timeout_s: float) -> list[Commit]:
    """Read a revision's history along first parents, the newest first.

    Raises: ValueError in git's words if it has no such history; OSError without git or the folder;
    subprocess.TimeoutExpired.
    """
    # What a person has set for their own `git log` (signatures, another encoding) is not for us.
    options = ["--first-parent", "--no-show-signature", "--no-color", "--encoding=UTF-8", _FORMAT, "-n", str(limit)]
    done = ask_git(["log", *options, "--end-of-options", revision, "--"], folder, timeout_s=timeout_s)
    if done.returncode:
        raise ValueError(done.stderr.strip() or f"git log ended with {done.returncode}")
    lines = [line.split("\0") for line in done.stdout.split("\n")]
    return [_read_commit(*parts) for parts in lines if len(parts) == 5 and _HASH.fullmatch(parts[0])]


def _read_commit(hash_: str, parents: str, time_s: str, author: str, subject: str) -> Commit:
    parent = parents.partition(" ")[0]
    time_us = int(time_s) * 1_000_000 if time_s.isdigit() and len(time_s) < 12 else 0
    return Commit(hash_, parent or None, time_us, _words(author), _words(subject))


@lru_cache(1_000)  # authors come again and again
def _words(text: str) -> str | None:
    """Return one line without secrets, None where there is nothing."""
    line = " ".join(scrub_text(text).split())
    return (line if len(line) <= WORDS_LIMIT else line[: WORDS_LIMIT - 1] + "…") or None


def say_history(git: Mapping[str, Any], process_id: str, *, timeout_s: float) -> CommitsSeen | None:
    """Describe the history before a run's commit, None where the run has none that git can tell.

    Raises: subprocess.TimeoutExpired.
    """
    root, commit = git.get("root"), git.get("commit")
    if not root or not commit:
        return None
    try:
        commits = read_commits(root, commit, limit=FIRST_PARENTS, timeout_s=timeout_s)
    except (ValueError, OSError):  # the folder is gone, or was never a repository of ours
        return None
    return pack_commits(commits, process_id) if commits else None


def pack_commits(commits: Sequence[Commit], process_id: str) -> CommitsSeen:
    """Make the event of a chain of commits, as many of the newest as it has room for."""
    rows: list[list[Any]] = []
    room = EVENT_BYTES
    for it in commits:
        row = [it.hash, it.time_us, it.author, it.subject]
        room -= len(json.dumps(row))
        if room < 0:
            break
        rows.append(row)
    last = commits[len(rows) - 1]
    return CommitsSeen(process_id, SEQUENCE, time.time_ns() // 1000, rows, last.parent_hash)
