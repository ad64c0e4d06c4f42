"""Compare the files of two harnesses: `python -m benchmarks.harness.against_upstream THEIRS OURS`.

THEIRS is a folder that upstream's `benchmarks/dynamo` runners wrote into with `--output
THEIRS/NAME.csv`, OURS one that `bench` wrote into with the same lines. Of each CSV: names of the
files beside it, columns in their order, models,
verdicts, counts, and speedups, which reach if they are within 10%. Ends with 1 if anything differs.

With `--measure COMMON FILE CLASS…` both are run first, in turns: upstream's `common.py` and
`bench`, on these models of a file and with the words after `--`. Each has caches of its own, which
a second round of `--times 2` finds.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import ROOT, Row, clean_environment, print_table

REACH, WALL_REACH = 0.10, 1.3
WALL_TIMES = "wall_s.csv"  # of each model, a row each time
_COUNTS = (
    "calls_captured",
    "unique_graphs",
    "graph_breaks",
    "unique_graph_breaks",
    "autograd_captures",
    "autograd_compiles",
    "cudagraph_skips",
)
# Columns that came after torch 2.6: a difference between two versions of upstream, not between
# upstream and bench.
_LATER = ("fallbacks_to_eager", "compilation_latency")
_SIDE_FILES = (".json", "_compilation_metrics.csv", "_compilation_metrics.json")
Table = Mapping[str, Mapping[str, str]]  # rows by model


@dataclass
class FileComparison:
    """What two files of one name differ in; `speedups` are theirs and ours by model."""

    name: str
    differences: list[str] = field(default_factory=list)
    speedups: dict[str, tuple[float, float]] = field(default_factory=dict)
    equal_count: int = 0


def read_table(path: Path) -> tuple[list[str], Table]:
    """Return the columns of a CSV and its rows by model."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = {row["name"]: row for row in reader}
    return list(reader.fieldnames or ()), rows


def compare_files(theirs: Path, ours: Path) -> FileComparison:
    """Compare two files of one name, and the names of those that were written beside them."""
    comparison = FileComparison(theirs.name)
    if not ours.exists():
        comparison.differences.append("not written")
        return comparison
    their_columns, their_rows = read_table(theirs)
    our_columns, our_rows = read_table(ours)
    our_columns = [
        column for column in our_columns if column in their_columns or column not in _LATER
    ]
    if their_columns != our_columns:
        comparison.differences.append(
            f"columns {','.join(their_columns)} → {','.join(our_columns)}"
        )
    if list(their_rows) != list(our_rows):
        comparison.differences.append(f"models {','.join(their_rows)} → {','.join(our_rows)}")
    for model in their_rows:
        if model in our_rows:
            _compare_rows(comparison, model, their_rows[model], our_rows[model])
    comparison.differences += _list_missing_files(theirs, ours)
    return comparison


def _compare_rows(
    comparison: FileComparison, model: str, theirs: Mapping[str, str], ours: Mapping[str, str]
) -> None:
    for column in ("dev", "batch_size", "accuracy", *_COUNTS):
        if column not in theirs:
            continue
        if theirs[column] == ours.get(column):
            comparison.equal_count += 1
        else:
            comparison.differences.append(f"{model} {column} {theirs[column]} → {ours.get(column)}")
    if "speedup" in theirs and "speedup" in ours:
        comparison.speedups[model] = (float(theirs["speedup"]), float(ours["speedup"]))


def _list_missing_files(theirs: Path, ours: Path) -> Iterator[str]:
    for suffix in _SIDE_FILES:
        name = f"{theirs.stem}{suffix}"
        if theirs.with_name(name).exists() and not ours.with_name(name).exists():
            yield f"{name} is not written"


def is_within_reach(theirs: float, ours: float) -> bool:
    """Return True if two speedups differ by no more than 10%; a failed model has 0 on both
    sides.
    """
    return theirs == ours or (theirs > 0 and abs(ours / theirs - 1) <= REACH)


def list_rows(comparison: FileComparison) -> list[Row]:
    """Make a row of a file's cells, one of each speedup and one of each difference."""
    state = f"{comparison.equal_count} cells equal, {len(comparison.differences)} differences"
    rows = [Row(comparison.name, state)]
    rows += [Row(f"  {difference}", "differs") for difference in comparison.differences]
    for model, (theirs, ours) in comparison.speedups.items():
        ratio = f"{ours / theirs:.3f}" if theirs else ""
        rows.append(Row(f"  {model}", f"{ours:.3f}×", f"{theirs:.3f}×", ratio, "within 10%"))
    return rows


def measure_both(
    theirs: Path, ours: Path, common: Path, file: Path, models: Sequence[str], words: list[str]
) -> None:
    """Run both harnesses on each model, and add the seconds that each took to its folder's wall
    times.
    """
    bench = ["compileboard.collectors", "bench", "--quiet", "--db", str(ours / "bench.db")]
    sides = {theirs: ["benchmarks.harness.upstream_harness", str(common.resolve())], ours: bench}
    for model in models:
        for folder, command in sides.items():
            folder.mkdir(parents=True, exist_ok=True)
            output = folder / f"{model}.csv"
            output.unlink(missing_ok=True)  # upstream adds rows to it
            only = [f"--only=path:{file.resolve()},class:{model}", f"--output={output.resolve()}"]
            cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder.resolve() / "cache")}
            began_s = time.perf_counter()
            with (folder / f"{model}.txt").open("w") as text:
                subprocess.run(
                    [sys.executable, "-m", *command, *only, *words],
                    env=clean_environment(**cache, COMPILEBOARD_HOME=str(folder / "home")),
                    cwd=ROOT,
                    stdout=text,
                    stderr=text,
                    check=False,
                )
            with (folder / WALL_TIMES).open("a", newline="") as times:
                csv.writer(times).writerow([model, f"{time.perf_counter() - began_s:.2f}"])


def compare_wall_times(theirs: Path, ours: Path) -> list[Row]:
    """Make a row of each time that both harnesses took for a model; none where the times were not
    kept.
    """
    if not ((theirs / WALL_TIMES).exists() and (ours / WALL_TIMES).exists()):
        return []
    sides = [
        list(csv.reader((folder / WALL_TIMES).read_text().splitlines()))
        for folder in (ours, theirs)
    ]
    return [
        Row(
            model,
            f"{float(our_s):.1f} s",
            f"{float(their_s):.1f} s",
            f"{float(our_s) / float(their_s):.2f}",
            f"≤ {WALL_REACH}",
        )
        for (model, our_s), (_, their_s) in zip(*sides)
    ]


def main() -> int:
    """Compare two folders; return 1 if anything differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("theirs", type=Path)
    parser.add_argument("ours", type=Path)
    parser.add_argument(
        "--measure", nargs="+", metavar=("COMMON FILE", "CLASS"), help="run both harnesses first"
    )
    parser.add_argument("--times", type=int, default=1, help="rounds of --measure")
    own, _, words = " ".join(sys.argv[1:]).partition(" -- ")
    arguments = parser.parse_args(own.split())
    for _ in range(arguments.times if arguments.measure else 0):
        common, file, *models = arguments.measure
        measure_both(
            arguments.theirs, arguments.ours, Path(common), Path(file), models, words.split()
        )
    tables = [
        path
        for path in sorted(arguments.theirs.glob("*.csv"))
        if path.name != WALL_TIMES
        and not path.stem.endswith(
            ("_compilation_metrics", "_graph_breaks", "_graph_break_deduped")
        )
    ]
    if not tables:
        parser.error(
            f"{arguments.theirs} has no CSV of upstream's harness; expected what --output "
            "NAME.csv left there"
        )
    comparisons = [compare_files(path, arguments.ours / path.name) for path in tables]
    rows = [row for comparison in comparisons for row in list_rows(comparison)]
    print_table("Files of upstream's harness and of bench", rows)
    if wall := compare_wall_times(arguments.theirs, arguments.ours):
        print_table("Wall time of a model", wall)
    pairs = [pair for comparison in comparisons for pair in comparison.speedups.values()]
    return int(
        any(comparison.differences for comparison in comparisons)
        or not all(is_within_reach(*pair) for pair in pairs)
    )


if __name__ == "__main__":
    raise SystemExit(main())
