"""Write artifacts with their texts, spans and symbols of trace logs."""

from __future__ import annotations

import sqlite3
from typing import Any

from compileboard.collectors.contract.events import ArtifactSeen, SymbolSeen
from compileboard.collectors.contract.shapes import GuardSummary
from compileboard.collectors.store.codec import dumps, pack
from compileboard.collectors.store.ingest.insert import Insert, pick
from compileboard.collectors.store.ingest.payloads import PayloadRows, Pending
from compileboard.collectors.store.ingest.spans import SpanRows

_GUARD_SET = Insert("guard_sets", ignore=True)
_SYMBOL = Insert("symbols", ignore=True)


class TraceRows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.payloads = PayloadRows(connection)
        self._artifacts: list[dict[str, Any]] = []  # of this batch
        self._events: list[ArtifactSeen] = []
        self._summed_up: list[tuple[ArtifactSeen, dict[str, Any]]] = []
        self.spans = SpanRows(connection, self.payloads.add)

    def forget(self) -> None:
        self.payloads.forget()
        self._artifacts.clear()
        self._events.clear()
        self._summed_up.clear()
        self.spans.forget()

    def flush(self) -> list[ArtifactSeen]:
        self.payloads.flush()
        clashing = self._write_artifacts() if self._artifacts else []
        self.spans.flush()
        return clashing

    def add_artifact(
        self, run_id: str, event: ArtifactSeen, compile_key: int | None, stack_id: int | None = None
    ) -> None:
        envelope = {
            name: value
            for name, value in event.envelope.items()
            if name != "stack" or stack_id is None
        }
        self._artifacts.append(
            {
                **pick(
                    event,
                    "process_id",
                    "sequence",
                    "compile_id",
                    "attempt",
                    "name",
                    "title",
                    "encoding",
                    "time_us",
                ),
                **pick(event, "state", "size_bytes", "md5"),
                "run_id": run_id,
                "compile_key": compile_key,
                "metadata": dumps(event.metadata) if event.metadata else None,
                "envelope": dumps(envelope) if envelope else None,
                "stack_id": stack_id,
                "payload_id": None if event.text is None else self.payloads.add(event.text),
            }
        )
        self._events.append(event)
        if event.guards is not None or event.aot is not None:
            self._summed_up.append((event, self._artifacts[-1]))

    def _write_artifacts(self) -> list[ArtifactSeen]:
        for values in self._artifacts:
            if isinstance(values["payload_id"], Pending):
                values["payload_id"] = values["payload_id"].row_id
        new_count = self.connection.executemany(_INSERT_ARTIFACT, self._artifacts).rowcount
        pairs = (
            zip(self._events, self._artifacts, strict=True)
            if new_count < len(self._artifacts)
            else ()
        )
        clashing = [
            event
            for event, values in pairs
            if not self.connection.execute(_IS_SAME, values).fetchone()
        ]
        for event, values in self._summed_up:
            row = self.connection.execute(
                "select id from artifacts where process_id = :process_id and sequence = :sequence",
                values,
            ).fetchone()
            context = {
                "artifact_id": row["id"],
                **{key: values[key] for key in ("run_id", "compile_key", "compile_id")},
            }
            if event.guards is not None:
                self._write_guards(context, event.guards)
            if event.aot is not None:
                self.connection.execute(_INSERT_AOT, {**context, "summary": dumps(event.aot)})
        self._artifacts.clear()
        self._events.clear()
        self._summed_up.clear()
        return clashing

    def _write_guards(self, context: dict[str, Any], summary: GuardSummary) -> None:
        _GUARD_SET.add(
            self.connection,
            {
                **context,
                "guard_count": summary["guard_count"],
                "latency_us": summary["latency_us"],
                "summary": dumps(summary),
            },
        )

    def write_symbol(
        self, run_id: str, event: SymbolSeen, compile_key: int | None, stack_id: int | None = None
    ) -> None:
        envelope = {
            name: value
            for name, value in event.envelope.items()
            if name != "stack" or stack_id is None
        }
        _SYMBOL.add(
            self.connection,
            {
                **pick(
                    event,
                    "process_id",
                    "sequence",
                    "compile_id",
                    "time_us",
                    "symbol",
                    "expression",
                    "value",
                ),
                **pick(event, "value_range", "source", "file", "line", "source_line"),
                "run_id": run_id,
                "compile_key": compile_key,
                "kind": event.symbol_kind,
                "detail": pack(
                    dumps({**event.detail, "envelope": envelope} if envelope else event.detail)
                ),
                "stack_id": stack_id,
            },
        )


_INSERT_ARTIFACT = """
insert or ignore into artifacts
  (run_id, process_id, sequence, compile_key, compile_id, attempt, name, title, encoding, metadata, state,
   size_bytes, md5, payload_id, time_us, envelope, stack_id)
values
  (:run_id, :process_id, :sequence, :compile_key, :compile_id, :attempt, :name, :title, :encoding, :metadata, :state,
   :size_bytes, :md5, :payload_id, :time_us, :envelope, :stack_id)
"""
# A text may have come for one of them alone.
_IS_SAME = """
select 1
from artifacts
where process_id = :process_id and sequence = :sequence and name is :name and title is :title
  and time_us = :time_us
  and coalesce(payload_id, :payload_id) is coalesce(:payload_id, payload_id)
"""
_INSERT_AOT = """
insert or ignore into aot_graphs (run_id, artifact_id, compile_key, compile_id, summary)
values (:run_id, :artifact_id, :compile_key, :compile_id, :summary)
"""
