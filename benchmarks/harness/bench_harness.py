"""Measure `collectors bench` itself.

    python -m benchmarks.harness.bench_harness cost | imports | models FILE | suite

cost    what the harness takes for a model beyond the model's own work, beside `import torch`
imports the processor time of what a task imports beyond `import torch._dynamo`: true on a busy
machine too models  the models that upstream's harness was run on, against what it said of them
suite   the wall time of the built-in suite
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.common import (
    ROOT,
    Row,
    bootstrap,
    clean_environment,
    interleave,
    print_table,
    scratch_folder,
)

TINY = """
import torch
import compileboard

@compileboard.bench.model(name="tiny", batch_size=2)
def tiny(batch_size):
    return torch.nn.Linear(4, 4), (torch.randn(batch_size, 4),)
"""
IMPORTS = """
import json, time
times = [time.process_time()]
import torch._dynamo
times.append(time.process_time())
import torch._dynamo.testing
times.append(time.process_time())
import compileboard.collectors.bench.worker.child
import compileboard.collectors.bench.worker.torch_setup
import compileboard.collectors.bench.experiments.performance
times.append(time.process_time())
print(json.dumps([after - before for before, after in zip(times, times[1:])]))
"""
OWN = (
    "load",
    "eager",
    "start the compiler",
    "compile",
    "measure",
    "compile again",
)  # the stages that are the model's own work
# Upstream's harness on one H200, float32 inference, --disable-cudagraphs, 50 repeats, one model at
# a time, twice.
UPSTREAM = {
    "Resnet18": (1.058, 1.053),
    "MobileNetV3": (0.988, 1.046),
    "Bert4": (1.773, 1.768),
    "GPT2x4": (1.563, 1.582),
    "Breaky": (0.572, 0.569),
}


def bench(folder: Path, *words: str) -> float:
    """Run `collectors bench` into a database of the folder; return the seconds it took."""
    command = [
        sys.executable,
        "-m",
        "compileboard.collectors",
        "bench",
        "--db",
        str(folder / "bench.db"),
        "--quiet",
        *words,
    ]
    began = time.perf_counter()
    done = subprocess.run(
        command,
        env=clean_environment(COMPILEBOARD_HOME=str(folder / "home")),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return time.perf_counter() - began


def results(folder: Path) -> list[dict[str, Any]]:
    """Return what the database holds, oldest first."""
    with closing(sqlite3.connect(folder / "bench.db")) as connection:
        connection.row_factory = sqlite3.Row
        query = """
        select results.*, model, value as page_faults
        from results join series on series.id = series_id
        left join result_values on result_values.result_id = results.id
          and name = 'compiled_page_faults'
        order by results.id
        """
        return [
            {**dict(row), "facts": json.loads(row["facts"])} for row in connection.execute(query)
        ]


def cost(folder: Path, pairs: int) -> None:
    """Print what a task costs beyond its model's own work, and how that divides."""
    (folder / "tiny.py").write_text(TINY)
    only = ["--only", f"path:{folder / 'tiny.py'},model:tiny", "--backend", "eager", "-n", "5"]

    def task() -> float:
        bench(folder, *only, "--tag", f"n={time.time_ns()}")
        newest = results(folder)[-1]
        stages = newest["facts"]["stages_s"]
        parts.append({**stages, "after": newest["duration_us"] / 1e6 - sum(stages.values())})
        return float(newest["duration_us"] / 1e6 - sum(stages.get(name, 0.0) for name in OWN))

    def importing(what: str) -> float:
        began = time.perf_counter()
        environment = clean_environment(COMPILEBOARD_HOME=str(folder / "home"))
        subprocess.run([sys.executable, "-c", f"import {what}"], env=environment, check=True)
        return time.perf_counter() - began

    parts: list[dict[str, float]] = []
    references = ("torch", "torch._dynamo")
    rounds = interleave(pairs, task, lambda: [importing(what) for what in references])
    rows = []
    for position, what in enumerate(references):
        more = bootstrap([ours - reference[position] for ours, reference in rounds])
        ours = statistics.median(cost for cost, _ in rounds)
        reference = statistics.median(costs[position] for _, costs in rounds)
        reach = "what any compile imports" if what == "torch" else "≤ 1 s more"
        cells = (f"{ours:.2f} s", f"{reference:.2f} s (import {what})", f"+{more} s", reach)
        rows.append(Row("a task, without the model's own work", *cells))
    stages = {
        name: statistics.median(part[name] for part in parts if name in part) for name in parts[0]
    }
    text = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stages.items())
    print_table("What the harness costs a model", rows, f"{pairs} rounds. Stages, medians: {text}.")


def imports(pairs: int) -> None:
    """Print the processor time that a task's imports take, beyond those of any compile."""
    times = [
        json.loads(
            subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, check=True).stdout
        )
        for _ in range(pairs)
    ]
    dynamo, testing, harness = (statistics.median(part) for part in zip(*times))
    cells = (f"{testing + harness:.2f} s", f"{dynamo:.2f} s (import torch._dynamo)", "≤ 1 s")
    note = (
        f"{pairs} rounds, medians: torch._dynamo.testing {testing:.2f} s, the harness "
        f"{harness:.2f} s."
    )
    print_table(
        "What a task imports, processor time",
        [Row("beyond torch._dynamo", cells[0], cells[1], "", cells[2])],
        note,
    )


def models(folder: Path, file: str, arguments: argparse.Namespace) -> None:
    """Print our speedups beside upstream's, each with room on the frame stack and without.

    They are measured in turns, each run with caches of its own, if upstream's harness is given;
    else it is as recorded.
    """
    rows: list[Row] = []
    upstream = arguments.upstream
    for name in arguments.model or UPSTREAM:
        only = [
            f"--only=path:{Path(file).resolve()},class:{name}",
            "--disable-cudagraphs",
            "--float32",
        ]
        only += [f"--device={arguments.device}", f"--repeat={arguments.repeat}"]
        theirs: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(arguments.times):
            for flags in ([], ["--no-stack-room"]):
                bench(folder, *only, *flags, "--cold-start-latency", "--tag", f"n={time.time_ns()}")
            for with_room in theirs if upstream else ():
                theirs[with_room] += run_upstream(folder, upstream, only, with_room)
        rows += compare_with_upstream(
            name, results(folder), theirs, is_measured=upstream is not None
        )
        print(
            f"{rows[-2]}\n{rows[-1]}", file=sys.stderr, flush=True
        )  # of what a time limit cuts, the rest is known
    print_table(
        "Speedup, float32 inference without CUDA graphs",
        rows,
        (
            "Ours and upstream's harness, in turns on this machine. Recorded: upstream's, without "
            "room, on another host."
        ),
    )


def compare_with_upstream(
    name: str,
    measured: Sequence[dict[str, Any]],
    theirs: dict[bool, list[float]],
    *,
    is_measured: bool,
) -> list[Row]:
    """Make a row with room and one without, of which each is compared with the same of
    upstream's.
    """
    rows = []
    for with_room, words in ((True, "with room"), (False, "without")):
        matching = [row for row in measured if row["model"] == name and row["status"] == "measured"]
        matching = [
            row
            for row in matching
            if row["facts"]["settings"].get("no_stack_room", False) != with_room
        ]
        reference = theirs[with_room] if is_measured else [] if with_room else list(UPSTREAM[name])
        if not matching:
            rows.append(Row(f"{name}, {words}", "failed"))
            continue
        columns = {"calls_captured": "ops", "unique_graphs": "graphs", "graph_breaks": "breaks"}
        counts = ", ".join(f"{matching[0][column]} {unit}" for column, unit in columns.items())
        ours = " ".join(f"{row['speedup']:.3f} ({row['page_faults']:g} faults)" for row in matching)
        ratio = ""
        if reference:
            median = statistics.median(row["speedup"] for row in matching)
            ratio = f"{median / statistics.median(reference):.3f}"
        upstreams = " ".join(f"{value:.3f}" for value in reference) or (
            "failed" if is_measured else ""
        )
        label = f"{name}, {words}: {counts}"
        rows.append(
            Row(label, ours, upstreams, ratio, "within 10%" if with_room or not is_measured else "")
        )
    return rows


def run_upstream(folder: Path, common: str, words: list[str], with_room: bool) -> list[float]:
    """Run upstream's harness with caches of its own; return the speedup it wrote."""
    output, cache = folder / "upstream.csv", folder / "upstream_cache"
    output.unlink(missing_ok=True)
    shutil.rmtree(cache, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "benchmarks.harness.upstream_harness",
        str(Path(common).resolve()),
    ]
    command += ["--performance", "--inference", "--backend=inductor", *words, f"--output={output}"]
    done = subprocess.run(
        [*command, *(["--stack-room"] if with_room else [])],
        cwd=ROOT,
        env=clean_environment(
            TORCHINDUCTOR_CACHE_DIR=str(cache), TRITON_CACHE_DIR=str(cache / "triton")
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    rows = list(csv.DictReader(output.open())) if output.exists() else []
    speedups = [float(row["speedup"]) for row in rows if float(row["speedup"])]
    if not speedups:
        sys.stderr.write(
            f"{' '.join(command)} measured nothing and ended with {done.returncode}:\n"
        )
        sys.stderr.write(f"{(done.stdout + done.stderr)[-2000:]}\n")
    return speedups


def suite(folder: Path, words: list[str]) -> None:
    """Print what the built-in suite takes, and its slowest models."""
    took_s = bench(folder, *words)
    measured_rows = results(folder)
    slowest = sorted(measured_rows, key=lambda row: -(row["duration_us"] or 0))[:5]
    text = ", ".join(f"{row['model']} {row['duration_us'] / 1e6:.0f} s" for row in slowest)
    measured = sum(row["status"] == "measured" for row in measured_rows)
    row = Row(
        f"{len(measured_rows)} results, {measured} measured",
        f"{took_s / 60:.1f} min",
        "",
        "",
        "≤ 10 min on 2 cores (CPU)",
    )
    print_table("The built-in suite", [row], f"Once. Slowest: {text}.")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("cost", "imports", "models", "suite"))
    parser.add_argument(
        "words", nargs="*", help="models: the file; suite: words for `bench`, after --"
    )
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--repeat", type=int, default=50)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument(
        "--model", action="append", default=[], choices=UPSTREAM, help="one of them; repeatable"
    )
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--folder", metavar="DIR", help="keep the database of the results there")
    parser.add_argument(
        "--upstream",
        metavar="COMMON",
        help="benchmarks/dynamo/common.py of a PyTorch checkout, to measure in turns with",
    )
    arguments = parser.parse_args()
    with nullcontext(Path(arguments.folder)) if arguments.folder else scratch_folder() as folder:
        if arguments.what == "cost":
            cost(folder, arguments.pairs)
        elif arguments.what == "imports":
            imports(arguments.pairs)
        elif arguments.what == "models":
            if len(arguments.words) != 1:
                parser.error("models takes one file: the models that upstream's harness was run on")
            models(folder, arguments.words[0], arguments)
        else:
            suite(folder, arguments.words)


if __name__ == "__main__":
    main()
