"""Leave a run's results as upstream's harness does: its CSV and JSON files, its raw timings, its graph-break files."""

from __future__ import annotations

import argparse
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing

from compileboard.collectors.events import BenchMeasured, GraphBroke, load_event
from compileboard.collectors.formats.write import write_directory
from compileboard.collectors.record.progress import count_text
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connect import open_reader

LOAD_RESULTS = """
select body
from events
where run_id = :run and kind = 'bench_measured'
order by time_us, process_id, sequence
"""
LOAD_BREAKS = """
select processes.task, events.body
from processes join events on events.process_id = processes.id
where processes.run_id = :run and processes.task is not null and events.kind = 'graph_broke'
order by processes.task, processes.started_us, processes.id, events.sequence
"""


def write_upstream_files(arguments: argparse.Namespace, run_id: str, part: str, say: Callable[[str], None]) -> None:
    """Write them, if they were asked for, into the output directory or here; `part` names a folder inside of it.

    Raises: StoreError; OSError.
    """
    if not (arguments.output_directory or arguments.dump_raw_metrics or arguments.log_graph_breaks):
        return
    folder = os.path.join(arguments.output_directory or ".", part)
    with closing(open_reader(arguments.db)) as reader:
        results = load_results(reader, run_id)
        breaks = load_breaks(reader, run_id) if arguments.log_graph_breaks else {}
    names = write_directory(results, breaks, folder, raw_timings=arguments.dump_raw_metrics)
    say(f"{count_text(len(names), 'file')} in upstream's formats written to {folder}")


def load_results(reader: sqlite3.Connection, run_id: str) -> list[BenchMeasured]:
    """Load a run's results as the events that they came as."""
    events = [load_event(unpack(row["body"])) for row in reader.execute(LOAD_RESULTS, {"run": run_id})]
    return [event for event in events if isinstance(event, BenchMeasured)]


def load_breaks(reader: sqlite3.Connection, run_id: str) -> dict[str, list[GraphBroke]]:
    """Load the graph breaks of a run's tasks as the events that they came as."""
    found: dict[str, list[GraphBroke]] = {}
    for row in reader.execute(LOAD_BREAKS, {"run": run_id}):
        event = load_event(unpack(row["body"]))
        if isinstance(event, GraphBroke):
            found.setdefault(row["task"], []).append(event)
    return found
