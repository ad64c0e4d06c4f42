"""Time a program before its window of steps, in it and after it. Needs a GPU.

python -m benchmarks.steps.overhead
"""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.common import (
    Row,
    interleave,
    medians,
    observing,
    print_table,
    ratios,
    require_gpu,
    run_python,
    scratch_folder,
)

PROCESSES, AROUND = 5, 9
# The host's speed drifts: many short turns.
PAIRS, TURN = 80, 10
NEVER = 10**9  # steps before a window that waits


def measure(folder: Path) -> dict[str, float]:
    """Measure in this process, in which no window was before."""
    import torch

    from benchmarks.steps.predictions import WARM_UP, run_window, time_steps
    from benchmarks.steps.programs import in_training
    from compileboard.collectors.observe import hooks

    torch.set_float32_matmul_precision("high")
    with observing(folder):
        call, _whole = in_training()
        for _ in range(WARM_UP):
            call()

        def wait() -> float:
            window = hooks.current().open_window(40, NEVER)
            taken_us = time_steps(call, TURN)
            window.abandon()
            return taken_us

        waiting = interleave(PAIRS, wait, partial(time_steps, call, TURN))
        before = median(time_steps(call) for _ in range(AROUND))
        run_window(call)
        after = median(time_steps(call) for _ in range(AROUND))
    waiting_us, without_us = medians(waiting)
    return {
        "waiting_us": waiting_us,
        "without_us": without_us,
        "waiting": median(ratios(waiting)),
        "before_us": before,
        "after_us": after,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help=argparse.SUPPRESS)  # of one process
    folder = parser.parse_args().folder
    require_gpu()
    if folder:
        print(json.dumps(measure(folder)))
        return
    with scratch_folder() as folder:
        found = [
            json.loads(
                run_python(
                    ["-m", "benchmarks.steps.overhead", str(folder)], os.environ
                ).splitlines()[-1]
            )
            for _ in range(PROCESSES)
        ]
    middle = {name: median(one[name] for one in found) for name in found[0]}
    after = median(one["after_us"] / one["before_us"] for one in found)
    rows = [
        Row(
            "a training step while its window waits",
            f"{middle['waiting_us']:.0f} µs",
            f"{middle['without_us']:.0f} µs",
            f"{middle['waiting']:.3f}",
            "≤ 1.005",
        ),
        Row(
            "after it, traced steps included",
            f"{middle['after_us']:.0f} µs",
            f"{middle['before_us']:.0f} µs",
            f"{after:.3f}",
            "≤ 1.005",
        ),
    ]
    print_table("A window of steps: the program outside it", rows)


if __name__ == "__main__":
    main()
