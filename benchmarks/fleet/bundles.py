"""How long others wait while a bundle is stored.

    python -m benchmarks.fleet.bundles [--megabytes N]

A recorded run grows, half by rows of spans and events, half by texts, until its bundle has N MB.
The bundle is imported into another board, in which a second process writes a note every 20 ms
meanwhile. With `--grown` the board has a part of the run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

from benchmarks.common import Row, print_table
from benchmarks.fleet.reopening import grow, time_beside_writer
from compileboard.collectors.store.bundles import merge_bundle, write_bundle
from compileboard.collectors.store.codec import pack_large, unpack_bytes
from compileboard.collectors.store.connection import checkpoint, open_writer, write_transaction
from tests.unit.app.explored import explore

BYTES_A_ROW = 300  # of spans and events, with their indexes


def add_texts(board: sqlite3.Connection, run_id: str, max_bytes: int) -> None:
    """Copy the run's texts, each time with another last line, until they take so many bytes."""
    names = [
        row["name"] for row in board.execute("select name from pragma_table_info('artifacts')")
    ]
    own = ", ".join(name for name in names if name != "id")
    others = own.replace("sequence", "sequence + :step").replace("payload_id", ":payload_id")
    texts = board.execute(
        (
            "select a.id, p.body from artifacts as a join payloads as p on p.id = a.payload_id "
            "where run_id = ?"
        ),
        (run_id,),
    ).fetchall()
    total_bytes = number = 0
    while total_bytes < max_bytes:
        number += 1
        with write_transaction(board):
            for text in texts:
                body = unpack_bytes(text["body"]) + f"\n# {number}".encode()
                packed = pack_large(body)
                values = (blake2b(body, digest_size=16).digest(), len(body), packed)
                board.execute(
                    "insert or ignore into payloads (digest, size_bytes, body) values (?, ?, ?)",
                    values,
                )
                (payload_id,) = board.execute(
                    "select id from payloads where digest = ?", values[:1]
                ).fetchone()
                board.execute(
                    f"insert into artifacts ({own}) select {others} from artifacts where id = :id",
                    {"step": number * 10_000_000, "payload_id": payload_id, "id": text["id"]},
                )
                total_bytes += len(packed)
    checkpoint(board)


def make_bundle(folder: Path, megabytes: int) -> tuple[str, str]:
    """Make a bundle of one large run; return it and the run."""
    path, bundle = folder / "own.db", folder / "bundle.db"
    explore(path)
    with closing(open_writer(path)) as board:
        (run_id,) = board.execute(
            "select run_id from lanes group by run_id order by count(*) desc"
        ).fetchone()
        add_texts(board, run_id, megabytes * 500_000)
        grow(board, run_id, megabytes * 500_000 // BYTES_A_ROW)
        write_bundle(board, [run_id], str(bundle))
    return str(bundle), str(run_id)


def measure(folder: Path, bundle: str, run_id: str, is_grown: bool) -> list[Row]:
    """Import the bundle and return the times."""
    path = str(folder / "board.db")
    explore(Path(path))
    with closing(open_writer(path)) as board:
        if not is_grown:
            board.execute("pragma foreign_keys = on")
            board.execute("delete from runs where id = ?", (run_id,))
        (other,) = board.execute("select id from runs where id <> ?", (run_id,)).fetchone()
        return [
            time_beside_writer(
                path, other, "merge_bundle", lambda: list(merge_bundle(board, bundle))
            )
        ]


def main(arguments: list[str] | None = None) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--folder", help="where the board is made; default: a temporary folder")
    parser.add_argument("--grown", action="store_true", help="the board has a part of the run")
    parser.add_argument("--bundle", help="where the bundle is, or is left for the next measurement")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=parsed.folder) as folder:
        if parsed.bundle and os.path.exists(parsed.bundle):
            with closing(sqlite3.connect(parsed.bundle)) as file:
                bundle, (run_id,) = parsed.bundle, file.execute("select id from runs").fetchone()
        else:
            bundle, run_id = make_bundle(Path(folder), parsed.megabytes)
            bundle = shutil.copy(bundle, parsed.bundle) if parsed.bundle else bundle
        rows = measure(Path(folder), bundle, run_id, parsed.grown)
        with closing(sqlite3.connect(bundle)) as file:
            counts = [
                file.execute(f"select count(*) from {table}").fetchone()[0]
                for table in ("spans", "events", "payloads")
            ]
        size_bytes = os.path.getsize(bundle)
    print_table(
        (
            f"a bundle of {size_bytes / 1e6:,.0f} MB: {counts[0]:,} spans, {counts[1]:,} events, "
            f"{counts[2]:,} texts"
        ),
        rows,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
