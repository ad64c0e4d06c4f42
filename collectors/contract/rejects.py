"""Count the unreadable parts of an input by kind, with examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from .events import Event

# Kinds that a later reading of the same log may resolve: only those of the last reading count.
OF_WHOLE_FILE = frozenset(
    ("empty_log", "too_large_file", "wrong_separator", "unknown_table")
)  # nothing of it was read
OF_LAST_READING = frozenset(("truncated", "damaged_file", "empty_log"))

# kind -> its meaning for people
KINDS: dict[str, str] = {
    "stray_line": "a line that is not a record",
    "bad_json": "a record whose JSON cannot be read",
    "bad_utf8": "a text that is not UTF-8; the bad bytes are replaced",
    "wrong_md5": "a text that does not fit its md5; kept as it came",
    "missing_text": "a record whose text is missing",
    "bad_field": (
        "a record with a missing or impossible value, which is left out; the rest of it is kept"
    ),
    "refused": "a record that the database cannot take; left out",
    "bad_envelope": "a record whose number, time, name or compile is impossible; left out",
    "number_taken": "a record whose number another of its process has; left out",
    "not_decoded": "a record that could not be decoded; left out",
    "bad_event": "a line that is not an event; left out",
    "no_room": "an event that the machine that pushed it had no room for; left out",
    "dropped_text": (
        "a text that the machine that pushed it had no room for, or was refused with; left out"
    ),
    "not_taken": ("a line whose content the server, or a proxy before it, refused; left out"),
    "no_repro": "a script that is not a repro, or is left out as source",
    "bad_fact": "a fact of the run that is impossible; taken as not recorded",
    "not_asked": "a fact of the run that could not be asked for; not recorded",
    "bad_log": "a log of torch's own that could not be read",
    "unknown_file": "a stack frame whose file name is not in the log",
    "too_large": "a record larger than 64 MiB, skipped",
    "second_log": "another process's log in the same file; read as a process of its own",
    "truncated": "a last record that is not whole; a longer copy of the log completes it",
    "empty_log": "a file without a record",
    "bad_row": "a row that does not fit its table's heading, or names no model; left out",
    "bad_record": "a record of results without a model, a metric or a value; left out",
    "not_finite": "a number that is not finite; kept as text, because it is not a measurement",
    "bad_number": (
        "a text or a number below 0 where a count, a ratio or a time belongs; kept as text"
    ),
    "duplicate_row": "a row that repeats an earlier one, which is kept",
    "duplicate_column": "a column whose name another one has; kept under a name of its own",
    "conflict_marker": "a line that a merge conflict left behind",
    "misplaced_phases": (
        "compile phases that lie under another model's heading; left out: the JSON has them"
    ),
    "no_result": "compile phases or raw timings of a model that no table beside them has; left out",
    "too_large_file": "a file of results larger than 256 MiB; left out",
    "wrong_separator": (
        "a table that is separated by semicolons, tabs or bars; expected commas; left out"
    ),
    "too_many_rows": (
        "a file of results with more than 100,000 rows; those are read and the others left "
        "out: part it"
    ),
    "unknown_table": "a table of which no column is known; left out",
    "damaged_file": "an archive or a compressed file that cannot be read to its end",
}


EXAMPLE_CHARACTERS = 200


@dataclass
class Reject:
    count: int = 0
    first_line: int | None = None
    example: str | None = None
    file_label: str | None = None  # the first one's file, if several are counted together


@dataclass
class Rejects:
    by_kind: dict[str, Reject] = field(default_factory=dict)

    def add(
        self, kind: str, line: int | None = None, example: bytes | str | None = None, count: int = 1
    ) -> None:
        reject = self.by_kind.setdefault(kind, Reject(0, line))
        if not reject.count and example is not None:
            text = example.decode("utf-8", "replace") if isinstance(example, bytes) else example
            reject.example = text[:EXAMPLE_CHARACTERS].strip().encode("utf-8", "replace").decode()
        reject.count += count

    def count(self, kind: str) -> int:
        reject = self.by_kind.get(kind)
        return reject.count if reject else 0

    def add_all(self, others: Rejects) -> None:
        for kind, reject in others.by_kind.items():
            self.add(kind, reject.first_line, reject.example, reject.count)

    def add_refused(
        self,
        refused: Iterable[RefusedEvent],
        line_of: Callable[[Event], int | None] = lambda event: None,
    ) -> None:
        for refusal in refused:
            self.add("refused", line_of(refusal.event), f"{refusal.event.KIND}: {refusal.reason}")

    def copy(self) -> Rejects:
        return Rejects({kind: replace(reject) for kind, reject in self.by_kind.items()})

    def add_file(self, label: str, others: Rejects) -> None:
        for kind, reject in others.by_kind.items():
            self.add(kind, reject.first_line, reject.example, reject.count)
            self.by_kind[kind].file_label = self.by_kind[kind].file_label or label

    @property
    def total(self) -> int:
        return sum(reject.count for reject in self.by_kind.values())


@dataclass(frozen=True)
class RefusedEvent:
    event: Event
    reason: str


@dataclass
class IngestResult:
    """Counts of a batch. `refused` and `clashing` events are not stored; the rest of the batch is.

    A clashing event has the process and sequence of another event with different content.
    """

    new_count: int = 0
    known_count: int = 0
    deleted_run: bool = False
    refused: list[RefusedEvent] = field(default_factory=list)
    clashing: list[Event] = field(default_factory=list)
