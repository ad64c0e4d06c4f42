"""Time how long a run's steps take to read where its causes are ranked.

python -m benchmarks.steps.ranking [--windows N] [--graphs N] [--steps N]

The steps are those of a recorded training program, each repeated until it has so many graphs, in so
many processes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import Row, print_table, scratch_folder
from compileboard.collectors.contract.events import Event, RunStarted, StepsTimed
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.run_steps import load_run_steps
from tests.tools.make_db import DATA, read_events

REPEATS = 9
LOG = DATA / "events" / "torch2.11-steps-in_training.jsonl.xz"


def widen(window: StepsTimed, graph_count: int, step_count: int) -> StepsTimed:
    """Repeat each forward graph and the gap before it; what comes after the call stays."""
    traced = window.traced
    assert traced is not None
    steps = []
    for number in range(step_count):
        step = window.steps[number % len(window.steps)]
        inside = len(step["host"]["call_us"]) // 2
        called = step["graph_numbers"]
        middle = [called[place % inside] for place in range(graph_count)]
        wide: Any = {**step, "graph_numbers": [*middle, *called[inside:]]}
        for side in ("host", "device"):
            *pairs, last = step[side]["call_us"]
            spans = [pairs[place % len(pairs)] for place in range(2 * graph_count)]
            wide[side] = {**step[side], "call_us": [*spans, last]}
        steps.append(wide)
    own = {graph["number"]: graph for graph in traced["graphs"]}
    example = own[min(own)]
    more = [{**example, "number": 1000 + number} for number in range(graph_count - len(own))]
    return replace(window, steps=steps, traced={**traced, "graphs": [*own.values(), *more]})


def list_events(window_count: int, graph_count: int, step_count: int) -> Iterator[Event]:
    for event in read_events(LOG):
        if not isinstance(event, StepsTimed):
            yield event
            continue
        wide = widen(event, graph_count, step_count)
        for number in range(window_count):
            yield replace(wide, sequence=event.sequence + 1_000_000 + number)


def measure(folder: Path, *sizes: int) -> Row:
    events = list(list_events(*sizes))
    run_id = next(event.run_id for event in events if isinstance(event, RunStarted))
    with closing(open_writer(folder / "a.db")) as connection:
        migrate_connection(connection)
        began_s = time.perf_counter()
        Ingestor(connection).ingest(run_id, events)
        stored_s = time.perf_counter() - began_s
        times_ms = []
        for _ in range(REPEATS):
            began_s = time.perf_counter()
            found = load_run_steps(connection, run_id)
            times_ms.append(1000 * (time.perf_counter() - began_s))
        assert found is not None and found.by_break
    what = "{} windows of {} graphs, {} steps".format(*sizes)
    return Row(what, f"{median(times_ms):.0f} ms", f"{stored_s:.2f} s", "", "≤ 100 ms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, count in (("windows", 16), ("graphs", 100), ("steps", 40)):
        parser.add_argument(f"--{name}", type=int, default=count)
    sizes = parser.parse_args()
    with scratch_folder() as folder:
        row = measure(folder, sizes.windows, sizes.graphs, sizes.steps)
    print_table(
        "Steps, for pages that rank", [row], headings=("run", "read", "stored", "", "reach")
    )


if __name__ == "__main__":
    main()
