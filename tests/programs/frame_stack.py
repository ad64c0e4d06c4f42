"""Stand on the frame-stack cliff, or not: `frame_stack.py cliff|calm|arrays|slow [FOLDER]`, until it is killed.

FOLDER gets a file that stays open, as a spool's does. A line says when the program stands where it should.
"""

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.stack_room import descend, wide_function

ARRAY_BYTES = 34_000_000  # malloc maps and unmaps each: above the largest size that it keeps


def fault_count() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def find_place(call, least: float, most: float, run) -> None:
    """Run at the first depth where a call makes so many faults."""

    def probe(_depth: int) -> None:
        for _ in range(3):
            call(1)
        before = fault_count()
        for _ in range(5):
            call(1)
        if least <= (fault_count() - before) / 5 <= most:
            print("ready", flush=True)
            run(call)

    descend(probe, 0, 400)
    sys.exit("no such depth here")


def repeat(call) -> None:
    while True:
        call(1)


def fill(_call) -> None:
    while True:
        b"x" * ARRAY_BYTES


def cross_and_fill(call) -> None:
    """Map one chunk for each step of a slow loop whose page faults come from arrays."""
    while True:
        call(1)
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            b"x" * ARRAY_BYTES


def main() -> None:
    mode = sys.argv[1]
    spool = open(Path(sys.argv[2]) / "1.jsonl", "w") if len(sys.argv) > 2 else None  # noqa: SIM115  held open
    if mode == "cliff":
        find_place(wide_function(), 100, 1e9, repeat)
    if mode == "slow":
        find_place(wide_function(1), 1, 5, cross_and_fill)
    find_place(wide_function(), 0, 1, {"calm": repeat, "arrays": fill}[mode])
    del spool


main()
