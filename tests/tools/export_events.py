"""Write a run's events as test data.

python -m tests.tools.export_events DATABASE OUT.jsonl.xz
"""

from __future__ import annotations

import lzma
import sqlite3
import sys
from contextlib import closing

from compileboard.collectors.contract.events import ConfigSeen, dump_event
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import open_reader

CONFIGS = """
select process_id, config_hash, configs.kind, body
from process_configs
join configs on hash = config_hash
order by process_id, configs.kind, config_hash
"""


def list_configs(reader: sqlite3.Connection) -> list[ConfigSeen]:
    """Make the events again that the configurations came in."""
    return [
        ConfigSeen(
            row["process_id"],
            -2 - position,
            0,
            row["config_hash"],
            row["kind"],
            unpack(row["body"]),
        )
        for position, row in enumerate(reader.execute(CONFIGS))
    ]


def export_events(database: str, path: str) -> int:
    """Write every event of a database, one line each, in the order they happened; return how
    many.
    """
    query = "select body from events order by time_us, process_id, sequence"
    with (
        closing(open_reader(database)) as reader,
        lzma.open(path, "wt", encoding="utf-8", preset=9) as file,
    ):
        lines = [unpack(row["body"]) for row in reader.execute(query)]
        lines[2:2] = [
            dump_event(config) for config in list_configs(reader)
        ]  # the store keeps them by content alone
        file.write("".join(f"{line}\n" for line in lines))
    return len(lines)


if __name__ == "__main__":
    print(export_events(*sys.argv[1:3]), "events")
