"""What the writers of rows have in common."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compileboard.collectors.contract.fingerprints import content_id
from compileboard.collectors.store.ingest.artifacts import TraceRows
from compileboard.collectors.store.ingest.frames import FrameIndex
from compileboard.collectors.store.ingest.insert import InsertOnce
from compileboard.collectors.store.ingest.stacks import StackIndex
from compileboard.collectors.store.rollups.totals import BatchTotals

Content = tuple["str | int | None", ...]  # what kind of thing it is, and what tells it apart


@dataclass(frozen=True)
class Batch:
    """Hand a writer what it works with: one run's events in one transaction."""

    connection: sqlite3.Connection
    run_id: str
    frames: FrameIndex
    stacks: StackIndex
    totals: BatchTotals
    traces: TraceRows
    ids: dict[Content, int] = field(default_factory=dict)

    def find_id(
        self,
        insert: InsertOnce,
        content: Content,
        identity: Mapping[str, Any],
        describe: Callable[[], Mapping[str, Any]] = dict,
    ) -> int:
        """Return the id of a function, a series … by its content, making its row the first time.

        `identity` are the columns that tell it apart; `describe` gives the others, only of a row that is new.
        """
        known = self.ids.get(content)
        if known is None:
            known = content_id(*content)
            insert.add_once(self.connection, {"id": known, **identity}, describe)
            self.ids[content] = known
        return known


_FUNCTION = InsertOnce("functions", "file", "name")


def find_function(batch: Batch, file: str | None, name: str | None) -> int | None:
    """Return the id of a function, making its row the first time; None if torch did not name it."""
    if not name:
        return None
    return batch.find_id(_FUNCTION, ("function", file or "", name), {"file": file or "", "name": name})
