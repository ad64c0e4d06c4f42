"""Stand on the frame-stack cliff, or not: `frame_stack.py cliff|calm|arrays|slow [FOLDER]`, until
it is killed.

FOLDER gets a file that stays open, as a spool's does. A line says when the program stands where it
should.
"""

import resource
import sys
import time
from functools import partial
from operator import mul
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.faults.frame_stack import descend, wide_function

ARRAY_BYTES = 34_000_000  # malloc maps and unmaps each: above the largest size that it keeps


def fault_count() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def stand(call, least: float, most: float, between, inside=None) -> None:
    """Call and do something between, for ever, at the first depth where a call makes so many
    faults.

    The loop is in the frame that measured, and `between` has none: one more would move the end of
    the chunk.
    """

    def probe(_depth: int) -> None:
        for _ in range(3):
            call(1)
        before = fault_count()
        for _ in range(5):
            call(1)
        if least <= (fault_count() - before) / 5 <= most:
            call.__globals__["small"] = inside or call.__globals__["small"]
            print("ready", flush=True)
            while True:
                call(1)
                between()

    descend(probe, 0, 400)
    sys.exit("no such depth here")


def fill_for_10_ms(a: int) -> int:
    end = time.monotonic() + 0.01
    while time.monotonic() < end:
        b"x" * ARRAY_BYTES
    return a or max(
        a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a
    )  # a frame no smaller than `small`'s


def main() -> None:
    mode = sys.argv[1]
    fill = partial(mul, b"x", ARRAY_BYTES)
    spool = open(Path(sys.argv[2]) / "1.jsonl", "w") if len(sys.argv) > 2 else None  # noqa: SIM115  held open
    if mode == "cliff":
        stand(wide_function(), 100, 1e9, int)
    elif mode == "slow":  # one chunk for each step of a slow loop, whose faults come from arrays
        stand(wide_function(1), 1, 5, fill, fill_for_10_ms)
    else:
        stand(wide_function(), 0, 1, fill if mode == "arrays" else int)
    del spool


main()
