"""Time frames: `python -m benchmarks.serve.frames DB`, beside SQLite's own fetch of the same table.

`python -m benchmarks.store.result_history DB --days 500` makes a database of 100 000 results in 500
runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compileboard
from benchmarks.common import Row, print_table

HEADINGS = ("what", "CPU", "rows, columns", "size", "")
FETCH = "select * from results as r join series as s on s.id = r.series_id limit 1000000"


def measure(what: str, read: Callable[[], Any]) -> Row:
    """Read a frame, or a list of rows, once."""
    began_s = time.process_time()
    frame = read()
    cpu_s = time.process_time() - began_s
    if isinstance(frame, list):
        return Row(what, f"{cpu_s:.2f} s", f"{len(frame):,}")
    size_mb = frame.memory_usage(deep=True).sum() / 1e6
    return Row(what, f"{cpu_s:.2f} s", f"{len(frame):,}, {frame.shape[1]}", f"{size_mb:.0f} MB")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", type=Path, metavar="DB")
    board = compileboard.open(parser.parse_args().database)
    frames = {
        name: getattr(board, name)
        for name in ("runs", "models", "results", "compiles", "graph_breaks", "baselines")
    }
    frames["baselines"]()  # what the first call imports
    rows = [measure(f"board.{name}()", read) for name, read in frames.items()]
    with board.reading() as reader:
        rows.append(measure("results, fetched alone", lambda: reader.execute(FETCH).fetchall()))
    print_table("Frames", rows, headings=HEADINGS)


if __name__ == "__main__":
    main()
