"""Write artifacts with their texts, and spans and symbols of trace logs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from compileboard.collectors.contract.events import (
    ArtifactSeen,
    FrameContext,
    SpanSeen,
)
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.contract.values import MAX_SUMMED_INTEGER
from compileboard.collectors.store.codec import dumps
from compileboard.collectors.store.connection import has_row, read_value
from compileboard.collectors.store.ingest.insert import Insert, select_table_fields
from compileboard.collectors.store.ingest.payload_writer import PayloadWriter, PendingText
from compileboard.collectors.store.reading import read_json


@dataclass
class SpanTotal:
    """The values that a batch adds to a name's totals, in microseconds."""

    span_count: int = 0
    instant_count: int = 0
    ended_count: int = 0
    total_us: int = 0
    exclusive_us: int = 0
    longest_us: int | None = None
    longest_begin_us: int | None = None

    def add_ended(self, begin_us: int, duration_us: int, inner_us: int) -> None:
        self.ended_count += 1
        self.total_us += duration_us
        self.exclusive_us += max(0, duration_us - inner_us)
        if self.longest_us is None or duration_us > self.longest_us:
            self.longest_us, self.longest_begin_us = duration_us, begin_us


_ADD_TOTALS = f"""
insert {TABLES["span_totals"].insert_sql()}
on conflict (lane_id, name_id) do update set
  span_count = span_count + excluded.span_count,
  instant_count = instant_count + excluded.instant_count,
  ended_count = ended_count + excluded.ended_count,
  total_us = total_us + excluded.total_us,
  exclusive_us = exclusive_us + excluded.exclusive_us,
  longest_begin_us = iif(
    excluded.longest_us > coalesce(longest_us, -1), excluded.longest_begin_us, longest_begin_us
  ),
  longest_us = iif(excluded.longest_us > coalesce(longest_us, -1), excluded.longest_us, longest_us)
"""


_COUNT_SPANS = """
update lanes set
  span_count = span_count + :new_count,
  first_us = min(coalesce(first_us, :first_us), :first_us),
  last_us = max(coalesce(last_us, :last_us), :last_us)
where id = :id
"""


@dataclass
class _Span:
    name_id: int
    compile_key: int | None
    compile_id: str | None
    begin_us: int
    depth: int
    args: dict[str, Any]
    payload: PendingText | int | None = None  # a row's id once it was read from the database
    row_id: int | None = None  # written already, without its end
    duration_us: int | None = None
    instant: int = 0
    inner_us: int = 0  # what ran inside it


@dataclass
class _Lane:
    id: int
    open: list[_Span] = field(default_factory=list)
    totals: dict[int, SpanTotal] = field(default_factory=dict)  # by name; what is not written yet
    new_count: int = 0
    first_us: int | None = None
    last_us: int | None = None


class SpanRows:
    def __init__(
        self, connection: sqlite3.Connection, save_text: Callable[[str], PendingText]
    ) -> None:
        self.connection = connection
        self._keep_text = save_text
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._names: dict[str, int] = {}
        self._closed: list[tuple[_Lane, _Span]] = []

    def forget(self) -> None:
        self._lanes.clear()
        self._names.clear()
        self._closed.clear()

    def add(self, run_id: str, event: SpanSeen, compile_key: int | None) -> None:
        lane = self._lane(run_id, event.process_id, event.thread)
        args = {**event.args, "envelope": event.envelope} if event.envelope else event.args
        lane.first_us = min(event.at_us, lane.first_us or event.at_us)
        lane.last_us = max(event.at_us, lane.last_us or event.at_us)
        name_id = self._name(event.name)
        if event.phase == "E" and (span := _take_open(lane.open, name_id, event.compile_id)):
            span.duration_us = min(max(0, event.at_us - span.begin_us), MAX_SUMMED_INTEGER)
            span.args = {**span.args, **args}
            span.compile_key = span.compile_key if span.compile_key is not None else compile_key
            if event.text is not None:
                span.payload = self._keep_text(event.text)
            self._close(lane, span)
            return
        depth = lane.open[-1].depth + 1 if lane.open else 0
        span = _Span(name_id, compile_key, event.compile_id, event.at_us, depth, args)
        if event.text is not None:
            span.payload = self._keep_text(event.text)
        lane.new_count += 1
        if event.phase == "B":
            lane.open.append(span)
        else:  # An instant, or an end whose beginning is not in the log.
            span.instant, span.duration_us = int(event.phase != "E"), 0
            self._closed.append((lane, span))
        total = lane.totals.setdefault(name_id, SpanTotal())
        total.span_count += 1
        total.instant_count += span.instant

    def _close(self, lane: _Lane, span: _Span) -> None:
        self._closed.append((lane, span))
        duration_us = span.duration_us or 0
        for parent in reversed(lane.open):
            if parent.depth < span.depth:
                parent.inner_us += duration_us
                break
        lane.totals.setdefault(span.name_id, SpanTotal()).add_ended(
            span.begin_us, duration_us, span.inner_us
        )

    def flush(self) -> None:
        ended = [(lane, span) for lane, span in self._closed if span.row_id is not None]
        self.connection.executemany(
            _INSERT, [_values(lane, span) for lane, span in self._closed if span.row_id is None]
        )
        self.connection.executemany(
            """
            update spans set
              duration_us = :duration_us, args = :args, payload_id = :payload_id,
              compile_key = :compile_key
            where id = :row_id
            """,
            [_values(lane, span) for lane, span in ended],
        )
        self._closed.clear()
        for lane in self._lanes.values():
            for span in lane.open:
                if span.row_id is None:
                    span.row_id = self.connection.execute(_INSERT, _values(lane, span)).lastrowid
            if lane.first_us is not None:
                self.connection.execute(_COUNT_SPANS, vars(lane))
            lane.new_count, lane.first_us, lane.last_us = 0, None, None
            rows = [
                {"lane_id": lane.id, "name_id": name_id, **vars(total)}
                for name_id, total in lane.totals.items()
            ]
            self.connection.executemany(_ADD_TOTALS, rows)
            lane.totals.clear()

    def _name(self, name: str) -> int:
        known = self._names.get(name)
        if known is None:
            self.connection.execute("insert or ignore into span_names (name) values (?)", (name,))
            query = "select id from span_names where name = ?"
            known = self._names[name] = int(read_value(self.connection, query, (name,)))
        return known

    def _lane(self, run_id: str, process_id: str, thread: int) -> _Lane:
        lane = self._lanes.get((process_id, thread))
        if lane is None:
            lane = self._lanes[process_id, thread] = self._load(run_id, process_id, thread)
        return lane

    def _load(self, run_id: str, process_id: str, thread: int) -> _Lane:
        key = {"run_id": run_id, "process_id": process_id, "thread": thread}
        self.connection.execute(
            (
                "insert or ignore into lanes (run_id, process_id, thread) values (:run_id, "
                ":process_id, :thread)"
            ),
            key,
        )
        query = "select id from lanes where process_id = :process_id and thread = :thread"
        lane = _Lane(int(read_value(self.connection, query, key)))
        rows = self.connection.execute(
            """
            select
              s.id as row_id, s.name_id, s.compile_key, s.compile_id, s.begin_us, s.depth, s.args,
              s.payload_id as payload,
              (
                select coalesce(sum(i.duration_us), 0)
                from spans as i
                where i.lane_id = s.lane_id
                  and i.depth = s.depth + 1
                  and i.begin_us >= s.begin_us
              ) as inner_us
            from spans as s
            where s.lane_id = :lane_id
              and s.duration_us is null
            order by s.id
            """,
            {"lane_id": lane.id},
        )
        for row in rows:
            args = read_json(dict[str, Any], row["args"]) or {}
            lane.open.append(_Span(**{**dict(row), "args": args}))
        return lane


_INSERT = f"insert {TABLES['spans'].insert_sql('id')}"


def _values(lane: _Lane, span: _Span) -> dict[str, Any]:
    return {
        **vars(span),
        "lane_id": lane.id,
        "args": dumps(span.args) if span.args else None,
        "payload_id": span.payload.row_id
        if isinstance(span.payload, PendingText)
        else span.payload,
    }


def _take_open(spans: list[_Span], name_id: int, compile_id: str | None) -> _Span | None:
    """Remove and return the innermost open span of a name, preferably of the same compile.

    It need not be the last span, because torch writes several threads into one lane.
    """
    for compile_matters in (True, False):
        for index in range(len(spans) - 1, -1, -1):
            span = spans[index]
            if span.name_id == name_id and (not compile_matters or span.compile_id == compile_id):
                return spans.pop(index)
    return None


_GUARD_SET = Insert("guard_sets", once=True)
_AOT_GRAPH = Insert("aot_graphs", once=True)


class TraceRows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.payloads = PayloadWriter(connection)
        self._artifacts: list[tuple[ArtifactSeen, dict[str, Any]]] = []
        self.spans = SpanRows(connection, self.payloads.add)

    def forget(self) -> None:
        self.payloads.forget()
        self._artifacts.clear()
        self.spans.forget()

    def flush(self) -> list[ArtifactSeen]:
        self.payloads.flush()
        clashing = self._write_artifacts() if self._artifacts else []
        self.spans.flush()
        return clashing

    def add_artifact(
        self, run_id: str, event: ArtifactSeen, compile_key: int | None, stack_id: int | None
    ) -> None:
        envelope = strip_stack(event, stack_id)
        values = {
            **select_table_fields("artifacts", event),
            "run_id": run_id,
            "compile_key": compile_key,
            "metadata": dumps(event.metadata) if event.metadata else None,
            "envelope": dumps(envelope) if envelope else None,
            "stack_id": stack_id,
            "payload_id": None if event.text is None else self.payloads.add(event.text),
        }
        self._artifacts.append((event, values))

    def _write_artifacts(self) -> list[ArtifactSeen]:
        rows = [values for _event, values in self._artifacts]
        for values in rows:
            if isinstance(values["payload_id"], PendingText):
                values["payload_id"] = values["payload_id"].row_id
        new_count = self.connection.executemany(_INSERT_ARTIFACT, rows).rowcount
        clashing = [
            event
            for event, values in self._artifacts
            if new_count < len(rows) and not has_row(self.connection, _IS_SAME, values)
        ]
        for event, values in self._artifacts:
            if event.guards is None and event.aot is None:
                continue
            context = {
                "artifact_id": read_value(self.connection, _FIND_ARTIFACT, values),
                **{key: values[key] for key in ("run_id", "compile_key", "compile_id")},
            }
            if event.guards is not None:
                _GUARD_SET.add(
                    self.connection,
                    {
                        **context,
                        "guard_count": event.guards["guard_count"],
                        "latency_us": event.guards["latency_us"],
                        "summary": dumps(event.guards),
                    },
                )
            if event.aot is not None:
                _AOT_GRAPH.add(self.connection, {**context, "summary": dumps(event.aot)})
        self._artifacts.clear()
        return clashing


def strip_stack(event: FrameContext, stack_id: int | None) -> dict[str, Any]:
    """Return an event's envelope without its stack if the stack is stored as nodes."""
    stored = () if stack_id is None else ("stack",)
    return {name: value for name, value in event.envelope.items() if name not in stored}


_INSERT_ARTIFACT = f"insert or ignore {TABLES['artifacts'].insert_sql('id')}"
_FIND_ARTIFACT = """
select id
from artifacts
where process_id = :process_id and sequence = :sequence
"""
# A text may have come for one of them alone.
_IS_SAME = """
select 1
from artifacts
where process_id = :process_id and sequence = :sequence and name is :name and title is :title
  and time_us = :time_us
  and coalesce(payload_id, :payload_id) is coalesce(:payload_id, payload_id)
"""
