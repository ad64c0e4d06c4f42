"""`commits`: add the history of a local clone to the database."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing

import click

from compileboard.collectors.cli.common import db_option, print_message
from compileboard.collectors.record.git import ask_git, read_commits
from compileboard.collectors.store.connection import (
    checkpoint,
    open_reader,
    open_writer,
    write_transaction,
)
from compileboard.collectors.store.ingest.commit_history import (
    StoredCommit,
    count_commits,
    save_commits,
)
from compileboard.command_line import Command

MAX_COMMITS = 200_000  # linux and pytorch have fewer along first parents
READ_MOST_S = 300.0
BATCH = 5_000  # per transaction: a recorder waits no longer than one


@click.command(
    cls=Command, epilog="Example: %(prog)s --repository ~/pytorch --branch origin/main\n"
)
@db_option
@click.option(
    "--repository",
    default=".",
    metavar="PATH",
    help="Folder inside the clone. Default: this folder.",
)
@click.option(
    "--branch",
    default="HEAD",
    metavar="NAME",
    help="Branch, tag or commit. Default: what is checked out.",
)
def commits(db: str, repository: str, branch: str) -> None:
    """Add the history of a local git clone to the database, along first parents: hash, time,
    author's name, subject.

    Trends then order its commits by ancestry, and an incident names the commits in its range.
    `run`, `bench` and code record the newest 300 commits themselves; use this for imported results
    and to fill gaps. Calling it again adds only what is new.
    """
    open_reader(db).close()  # refuses a missing or older one before a writer could create it
    history = _read_history(repository, branch)
    with closing(open_writer(db)) as connection:
        before = count_commits(connection)
        for start in range(0, len(history), BATCH):
            with write_transaction(connection):
                save_commits(connection, history[start : start + BATCH])
        new = count_commits(connection) - before
        checkpoint(connection)
    newest, oldest = history[0], history[-1]
    print_message(
        f"{db}: {new:,} of {len(history):,} commits of {branch} are new, "
        f"{oldest.hash[:12]} to {newest.hash[:12]} ({newest.subject or 'no subject'})"
    )
    if len(history) == MAX_COMMITS and oldest.parent_hash:
        print_message(f"older ones than these {MAX_COMMITS:,} were left out")
    elif oldest.parent_hash is None and _is_shallow(repository):
        print_message(
            "the clone is shallow: earlier commits are not known; `git fetch --unshallow`, "
            "then this command again"
        )


def _read_history(repository: str, revision: str) -> list[StoredCommit]:
    folder = os.path.abspath(repository)
    if not os.path.isdir(folder):
        raise ValueError(
            f"--repository {repository}: there is no such folder; expected one inside a git clone"
        )
    try:
        commits = read_commits(folder, revision, limit=MAX_COMMITS, timeout_s=READ_MOST_S)
    except FileNotFoundError:
        raise ValueError(
            "git is not installed, or not on PATH: it reads the repository's history"
        ) from None
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"--repository {repository}: git took longer than {READ_MOST_S:.0f} s; try again"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"--repository {repository}: {_explain_git_error(str(error), revision)}"
        ) from None
    if not commits:
        raise ValueError(f"--repository {repository}: {revision} has no commits")
    return commits


def _explain_git_error(text: str, revision: str) -> str:
    if "not a git repository" in text:
        return "this folder is in no git clone; give one that is"
    if "dubious ownership" in text:
        return (
            "the clone belongs to another user, and git reads it only if `git config "
            "safe.directory` allows it"
        )
    if "bad revision" in text or "unknown revision" in text:
        if revision == "HEAD":
            return "the clone has no commits yet"
        return (
            f"the clone has no branch, tag or commit {revision!r}; `git branch --all` names "
            "its branches"
        )
    return text.removeprefix("fatal: ")


def _is_shallow(repository: str) -> bool:
    return (
        ask_git(
            ["rev-parse", "--is-shallow-repository"], os.path.abspath(repository)
        ).stdout.strip()
        == "true"
    )
