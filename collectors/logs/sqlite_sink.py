"""Store batches in SQLite, each with its checkpoints and rejects in one transaction."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.events import Event
from compileboard.collectors.contract.rejects import IngestResult, Rejects
from compileboard.collectors.fixes.fix import SourceLines
from compileboard.collectors.logs.source import EventBatch, ImportedFile
from compileboard.collectors.store.connection import (
    BUSY_TIMEOUT_MS,
    StoreMoved,
    checkpoint,
    explained,
    open_reader,
    open_writer,
    set_busy_timeout,
    write_transaction,
)
from compileboard.collectors.store.ingest.frames import FrameIndex, LoggedFrames
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.ingest.source_files import (
    LogRow,
    add_result_file,
    advance_log,
    fill_in_process_facts,
    find_logs,
    list_rejects,
    replace_default_name,
    replace_rejects,
    save_rejects,
    save_run_rejects,
    save_trace_file,
)
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.run_causes import save_source_lines
from compileboard.collectors.store.runs import THIS_MACHINE, RunSender
from compileboard.collectors.store.search import index_run

_COUNT_RECOMPILES = """
select coalesce(max(of_rank), 0)
from (
  select count(*) as of_rank
  from recompiles join processes on processes.id = recompiles.process_id
  where processes.run_id = :run and processes.task = :task
  group by processes.rank
)
"""
CHECKPOINT_BYTES = 64 << 20  # Checkpoint after this much data, to keep the write-ahead log small.


class SqliteSink:
    def __init__(
        self,
        connection: sqlite3.Connection,
        database: str,
        run_id: str,
        frames: FrameIndex | None = None,
        sender: RunSender = THIS_MACHINE,
    ) -> None:
        self.connection = connection
        self.database = database
        self.run_id = run_id
        self.is_deleted = False  # the run was deleted by a person, so nothing more is stored
        self._ingestor = Ingestor(connection, database, frames, sender)
        self._unfolded_bytes = 0
        self._identity = _file_identity(database)

    @classmethod
    def open(
        cls, database: str, run_id: str, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
    ) -> SqliteSink:
        """Open a database and migrate it if needed; the sink closes it.

        Raises StoreError if it cannot be opened, or is of a newer version.
        """
        connection = open_writer(database, busy_timeout_ms=busy_timeout_ms)
        try:
            with explained(database):
                migrate_connection(connection)
            return cls(connection, database, run_id)
        except BaseException:
            connection.close()
            raise

    def ingest(self, batch: EventBatch) -> IngestResult:
        result = self._ingestor.ingest(
            self.run_id, batch.events, extra_writes=partial(self._save_beside, batch)
        )
        self.is_deleted = self.is_deleted or result.deleted_run
        self._unfolded_bytes += sum(
            position.end_bytes - position.begin_bytes for position in batch.checkpoints
        )
        if self._unfolded_bytes >= CHECKPOINT_BYTES:
            checkpoint(self.connection)
            self._unfolded_bytes = 0
        return result

    def _save_beside(self, batch: EventBatch, result: IngestResult) -> None:
        if batch.file is not None:
            self._save_file(batch, batch.file, result)
        for process_id, late in batch.late.items():
            fill_in_process_facts(
                self.connection, process_id, self.run_id, late.facts, gpu_count=late.gpu_count
            )
            if late.run_name is not None:
                replace_default_name(self.connection, self.run_id, late.run_name, late.run_label)

    def _save_file(self, batch: EventBatch, file: ImportedFile, result: IngestResult) -> None:
        row = {**vars(file), "run_id": self.run_id}
        if file.content_hash is not None:
            add_result_file(self.connection, row)
        if not file.is_log:
            return
        (position,) = batch.checkpoints
        row |= {
            "size_bytes": position.end_bytes,
            "end_offset_bytes": position.end_bytes,
            "content_digest": position.digest,
            "line_count": position.line_count,
            "record_count": batch.record_count,
            "last_us": batch.last_us,
            "read_us": read_clock_us(),
        }
        advance_log(self.connection, position.begin_bytes, row)
        rejects = batch.rejects.copy()
        rejects.add_refused(result.refused, batch.line_of)
        save = save_rejects if file.content_hash is None else replace_rejects
        save(self.connection, file.process_id, list_rejects(rejects, examples=file.keep_examples))

    def save_source(self, excerpts: Sequence[SourceLines]) -> None:
        if excerpts and not self.is_deleted:
            with explained(self.database), write_transaction(self.connection):
                save_source_lines(self.connection, self.run_id, excerpts)

    def find_log(self, process_id: str) -> LogRow | None:
        return find_logs(self.connection, [process_id]).get(process_id)

    def open_log(self, generation_of: Callable[[Event], int]) -> SqliteSink:
        return SqliteSink(
            self.connection,
            self.database,
            self.run_id,
            LoggedFrames(self.connection, generation_of),
        )

    def save_trace_file(self, path: Path) -> None:
        save_trace_file(self.connection, self.run_id, path)

    def count_compiles(self) -> tuple[int, int, int]:
        row = self.connection.execute(
            (
                "select compile_count, graph_break_count, recompile_count from run_totals where "
                "run_id = :id"
            ),
            {"id": self.run_id},
        ).fetchone()
        return (int(row[0]), int(row[1]), int(row[2])) if row else (0, 0, 0)

    def count_recompiles(self, task: str) -> int:
        (count,) = self.connection.execute(
            _COUNT_RECOMPILES, {"run": self.run_id, "task": task}
        ).fetchone()
        return int(count)

    def set_busy_timeout(self, busy_timeout_ms: int) -> None:
        set_busy_timeout(self.connection, busy_timeout_ms)

    def finish(self) -> None: ...

    def send_heartbeat(self) -> None:
        with explained(self.database):
            self._ingestor.send_heartbeat(self.run_id)
            checkpoint(self.connection)

    def save_run_rejects(self, rejects: Mapping[str, Rejects]) -> None:
        rows = [
            {"file_name": name, **row}
            for name, of_file in rejects.items()
            for row in list_rejects(of_file)
        ]
        if rows and not self.is_deleted:
            with explained(self.database), write_transaction(self.connection):
                save_run_rejects(self.connection, self.run_id, rows)

    def index(self, max_s: float) -> None:
        if not self.is_deleted:
            index_run(self.connection, self.run_id, max_s=max_s)

    def check_file(self) -> None:
        identity = _file_identity(self.database)
        if identity != self._identity:
            change = "was deleted" if identity is None else "was replaced by another file"
            raise StoreMoved(f"{self.database} {change} while it was being recorded into.")

    def check_readable(self) -> None:
        """Read the run through a new connection, in case the file was overwritten. Raises
        StoreError.
        """
        with explained(self.database):
            checkpoint(self.connection)
            reader = open_reader(self.database)
            try:
                query = "select count(*) from events where run_id = :id"
                reader.execute(query, {"id": self.run_id}).fetchone()
            finally:
                reader.close()

    def close(self) -> None:
        try:
            checkpoint(self.connection)
        except sqlite3.Error:
            pass  # a later checkpoint does it; committed data is safe
        finally:
            self.connection.close()


def _file_identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
