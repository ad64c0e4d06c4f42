"""Import a folder of 64 rank logs with several processes and with one, and compare the rows."""

from __future__ import annotations

import argparse
import hashlib
import re
import sqlite3
import statistics
import sys
import tarfile
from collections import Counter
from contextlib import closing
from pathlib import Path

from benchmarks.common import (
    ROOT,
    Row,
    bootstrap,
    clean_environment,
    interleave,
    print_table,
    ratios,
    scratch_folder,
)
from benchmarks.imports.import_logs import Measured, Pinned, find_logs
from benchmarks.imports.replicas import read_records

DDP = ROOT / "tests" / "data" / "captures" / "h200x2-ddp-torch2.11.tar.xz"
_RANK = re.compile(rb'"rank": \d+(?=[,}])')
_TRACE_RANK = re.compile(rb'"pid": \d+(?=[,}\n])')  # what torch calls a span's process is its rank
_OF_THE_CLOCK = ("read_us", "heartbeat_us", "applied_at", "pub")


def write_rank_logs(sources: list[Path], rank_count: int, folder: Path) -> int:
    """Write a log a rank, each a copy of the next source with a process and a rank of its own;
    return their size.

    What ranks have in common, such as the texts of graphs, stays in common.
    """
    folder.mkdir(parents=True)
    size_bytes = 0
    for rank in range(rank_count):
        path = folder / f"dedicated_log_torch_trace_rank_{rank}_{rank:08d}.log"
        with path.open("wb") as file:
            for match, raw in read_records(sources[rank % len(sources)]):
                body, line = _RANK.sub(b'"rank": %d' % rank, match["body"]), match[0]
                if raw is not None and body.startswith(b'{"chromium_event"'):
                    digest = _digest(raw)
                    raw = _TRACE_RANK.sub(b'"pid": %d' % rank, raw)
                    body = body.replace(digest, _digest(raw))
                prefix = line[: match.start("pid")] + b"%d " % (10_000 + rank) + match["place"]
                size_bytes += file.write(prefix + body + b"\n")
                if raw is not None:
                    size_bytes += file.write(b"\t" + raw.replace(b"\n", b"\n\t") + b"\n")
    return size_bytes


def _digest(raw: bytes) -> bytes:
    return hashlib.md5(raw, usedforsecurity=False).hexdigest().encode()


def count_rows(database: Path) -> Counter[tuple[object, ...]]:
    """Count each row of each table, without when it was stored."""
    counts: Counter[tuple[object, ...]] = Counter()
    with closing(sqlite3.connect(database)) as connection:
        tables = [
            name
            for (name,) in connection.execute(
                "select name from pragma_table_list where type = 'table'"
            )
        ]
        for table in tables:
            columns = [
                name
                for (name,) in connection.execute("select name from pragma_table_info(?)", (table,))
            ]
            shown = ", ".join(name for name in columns if name not in _OF_THE_CLOCK)
            counts.update(
                (table, *row) for row in connection.execute(f"select {shown} from {table}")
            )
    return counts


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.imports.rank_logs", description=__doc__
    )
    parser.add_argument(
        "logs",
        type=Path,
        nargs="*",
        metavar="LOG",
        help="to copy, or folders; default: two of the tests'",
    )
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Write the logs, import them in turns, print the table."""
    arguments = parse_arguments(argv)
    with scratch_folder() as folder:
        if not arguments.logs:
            with tarfile.open(DDP) as archive:
                archive.extractall(folder / "recorded", filter="data")
        sources = find_logs(arguments.logs or [folder / "recorded"])
        size_mb = write_rank_logs(sources, arguments.ranks, folder / "ranks") / 1e6
        pinned = Pinned(arguments.cores, clean_environment(COMPILEBOARD_HOME=str(folder / "home")))

        def import_with(jobs: int) -> Measured:
            database = folder / f"{jobs}.db"
            command = [
                sys.executable,
                "-m",
                "compileboard.collectors",
                "import",
                "--no-index",
                "--jobs",
                str(jobs),
            ]
            return pinned.measure(
                [*command, "--db", str(database), str(folder / "ranks")], database
            )

        pairs = interleave(
            arguments.pairs, lambda: import_with(arguments.jobs), lambda: import_with(1)
        )
        rows = [count_rows(folder / f"{jobs}.db") for jobs in (arguments.jobs, 1)]
        differing_count = ((rows[0] - rows[1]) + (rows[1] - rows[0])).total()
    wall = ratios([(alone.wall_s, several.wall_s) for several, alone in pairs])
    table = [Row("wall", *_medians(pairs, "wall_s", "s"), str(bootstrap(wall)), "≥ 1.7")]
    cpu = ratios([(several.cpu_s, alone.cpu_s) for several, alone in pairs])
    table.append(Row("  CPU, ours ÷ one", *_medians(pairs, "cpu_s", "s"), str(bootstrap(cpu))))
    table.append(Row("  peak RSS of a process", *_medians(pairs, "rss_bytes", "MB")))
    table.append(Row("rows that differ", f"{differing_count} of {rows[0].total():,}", reach="0"))
    print_table(
        f"Import of {arguments.ranks} rank logs, {size_mb:.0f} MB",
        table,
        (
            f"Ours: --jobs {arguments.jobs}. Reference: --jobs 1. Pairs: {len(pairs)}, on "
            f"{arguments.cores} cores."
        ),
    )
    return 1 if differing_count else 0


def _medians(pairs: list[tuple[Measured, Measured]], field: str, unit: str) -> tuple[str, str]:
    factor = 1e-6 if unit == "MB" else 1.0
    ours, reference = (
        statistics.median(getattr(pair[side], field) for pair in pairs) * factor for side in (0, 1)
    )
    return f"{ours:.3g} {unit}", f"{reference:.3g} {unit}"


if __name__ == "__main__":
    sys.exit(main())
