"""Time and size of a static copy: `python -m benchmarks.serve.static_site [DB]`.

Without a database it replays recorded events as 200 runs first. The copy is written by the command
that a person would call, in a process of its own; peak memory is the kernel's, of that process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import Row, clean_environment, print_table, run_python, scratch_folder
from compileboard.collectors.store.connection import open_reader

HEADINGS = ("what", "measured", "", "", "")


@dataclass(frozen=True)
class Copy:
    """The cost of writing one copy."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    pages: list[str]
    kinds: Counter[str]
    files: int
    size_mb: float
    page_mb: float


def write_copy(database: Path, folder: Path, options: list[str]) -> Copy:
    """Write a copy and read what came of it.

    Raises: SystemExit if the command fails.
    """
    command = [
        sys.executable,
        "-m",
        "compileboard.app",
        "export",
        "--site",
        str(folder),
        "--db",
        str(database),
        *options,
    ]
    began = time.perf_counter()
    with subprocess.Popen(command, env=clean_environment()) as process:
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    files = [path for path in folder.rglob("*") if path.is_file()]
    pages = json.loads((folder / "data" / "index.json").read_text())["pages"]
    return Copy(
        wall_s,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        [page["address"] for page in pages],
        Counter(page["address"].split("?")[0].split("/")[1] or "overview" for page in pages),
        len(files),
        sum(file.stat().st_size for file in files) / 1e6,
        sum((folder / page["file"]).stat().st_size for page in pages) / 1e6,
    )


def list_rows(copy: Copy) -> list[Row]:
    """Return what was measured, line by line."""
    count = len(copy.pages)
    return [
        Row("wall time", f"{copy.wall_s:.0f} s, {count / copy.wall_s:.0f} pages/s"),
        Row("CPU time", f"{copy.cpu_s:.0f} s, {count / copy.cpu_s:.0f} pages/s"),
        Row("peak memory", f"{copy.peak_mb:.0f} MB"),
        Row(
            "pages",
            (
                f"{count} "
                f"({', '.join(f'{number} {kind}' for kind, number in copy.kinds.most_common())})"
            ),
        ),
        Row("files and size", f"{copy.files}, {copy.size_mb:.0f} MB"),
        Row("a page", f"{copy.page_mb / count * 1000:.0f} KB"),
    ]


def main(argv: list[str] | None = None) -> int:
    """Make or take a database, write its copy and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serve.static_site", description=__doc__
    )
    parser.add_argument("database", type=Path, nargs="?", metavar="DB")
    parser.add_argument(
        "--runs", type=int, default=200, help="runs to replay where no database is given"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the copy here and keep it")
    arguments = parser.parse_args(argv)
    with scratch_folder() as folder:
        database = arguments.database or folder / "replay.db"
        if arguments.database is None:
            size = ["--compilations", str(arguments.runs * 15), "--breaks", str(arguments.runs * 7)]
            run_python(
                [
                    "-m",
                    "benchmarks.store.replay",
                    str(database),
                    "--runs",
                    str(arguments.runs),
                    *size,
                ],
                clean_environment(),
            )
        connection = open_reader(database)
        runs = connection.execute("select count(*) from runs").fetchone()[0]
        connection.close()
        copy = write_copy(database, arguments.keep or folder / "site", [])
        size_mb = database.stat().st_size / 1e6
    print_table(
        f"A static copy of a database of {runs} runs, {size_mb:.0f} MB",
        list_rows(copy),
        headings=HEADINGS,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
