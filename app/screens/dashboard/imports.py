"""Imports of uploaded files, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.imports.queue import MOST_KEPT, Import, ImportQueue


@dataclass(frozen=True)
class ImportsScreen:
    imports: Sequence[Import]

    @property
    def is_live(self) -> bool:
        return any(not upload.has_ended for upload in self.imports)


def build_imports(database: str, limit_count: int = MOST_KEPT) -> ImportsScreen:
    return ImportsScreen(ImportQueue(database).list_newest(min(limit_count, MOST_KEPT)))


def build_import(database: str, import_id: str) -> Import | None:
    return ImportQueue(database).load(import_id)


def describe_no_import(import_id: str) -> str:
    return f"There is no import {import_id[:80]}; how an import ended is known for a day."
