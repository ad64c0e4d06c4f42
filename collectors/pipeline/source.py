"""The one way of recorded data: a source yields batches of decoded events, a sink stores each with how far it reaches.

Sources: a spool (`SpoolSource`), a trace log (`TraceSource`), files of results (`ResultSource`). Sinks: a database
(`SqliteSink`), what waits for a server (`OutboxSink`), a list (`in_process`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from compileboard.collectors.contract.events import Event
from compileboard.collectors.contract.rejects import IngestResult, Rejects
from compileboard.collectors.fixes.recorded import SourceLines
from compileboard.collectors.store.ingest.source_files import LogRow


@dataclass(frozen=True)
class Checkpoint:
    """How far one file of a source is read when its batch is stored, and where the batch began in it.

    Who stores checkpoints refuses a batch that does not begin where the one before ended: another command read on.
    """

    file_key: str  # a log's process, a spool's file name
    begin_bytes: int
    end_bytes: int
    line_count: int
    digest: str | None = None  # of a log's bytes before its end, once it is read


@dataclass(frozen=True)
class ImportedFile:
    """What a store lists of a file that is imported: its log, or its results with their content."""

    process_id: str
    name: str
    file_name: str
    payloads: str = "kept"  # kept | left_out
    redacted: bool = False
    keep_examples: bool = True  # of what could not be read: lines that may be the user's code
    first_us: int | None = None
    content_hash: str | None = None  # of a file of results, which is read whole each time
    kind: str = ""  # of a file of results
    row_count: int = 0
    is_log: bool = True  # False: no event of it names its process


@dataclass(frozen=True)
class LateFacts:
    """What a log told of its process, and of the run's name, after they were stored."""

    facts: Mapping[str, Any]
    gpu_count: int = 1
    run_name: str | None = None
    run_label: str = ""  # the name that `run_name` replaces


@dataclass
class EventBatch:
    """Events to be stored in one transaction, with the checkpoints and the rejects of what they were made of."""

    events: list[Event]
    checkpoints: Sequence[Checkpoint] = ()
    rejects: Rejects = field(default_factory=Rejects)  # since the batch before; a spool's are stored when its run ends
    file: ImportedFile | None = None
    record_count: int = 0
    last_us: int | None = None
    late: Mapping[str, LateFacts] = field(default_factory=dict)  # by process
    line_of: Callable[[Event], int | None] = lambda event: None


class Source(Protocol):
    """Where events come from. What is read and not committed is read again."""

    def read(self) -> Iterator[EventBatch]:
        """Yield what came since the last committed batch; each batch is committed before the next one is asked for."""

    def commit(self, batch: EventBatch, result: IngestResult) -> None:
        """Record that a batch is stored, and what of it was refused."""

    def rewind(self) -> None:
        """Drop what is not committed: it is read again, by this source or by the next one of the same files."""


class Sink(Protocol):
    """Where events of one run go. Nothing of a batch that raises is stored; storing an event again adds nothing."""

    def ingest(self, batch: EventBatch) -> IngestResult:
        """Store a batch whole: events, checkpoints, rejects.

        Raises: StoreError in words.
        """


class RunSink(Sink, Protocol):
    """Where all that a recorder has of one run goes. Every method raises StoreError in words."""

    run_id: str
    is_deleted: bool  # a person deleted the run: nothing more of it is stored

    def save_source(self, excerpts: Sequence[SourceLines]) -> None:
        """Store excerpts of the user's source."""

    def save_run_rejects(self, rejects: Mapping[str, Rejects]) -> None:
        """Store what of the run's spool could not be recorded, by file."""

    def find_log(self, process_id: str) -> LogRow | None:
        """Return how far a process's own log was read."""

    def open_log(self, generation_of: Callable[[Event], int]) -> Sink:
        """Return the sink of a log of one of the run's processes."""

    def save_trace_file(self, path: Path) -> None:
        """Store a trace log whole."""

    def count_compiles(self) -> tuple[int, int, int]:
        """Count compiles, graph breaks and recompiles so far."""

    def count_recompiles(self, task: str) -> int:
        """Count the recompiles of a benchmark's task, of the rank that has most."""

    def touch(self) -> None:
        """Mark the run's recorder as alive."""

    def check_file(self) -> None:
        """Notice that what was opened is nobody's any more.

        Raises: StoreMoved.
        """

    def check_readable(self) -> None:
        """Check that what was stored can be read: the spool goes after it."""

    def set_patience(self, patience_ms: int) -> None:
        """Set how long another program's lock is waited for."""

    def index(self, most_s: float) -> None:
        """Add the run to the search index, if that is quick."""

    def finish(self) -> None:
        """Store that nothing more comes: the spool goes."""

    def close(self) -> None:
        """Close it."""


def pump(
    source: Source, sink: Sink, after_batch: Callable[[EventBatch, IngestResult], None] = lambda batch, result: None
) -> None:
    """Store what a source has, batch by batch. What `after_batch` raises ends it between two batches.

    Raises: StoreError, OSError; what was stored before stays, and the source stands behind it.
    """
    try:
        for batch in source.read():
            result = sink.ingest(batch)
            source.commit(batch, result)
            after_batch(batch, result)
    except BaseException:
        source.rewind()
        raise
