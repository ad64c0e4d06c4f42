"""Read what torch's own trace logs of a recorded run tell beside the hooks: graphs, code, guards, timeline."""

from __future__ import annotations

import sqlite3
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from compileboard.collectors.contract.events import ConfigSeen, Event, FrameContext
from compileboard.collectors.contract.record_names import COMPILE_START
from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import Captured
from compileboard.collectors.decode.values import clean_text
from compileboard.collectors.sources.log_head import HEAD_BYTES, read_head
from compileboard.collectors.sources.trace_log import ReadStats, TraceLog
from compileboard.collectors.store.ingest.frames import FrameIndex, Generation
from compileboard.collectors.store.ingest.ingestor import HELD_WHOLE, Ingestor, IngestResult, RefusedEvent
from compileboard.collectors.store.ingest.source_files import advance_log, find_logs, save_rejects

BATCH = 2_000


class LoggedFrames(FrameIndex):
    """Find the compiles that the hooks recorded: a log of the same process counts its resets alike."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._resets: list[int] = []  # sequences of the starts that came after a reset()
        self._generation = Generation()
        self._keys: dict[tuple[int, str], int] = {}

    def begin_logged(self, captured: Captured) -> None:
        """Take a dynamo_start."""
        if captured.compile_id is not None and self._generation.trace(captured.compile_id, captured.attempt):
            self._resets.append(captured.sequence)

    def key_of(self, event: FrameContext) -> int | None:
        """Return the row of the compile that a record belongs to."""
        if event.compile_id is None:
            return None
        place = (bisect_right(self._resets, event.sequence), event.compile_id)
        if place not in self._keys:
            row = self.connection.execute(
                """
                select id
                from compiles
                where process_id = :process_id and generation = :generation and compile_id = :compile_id
                """,
                {"process_id": event.process_id, "generation": place[0], "compile_id": place[1]},
            ).fetchone()
            if row is None:
                return None
            self._keys[place] = int(row["id"])
        return self._keys[place]


@dataclass
class TraceReader:
    """Read the logs of one run's processes into its rows."""

    connection: sqlite3.Connection
    database: str
    run_id: str
    decoder: Decoder
    _stored_count: int = 0  # of the records of the log that is read

    def read(self, path: Path) -> bool:
        """Read what is new of a log; False if no process of the run wrote it.

        Raises: StoreError, OSError.
        """
        with path.open("rb") as file:
            head = read_head(file.read(HEAD_BYTES), int(path.stat().st_mtime * 1e6))
            process_id = self._find_process(head.pid, head.first_us)
            if process_id is None:
                return False
            known = find_logs(self.connection, [process_id]).get(process_id)
            offset = known.end_offset_bytes if known else 0
            file.seek(0)
            stats, self._stored_count = ReadStats(), 0
            log = TraceLog(file, process_id, head.clock, start_offset=offset, stats=stats)
            frames = LoggedFrames(self.connection)
            ingestor = Ingestor(self.connection, self.database, frames)
            records = log.read()
            while batch := list(islice(records, BATCH)):
                offset = self._write(ingestor, frames, batch, path, offset, stats)
            self._finish(path, process_id, offset, stats)
        return True

    def _find_process(self, pid: int | None, first_us: int | None) -> str | None:
        """Find whose log it is: of the run's processes with that pid, the last that began before its first record."""
        row = self.connection.execute(
            """
            select id
            from processes
            where run_id = :run_id
              and (pid = :pid or (:pid is null and (select count(*) from processes where run_id = :run_id) = 1))
            order by started_us <= :first_us desc, started_us desc, id
            limit 1
            """,
            {"run_id": self.run_id, "pid": pid, "first_us": (first_us or 0) + 60_000_000},
        ).fetchone()
        return str(row["id"]) if row else None

    def _write(
        self,
        ingestor: Ingestor,
        frames: LoggedFrames,
        batch: list[Captured],
        path: Path,
        offset: int,
        stats: ReadStats,
    ) -> int:
        end = batch[-1].sequence + 1
        events: list[Event] = []
        for captured in batch:
            if captured.name == COMPILE_START:
                frames.begin_logged(captured)
            # The hooks have said the rest.
            made = self.decoder.decode(captured, lambda what: stats.rejects.add("bad_field", None, what))
            events += [it for it in made if type(it) in HELD_WHOLE and not isinstance(it, ConfigSeen)]
        values = self._values(path, batch[0].process_id, end, stats, last_us=batch[-1].time_us)
        result = ingestor.ingest(self.run_id, events, also=lambda result: advance_log(self.connection, offset, values))
        count_refused(result.refused, stats.rejects)
        self._stored_count = stats.records
        return end

    def _finish(self, path: Path, process_id: str, offset: int, stats: ReadStats) -> None:
        end = max(offset, stats.end_offset)
        values = self._values(path, process_id, end, stats, last_us=None)

        def settle(result: IngestResult) -> None:
            advance_log(self.connection, offset, values)
            save_rejects(self.connection, process_id, list_rejects(stats.rejects))

        Ingestor(self.connection, self.database).ingest(self.run_id, (), also=settle)

    def _values(
        self, path: Path, process_id: str, end_offset: int, stats: ReadStats, last_us: int | None
    ) -> dict[str, object]:
        return {
            "process_id": process_id,
            "run_id": self.run_id,
            "name": clean_text(path.name),
            "file_name": clean_text(path.name),
            "size_bytes": end_offset,
            "end_offset_bytes": end_offset,
            "line_count": stats.end_line - 1,
            "record_count": stats.records - self._stored_count,
            "payloads": "kept",
            "redacted": 0,
            "first_us": None,
            "last_us": last_us,
            "read_us": time.time_ns() // 1000,
        }


def count_refused(
    refused: Iterable[RefusedEvent], rejects: Rejects, line_of: Callable[[Event], int | None] = lambda event: None
) -> None:
    """Count the records that the store could not take."""
    for it in refused:
        rejects.add("refused", line_of(it.event), f"{it.event.KIND}: {it.reason}")


def list_rejects(rejects: Rejects, *, examples: bool = True) -> Iterator[tuple[str, int, int | None, str | None]]:
    """List what could not be read, as the store keeps it; examples may be lines of the user's code."""
    for kind, reject in sorted(rejects.by_kind.items()):
        yield kind, reject.count, reject.first_line, reject.example if examples else None
