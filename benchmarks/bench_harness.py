"""Measure `collectors bench` itself: `python -m benchmarks.bench_harness cost | models FILE | suite`.

cost    what the harness takes for a model beyond the model's own work, beside `import torch`
models  the models that upstream's harness was run on, against what it said of them
suite   the wall time of the built-in suite
"""

from __future__ import annotations

import argparse
import csv
import json
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.common import Row, bootstrap, clean_environment, interleave, print_table, scratch_folder

TINY = """
import torch
import collectors.bench

@collectors.bench.model(name="tiny", batch_size=2)
def tiny(batch_size):
    return torch.nn.Linear(4, 4), (torch.randn(batch_size, 4),)
"""
OWN = ("load", "eager", "compile", "measure", "warm compile")  # the stages that are the model's own work
# Upstream's harness on one H200, float32 inference, --disable-cudagraphs, 50 repeats, one model at a time, twice.
UPSTREAM = {
    "Resnet18": (1.058, 1.053),
    "MobileNetV3": (0.988, 1.046),
    "Bert4": (1.773, 1.768),
    "GPT2x4": (1.563, 1.582),
    "Breaky": (0.572, 0.569),
}


def bench(folder: Path, *words: str) -> float:
    """Run `collectors bench` into a database of the folder; return the seconds it took."""
    command = [sys.executable, "-m", "collectors", "bench", "--db", str(folder / "bench.db"), "--quiet", *words]
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
        query = "select results.*, model from results join series on series.id = series_id order by results.id"
        return [{**dict(row), "facts": json.loads(row["facts"])} for row in connection.execute(query)]


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
    for place, what in enumerate(references):
        more = bootstrap([ours - reference[place] for ours, reference in rounds])
        ours = statistics.median(it for it, _ in rounds)
        reference = statistics.median(it[place] for _, it in rounds)
        reach = "≤ 3 s more" if what == "torch" else "what any compile imports"
        cells = (f"{ours:.2f} s", f"{reference:.2f} s (import {what})", f"+{more} s", reach)
        rows.append(Row("a task, without the model's own work", *cells))
    stages = {name: statistics.median(part[name] for part in parts if name in part) for name in parts[0]}
    said = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stages.items())
    print_table("What the harness costs a model", rows, f"{pairs} rounds. Stages, medians: {said}.")


def models(folder: Path, file: str, repeat: int, times: int, upstream: str | None, names: Sequence[str]) -> None:
    """Print our speedups beside upstream's: measured in turns if its harness is given, else as recorded."""
    rows = []
    for name in names or UPSTREAM:
        recorded = UPSTREAM[name]
        only = [f"--only=path:{Path(file).resolve()},class:{name}", "--disable-cudagraphs", "--float32"]
        theirs = []
        for _ in range(times):
            bench(folder, *only, "--device", "cuda", "-n", str(repeat), "--tag", f"n={time.time_ns()}")
            theirs += run_upstream(folder, upstream, [*only, "--device=cuda", f"--repeat={repeat}"]) if upstream else []
        found = [row for row in results(folder) if row["model"] == name and row["status"] == "measured"]
        if not found or (upstream and not theirs):
            rows.append(Row(name, "failed" if not found else "", "" if theirs else "failed"))
            continue
        ours, reference = (statistics.median(it) for it in ([row["speedup"] for row in found], theirs or recorded))
        columns = {"calls_captured": "ops", "unique_graphs": "graphs", "graph_breaks": "breaks"}
        counts = ", ".join(f"{found[0][column]} {words}" for column, words in columns.items())
        each, beside = (" ".join(f"{it:.3f}" for it in side) for side in ([row["speedup"] for row in found], theirs))
        said = f"{beside} (recorded {recorded[0]:.3f} {recorded[1]:.3f})".strip()
        rows.append(Row(f"{name}: {counts}", each, said, f"{ours / reference:.3f}", "within 10 %"))
    print_table(
        "Speedup, float32 inference without CUDA graphs", rows, "Recorded: upstream's harness, on another H200 host."
    )


def run_upstream(folder: Path, script: str, words: list[str]) -> list[float]:
    """Run a runner of upstream's harness; return the speedup it wrote."""
    output = folder / "upstream.csv"
    output.unlink(missing_ok=True)
    command = [sys.executable, script, "--performance", "--inference", "--backend=inductor", *words]
    done = subprocess.run([*command, f"--output={output}"], cwd=folder, capture_output=True, text=True, check=False)
    if not output.exists():
        sys.stderr.write(
            f"{' '.join(command)} wrote nothing and ended with {done.returncode}:\n{done.stderr[-2000:]}\n"
        )
        return []
    return [float(row["speedup"]) for row in csv.DictReader(output.open()) if float(row["speedup"])]


def suite(folder: Path, words: list[str]) -> None:
    """Print what the built-in suite takes, and its slowest models."""
    took_s = bench(folder, *words)
    found = results(folder)
    slowest = sorted(found, key=lambda row: -(row["duration_us"] or 0))[:5]
    said = ", ".join(f"{row['model']} {row['duration_us'] / 1e6:.0f} s" for row in slowest)
    measured = sum(row["status"] == "measured" for row in found)
    row = Row(
        f"{len(found)} results, {measured} measured", f"{took_s / 60:.1f} min", "", "", "≤ 10 min on 2 cores (CPU)"
    )
    print_table("The built-in suite", [row], f"Once. Slowest: {said}.")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cost", "models", "suite"))
    parser.add_argument("words", nargs="*", help="models: the file; suite: words for `bench`, after --")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--repeat", type=int, default=50)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--model", action="append", default=[], choices=UPSTREAM, help="one of them; repeatable")
    parser.add_argument("--folder", metavar="DIR", help="keep the database of the results there")
    parser.add_argument("--upstream", metavar="SCRIPT", help="a runner of upstream's harness, to measure in turns with")
    arguments = parser.parse_args()
    with nullcontext(Path(arguments.folder)) if arguments.folder else scratch_folder() as folder:
        if arguments.what == "cost":
            cost(folder, arguments.pairs)
        elif arguments.what == "models":
            if len(arguments.words) != 1:
                parser.error("models takes one file: the models that upstream's harness was run on")
            models(folder, arguments.words[0], arguments.repeat, arguments.times, arguments.upstream, arguments.model)
        else:
            suite(folder, arguments.words)


if __name__ == "__main__":
    main()
