"""The format of a spool, for its writer in the observed process and for its readers: a folder of
files of records.

PROCESS.jsonl    a process's records, a line each; PROCESS.2.jsonl where its first file was taken
from it
PROCESS.losses   what it could not write, counted by reason: a JSON object in room reserved at its
start
PROCESS.graphs   with --repro=crash: the record of each compiled graph's repro, a line each, until a
clean end;
with --repro-inputs again at its first call, followed by its inputs' values, a line each
PROCESS.running  with it: where in that file is the graph that runs now, and the one that ran last
    run.json         which run it is and which database it is for: the manifest
    said.events      the journal: events that a command of ours adds, a line each
    recorder.lock    held by the one process that records the spool

A record is {"s": sequence, "t": microseconds, "n": name, "m": metadata, "p": payload, "c": context,
"x": extra}; "p", "c" and "x" are left out where there is nothing. A process holds a shared lock on
its file until it is gone.
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
# Two 8-byte numbers, of the running graph and of the last: a line's offset and 1, negative where
# its values are of an earlier call; 0 for none.
RUNNING_BYTES = 16
MANIFEST_NAME = "run.json"
JOURNAL_NAME = "said.events"
LOCK_NAME = "recorder.lock"
CONTEXT_KEYS = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "rank")


def read_running(
    path: str | os.PathLike[str], number: int, most_bytes: int = -1
) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    with open(path, "rb") as file:
        file.seek(abs(number) - 1)
        while line := file.readline(most_bytes):
            record = json.loads(line)
            if records and record["n"] != record_names.REPRO_VALUES:
                break
            records.append(record)
    if number < 0:
        records[0]["m"]["manifest"]["has_earlier_values"] = True
    return records
