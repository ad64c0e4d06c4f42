"""Show CPython's frame-stack cliff without torch: `python -m benchmarks.faults.frame_stack`.

A function with 900 locals calls a small one 900 times, from every depth of a recursion. Needs the
standard library alone and Python 3.10: run it with any interpreter to see what that one does.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compileboard.collectors.stack_room import call_with_room

LOCAL_COUNT = 900
SLOW_FAULTS = 10.0


@dataclass(frozen=True)
class Depth:
    """Time and page faults of one call, `depth` frames deeper than the first."""

    depth: int
    call_us: float
    faults: float


def small(a: int) -> int:
    """Return its argument. Its frame is larger than that of `descend`, so the recursion steps over
    no chunk's end.
    """
    return a or max(a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a)


def descend(measure: Callable[[int], None], depth: int, depth_count: int) -> None:
    """Measure at this depth and at each below."""
    measure(depth)
    if depth + 1 < depth_count:
        descend(measure, depth + 1, depth_count)


def wide_function(local_count: int = LOCAL_COUNT) -> Callable[[int], int]:
    """Return a function like the one that inductor generates: many locals, and a call for each."""
    lines = "".join(f"    v{number} = small(a)\n" for number in range(local_count))
    names: dict[str, Any] = {"small": small}
    exec(f"def call(a):\n{lines}    return v0\n", names)
    function: Callable[[int], int] = names["call"]
    return function


def measure_depths(depth_count: int, call_count: int) -> list[Depth]:
    """Measure the wide function at each depth of a recursion, in this thread."""
    call = wide_function()
    depths = []

    def measure(depth: int) -> None:
        for _ in range(5):  # warm: the interpreter specialises it
            call(1)
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        begin_ns = time.perf_counter_ns()
        for _ in range(call_count):
            call(1)
        elapsed_us = (time.perf_counter_ns() - begin_ns) / 1000
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - faults
        depths.append(Depth(depth, elapsed_us / call_count, faults / call_count))

    descend(measure, 0, depth_count)
    return depths


def in_fresh_thread(function: Callable[[], list[Depth]]) -> list[Depth]:
    """Return what a function returns on a frame stack of its own."""
    results: list[list[Depth]] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def row(name: str, depths: list[Depth]) -> str:
    """Format one line of the table."""
    slow = [depth for depth in depths if depth.faults >= SLOW_FAULTS]
    worst = max(depths, key=lambda depth: (depth.faults, depth.call_us))
    where = ", ".join(str(depth.depth) for depth in slow[:8]) or "-"
    times = f"{statistics.median(depth.call_us for depth in depths):>9.0f}  {worst.call_us:>8.0f}"
    return f"{name:<13}  {times}  {worst.faults:>12.1f}  {len(slow):>4}  {where}"


def main(argv: list[str] | None = None) -> int:
    """Measure without room and with it; print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults.frame_stack", description=__doc__
    )
    parser.add_argument(
        "--depths", type=int, default=200, help="how deep the recursion goes (default: 200)"
    )
    parser.add_argument(
        "--calls", type=int, default=50, help="timed calls at each depth (default: 50)"
    )
    arguments = parser.parse_args(argv)
    threads = " free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    print(
        f"CPython {sys.version.split()[0]}{threads}: {arguments.depths} depths, "
        f"{arguments.calls} calls each"
    )
    print("               median us  worst us  worst faults  slow  at depths")

    def measure() -> list[Depth]:
        return measure_depths(arguments.depths, arguments.calls)

    print(row("without room", in_fresh_thread(measure)))
    print(row("with room", in_fresh_thread(lambda: call_with_room(measure))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
