"""The format of a spool, for its writer in the observed process and for its readers: a folder of
files of records.

    PROCESS.jsonl    a process's records, one per line; PROCESS.2.jsonl after the first was removed
    PROCESS.losses   records it could not write, by reason: a JSON object in reserved space
    PROCESS.graphs   with --repro=crash: the record of each compiled graph's repro, one per line,
                     until a clean end; with --repro-inputs again at its first call, followed by
                     its inputs' values, one per line
    PROCESS.running  with it: the positions in that file of the running graph and the last one
    run.json         the manifest: run and database
    said.events      the journal: events added by our own commands, one per line
    recorder.lock    held by the process that records the spool

A record is {"s": sequence, "t": microseconds, "n": name, "m": metadata, "p": payload, "c": context,
"x": extra}; "p", "c" and "x" are left out if empty. A process holds a shared lock on its file until
it ends.
"""

from __future__ import annotations

import json
import os
from typing import Any

from . import record_names

RECORDS_SUFFIX = ".jsonl"
LOSSES_SUFFIX = ".losses"
LOSSES_BYTES = 4096  # eight reasons of 200 characters, escaped
GRAPHS_SUFFIX, RUNNING_SUFFIX = ".graphs", ".running"
# Two 8-byte numbers, of the running graph and of the last: a line's offset plus 1, negative if its
# values are from an earlier call; 0 for none.
RUNNING_BYTES = 16
MANIFEST_NAME = "run.json"
JOURNAL_NAME = "said.events"
LOCK_NAME = "recorder.lock"
CONTEXT_KEYS = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "rank")


def read_running(
    path: str | os.PathLike[str], number: int, max_bytes: int = -1
) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    with open(path, "rb") as file:
        file.seek(abs(number) - 1)
        while line := file.readline(max_bytes):
            record = json.loads(line)
            if records and record["n"] != record_names.REPRO_VALUES:
                break
            records.append(record)
    if number < 0:
        records[0]["m"]["manifest"]["has_earlier_values"] = True
    return records
