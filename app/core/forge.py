"""Links from a run to its source: commits and lines on their code host, files on the run's machine.

Recorded values are untrusted text. A value that does not match a code host's pattern gets no link.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from compileboard.collectors.contract.shapes import CI_JOB_URL, CiJob, Git
from compileboard.collectors.store.reading import read_json


class Forge(NamedTuple):
    """URL patterns of a code host, with {host}, {path} of the repository, {commit}, {file} and
    {line}.
    """

    commit: str
    line: str


_GITEA = Forge(
    "https://{host}/{path}/commit/{commit}",
    "https://{host}/{path}/src/commit/{commit}/{file}#L{line}",
)
KINDS = {
    "github": Forge(
        "https://{host}/{path}/commit/{commit}",
        "https://{host}/{path}/blob/{commit}/{file}#L{line}",
    ),
    "gitlab": Forge(
        "https://{host}/{path}/-/commit/{commit}",
        "https://{host}/{path}/-/blob/{commit}/{file}#L{line}",
    ),
    "gitea": _GITEA,
    "forgejo": _GITEA,
}
_KNOWN = {
    "github.com": KINDS["github"],
    "gitlab.com": KINDS["gitlab"],
    "gitea.com": KINDS["gitea"],
    "codeberg.org": KINDS["forgejo"],
}
_HOST = r"(?P<host>[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?)"
_PATH = r"(?P<path>[\w.~+-]+(?:/[\w.~+-]+){1,20})/?"
# A login is left out when it is recorded; what an earlier build recorded has <withheld> there.
_REMOTES = (
    re.compile(rf"https://(?:<withheld>@)?{_HOST}(?P<port>:\d{{1,5}})?/{_PATH}", re.ASCII),
    re.compile(
        rf"(?:http|git|ssh|git\+ssh)://(?:(?:<withheld>|git)@)?{_HOST}(?::\d{{1,5}})?/{_PATH}",
        re.ASCII,
    ),
    re.compile(rf"(?:[\w.-]+@)?{_HOST}:/?{_PATH}", re.ASCII),  # git@host:path
)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_ADDRESS = re.compile(r"https://(?:[\w.-]|\{host\})+(?::\d{1,5})?/[^\s\"'<>\\]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


@lru_cache(maxsize=8)
def parse_forges(text: str) -> Mapping[str, Forge]:
    """Read `git.example.org=gitlab, src.example.org=COMMIT|LINE` into forges by host.

    Raises ValueError if an entry is neither a kind nor two patterns of https addresses.

    >>> parse_forges("git.example.org=gitlab")["git.example.org"] == KINDS["gitlab"]
    True
    """
    forges = dict(_KNOWN)
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, value = (part.strip() for part in entry.partition("="))
        patterns = Forge(*value.split("|")) if value.count("|") == 1 else KINDS.get(value)
        if not re.fullmatch(_HOST, host) or patterns is None or not _is_valid(patterns):
            raise ValueError(
                f"{entry[:200]!r} names no forge; expected HOST=KIND with one of "
                f"{', '.join(KINDS)}, or HOST=COMMIT|LINE with two https addresses that may have "
                "{host}, {path}, {commit}, {file} and {line}"
            )
        forges[host] = patterns
    return forges


def _is_valid(forge: Forge) -> bool:
    allowed = {"host", "path", "commit"}
    return all(
        _ADDRESS.fullmatch(pattern) and set(_PLACEHOLDER.findall(pattern)) <= names
        for pattern, names in ((forge.commit, allowed), (forge.line, allowed | {"file", "line"}))
    )


@dataclass(frozen=True)
class Repository:
    """A repository on a known code host, with the URLs of its commits and lines."""

    forge: Forge
    host: str
    path: str

    def commit_url(self, commit: str | None) -> str | None:
        if not commit or not _COMMIT.fullmatch(commit):
            return None
        return self._fill(self.forge.commit, commit=commit)

    def line_url(self, commit: str | None, file: str, line: int | None) -> str | None:
        if not commit or not _COMMIT.fullmatch(commit):
            return None
        pattern = self.forge.line if line else self.forge.line.partition("#")[0]
        return self._fill(pattern, commit=commit, file=quote(file), line=str(line or 1))

    def _fill(self, pattern: str, **values: str) -> str:
        given = {"host": self.host, "path": self.path, **values}
        return _PLACEHOLDER.sub(lambda name: given[name[1]], pattern)


def find_repository(remote: str | None, forges: Mapping[str, Forge]) -> Repository | None:
    """Return a remote's repository; None unless its host is a known forge.

    >>> find_repository("git@github.com:ann/model.git", parse_forges("")).commit_url("0123abcd")
    'https://github.com/ann/model/commit/0123abcd'
    """
    for pattern in _REMOTES:
        if found := pattern.fullmatch(remote or ""):
            host, path = found["host"], found["path"].removesuffix(".git")
            forge = forges.get(host)
            if forge is None or {".", ".."} & set(path.split("/")):
                return None
            port = found.groupdict().get("port") or ""
            return Repository(forge, host + port, path)
    return None


class SourceLocation(NamedTuple):
    """A file in a run's repository: its path there, on the code host and on the run's machine."""

    file: str
    url: str | None
    path: str | None


@dataclass(frozen=True)
class RunSource:
    """The repository and the CI job of a run, if they were recorded."""

    commit: str | None = None
    is_dirty: bool = False
    host: str | None = None
    git: Git = field(default_factory=Git)
    ci: CiJob = field(default_factory=CiJob)
    repository: Repository | None = None

    def commit_url(self, commit: str | None) -> str | None:
        return self.repository.commit_url(commit) if self.repository else None

    def find_place(self, file: str | None, line: int | None = None) -> SourceLocation | None:
        """Return the location of a file, or None if it may not belong to the repository.

        Recorded names are relative to the working directory, to the top of the repository or to a
        package. Only names of the first two kinds can be found, and the commit must have the name's
        first part in exactly one of the two.
        """
        parts = (file or "").split("/")
        if not file or "\0" in file or {"", ".", ".."} & set(parts):
            return None
        folders = [
            folder for folder, names in (self.git.get("tracked") or {}).items() if parts[0] in names
        ]
        if len(folders) != 1:
            return None
        path = "/".join(filter(None, (folders[0], file)))
        root = self.git.get("root")
        url = self.repository.line_url(self.commit, path, line) if self.repository else None
        return SourceLocation(path, url, f"{root.rstrip('/')}/{path}" if root else None)


SOURCE_SQL = """
select git_commit, git_dirty, host, json_extract(facts, '$.git') as git,
  json_extract(facts, '$.ci') as ci
from runs
where id = :run_id
"""


def get_source(connection: sqlite3.Connection, run_id: str, forges: str = "") -> RunSource:
    row = connection.execute(SOURCE_SQL, {"run_id": run_id}).fetchone()
    if row is None:
        return RunSource()
    git = read_json(Git, row["git"]) or Git()
    ci = read_json(CiJob, row["ci"]) or CiJob()
    url = ci.get("url") or ""
    return RunSource(
        row["git_commit"],
        bool(row["git_dirty"]),
        row["host"],
        git,
        {"service": ci.get("service") or "CI", "url": url, "name": ci.get("name") or ""}
        if CI_JOB_URL.fullmatch(url)
        else {},
        find_repository(git.get("remote"), parse_forges(forges)),
    )
