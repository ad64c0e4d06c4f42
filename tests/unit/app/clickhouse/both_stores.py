"""The same runs in one file, and in a folder beside ClickHouse, some of them sealed."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from compileboard.app import create_app
from compileboard.app.clickhouse.client import ClientPool
from compileboard.app.clickhouse.passes import Publisher, publish_changes
from compileboard.app.clickhouse.tables import create_tables
from compileboard.app.core.address import parse_address
from compileboard.app.core.settings import Settings
from compileboard.app.incidents.update import update_incidents
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.sealing import QUIET_US, list_sealable, seal_run
from compileboard.collectors.store.search import index_run
from tests.unit.app.core.broad_board import NOW_US
from tests.unit.app.repros.captured import capture_repros
from tests.unit.app.series_changes import keep_one_of_each


@dataclass(frozen=True)
class BothStores:
    """A file, and the folder with the same runs; `sealed` are those in files of their own."""

    single: Path
    folder: Path
    sealed: tuple[str, ...]

    @property
    def address(self) -> str:
        """Return what `--db` is for the folder."""
        return f"clickhouse://{self.folder}"

    def open_clients(self) -> tuple[FlaskClient, FlaskClient]:
        """Make a dashboard over each."""
        single, folder = (
            create_app(Settings(db=db)).test_client() for db in (str(self.single), self.address)
        )
        return single, folder

    def clean(self, answer: TestResponse) -> str:
        """Return an answer without what must differ: the name of its store, and when a report was
        written.
        """
        text = answer.data.decode("utf-8", "backslashreplace")
        for name in (self.address, str(self.folder / "board.db"), str(self.single)):
            text = text.replace(name, "DATABASE")
        return re.sub(
            r"(?<=written_at\":\")[^\"]*|(?<=Written by CompileBoard )[^<]*<time[^<]*", "", text
        )


def make_single_file(path: Path, broad: Path) -> None:
    """Add incidents and repros to runs of every kind."""
    shutil.copy(broad, path)
    with closing(open_writer(path)) as writer:
        keep_one_of_each(writer)
        capture_repros(writer)
        for row in writer.execute("select id from runs order by started_us, id").fetchall():
            index_run(writer, row["id"])
    update_incidents(path)


def make_both(single: Path, folder: Path) -> BothStores:
    """Copy a file into a folder, publish all of it, and seal two of three runs that can be."""
    address = parse_address(f"clickhouse://{folder}")
    assert address.clickhouse is not None
    folder.mkdir()
    shutil.copy(single, address.board)
    clients = ClientPool(address.clickhouse)
    with clients.borrow() as client:
        create_tables(client)
    publish_changes(address.board, Publisher(clients), NOW_US, everything=True)
    clients.close()
    later_us = NOW_US + 200 * QUIET_US
    with closing(open_writer(address.board)) as board:
        sealed = [
            run_id for number, run_id in enumerate(list_sealable(board, later_us)) if number % 3
        ]
        for run_id in sealed:
            seal_run(board, run_id, now_us=later_us)
    return BothStores(single, folder, tuple(sealed))
