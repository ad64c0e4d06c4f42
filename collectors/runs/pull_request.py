"""Find the commit to compare a CI checkout with; fetch it if the clone is shallow."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from compileboard.collectors.runs.git import ask_git

_NO_COMMIT = "0" * 40  # before the first push of a branch
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def find_base(environment: Mapping[str, str], folder: str) -> str:
    """Return the hash of the commit to compare with: a pull request's base or the commit before a
    push.

    A pull request's merge commit is compared with its first parent; a new branch with the default
    branch. Raises ValueError if the event names none or it cannot be fetched.
    """
    event = _read_event(environment)
    pull_request = _as_dict(event.get("pull_request"))
    base = _as_dict(pull_request.get("base")).get("sha")
    head = _as_dict(pull_request.get("head")).get("sha")
    if head:
        _deepen(folder)
        parents = _ask(folder, "rev-list", "--parents", "-n", "1", "HEAD").split()[1:]
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


def _deepen(folder: str) -> None:
    if _is_shallow(folder):
        ask_git(
            [
                "fetch",
                "--quiet",
                "--no-tags",
                "--depth=2",
                "origin",
                _ask(folder, "rev-parse", "HEAD"),
            ],
            folder,
        )


def _is_shallow(folder: str) -> bool:
    return _ask(folder, "rev-parse", "--is-shallow-repository") == "true"


def _ask(folder: str, *words: str) -> str:
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
