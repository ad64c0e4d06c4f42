"""Sources yield batches of decoded events; sinks store each batch with its position in the source.

Sources: a spool (`SpoolSource`), a trace log (`TraceSource`), result files (`ResultSource`). Sinks:
a database (`SqliteSink`), the outbox (`OutboxSink`), a list (`in_process`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from compileboard.collectors.contract.events import Event
from compileboard.collectors.contract.rejects import IngestResult, Rejects
from compileboard.collectors.fixes.fix import SourceLines
from compileboard.collectors.store.ingest.source_files import LogRow


@dataclass(frozen=True)
class Checkpoint:
    """The range of a file that a batch covers.

    The store rejects a batch that does not begin where the last one ended, because another command
    has read the file in the meantime.
    """

    file_key: str  # a log's process, or a spool's file name
    begin_bytes: int
    end_bytes: int
    line_count: int
    digest: str | None = None  # The digest of the log up to its end, once it is read.


@dataclass(frozen=True)
class ImportedFile:
    process_id: str
    name: str
    file_name: str
    payloads: str = "kept"  # kept | left_out
    redacted: bool = False
    keep_examples: bool = True  # Whether to keep unreadable lines, which may be the user's code.
    first_us: int | None = None
    content_hash: str | None = None  # The hash of a result file, which is read whole each time.
    kind: str = ""  # The kind of a result file.
    row_count: int = 0
    is_log: bool = True  # False: its events name no process


@dataclass(frozen=True)
class LateFacts:
    facts: Mapping[str, Any]
    gpu_count: int = 1
    run_name: str | None = None
    run_label: str = ""  # the name that `run_name` replaces


@dataclass
class EventBatch:
    events: list[Event]
    checkpoints: Sequence[Checkpoint] = ()
    rejects: Rejects = field(
        default_factory=Rejects
    )  # since the previous batch; a spool's are stored when its run ends
    file: ImportedFile | None = None
    record_count: int = 0
    last_us: int | None = None
    late: Mapping[str, LateFacts] = field(default_factory=dict)  # by process
    line_of: Callable[[Event], int | None] = lambda event: None


class Source(Protocol):
    """A source of events. Events that were not committed are read again."""

    def read(self) -> Iterator[EventBatch]:
        """Yield events since the last committed batch. Commit each batch before requesting the
        next.
        """

    def commit(self, batch: EventBatch, result: IngestResult) -> None: ...

    def rewind(self) -> None: ...


class Sink(Protocol):
    """Stores events of one run. A batch is stored completely or not at all; storing it again adds
    nothing.
    """

    def ingest(self, batch: EventBatch) -> IngestResult: ...


class RunSink(Sink, Protocol):
    """Stores all data of a run that a recorder has. Every method raises StoreError."""

    run_id: str
    is_deleted: bool  # the run was deleted by a person, so nothing more is stored

    def save_source(self, excerpts: Sequence[SourceLines]) -> None: ...

    def save_run_rejects(self, rejects: Mapping[str, Rejects]) -> None: ...

    def find_log(self, process_id: str) -> LogRow | None: ...

    def open_log(self, generation_of: Callable[[Event], int]) -> Sink: ...

    def save_trace_file(self, path: Path) -> None: ...

    def count_compiles(self) -> tuple[int, int, int]: ...

    def count_recompiles(self, task: str) -> int: ...

    def send_heartbeat(self) -> None: ...

    def check_file(self) -> None:
        """Raises StoreMoved if the opened file was deleted or replaced."""

    def check_readable(self) -> None: ...

    def set_busy_timeout(self, busy_timeout_ms: int) -> None: ...

    def index(self, max_s: float) -> None:
        """Add the run to the search index, for at most `max_s` seconds."""

    def finish(self) -> None: ...

    def close(self) -> None: ...


def pump(
    source: Source,
    sink: Sink,
    after_batch: Callable[[EventBatch, IngestResult], None] = lambda batch, result: None,
) -> None:
    """Store a source's batches. An exception of `after_batch` stops between two batches.

    Raises StoreError or OSError; stored batches are kept, and the source continues after them.
    """
    try:
        for batch in source.read():
            result = sink.ingest(batch)
            source.commit(batch, result)
            after_batch(batch, result)
    except BaseException:
        source.rewind()
        raise
