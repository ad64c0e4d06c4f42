"""Compare compile time with the hooks and without.

    python -m benchmarks.overhead.compile_overhead

Observed and unobserved compiles alternate within one process, the hooks put in and taken out
between them and the order drawn for each pair: two processes differ by more (address layout, hash
seeds, where their memory lies) than the hooks cost, two repetitions of one process do not. Each
observed repetition pays what a program pays once: opening its spool, describing the process,
writing the configurations. The interval is a bootstrap of the median of the pairs' ratios.

What comes by the environment needs processes of its own: torch's own TORCH_TRACE (`--trace`) and
the whole of `collectors run`, its recorder working beside the program (`--run`). There a pair is
two processes.

`--cached` measures models that inductor loads from its caches
(`benchmarks.overhead.cached_program`), by pairs of
processes: the shortest compiles there are, of which the hooks take the largest share.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import (
    RUN_ID,
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
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.record.live import child_environment

PROGRAM, CACHED_PROGRAM = (
    "benchmarks.overhead.compile_program",
    "benchmarks.overhead.cached_program",
)
WALL, CPU = 0, 1
Start = Callable[
    [list[str], dict[str, str]], str
]  # runs a command with more environment, returns what it printed
CALM = {
    "OMP_NUM_THREADS": "1",
    # Compile in this process, not in a pool that competes for the cores
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


def measure_in_process(backend: str, pairs: int, processes: int, folder: Path) -> list[Row]:
    """Measure hooks against no hooks, alternating within each of a few processes."""
    timings: list[list[list[float]]] = []
    for number in range(processes):
        share = pairs // processes + (number < pairs % processes)
        command = [
            "-m",
            PROGRAM,
            "--backend",
            backend,
            "--pairs",
            str(share),
            "--seed",
            str(number),
        ]
        if share:
            timings += last_json(
                run_python([*command, "--folder", str(folder)], clean_environment(**CALM))
            )  # type: ignore[operator]
    rows = []
    for clock, label, reach in ((WALL, "", "≤ 1.02, top ≤ 1.03"), (CPU, ", CPU time", "")):
        timed = [(ours[clock], reference[clock]) for ours, reference in timings]
        rows.append(make_row(f"{backend}: observed{label}, {len(timed)} pairs", timed, reach))
    return rows


def measure_processes(
    what: str, command: list[str], pairs: int, start: Start, more: dict[str, str], reach: str
) -> list[Row]:
    """Measure a program started by `start` against the same started plainly."""
    timings = interleave(
        pairs,
        lambda: _medians_of(start(command, more)),
        lambda: _medians_of(run_python(command, clean_environment(**CALM, **more))),
    )
    rows = []
    for clock, label, limit in ((WALL, "", reach), (CPU, ", CPU time", "")):
        timed = [(ours[clock], reference[clock]) for ours, reference in timings]
        rows.append(make_row(f"{what}{label}, {pairs} pairs of processes", timed, limit))
    return rows


def _medians_of(output: str) -> tuple[float, float]:
    timings: list[list[float]] = last_json(output)  # type: ignore[assignment]
    return statistics.median(times[WALL] for times in timings), statistics.median(
        times[CPU] for times in timings
    )


def measure_cached(
    pairs: int, repetitions: int, folder: Path, chosen: list[tuple[str, Start, str]]
) -> list[Row]:
    """Measure models that are loaded from a cache, which is filled first."""
    more = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    run_python(["-m", CACHED_PROGRAM, "--repetitions", "0"], clean_environment(**CALM, **more))
    command = ["-m", CACHED_PROGRAM, "--repetitions", str(repetitions)]
    rows = []
    for what, start, reach in chosen:
        rows += measure_processes(
            f"inductor from its caches, a model: {what}", command, pairs, start, more, reach
        )
    return rows


def make_row(what: str, timed: list[tuple[float, float]], reach: str) -> Row:
    """Make a table's row of paired seconds."""
    ours, reference = medians(timed)
    return Row(
        what,
        f"{ours * 1000:.0f} ms",
        f"{reference * 1000:.0f} ms",
        str(bootstrap(ratios(timed))),
        reach,
    )


def traced(folder: Path) -> Start:
    """Return how to run the program with torch's own trace."""
    trace = str(folder / "trace")
    return lambda command, more: run_python(
        command, clean_environment(**CALM, **more, TORCH_TRACE=trace)
    )


def hooked(folder: Path) -> Start:
    """Return how to run the program with the hooks alone: no recorder follows what they write."""

    def start(command: list[str], more: dict[str, str]) -> str:
        spool = Path(tempfile.mkdtemp(prefix="spool-", dir=folder))
        config = RunConfig(database=str(folder / "unused.db"))
        output = run_python(
            command, child_environment(config, clean_environment(**CALM, **more), RUN_ID, spool)
        )
        if not any(spool.iterdir()):
            raise SystemExit("the hooks recorded nothing; there is nothing to compare")
        return output

    return start


def recorded(folder: Path) -> Start:
    """Return how to run the program under `collectors run`."""
    wrapped = [
        "-m",
        "compileboard.collectors",
        "run",
        "--quiet",
        "--db",
        str(folder / "overhead.db"),
        "--",
        sys.executable,
    ]
    home = str(folder / "home")
    return lambda command, more: run_python(
        [*wrapped, *command], clean_environment(**CALM, **more, COMPILEBOARD_HOME=home)
    )


def main(argv: list[str] | None = None) -> int:
    """Measure every backend and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead.compile_overhead", description=__doc__
    )
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--backends", default="eager,aot_eager,inductor")
    parser.add_argument(
        "--processes", type=int, default=3, help="processes that the pairs are spread over"
    )
    parser.add_argument("--trace", action="store_true", help="measure TORCH_TRACE beside it")
    parser.add_argument(
        "--run", action="store_true", help="measure the whole of `collectors run` beside it"
    )
    parser.add_argument(
        "--cached",
        action="store_true",
        help="measure only models that are loaded from inductor's caches",
    )
    parser.add_argument(
        "--process-pairs", type=int, default=14, help="pairs of --trace, --run and --cached"
    )
    parser.add_argument(
        "--repetitions", type=int, default=3, help="repetitions in each process of those"
    )
    arguments = parser.parse_args(argv)
    rows = []
    with scratch_folder() as folder:
        chosen = [("`collectors run`", recorded(folder), "")] if arguments.run else []
        chosen += [("TORCH_TRACE", traced(folder), "(1.08–1.11)")] if arguments.trace else []
        if arguments.cached:
            hooks_alone = ("the hooks", hooked(folder), "median ≤ 1.02")
            rows = measure_cached(
                arguments.process_pairs, arguments.repetitions, folder, [hooks_alone, *chosen]
            )
        for backend in () if arguments.cached else arguments.backends.split(","):
            rows += measure_in_process(backend, arguments.pairs, arguments.processes, folder)
            command = [
                "-m",
                PROGRAM,
                "--backend",
                backend,
                "--repetitions",
                str(arguments.repetitions),
            ]
            for what, start, reach in chosen:
                rows += measure_processes(
                    f"{backend}: {what}", command, arguments.process_pairs, start, {}, reach
                )
    print_table(
        "Compile time of a compile-heavy program, observed ÷ not",
        rows,
        (
            "Medians; the ratio is the median of the pairs' ratios with its 95% interval. "
            "Reference: not observed."
        ),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
