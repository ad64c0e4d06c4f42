"""Summarise `run --repro=accuracy` in one line."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing

from compileboard.collectors.contract.record_names import GRAPH_CHECKED
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.progress_line import count_text

LIST_NOTED = """
select events.body
from events join processes on processes.id = events.process_id
where events.run_id = :run_id and events.kind = 'noted' and (:task is null
  or processes.task = :task)
"""
WORDS = {"same": "right", "wrong": "wrong", "skipped": "not compared"}


def describe_graph_checks(database: str, run_id: str) -> str:
    with closing(open_reader(database)) as connection:
        verdicts, seconds, reasons = read_graph_checks(connection, run_id)
    if not verdicts:
        return (
            "--repro=accuracy compared no graph: none was compiled for inductor or another "
            "backend and called"
        )
    counts = ", ".join(
        f"{verdicts[word]} {label}" for word, label in WORDS.items() if verdicts[word]
    )
    line = (
        f"compared {count_text(sum(verdicts.values()), 'graph')} with eager in {seconds:.3g} "
        f"s: {counts}"
    )
    return f"{line} ({reasons.most_common(1)[0][0]})" if reasons else line


def read_graph_checks(
    connection: sqlite3.Connection, run_id: str, task: str | None = None
) -> tuple[Counter[str], float, Counter[str]]:
    """Return how many calls of graphs have each verdict, what comparing took, and why some were not
    compared.

    With a task, those of its processes alone.

    Units: seconds
    """
    verdicts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    seconds = 0.0
    rows = connection.execute(LIST_NOTED, {"run_id": run_id, "task": task}).fetchall()
    for row in rows:
        event = json.loads(unpack(row["body"]))
        if event.get("name") != GRAPH_CHECKED:
            continue
        fields = (event.get("body") or {}).get("metadata") or {}
        verdicts[str(fields.get("verdict"))] += 1
        seconds += float(fields.get("seconds") or 0)
        if fields.get("reason"):
            reasons[str(fields["reason"])] += 1
    return verdicts, seconds, reasons
