"""`import`: find the logs, bring them into the database, say what came of it."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from collectors.importer.follow import await_log
from collectors.importer.follow import follow as go_on
from collectors.importer.lines import ProgressLines
from collectors.importer.loader import Imported, Loader, Options, Progress
from collectors.read.sources import NO_LIMITS, NO_NAMES, Limits, SourceGroup, find_sources
from collectors.record import hints
from collectors.record.indexing import index_after
from collectors.rejects import KINDS
from collectors.store.connect import open_writer
from collectors.store.migrations import migrate_connection

REJECTED = 1

Say = Callable[[str], None]


def import_paths(
    paths: list[str],
    database: str,
    options: Options,
    *,
    say: Say,
    latest: bool = False,
    follow: bool = False,
    strict: bool = False,
    index: bool = True,
    limits: Limits = NO_LIMITS,
    names: Mapping[str, str] = NO_NAMES,
    lines: ProgressLines | None = None,
) -> int:
    """Import each path as a run of its own; return the exit code.

    Raises: ValueError where there is no log, StoreError, OSError.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)  # records come and go by the thousand, and none of them in circles
    if follow and len(paths) > 1:
        raise ValueError("--follow takes one PATH and several were given; give the folder that the logs are in.")
    if follow and paths == ["-"]:
        raise ValueError("--follow takes a log or a folder; standard input is read to its end without it.")
    found = {path: partial(find_sources, path, latest=latest, limits=limits, names=names) for path in paths}
    # What is not there is said before anything is written.
    groups = {path: None if follow else find() for path, find in found.items()}
    rejected = False
    with closing(open_writer(database)) as connection:
        migrate_connection(connection)
        for path, find in found.items():
            began_s = time.monotonic()

            def begin(group: SourceGroup) -> Loader:
                return Loader(connection, database, group, options)

            group = groups[path]
            loader = begin(group) if group else await_log(path, find, begin, say)
            group = loader.group
            try:
                show = lines.begin(group, loader.imported) if lines else _progress_line(group)
                done = loader.read(show)
                if follow and not done.deleted:
                    say(f"following {_logs(done)} into run {done.run_id}; Ctrl-C ends it")
                    go_on(loader, find, show)
            finally:
                loader.finish()
            say(_outcome(done, time.monotonic() - began_s, database))
            for line in _remarks(done, group):
                say(line)
            if lines:
                lines.end(done)
            if index and not done.deleted:
                index_after(connection, done.run_id, say)
            rejected |= bool(done.rejects.total) or done.deleted
    return REJECTED if strict and rejected else 0


def read_names(path: str | None) -> Mapping[str, str]:
    """Read what files are called where that is not their name on disk.

    Raises: ValueError if it is no JSON object of texts; OSError.
    """
    if path is None:
        return NO_NAMES
    names = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(names, dict) or not all(isinstance(it, str) for it in names.values()):
        raise ValueError(f"{path}: expected a JSON object of texts, what a file is called by its name on disk")
    return names


def _outcome(done: Imported, took_s: float, database: str) -> str:
    if done.deleted:
        return (
            f"{done.name}: run {done.run_id} was deleted from this database, so its log is left out; "
            "--again imports it all the same"
        )
    show = hints.collect("show", done.run_id, database=database)
    if done.known_run and not done.record_count:
        return f"{done.name}: nothing new; {_logs(done)} of run {done.run_id} had been imported; {show}"
    rate = f", {done.read_bytes / 1e6 / took_s:.0f} MB/s" if took_s > 0.05 else ""
    new = "new records" if done.known_run else "records"
    return (
        f"{done.name}: {done.record_count:,} {new} of {_logs(done)} in run {done.run_id} "
        f"({done.read_bytes / 1e6:.1f} MB in {took_s:.1f} s{rate}); {show}"
    )


def _remarks(done: Imported, group: SourceGroup) -> list[str]:
    remarks = []
    if done.with_source:
        remarks.append(
            "the log was imported with its source before, which stays; delete the run and use --again to drop it"
        )
    if done.without_payloads:
        remarks.append(
            "the log was imported without its texts before and goes on so; delete the run and use --again to have them"
        )
    for kind, reject in sorted(done.rejects.by_kind.items()):
        where = f", first at line {reject.first_line}" if reject.first_line else ""
        remarks.append(f"{reject.count} × {KINDS.get(kind, kind)}{where}")
    if group.ignored:
        names = ", ".join(group.ignored[:3]) + (" …" if len(group.ignored) > 3 else "")
        remarks.append(f"passed over, being no trace logs: {names}")
    return remarks


def _logs(done: Imported) -> str:
    return "1 log" if done.log_count == 1 else f"{done.log_count} logs"


def _progress_line(group: SourceGroup) -> Progress:
    """Count megabytes on a terminal, once in a while."""
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda _bytes: None
    total = sum(source.size_bytes or 0 for source in group.sources)
    last_s = [time.monotonic()]

    def show(read_bytes: int) -> None:
        if time.monotonic() - last_s[0] > 0.25:
            last_s[0] = time.monotonic()
            of = f" of {total / 1e6:,.0f}" if total else ""
            sys.stderr.write(f"\r{group.label}: {read_bytes / 1e6:,.0f}{of} MB \x1b[K\r")
            sys.stderr.flush()

    return show
