"""How soon the limits on uploads end a small log that becomes very many rows.

    python -m benchmarks.imports.many_rows

Each kind is a gzip of `--mib` MiB, sent through the import that the server runs for uploads, with
its default limits. `stacks` are compiles whose stacks share nothing but look alike: 500 rows a
record of 100 compressed bytes. `compiles`
are records of 200 bytes with a function each, `spans` begin and end, `reasons` name 1,000 guards in
one record.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import md5
from pathlib import Path

from benchmarks.common import Row, print_table
from compileboard.app.core.settings import Settings
from compileboard.app.imports import import_process as child
from compileboard.app.imports.queue import Import, ImportOptions, ImportQueue
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.migrations import migrate

PREFIX = b"V1121 08:04:26.487000 1 torch/_dynamo/convert_frame.py:303] "
STRINGS = PREFIX + b'{"str": ["/srv/model.py", 0]}\n'
DEEPEST = 500  # collectors.store.ingest.frames keeps that many frames
REASONS = 1000


def _record(envelope: dict[str, object], number: int, text: bytes | None = None) -> bytes:
    compile_id = {"frame_id": number, "frame_compile_id": 0, "attempt": 0}
    if text is None:
        return PREFIX + json.dumps(envelope | compile_id).encode() + b"\n"
    digest = {"has_payload": md5(text, usedforsecurity=False).hexdigest()}
    return (
        PREFIX
        + json.dumps(envelope | compile_id | digest).encode()
        + b"\n\t"
        + text.replace(b"\n", b"\n\t")
        + b"\n"
    )


def _stack(number: int, depth: int) -> dict[str, object]:
    frames = [{"line": position + 1, "name": "f", "filename": 0} for position in range(depth)]
    return {"dynamo_start": {"stack": [{"line": number, "name": "f", "filename": 0}, *frames[1:]]}}


def _span(number: int) -> bytes:
    return (
        b'{\n"name": "n%d",\n"ts": %d,\n"args": {},\n"ph": "%s",\n"cat": "c",\n"tid": '
        b'0,\n"pid": 0\n}'
    ) % (
        number // 2,
        1_795_248_266_000_000 + number,
        b"BE"[number % 2 : number % 2 + 1],
    )


def _reasons(number: int) -> bytes:
    return json.dumps(
        [f"0/0: L['x'] == {number * REASONS + position}" for position in range(REASONS)]
    ).encode()


KINDS: dict[str, Callable[[int], bytes]] = {
    "stacks": lambda number: _record(_stack(number, DEEPEST), number),
    "compiles": lambda number: _record(
        {"dynamo_start": {"stack": [{"line": 1, "name": f"f{number}", "filename": 0}]}}, number
    ),
    "spans": lambda number: _record({"chromium_event": {}}, number, _span(number)),
    "reasons": lambda number: _record(
        {"artifact": {"name": "recompile_reasons", "encoding": "json"}}, number, _reasons(number)
    ),
}


def write_log(
    path: Path, kind: str, *, max_bytes: int, max_records: int | None = None, first: int = 0
) -> int:
    """Write a compressed log of one kind until it has the size; return how many bytes come out of
    it.
    """
    unpacked = number = 0
    with (
        path.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=9, mtime=0) as file,
    ):
        unpacked += file.write(STRINGS)
        while raw.tell() < max_bytes and (max_records is None or number < max_records):
            unpacked += file.write(KINDS[kind](first + number))
            number += 1
    return unpacked


def import_log(log: Path, database: Path) -> Import:
    """Import a log as the server does one that was sent; return how that ended."""
    settings = Settings(db=str(database))
    slot = ImportQueue(str(database)).enqueue(log.name, max_receiving=1, max_waiting=1)
    files = slot.folder / "files"
    files.mkdir()
    os.link(log, files / "0001")
    (slot.folder / "names.json").write_text(json.dumps({"0001": log.name}), encoding="utf-8")
    child.run(slot, child.build_command(settings, ImportOptions(), "files/0001"), settings)
    slot.close()
    return slot.upload


def count_rows(database: Path) -> int:
    """Count the rows of every table."""
    with closing(open_reader(database)) as reader:
        names = [
            row[0] for row in reader.execute("select name from sqlite_schema where type = 'table'")
        ]
        return sum(reader.execute(f"select count(*) from {name}").fetchone()[0] for name in names)


def measure(kinds: list[str], max_bytes: int) -> Iterator[Row]:
    """Send one log of each kind."""
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            log, database = Path(folder, f"{kind}.log.gz"), Path(folder, "team.db")
            unpacked = write_log(log, kind, max_bytes=max_bytes)
            migrate(database)
            began_s = time.monotonic()
            ended = import_log(log, database)
            took_s = time.monotonic() - began_s
            yield Row(
                kind,
                f"{log.stat().st_size / 2**20:.1f} → {unpacked / 2**20:,.0f} MiB",
                f"{took_s:.0f} s",
                f"{count_rows(database):,} ({database.stat().st_size / 2**20:,.0f} MiB)",
                ended.message or ended.state,
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=float, default=5, metavar="N")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    options = parser.parse_args()
    rows = list(measure(options.kinds, int(options.mib * 2**20)))
    print_table(
        f"Logs of {options.mib:g} MiB under the limits of uploads",
        rows,
        "",
        headings=("kind", "log", "time", "rows", "ended"),
    )


if __name__ == "__main__":
    main()
