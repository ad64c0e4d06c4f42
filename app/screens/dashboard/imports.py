"""Imports of what was sent, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.imports.queue import MOST_KEPT, Import, ImportQueue


@dataclass(frozen=True)
class ImportsScreen:
    """The newest imports of a database: how each stands is the queue's own row."""

    imports: Sequence[Import]

    @property
    def is_live(self) -> bool:
        """Return True while one of them goes on."""
        return any(not upload.has_ended for upload in self.imports)


def build_imports(database: str, limit_count: int = MOST_KEPT) -> ImportsScreen:
    """Read the newest imports."""
    return ImportsScreen(ImportQueue(database).list_newest(min(limit_count, MOST_KEPT)))


def build_import(database: str, import_id: str) -> Import | None:
    """Read one import, None if there is none of that id."""
    return ImportQueue(database).load(import_id)


def describe_no_import(import_id: str) -> str:
    """Describe why there is no import of an id."""
    return f"There is no import {import_id[:80]}; how an import ended is known for a day."
