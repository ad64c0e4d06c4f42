"""Measure what inductor's provenance tracking adds to compile time beside torch's trace.

    python -m benchmarks.overhead.provenance

Every compile writes torch's trace, as `--level full` has it; levels 0, 1 and 2 alternate within one
process, in an order drawn for each round. `--cold` empties the cache folder before each compile.

`--warm` fills a cache without the tracking, then starts a process on a copy of it with the tracking
and one without: where torch's cache key holds the level, the first finds nothing. The third row is
a process with the tracking on a cache that was filled with it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
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

PROGRAM = "benchmarks.overhead.provenance_program"
MODELS = "gpt,resnet,encoder"
CALM = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
LEVEL = "2"  # what `--level full` sets
CLOCKS = (("", "≤ 1.02"), (", CPU time", ""))


def measure_levels(model: str, rounds: int, cold: bool, folder: Path) -> list[Row]:
    """Measure levels 1 and 2 against 0."""
    more = {"TORCH_TRACE": str(folder / "trace"), "TORCHINDUCTOR_CACHE_DIR": str(folder / model)}
    command = ["-m", PROGRAM, model, "--rounds", str(rounds), *(["--cold"] if cold else [])]
    timings: list[list[list[float]]] = last_json(  # type: ignore[assignment]
        run_python(command, clean_environment(**CALM, **more))
    )
    rows = []
    for level in (1, 2):
        for clock, (label, reach) in enumerate(CLOCKS):
            timed = [(times[level][clock], times[0][clock]) for times in timings]
            rows.append(make_row(f"{model}: level {level}{label}, {rounds} rounds", timed, reach))
        # The difference of two compiles drowns in a busy machine's noise, this share does not.
        inside = [(cpu, cpu - own) for _wall, cpu, own in (times[level] for times in timings)]
        rows.append(make_row(f"{model}: level {level}, its own functions' CPU time", inside, ""))
    return rows


def measure_warm(model: str, pairs: int, folder: Path) -> list[Row]:
    """Measure a process with the tracking against one without, both on filled caches."""
    caches = {level: folder / f"{model}-{level}" for level in ("0", LEVEL)}
    for level, cache in caches.items():
        _start(model, level, cache, folder)
    rows = []
    for what, filled in (("cache filled without it", "0"), ("cache filled with it", LEVEL)):

        def ours(filled: str = filled) -> list[float]:
            copy = folder / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(caches[filled], copy)
            return _start(model, LEVEL, copy, folder)

        timed = interleave(pairs, ours, lambda: _start(model, "0", caches["0"], folder))
        found = f"{timed[-1][0][2]:.0f} of {timed[-1][0][2] + timed[-1][0][3]:.0f} graphs found"
        seconds = [(with_it[0], without[0]) for with_it, without in timed]
        rows.append(make_row(f"{model}: {what}, {found}, {pairs} pairs", seconds, ""))
    return rows


def _start(model: str, level: str, cache: Path, folder: Path) -> list[float]:
    more = {"TORCH_TRACE": str(folder / "trace"), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    environment = clean_environment(**CALM, **more, INDUCTOR_PROVENANCE=level)
    return last_json(run_python(["-m", PROGRAM, model, "--once"], environment))  # type: ignore[return-value]


def make_row(what: str, timed: list[tuple[float, float]], reach: str) -> Row:
    """Make a table's row of paired seconds."""
    ours, reference = medians(timed)
    return Row(what, f"{ours:.2f} s", f"{reference:.2f} s", str(bootstrap(ratios(timed))), reach)


def main(argv: list[str] | None = None) -> int:
    """Measure each model and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead.provenance", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--cold", action="store_true", help="empty the cache before each compile")
    parser.add_argument("--warm", action="store_true", help="start with filled caches instead")
    arguments = parser.parse_args(argv)
    rows = []
    for model in arguments.models.split(","):
        with scratch_folder() as folder:
            rows += (
                measure_warm(model, arguments.rounds, folder)
                if arguments.warm
                else measure_levels(model, arguments.rounds, arguments.cold, folder)
            )
    print_table(
        "Compile time with inductor's provenance tracking ÷ without, torch's trace on in both",
        rows,
        "Medians; the ratio is the median of the pairs' ratios with its 95% interval.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
