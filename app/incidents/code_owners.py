"""Find the owners of a file in CODEOWNERS as GitHub and GitLab do: the last matching line counts.

GitLab has sections, each with its own owners. Its patterns without a leading slash match at any
depth; on GitHub only patterns without any slash do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_SECTION = re.compile(r"\^?\[(?P<name>[^\[\]]+)\](?:\[\d+\])?(?P<owners>(?:\s.*)?)")
_OWNER = re.compile(r"@[\w./@-]{1,200}|[\w.+-]{1,200}@[\w.-]{1,200}")
MAX_OWNERS = 20
MAX_WILDCARDS = 6  # a line with more would take long to match


class _Rule(NamedTuple):
    section: str
    pattern: re.Pattern[str]
    owners: tuple[str, ...]
    is_exclusion: bool


def is_gitlab_syntax(text: str, remote: str | None) -> bool:
    """Return whether a CODEOWNERS file is GitLab's: it has a section, or the remote's name contains
    gitlab.
    """
    return "gitlab" in (remote or "") or any(map(_SECTION.fullmatch, text.splitlines()))


def find_owners(text: str, path: str, *, is_gitlab: bool) -> list[str]:
    """Return the owners of a path of the repository, at most 20.

    >>> find_owners("* @all\\n/models/ @ann @org/ml", "models/bert.py", is_gitlab=False)
    ['@ann', '@org/ml']
    """
    owners: dict[str, tuple[str, ...]] = {}
    excluded = set()
    for rule in _parse_rules(text, is_gitlab):
        if rule.pattern.fullmatch(path):
            if rule.is_exclusion:
                excluded.add(rule.section)
            owners[rule.section] = rule.owners
    named = [owners[section] for section in owners if section not in excluded]
    return list(dict.fromkeys(owner for group in named for owner in group))[:MAX_OWNERS]


@lru_cache(maxsize=16)
def _parse_rules(text: str, is_gitlab: bool) -> list[_Rule]:
    return list(_read_rules(text, is_gitlab))


def _read_rules(text: str, is_gitlab: bool) -> Iterator[_Rule]:
    section = ""
    defaults: tuple[str, ...] = ()
    for line in map(str.strip, text.splitlines()):
        if is_gitlab and (heading := _SECTION.fullmatch(line)):
            section, defaults = heading["name"].lower(), _read_owners(heading["owners"])
            continue
        # A backslash keeps what follows it: a space, or a # at the start of a path.
        parts = re.findall(r"(?:\\.|[^\s\\])+", line)
        if not parts or parts[0].startswith("#"):
            continue
        pattern = parts[0]
        is_exclusion = is_gitlab and pattern.startswith("!")
        if not is_gitlab and (pattern.startswith("!") or "[" in pattern):
            continue  # GitHub skips a line with these
        if len(_TOKEN.findall(pattern)) > MAX_WILDCARDS:
            continue
        owners = _read_owners(" ".join(parts[1:])) or defaults
        compiled = _compile_pattern(pattern[is_exclusion:], is_gitlab)
        yield _Rule(section, compiled, owners, is_exclusion)


def _read_owners(text: str) -> tuple[str, ...]:
    words = re.split(r"(?:^|\s)#", text, maxsplit=1)[0].split()
    return tuple(word for word in words if _OWNER.fullmatch(word))


_TOKEN = re.compile(r"\\(?P<escaped>.)|(?P<folders>\*\*/)|(?P<all>\*\*)|(?P<some>\*)|(?P<one>\?)")


def _compile_pattern(pattern: str, is_gitlab: bool) -> re.Pattern[str]:
    is_folder, body = pattern.endswith("/"), pattern.strip("/")
    starts_at_top = pattern.startswith("/") or (not is_gitlab and "/" in body)
    written, position = [], 0
    for token in _TOKEN.finditer(body):
        written.append(re.escape(body[position : token.start()]))
        position = token.end()
        if token["escaped"]:
            written.append(re.escape(token["escaped"]))
        elif token["folders"]:
            written.append("(?:.*/)?")
        else:
            written.append(".*" if token["all"] else "[^/]*" if token["some"] else "[^/]")
    written.append(re.escape(body[position:]))
    # GitHub takes a name for a folder too; `docs/*` has the files of docs alone.
    is_file = is_gitlab or "*" in body.rpartition("/")[2]
    below = "/.*" if is_folder else "" if is_file else "(?:/.*)?"
    return re.compile(f"{'' if starts_at_top else '(?:.*/)?'}{''.join(written)}{below}", re.DOTALL)
