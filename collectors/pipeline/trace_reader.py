"""Read what torch's own trace logs of a recorded run tell beside the hooks: graphs, code, guards, timeline."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.contract.events import ConfigSeen, Event, FrameContext
from compileboard.collectors.contract.record_names import COMPILE_START
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import Captured
from compileboard.collectors.decode.values import clean_text
from compileboard.collectors.pipeline.source import ImportedFile, pump
from compileboard.collectors.pipeline.sqlite_sink import SqliteSink
from compileboard.collectors.pipeline.trace_source import TraceSource
from compileboard.collectors.sources.log_blocks import Readable
from compileboard.collectors.sources.log_head import HEAD_BYTES, Head, read_head
from compileboard.collectors.store.ingest.frames import FrameIndex, Generation
from compileboard.collectors.store.ingest.ingestor import HELD_WHOLE
from compileboard.collectors.store.ingest.source_files import LogRow, find_logs


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


class HookedTrace(TraceSource):
    """The log of a process that the hooks recorded, for what they do not see."""

    def __init__(
        self,
        file: Readable,
        imported: ImportedFile,
        head: Head,
        decoder: Decoder,
        frames: LoggedFrames,
        row: LogRow | None,
    ) -> None:
        super().__init__(file, imported, head.clock, decoder, offset_bytes=row.end_offset_bytes if row else 0)
        self._frames = frames

    def decode(self, captured: Captured) -> list[Event]:
        if captured.name == COMPILE_START:
            self._frames.begin_logged(captured)
        events = super().decode(captured)
        return [event for event in events if type(event) in HELD_WHOLE and not isinstance(event, ConfigSeen)]


@dataclass
class TraceReader:
    """Read the logs of one run's processes into its rows."""

    connection: sqlite3.Connection
    database: str
    run_id: str
    decoder: Decoder

    def read(self, path: Path) -> bool:
        """Read what is new of a log; False if no process of the run wrote it.

        Raises: StoreError, OSError.
        """
        with path.open("rb") as file:
            head = read_head(file.read(HEAD_BYTES), int(path.stat().st_mtime * 1e6))
            process_id = self._find_process(head.pid, head.first_us)
            if process_id is None:
                return False
            file.seek(0)
            row = find_logs(self.connection, [process_id]).get(process_id)
            imported = ImportedFile(process_id, clean_text(path.name), clean_text(path.name))
            frames = LoggedFrames(self.connection)
            source = HookedTrace(file, imported, head, self.decoder, frames, row)
            pump(source, SqliteSink(self.connection, self.database, self.run_id, frames))
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
