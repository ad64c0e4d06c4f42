from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compileboard.collectors.contract.failures import Failure
from compileboard.collectors.contract.fingerprints import content_id
from compileboard.collectors.store.ingest.artifacts import TraceRows
from compileboard.collectors.store.ingest.frames import Compile, FrameIndex, StackIndex
from compileboard.collectors.store.ingest.insert import InsertOnce
from compileboard.collectors.store.rollups import BatchTotals

Content = tuple["str | int | None", ...]  # what kind of thing it is, and what tells it apart


@dataclass(frozen=True)
class Batch:
    connection: sqlite3.Connection
    run_id: str
    frames: FrameIndex
    stacks: StackIndex
    totals: BatchTotals
    traces: TraceRows
    ids: dict[Content, int] = field(default_factory=dict)
    # Frames with new recompiles, whose causes are decided at the end, and one of the recompiles.
    recompiled: dict[int, tuple[list[Compile], int]] = field(default_factory=dict)

    def find_id(
        self,
        insert: InsertOnce,
        content: Content,
        identity: Mapping[str, Any],
        describe: Callable[[], Mapping[str, Any]] = dict,
    ) -> int:
        known = self.ids.get(content)
        if known is None:
            known = content_id(*content)
            insert.add_once(self.connection, {"id": known, **identity}, describe)
            self.ids[content] = known
        return known


_FUNCTION = InsertOnce("functions", "file", "name")
_ISSUE = InsertOnce("failure_issues", "fingerprint")


def find_function(batch: Batch, file: str | None, name: str | None) -> int | None:
    if not name:
        return None
    return batch.find_id(
        _FUNCTION, ("function", file or "", name), {"file": file or "", "name": name}
    )


def find_issue(batch: Batch, failure: Failure, function_id: int | None) -> int:
    identity = failure.fingerprint
    more = {**failure._asdict(), "function_id": function_id}
    return batch.find_id(_ISSUE, ("issue", identity), {"fingerprint": identity}, lambda: more)
