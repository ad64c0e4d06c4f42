"""Options of an upload, and why an upload is rejected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from compileboard.collectors.store.run_owners import THIS_MACHINE, RunSender


class UploadRejected(Exception):
    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


FIELDS = ("name", "suite", "tags", "payloads", "redact_source", "again")
_MOST_CHARACTERS = 200
_MOST_TAGS = 20


@dataclass(frozen=True)
class ImportOptions:
    name: str | None = None
    suite: str | None = None
    tags: tuple[str, ...] = ()  # key=value
    payloads: bool = True
    redact_source: bool = False
    again: bool = False
    sender: RunSender = THIS_MACHINE  # of the request, not of its fields

    def options(self) -> list[str]:
        words = [
            f"--{key}={value}"
            for key, value in (("name", self.name), ("suite", self.suite))
            if value
        ]
        words += [f"--sender={self.sender.owner}"] if self.sender.owner else []
        words += [f"--tag={tag}" for tag in self.tags]
        flags = (
            ("--no-payloads", not self.payloads),
            ("--redact-source", self.redact_source),
            ("--again", self.again),
            ("--only-own", not self.sender.may_add_to_all),
        )
        return words + [flag for flag, is_given in flags if is_given]


def parse_options(given: Mapping[str, str]) -> ImportOptions:
    """Parse form fields or URL parameters. Raises UploadRejected for an unknown or invalid one."""
    for key in given:
        if key not in FIELDS:
            raise UploadRejected(
                400, f"{key[:40]!r}: there is no such field; known are files, {', '.join(FIELDS)}"
            )
    return ImportOptions(
        name=_text(given, "name"),
        suite=_text(given, "suite"),
        tags=_tags(given.get("tags", "")),
        payloads=_choice(given, "payloads", True),
        redact_source=_choice(given, "redact_source", False),
        again=_choice(given, "again", False),
    )


def _text(given: Mapping[str, str], key: str) -> str | None:
    value = given.get(key, "").strip()
    if len(value) > _MOST_CHARACTERS or not value.isprintable():
        raise UploadRejected(
            400, f"{key}: expected at most {_MOST_CHARACTERS} printable characters"
        )
    return value or None


def _choice(given: Mapping[str, str], key: str, otherwise: bool) -> bool:
    value = given.get(key, "")
    if value not in ("", "yes", "no"):
        raise UploadRejected(400, f"{key}: {value[:40]!r} is neither yes nor no")
    return otherwise if value == "" else value == "yes"


def _tags(text: str) -> tuple[str, ...]:
    tags = tuple(part.strip() for part in re.split(r"[,\r\n]+", text) if part.strip())
    if len(tags) > _MOST_TAGS:
        raise UploadRejected(400, f"tags: at most {_MOST_TAGS}, these are {len(tags)}")
    for tag in tags:
        key, equals, _value = tag.partition("=")
        if not equals or not key.strip() or len(tag) > _MOST_CHARACTERS or not tag.isprintable():
            raise UploadRejected(
                400, f"tags: expected key=value with commas between, got {tag[:40]!r}"
            )
    return tags
