"""Compare the database a run fills with torch's own log of it.

    python -m benchmarks.store.database_size

The same program of some 200 eager-backend compiles runs under `collectors run` and, on its own,
with TORCH_TRACE.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from pathlib import Path

from benchmarks.common import Row, clean_environment, print_table, run_python, scratch_folder

PROGRAM = ["-m", "benchmarks.overhead.many_compiles"]


def record(folder: Path, compiles: int) -> Path:
    """Run the program under `collectors run`; return the database."""
    database = folder / "size.db"
    command = [
        "-m",
        "compileboard.collectors",
        "run",
        "--quiet",
        "--db",
        str(database),
        "--",
        sys.executable,
    ]
    run_python(
        [*command, *PROGRAM, str(compiles)],
        clean_environment(COMPILEBOARD_HOME=str(folder / "home")),
    )
    return database


def trace(folder: Path, compiles: int) -> int:
    """Run the program with torch's own trace; return its size in bytes."""
    logs = folder / "trace"
    run_python([*PROGRAM, str(compiles)], clean_environment(TORCH_TRACE=str(logs)))
    return sum(path.stat().st_size for path in logs.iterdir())


def empty_bytes(folder: Path) -> int:
    """Return the size of a database with nothing in it."""
    from compileboard.collectors.store.migrations import migrate

    migrate(folder / "empty.db")
    return (folder / "empty.db").stat().st_size


def largest(connection: sqlite3.Connection, compiles: int) -> list[Row]:
    """Make a row of each table or index that takes most, if this SQLite can tell."""
    try:
        sizes = connection.execute(
            "select name, sum(pgsize) as size from dbstat group by name order by size desc limit 6"
        ).fetchall()
    except sqlite3.OperationalError:
        return []
    return [Row(f"  of it {name}", f"{size / compiles / 1000:.2f} KB") for name, size in sizes]


def main(argv: list[str] | None = None) -> int:
    """Run the program both ways and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.store.database_size", description=__doc__
    )
    parser.add_argument("--compiles", type=int, default=200)
    arguments = parser.parse_args(argv)
    with scratch_folder() as folder:
        database = record(folder, arguments.compiles)
        connection = sqlite3.connect(database)
        compiles, breaks, recompiles = connection.execute(
            "select sum(compile_count), sum(graph_break_count), sum(recompile_count) from "
            "run_totals"
        ).fetchone()
        if not compiles:
            raise SystemExit("nothing was recorded; there is nothing to compare")
        traced, empty, whole = (
            trace(folder, arguments.compiles),
            empty_bytes(folder),
            database.stat().st_size,
        )
        parts = largest(connection, compiles)
        connection.close()
    rows = [
        Row(
            "database, a compile",
            f"{whole / compiles / 1000:.2f} KB",
            f"{traced / compiles / 1000:.1f} KB",
            f"{whole / traced:.3f}",
            "≤ 5 KB (torch's log: 57 KB)",
        ),
        Row("  beyond an empty database", f"{(whole - empty) / compiles / 1000:.2f} KB"),
        *parts,
    ]
    print_table(
        (
            f"Database size of {compiles} compiles with {breaks} graph breaks and {recompiles} "
            "recompiles"
        ),
        rows,
        "Reference: torch's own log (TORCH_TRACE) of the same program.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
