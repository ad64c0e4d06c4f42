"""Compare compile time with the hooks and without: `python -m benchmarks.compile_overhead`.

Observed and unobserved compiles alternate within one process, the hooks put in and taken out between them and the
order drawn for each pair: two processes differ by more (address layout, hash seeds, where their memory lies) than the
hooks cost, two repetitions of one process do not. Each observed repetition pays what a program pays once:
opening its spool, describing the process, writing the configurations. The interval is a bootstrap of the median of
the pairs' ratios.

What comes by the environment needs processes of its own: torch's own TORCH_TRACE (`--trace`) and the whole of
`collectors run`, its recorder working beside the program (`--run`). There a pair is two processes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import (
    Row,
    bootstrap,
    clean_environment,
    interleave,
    last_json,
    medians,
    print_table,
    ratios,
    run_python,
    scratch_folder,
)

PROGRAM = "benchmarks.compile_program"
WALL, CPU = 0, 1
CALM = {
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # compile in this process, not in a pool that competes for the cores
}


def measure_in_process(backend: str, pairs: int, processes: int, folder: Path) -> list[Row]:
    """Measure hooks against no hooks, alternating within each of a few processes."""
    found: list[list[list[float]]] = []
    for number in range(processes):
        share = pairs // processes + (number < pairs % processes)
        command = ["-m", PROGRAM, "--backend", backend, "--pairs", str(share), "--seed", str(number)]
        if share:
            found += last_json(run_python([*command, "--folder", str(folder)], clean_environment(**CALM)))  # type: ignore[operator]
    rows = []
    for clock, label, reach in ((WALL, "", "≤ 1.02, top ≤ 1.03"), (CPU, ", CPU time", "")):
        timed = [(ours[clock], reference[clock]) for ours, reference in found]
        rows.append(make_row(f"{backend}: observed{label}, {len(timed)} pairs", timed, reach))
    return rows


def measure_processes(
    what: str, backend: str, pairs: int, repetitions: int, ours: Callable[[list[str]], str], reach: str
) -> Row:
    """Measure a program started by `ours` against the same started plainly."""
    command = ["-m", PROGRAM, "--backend", backend, "--repetitions", str(repetitions)]

    def median_of(output: str) -> float:
        return statistics.median(seconds[WALL] for seconds in last_json(output))  # type: ignore[attr-defined]

    timed = interleave(
        pairs,
        lambda: median_of(ours(command)),
        lambda: median_of(run_python(command, clean_environment(**CALM))),
    )
    return make_row(f"{backend}: {what}, {pairs} pairs of processes", timed, reach)


def make_row(what: str, timed: list[tuple[float, float]], reach: str) -> Row:
    """Make a table's row of paired seconds."""
    ours, reference = medians(timed)
    return Row(what, f"{ours * 1000:.0f} ms", f"{reference * 1000:.0f} ms", str(bootstrap(ratios(timed))), reach)


def traced(folder: Path) -> Callable[[list[str]], str]:
    """Return how to run the program with torch's own trace."""
    return lambda command: run_python(command, clean_environment(**CALM, TORCH_TRACE=str(folder / "trace")))


def recorded(folder: Path) -> Callable[[list[str]], str]:
    """Return how to run the program under `collectors run`."""
    wrapped = ["-m", "collectors", "run", "--quiet", "--db", str(folder / "overhead.db"), "--", sys.executable]
    environment = clean_environment(**CALM, COMPILEBOARD_HOME=str(folder / "home"))
    return lambda command: run_python([*wrapped, *command], environment)


def main(argv: list[str] | None = None) -> int:
    """Measure every backend and print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_overhead", description=__doc__)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--backends", default="eager,aot_eager,inductor")
    parser.add_argument("--processes", type=int, default=3, help="processes that the pairs are spread over")
    parser.add_argument("--trace", action="store_true", help="measure TORCH_TRACE beside it")
    parser.add_argument("--run", action="store_true", help="measure the whole of `collectors run` beside it")
    parser.add_argument("--process-pairs", type=int, default=10, help="pairs of --trace and --run")
    parser.add_argument("--repetitions", type=int, default=3, help="repetitions in each process of those")
    arguments = parser.parse_args(argv)
    rows = []
    with scratch_folder() as folder:
        for backend in arguments.backends.split(","):
            rows += measure_in_process(backend, arguments.pairs, arguments.processes, folder)
            for chosen, what, ours, reach in (
                (arguments.run, "`collectors run`", recorded(folder), ""),
                (arguments.trace, "TORCH_TRACE", traced(folder), "(1.08–1.11)"),
            ):
                if chosen:
                    rows.append(
                        measure_processes(what, backend, arguments.process_pairs, arguments.repetitions, ours, reach)
                    )
    print_table(
        "Compile time of a compile-heavy program, observed ÷ not",
        rows,
        "Medians; the ratio is the median of the pairs' ratios with its 95 % interval. Reference: not observed.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
