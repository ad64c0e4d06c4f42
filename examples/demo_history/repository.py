"""A temporary git repository of the demo's project, which grows commit by commit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from compileboard.collectors.record.git import ask_git
from examples.demo_history.versions import Version, apply, read_project

BRANCH = "main"
# The day on which this history was written. The same versions thereby make the same commits on
# every machine, so that a history that was interrupted goes on, and one that is measured again adds
# points to the commits it has.
WRITTEN_S = 1795280400
AUTHOR = {"NAME": "CompileBoard demo", "EMAIL": "demo@compileboard.invalid"}
OURS_ALONE = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_DEFAULT_HASH": "sha1",
}


class NoRepository(Exception):
    """The repository could not be made."""


class Repository:
    """A temporary git repository of the demo, independent of the user's git settings.

    Raises NoRepository if git is missing or fails.
    """

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="compileboard-demo-")).resolve()
        self.folder = self._home / "search"
        self._files = read_project()
        self._count = 0
        self.folder.mkdir()

    def __enter__(self) -> Repository:
        try:
            self._git("init", "--quiet", "--template=")
            self._git("symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    def commit(self, version: Version) -> str:
        """Commit a version on the branch, and return its hash."""
        self._files = apply(version, self._files)
        for name, text in self._files.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        self._git("add", "--force", *self._files)
        self._git("commit", "--quiet", "--no-gpg-sign", "-m", version.subject)
        self._count += 1
        return self._git("rev-parse", "HEAD")

    def _git(self, *words: str) -> str:
        people = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in AUTHOR.items()
        }
        date = f"{WRITTEN_S + 60 * self._count} +0000"
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        try:
            done = ask_git(list(words), str(self.folder), also={**OURS_ALONE, **people, **dates})
        except FileNotFoundError:
            raise NoRepository("git is not installed, and a history is commits") from None
        if done.returncode:
            raise NoRepository(f"git {words[0]} failed: {done.stderr.strip()}")
        return done.stdout.strip()
