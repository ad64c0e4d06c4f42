"""Real repositories, made by the real git."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(folder: Path, *words: str) -> str:
    """Ask git in a folder, as somebody; the settings of the machine's own user do not count."""
    command = [
        "git",
        "-c",
        "user.name=Ann",
        "-c",
        "user.email=a@example.org",
        "-c",
        "commit.gpgsign=false",
        *words,
    ]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def make_repository(folder: Path, *subjects: str) -> Path:
    """Make a repository with a commit of each subject, the oldest first."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for subject in subjects:
        commit(folder, subject)
    return folder


def commit(folder: Path, subject: str, *words: str) -> str:
    """Commit something and return its hash."""
    git(folder, "commit", "-q", "--allow-empty", "-m", subject, *words)
    return git(folder, "rev-parse", "HEAD")
