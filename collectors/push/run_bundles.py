"""Put runs of a database into the outbox as bundles, one per run."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.push.client import Client, find_value, quote_path
from compileboard.collectors.push.outbox import OutboxQuota, add_bundle
from compileboard.collectors.push.target import Target
from compileboard.collectors.store.bundles import count_contents, write_bundle
from compileboard.collectors.store.connection import StoreFull, open_reader
from compileboard.collectors.wire.http import ServerUnavailable


def bundle_runs(
    database: str,
    root: Path,
    config: RunConfig,
    print_line: Callable[[str], None],
    prefixes: Sequence[str] = (),
    queue_more: Callable[[sqlite3.Connection, str], int] = lambda reader, run_id: 0,
) -> Iterator[str]:
    """Put runs that the server lacks, or has only in part, into the outbox and yield their ids.
    With `prefixes`, only runs whose id starts with one.

    For a run that the server has completely, `queue_more` queues later answers and returns their
    number. Raises StoreError, OSError, or ValueError if no run matches a prefix.
    """
    room, target = OutboxQuota(root, config.outbox_bytes), Target.of(config)
    with closing(open_reader(database)) as reader, closing(Client(target)) as client:
        rows = reader.execute("select id, state from runs order by started_us, id").fetchall()
        chosen = [row for row in rows if not prefixes or row["id"].startswith(tuple(prefixes))]
        if prefixes and not chosen:
            raise ValueError(f"there is no run {prefixes[0]!r} in {database}")
        for row in chosen:
            run_id = str(row["id"])
            if row["state"] == "running":
                print_line(f"run {run_id} is still being recorded; push it when it has ended")
            elif _has_all(client, reader, run_id):
                count = queue_more(reader, run_id)
                more = (
                    f"; {count} answer{'' if count == 1 else 's'} about its repros are sent"
                    if count
                    else ""
                )
                print_line(f"run {run_id} is at {target.run_page(run_id)} already{more}")
                if count:
                    yield run_id
            else:
                root.mkdir(parents=True, mode=0o700, exist_ok=True)
                with tempfile.TemporaryDirectory(prefix=".bundle-", dir=root) as folder:
                    path = Path(folder) / "run.db"
                    write_bundle(reader, [run_id], os.fspath(path))
                    if not room.try_reserve(path.stat().st_size):
                        raise StoreFull(
                            f"the outbox {root} is full; wait, or give it more room with "
                            "--outbox-size"
                        )
                    add_bundle(root, run_id, path, target)
                yield run_id


@contextmanager
def temporary_database() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="compileboard-push-") as folder:
        yield os.path.join(folder, "push.db")


def _has_all(client: Client, reader: sqlite3.Connection, run_id: str) -> bool:
    """Return whether the server has the whole run. If the server does not respond, return False so
    that the run is sent.
    """
    try:
        answer = client.ask("GET", f"runs/{quote_path(run_id)}/contents")
    except ServerUnavailable:
        return False
    if answer.status == 410:  # it was pruned there, and accepts nothing more
        return True
    contents = count_contents(reader, run_id)
    return (
        answer.status == 200
        and contents is not None
        and all((find_value(answer, name, int) or 0) >= count for name, count in contents.items())
    )
