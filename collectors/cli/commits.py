"""`commits`: tell the database the history of a clone at hand."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import closing

from compileboard.collectors.runs.git import ask_git, read_commits
from compileboard.collectors.store.connection import checkpoint, open_reader, open_writer, write_transaction
from compileboard.collectors.store.ingest.commits import StoredCommit, count_commits, save_commits

MOST_COMMITS = 200_000  # linux and pytorch have fewer along first parents
READ_MOST_S = 300.0
BATCH = 5_000  # a transaction: a recorder beside us waits for no more than this


def add_commits(database: str, repository: str, revision: str, *, say: Callable[[str], None]) -> int:
    """Add the first-parent history of a clone's revision; return the exit code.

    Raises: StoreError if the database is missing or cannot be written; ValueError if there is no such history.
    """
    open_reader(database).close()  # refuses a missing or older one before a writer could make it
    commits = _read(repository, revision)
    with closing(open_writer(database)) as connection:
        before = count_commits(connection)
        for start in range(0, len(commits), BATCH):
            with write_transaction(connection):
                save_commits(connection, commits[start : start + BATCH])
        new = count_commits(connection) - before
        checkpoint(connection)
    newest, oldest = commits[0], commits[-1]
    say(
        f"{database}: {new:,} of {len(commits):,} commits of {revision} are new, "
        f"{oldest.hash[:12]} to {newest.hash[:12]} ({newest.subject or 'no subject'})"
    )
    if len(commits) == MOST_COMMITS and oldest.parent_hash:
        say(f"older ones than these {MOST_COMMITS:,} were left out")
    elif oldest.parent_hash is None and _is_shallow(repository):
        say("the clone is shallow: what came before is not known; `git fetch --unshallow`, then this command again")
    return 0


def _read(repository: str, revision: str) -> list[StoredCommit]:
    folder = os.path.abspath(repository)
    if not os.path.isdir(folder):
        raise ValueError(f"--repository {repository}: there is no such folder; expected one inside a git clone")
    try:
        commits = read_commits(folder, revision, limit=MOST_COMMITS, timeout_s=READ_MOST_S)
    except FileNotFoundError:
        raise ValueError("git is not installed, or not on PATH: it reads the repository's history") from None
    except subprocess.TimeoutExpired:
        raise ValueError(f"--repository {repository}: git took longer than {READ_MOST_S:.0f} s; try again") from None
    except ValueError as error:
        raise ValueError(f"--repository {repository}: {_explain(str(error), revision)}") from None
    if not commits:
        raise ValueError(f"--repository {repository}: {revision} has no commits")
    return commits


def _explain(text: str, revision: str) -> str:
    """Say in our words what git refuses, or in its own what we do not know."""
    if "not a git repository" in text:
        return "this folder is in no git clone; give one that is"
    if "dubious ownership" in text:
        return "the clone belongs to another user, and git reads it only if `git config safe.directory` allows it"
    if "bad revision" in text or "unknown revision" in text:
        if revision == "HEAD":
            return "the clone has no commits yet"
        return f"the clone has no branch, tag or commit {revision!r}; `git branch --all` names its branches"
    return text.removeprefix("fatal: ")


def _is_shallow(repository: str) -> bool:
    return ask_git(["rev-parse", "--is-shallow-repository"], os.path.abspath(repository)).stdout.strip() == "true"
