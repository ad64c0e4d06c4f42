"""Write events into the database. An event that is recorded twice is stored once.

`frames.py` finds the compile of an event, `rows.py` writes each kind of event, `totals.py` keeps
the roll-ups.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.events import (
    ArtifactSeen,
    BenchMeasured,
    CommitsSeen,
    ConfigSeen,
    Event,
    PageFaultsCounted,
    ProcessStarted,
    ReproCaptured,
    ReproValues,
    RunEnded,
    RunStarted,
    SpanSeen,
    SymbolSeen,
    dump_event,
)
from compileboard.collectors.contract.rejects import IngestResult, RefusedEvent
from compileboard.collectors.contract.shapes import RunFacts
from compileboard.collectors.store.codec import pack, unpack
from compileboard.collectors.store.connection import (
    StoreError,
    explain,
    read_value,
    write_transaction,
)
from compileboard.collectors.store.ingest.artifacts import TraceRows
from compileboard.collectors.store.ingest.batch import Batch
from compileboard.collectors.store.ingest.compiles import update_recompile_causes
from compileboard.collectors.store.ingest.frames import FrameIndex, StackIndex
from compileboard.collectors.store.ingest.insert import Insert, select_fields, select_table_fields
from compileboard.collectors.store.ingest.rows import WRITERS
from compileboard.collectors.store.large_runs import reopen_large_run
from compileboard.collectors.store.reading import read_event
from compileboard.collectors.store.reopening import reopen_run
from compileboard.collectors.store.rollups import BatchTotals, write_summaries
from compileboard.collectors.store.runs import (
    THIS_MACHINE,
    RunSender,
    claim_run,
    is_of_other_run,
    may_add,
    publish_run,
)
from compileboard.collectors.store.stream_rows import get_removal

HELD_WHOLE: frozenset[type[Event]] = frozenset(
    (
        CommitsSeen,
        ConfigSeen,
        PageFaultsCounted,
        ArtifactSeen,
        SpanSeen,
        SymbolSeen,
        ReproCaptured,
        ReproValues,
    )
)
OTHER_RUN = "its process is of another run"
STATES = ("killed", "failed", "interrupted", "finished")  # worst first


# What goes wrong with the database, the disk or the installation: never an event's own fault.
_NOT_OF_AN_EVENT = (
    StoreError,
    OSError,
    MemoryError,
    ImportError,
    sqlite3.OperationalError,
    sqlite3.InternalError,
)


_EVENT = Insert("events", once=True)


class _OddEventError(Exception):
    pass


class Ingestor:
    def __init__(
        self,
        connection: sqlite3.Connection,
        path: str = "the database",
        frames: FrameIndex | None = None,
        sender: RunSender = THIS_MACHINE,
    ) -> None:
        self.connection = connection
        self.sender = sender
        self.path = path
        self.frames = frames or FrameIndex(connection)
        self.stacks = StackIndex(connection)
        self.traces = TraceRows(connection)
        self._runs_of_processes: dict[str, str] = {}
        self.packed: Mapping[
            int, bytes
        ] = {}  # bodies of events that are packed already, by their id()

    def ingest(
        self,
        run_id: str,
        events: Iterable[Event],
        *,
        now_us: int | None = None,
        extra_writes: Callable[[IngestResult], None] = lambda result: None,
        final_writes: Callable[[], None] = lambda: None,
    ) -> IngestResult:
        """Record a batch of one run's events in one transaction, with `extra_writes` and then
        `final_writes`.

        `final_writes` do not count as a change of the run. If an event cannot be stored, the batch
        is recorded again with a savepoint per event, and the result lists the rejected ones.
        Raises NotOwner, or StoreError with nothing recorded.
        """
        now_us = read_clock_us() if now_us is None else now_us
        batch = list(events)
        try:
            return self._record(
                run_id, batch, now_us, extra_writes, final_writes, self._ingest_batch
            )
        except _OddEventError:
            return self._record(
                run_id, batch, now_us, extra_writes, final_writes, self._ingest_each
            )

    def _record(
        self,
        run_id: str,
        batch: list[Event],
        now_us: int,
        extra_writes: Callable[[IngestResult], None],
        final_writes: Callable[[], None],
        write: Callable[[str, list[Event], int, IngestResult], None],
    ) -> IngestResult:
        result = IngestResult()
        before = self.connection.total_changes
        try:
            is_to_write = not get_removal(self.connection, run_id) and may_add(
                self.connection, run_id, self.sender
            )
            if is_to_write and reopen_large_run(self.connection, run_id):
                self.forget()
            with write_transaction(self.connection):
                if get_removal(self.connection, run_id):
                    result.deleted_run = True
                    return result
                claim_run(self.connection, run_id, self.sender)
                if reopen_run(self.connection, run_id):
                    self.forget()
                try:
                    write(run_id, batch, now_us, result)
                except Exception as error:
                    if is_caused_by_event(error):
                        raise _OddEventError from error
                    raise
                extra_writes(result)
                if self.connection.total_changes > before:
                    publish_run(self.connection, run_id)
                final_writes()
        except sqlite3.Error as error:
            self.forget()
            raise explain(error, self.path) from error
        except BaseException:
            self.forget()
            raise
        return result

    def _ingest_each(
        self, run_id: str, events: list[Event], now_us: int, result: IngestResult
    ) -> None:
        for event in events:
            single = IngestResult()
            self.connection.execute("savepoint event")
            try:
                self._ingest_batch(run_id, [event], now_us, single)
            except Exception as error:
                if not is_caused_by_event(error):
                    raise
                self.connection.execute("rollback to event")
                self.forget()
                result.refused.append(RefusedEvent(event, describe_refusal(error)))
            else:
                result.new_count += single.new_count
                result.known_count += single.known_count
                result.refused += single.refused
                result.clashing += single.clashing
            self.connection.execute("release event")

    def forget(self) -> None:
        """Drop cached state, because the database may have been rolled back or changed by
        others.
        """
        for cache in (self.frames, self.stacks, self.traces):
            cache.forget()
        self._runs_of_processes.clear()

    def may_have(self, run_id: str, process_id: str) -> bool:
        if self._runs_of_processes.get(process_id) == run_id:
            return True
        if is_of_other_run(self.connection, run_id, process_id):
            return False
        self._runs_of_processes[process_id] = run_id
        return True

    def _ingest_batch(
        self, run_id: str, events: list[Event], now_us: int, result: IngestResult
    ) -> None:
        totals = BatchTotals(self.connection, run_id)
        batch = Batch(self.connection, run_id, self.frames, self.stacks, totals, self.traces)
        ensured = False
        benched: set[str] = set()
        for event in events:
            if not ensured:
                self._ensure_run(run_id, event.time_us, now_us)
                ensured = True
            kind = type(event)
            if not self.may_have(run_id, event.process_id):
                result.refused.append(RefusedEvent(event, OTHER_RUN))
                continue
            # What has a table that holds all of it needs no copy among the events.
            if kind not in HELD_WHOLE:
                if not self._save_event(run_id, event):
                    result.known_count += 1
                    if self._is_clashing(event):
                        result.clashing.append(event)
                    continue
                result.new_count += 1
                if isinstance(event, RunStarted):
                    self._start_run(run_id, event)
                if kind is RunStarted or kind is RunEnded:
                    self._update_state(run_id)
            writer = WRITERS.get(kind)
            if writer is not None:
                writer(batch, event)
            if isinstance(event, ProcessStarted):
                self._describe_run(run_id, event)
            elif isinstance(event, BenchMeasured):
                benched.add(event.suite)
        if benched:
            write_summaries(self.connection, run_id, benched)
        update_recompile_causes(batch)
        batch.totals.flush()
        result.clashing += self.traces.flush()
        if result.new_count:
            self.beat(run_id, now_us)

    def send_heartbeat(self, run_id: str) -> None:
        with write_transaction(self.connection):
            self.beat(run_id, read_clock_us())

    def beat(self, run_id: str, now_us: int) -> None:
        self.connection.execute(
            (
                "update runs set heartbeat_us = max(heartbeat_us, :now_us) where id = :id and "
                "state = 'running'"
            ),
            {"id": run_id, "now_us": now_us},
        )

    def _save_event(self, run_id: str, event: Event) -> bool:
        cursor = _EVENT.add(
            self.connection,
            {
                **select_fields(event, "process_id", "sequence", "time_us"),
                "run_id": run_id,
                "kind": event.KIND,
                "body": self.packed.get(id(event)) or pack(dump_event(event)),
            },
        )
        return cursor.rowcount == 1

    def _is_clashing(self, event: Event) -> bool:
        body = read_value(
            self.connection,
            "select body from events where process_id = :process_id and sequence = :sequence",
            select_fields(event, "process_id", "sequence"),
        )
        packed = self.packed.get(id(event)) or pack(dump_event(event))
        return bool(body != packed) and json.loads(unpack(body)) != json.loads(unpack(packed))

    def _ensure_run(self, run_id: str, time_us: int, now_us: int) -> None:
        self.connection.execute(
            """
            insert or ignore into runs
              (id, name, source, state, level, keep_source, command, started_us, heartbeat_us,
               gpu_count, facts)
            values (:id, :id, 'live', 'running', 'light', 1, '', :time_us, :now_us, 0, '{}')
            """,
            {"id": run_id, "time_us": time_us, "now_us": now_us},
        )
        self.connection.execute(
            "insert or ignore into run_totals (run_id) values (:id)", {"id": run_id}
        )

    def _start_run(self, run_id: str, event: RunStarted) -> None:
        self.connection.executemany(
            "insert or ignore into run_tags (run_id, key, value) values (:run_id, :key, :value)",
            [{"run_id": run_id, "key": key, "value": value} for key, value in event.tags.items()],
        )
        gpu = event.gpus[0] if event.gpus else {}
        facts = select_fields(event, *RunFacts.__annotations__)
        values = {
            **select_table_fields("runs", event),
            "command": " ".join(event.argv),
            "host": event.host.get("name"),
            "gpu_name": gpu.get("name"),
            "gpu_count": len(event.gpus),
            **{
                f"git_{name}": event.git.get(name)
                for name in ("commit", "branch", "subject", "dirty")
            },
            "facts": json.dumps(facts, separators=(",", ":")),
        }
        self.connection.execute(
            f"""
            update runs set
              {", ".join(f"{name} = :{name}" for name in values)},
              started_us = min(coalesce(nullif(started_us, 0), :started_us), :started_us)
            where id = :id and facts = '{{}}'
            """,  # noqa: S608  own text
            {"id": run_id, "started_us": event.time_us, **values},
        )

    def _update_state(self, run_id: str) -> None:
        key = {"id": run_id}
        open_count = read_value(
            self.connection,
            """
            select sum(kind = 'run_started') - sum(kind = 'run_ended')
            from events
            where run_id = :id and kind in ('run_started', 'run_ended')
            """,
            key,
        )
        rows = self.connection.execute(
            "select body from events where run_id = :id and kind = 'run_ended'", key
        )
        ends = [end for row in rows if isinstance(end := read_event(row["body"]), RunEnded)]
        if not ends or open_count > 0:
            state: dict[str, Any] = {
                "state": "running",
                "ended_us": None,
                "exit_code": None,
                "signal": None,
            }
        else:
            worst = min(
                ends,
                key=lambda end: (
                    STATES.index(end.state) if end.state in STATES else -1,
                    end.time_us,
                ),
            )
            source = read_value(self.connection, "select source from runs where id = :id", key)
            if source == "bench":  # its ends follow one another: each but the last was resumed
                worst = max(ends, key=lambda end: end.time_us)
            state = {
                "state": worst.state,
                "ended_us": max(end.time_us for end in ends),
                "exit_code": worst.exit_code,
                "signal": worst.signal,
            }
        self.connection.execute(
            """
            update runs set state = :state, ended_us = :ended_us, exit_code = :exit_code,
            signal = :signal
            where id = :id
            """,
            {**key, **state},
        )

    def _describe_run(self, run_id: str, event: ProcessStarted) -> None:
        self.connection.execute(
            """
            update runs set
              torch_version = coalesce(torch_version, :torch_version),
              cuda_version = coalesce(cuda_version, :cuda_version),
              python_version = coalesce(python_version, :python_version)
            where id = :id
            """,
            {
                "id": run_id,
                **select_fields(event, "torch_version", "cuda_version", "python_version"),
            },
        )


def is_caused_by_event(error: Exception) -> bool:
    if isinstance(error, sqlite3.DatabaseError) and type(error) is sqlite3.DatabaseError:
        return False  # malformed, not a database
    return not isinstance(error, _NOT_OF_AN_EVENT)


def describe_refusal(error: Exception) -> str:
    if isinstance(error, sqlite3.Error):
        return "a value that its column cannot hold"
    return f"{type(error).__name__}: {error}"[:200]
