"""Compare the start-up of an observed process with an unobserved one.

    python -m benchmarks.overhead.startup

Whole processes, from fork to exit, in the environment that `collectors run` gives its program; wall
time and CPU time of pairs in an order drawn for each.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.common import (
    RUN_ID,
    Row,
    bootstrap,
    clean_environment,
    differences,
    interleave,
    medians,
    print_table,
    scratch_folder,
)

PROGRAMS = {
    "never imports torch": ("pass", "≤ 15 ms more"),
    "imports torch": ("import torch", "≤ 30 ms more"),
    "imports torch._dynamo": ("import torch, torch._dynamo", "≤ 30 ms more"),
}
WALL, CPU = 0, 1


def start(
    code: str, environment: Mapping[str, str], folder: Path
) -> Callable[[], tuple[float, float]]:
    """Return a function that runs a program and returns its wall and CPU seconds."""

    def run() -> tuple[float, float]:
        begin = time.perf_counter()
        program = subprocess.Popen([sys.executable, "-c", code], env=dict(environment), cwd=folder)
        _, status, usage = os.wait4(program.pid, 0)
        wall = time.perf_counter() - begin
        program.returncode = os.waitstatus_to_exitcode(status)
        if program.returncode:
            raise SystemExit(f"`python -c '{code}'` ended with {program.returncode}")
        return wall, usage.ru_utime + usage.ru_stime

    return run


def observed_environment(folder: Path, plain: Mapping[str, str]) -> dict[str, str]:
    """Return the environment as `collectors run` makes it."""
    from compileboard.collectors.contract.run_config import RunConfig
    from compileboard.collectors.record.live import child_environment

    spool = folder / "spool"
    spool.mkdir()
    return child_environment(RunConfig(database=str(folder / "unused.db")), plain, RUN_ID, spool)


def make_rows(
    what: str, reach: str, timed: list[tuple[tuple[float, float], tuple[float, float]]]
) -> list[Row]:
    """Make the rows of one program: wall time, CPU time."""
    rows = []
    for clock, label in ((WALL, "wall"), (CPU, "CPU")):
        pairs = [(ours[clock] * 1000, reference[clock] * 1000) for ours, reference in timed]
        ours, reference = medians(pairs)
        more = bootstrap(differences(pairs))
        rows.append(
            Row(
                f"{what}, {label}",
                f"{ours:.1f} ms",
                f"{reference:.1f} ms",
                f"{more.median:+.1f} ms [{more.low:+.1f}, {more.high:+.1f}]",
                reach if clock == WALL else "",
            )
        )
    return rows


def main(argv: list[str] | None = None) -> int:
    """Measure every program and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead.startup", description=__doc__
    )
    parser.add_argument("--pairs", type=int, default=40)
    arguments = parser.parse_args(argv)
    plain = {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"}
    rows = []
    with scratch_folder() as folder:
        armed = observed_environment(folder, plain)
        for what, (code, reach) in PROGRAMS.items():
            ours, reference = start(code, armed, folder), start(code, plain, folder)
            ours(), reference()  # the files are in the page cache from here on
            rows += make_rows(what, reach, interleave(arguments.pairs, ours, reference))
    print_table(
        f"Start-up of an observed process, {arguments.pairs} pairs",
        rows,
        "Medians, and the median difference with its 95% interval.",
        headings=("what", "observed", "not observed", "difference", "reach"),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
