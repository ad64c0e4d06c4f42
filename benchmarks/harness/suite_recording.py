"""Write what `bench` measured of whole suites as one table.

    python -m benchmarks.harness.suite_recording OUT.csv DB…

A row a model and mode, the newest result of each, in the order of their names; then a summary of
each suite is printed.
"""

from __future__ import annotations

import csv
import sqlite3
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import geometric_mean, median

from benchmarks.common import Row, print_table

COLUMNS = (
    *(
        "suite",
        "model",
        "mode",
        "dtype",
        "batch_size",
        "status",
        "reason",
        "speedup",
        "abs_latency_ms",
    ),
    *("compilation_latency_s", "unique_graphs", "graph_breaks", "recompiles", "duration_s"),
)
_RESULTS = """
select suite, model, mode, dtype, series.batch_size, status, coalesce(reason, '') as reason,
speedup, abs_latency_ms,
  compilation_latency_s, unique_graphs, graph_breaks, recompiles,
  results.duration_us / 1e6 as duration_s
from results join series on series.id = results.series_id
where experiment = 'performance'
order by results.id
"""
Record = Mapping[str, str]


def read_databases(paths: Iterable[str]) -> list[Record]:
    """Return a row of each model and mode, the newest where there are several."""
    rows: dict[tuple[str, str, str], Record] = {}
    for path in paths:
        with closing(
            sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
        ) as connection:
            connection.row_factory = sqlite3.Row
            for result in connection.execute(_RESULTS):
                row = {name: _format_cell(result[name]) for name in COLUMNS}
                rows[row["mode"], row["suite"], row["model"]] = row
    return [rows[key] for key in sorted(rows)]


def _format_cell(value: float | str | None) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def summarize(rows: Sequence[Record]) -> list[Row]:
    """Return a row of each mode and suite: models, their speedup, what compiling them took, and
    what failed.
    """
    summary = []
    for mode, suite in sorted({(row["mode"], row["suite"]) for row in rows}):
        of_suite = [row for row in rows if (row["mode"], row["suite"]) == (mode, suite)]
        measured = [row for row in of_suite if row["status"] == "measured"]
        speedups = [float(row["speedup"]) for row in measured]
        compile_s = [
            float(row["compilation_latency_s"]) for row in measured if row["compilation_latency_s"]
        ]
        breaks = sum(int(row["graph_breaks"]) > 0 for row in measured)
        failed = [
            f"{row['model']} ({row['reason']})" for row in of_suite if row["status"] != "measured"
        ]
        summary.append(
            Row(
                f"{suite}, {mode}",
                f"{len(measured)} of {len(of_suite)}",
                f"{geometric_mean(speedups):.2f}× [{min(speedups):.2f}, {max(speedups):.2f}]"
                if speedups
                else "",
                f"{median(compile_s):.0f} s" if compile_s else "",
                f"{breaks}; {', '.join(failed) or 'none failed'}",
            )
        )
    return summary


HEADINGS = (
    "suite",
    "measured",
    "speedup, geometric mean [least, most]",
    "compile, median",
    "with graph breaks; failed",
)


def main() -> None:
    """Write the table of the command line's databases."""
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    rows = read_databases(sys.argv[2:])
    with Path(sys.argv[1]).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print_table("Suites", summarize(rows), headings=HEADINGS)


if __name__ == "__main__":
    main()
