"""Compare `try` with a change made by hand, on ten programs with a known fix.

    python -m benchmarks.trials.by_hand

Each program is recorded, and its fix tried as a patch and, where the catalogue can apply one by
itself, as `--fix 1`. Then the file is edited for real and recorded again. `try` is right if it says
the same counts, and the same of the output. A row of `--fix 1` shows what the catalogue's fix does,
which may be another one than the change by hand.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Row, print_table

PROGRAMS = ROOT / "tests" / "programs" / "tried"
COUNTS = ("graph_break_count", "recompile_count")


@dataclass(frozen=True)
class Recorded:
    """A program that was recorded: its run, counts, compile time and printed lines."""

    run_id: str
    counts: tuple[int, int]
    compile_s: float
    printed: str


class Workshop:
    """A folder with one program and a database."""

    def __init__(self, folder: Path, name: str, backend: str) -> None:
        self.folder, self.name, self.backend = folder, name, backend
        self.database = folder / "t.db"
        shutil.copy(PROGRAMS / f"{name}.py", folder)

    def collect(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of the collector's commands."""
        own = {"PYTHONPATH": str(ROOT), "COMPILEBOARD_HOME": str(self.folder / "home")}
        caches = tempfile.mkdtemp(
            dir=self.folder
        )  # by hand too, every compile begins with empty caches
        own |= {"TORCHINDUCTOR_CACHE_DIR": caches, "TRITON_CACHE_DIR": f"{caches}/triton"}
        command = [sys.executable, "-m", "compileboard.collectors", *words]
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
        )

    def record(self) -> Recorded:
        """Record the program as it is in the folder."""
        words = (
            "run",
            "--quiet",
            "--db",
            str(self.database),
            "--",
            sys.executable,
            f"{self.name}.py",
            self.backend,
        )
        finished = self.collect(*words)
        if finished.returncode:
            raise SystemExit(f"{self.name} failed:\n{finished.stderr[-2000:]}")
        with closing(sqlite3.connect(self.database)) as connection:
            run_id, breaks, recompiles, compile_us = connection.execute(
                """
                select id, graph_break_count, recompile_count, compile_us
                from runs join run_totals on run_id = id
                where source = 'live'
                order by started_us desc
                limit 1
                """
            ).fetchone()
        return Recorded(run_id, (breaks, recompiles), compile_us / 1e6, finished.stdout)

    def try_fix(self, run_id: str, *words: str) -> dict[str, Any] | None:
        """Try a fix; None where `try` refuses."""
        finished = self.collect("try", "--db", str(self.database), "--json", run_id, *words)
        if finished.returncode == 2 or not finished.stdout:
            return None
        result: dict[str, Any] = json.loads(finished.stdout)
        return result

    def edit(self) -> None:
        """Make the change by hand."""
        shutil.copy(PROGRAMS / "fixed" / f"{self.name}.py", self.folder)

    def write_patch(self) -> str:
        """Write the change as a patch; return its path."""
        texts = [
            (folder / f"{self.name}.py").read_text().splitlines(True)
            for folder in (PROGRAMS, PROGRAMS / "fixed")
        ]
        path = self.folder / "fix.patch"
        path.write_text(
            "".join(difflib.unified_diff(*texts, f"a/{self.name}.py", f"b/{self.name}.py"))
        )
        return str(path)


def compare(name: str, backend: str) -> list[Row]:
    """Try one program's fixes and make its change by hand; return a row for each."""
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder), name, backend)
        before = shop.record()
        patched = shop.try_fix(before.run_id, "--patch", shop.write_patch())
        suggested = shop.try_fix(before.run_id, "--fix", "1")
        shop.edit()
        after = shop.record()
    by_hand = (
        f"{_pairs(before.counts, after.counts)}, compile {before.compile_s:.2f} → "
        f"{after.compile_s:.2f} s"
    )
    rows = []
    for words, result in ((f"{name}, patch", patched), (f"{name}, --fix 1", suggested)):
        if result is None:
            if result is patched:
                rows.append(Row(words, "refused", by_hand, "no"))
            continue
        counts = {
            metric["name"]: (int(metric["base"]), int(metric["new"]))
            for metric in result["metrics"]
        }
        says_same = all(
            counts.get(metric) == (before.counts[index], after.counts[index])
            for index, metric in enumerate(COUNTS)
        )
        is_equal = result["output"]["is_equal"] == (before.printed == after.printed)
        right = "yes" if says_same and is_equal else "no"
        rows.append(
            Row(
                words,
                result["summary"],
                by_hand,
                right if words.endswith("patch") else f"({right})",
            )
        )
    return rows


def _pairs(before: tuple[int, int], after: tuple[int, int]) -> str:
    return f"breaks {before[0]} → {after[0]}, recompiles {before[1]} → {after[1]}"


def main() -> None:
    """Run all programs, or those given, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", help="names of programs; all ten by default")
    parser.add_argument(
        "--backend", default="inductor", help="backend of torch.compile (default: inductor)"
    )
    arguments = parser.parse_args()
    names = arguments.programs or sorted(path.stem for path in PROGRAMS.glob("[a-z]*.py"))
    rows = []
    for name in names:
        rows += compare(name, arguments.backend)
        print(rows[-1], file=sys.stderr, flush=True)
    right = sum(row.ratio == "yes" for row in rows)
    note = f"{right} of {len(names)}: `try --patch` says what the change by hand says."
    headings = ("program", "try", "by hand", "same", "")
    print_table(
        f"`try` and a change by hand, backend {arguments.backend}", rows, note, headings=headings
    )


if __name__ == "__main__":
    main()
