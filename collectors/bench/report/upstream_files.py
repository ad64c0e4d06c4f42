"""Write results in upstream's file formats, and read a CSV as a baseline."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from compileboard.collectors.bench.experiments import MODES
from compileboard.collectors.bench.plan.request import BenchRequest
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.contract.events import BenchMeasured, GraphBroke, load_event
from compileboard.collectors.formats.reader import read_results
from compileboard.collectors.formats.writer import render_files, render_untabled, write_files
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.values import count_text


def read_baseline(path: str | None) -> dict[str, float]:
    """Return the speedup of each model in a file; empty without a path. Raises ValueError if it
    cannot be read or has no speedup.
    """
    if path is None:
        return {}
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(
            f"--baseline {path}: {error.strerror or error}; expected a performance CSV"
        ) from None
    measurements = read_results(os.path.basename(path), data).results
    speedups = {
        measurement.model: measurement.values["speedup"]
        for measurement in measurements
        if measurement.status == "measured" and measurement.values.get("speedup")
    }
    if not speedups:
        raise ValueError(
            f"--baseline {path}: no row has a speedup; expected a CSV with the columns name "
            "and speedup"
        )
    return speedups


def compare_with(baseline: Mapping[str, float], task: Task, outcome: ExperimentOutcome) -> None:
    before = baseline.get(task.ref.name)
    if before and task.experiment == "performance" and "speedup" in outcome.values:
        outcome.values |= {
            "baseline": before,
            "speedup_vs_baseline": outcome.values["speedup"] / before,
        }


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


def write_upstream_files(
    arguments: BenchRequest,
    run_ids: Sequence[str],
    subfolder: str,
    print_line: Callable[[str], None],
) -> None:
    """Write upstream's files, and tables if requested, into the output directory or its folder
    `subfolder`.

    Raises StoreError, OSError.
    """
    if arguments.disable_output:
        return
    path = os.path.join(arguments.output_directory or ".", arguments.output or "")
    folder, stem = (
        os.path.join(os.path.dirname(path), subfolder),
        os.path.basename(path).removesuffix(".csv") or None,
    )
    with closing(open_reader(arguments.db)) as reader:
        results = [result for run_id in run_ids for result in load_results(reader, run_id)]
        breaks: dict[str, list[GraphBroke]] = {}
        for run_id in run_ids if arguments.log_graph_breaks or arguments.explain else ():
            breaks |= load_breaks(reader, run_id)
    raw, modes = (
        arguments.dump_raw_metrics,
        [name for name in arguments.experiments if name in MODES],
    )
    if arguments.output or arguments.output_directory or raw or arguments.log_graph_breaks:
        files = render_files(results, breaks, raw_timings=raw, stem=stem, modes=modes)
    else:
        files = render_untabled(results)
    if files:
        names = write_files(files, folder)
        print_line(
            f"{count_text(len(names), 'file')} in upstream's formats written to {folder or '.'}"
        )


def load_results(reader: sqlite3.Connection, run_id: str) -> list[BenchMeasured]:
    events = [
        load_event(unpack(row["body"])) for row in reader.execute(LOAD_RESULTS, {"run": run_id})
    ]
    return [event for event in events if isinstance(event, BenchMeasured)]


def load_breaks(reader: sqlite3.Connection, run_id: str) -> dict[str, list[GraphBroke]]:
    breaks_by_task: dict[str, list[GraphBroke]] = {}
    for row in reader.execute(LOAD_BREAKS, {"run": run_id}):
        event = load_event(unpack(row["body"]))
        if isinstance(event, GraphBroke):
            breaks_by_task.setdefault(row["task"], []).append(event)
    return breaks_by_task
