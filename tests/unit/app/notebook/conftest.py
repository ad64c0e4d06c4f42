from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from flask.testing import FlaskClient

import compileboard
from compileboard.app import create_app
from compileboard.app.core import store as stores
from compileboard.app.core.settings import Settings
from compileboard.app.notebook.board import Board
from compileboard.collectors.store.connection import BOARD, open_writer
from compileboard.collectors.store.dashboard import save_baseline
from tests.tools.make_db import DATA
from tests.tools.make_db import main as make_db
from tests.unit.app.benched import RUNS, bench_suite
from tests.unit.app.clickhouse.published import PublishedBoards
from tests.unit.app.explored import explore
from tests.unit.app.hostile import record_hostile_run
from tests.unit.app.recorded import record_run
from tests.unit.app.series_changes import keep_one_of_each


@pytest.fixture(scope="package")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a database with something of everything that frames are made of."""
    path = tmp_path_factory.mktemp("notebook") / BOARD
    make_db(
        [
            str(path),
            *(str(DATA / "trace" / f"torch2.11-cuda-{name}.log.xz") for name in ("hf_Bert_train",)),
        ]
    )
    with closing(open_writer(path)) as connection:
        record_run(connection)
        bench_suite(connection)
        save_baseline(connection, "first", {}, run_id=RUNS[0])
        keep_one_of_each(connection)
        record_hostile_run(connection)
    explore(path)
    return path


@pytest.fixture(scope="package")
def board(request: pytest.FixtureRequest, filled: Path) -> Iterator[Board]:
    """Open the board: its file, or with `board_on_both_engines` also its folder, published in
    ClickHouse.
    """
    if getattr(request, "param", "sqlite") == "sqlite":
        with compileboard.open(filled) as opened:
            yield opened
        return
    published: PublishedBoards = request.getfixturevalue("published_boards")
    clients = published.lend(filled.parent / "clickhouse")
    with pytest.MonkeyPatch.context() as patch, closing(clients):
        patch.setattr(stores, "_share_clients", lambda _address, _process_id: clients)
        with compileboard.open(f"clickhouse://{filled.parent}") as opened:
            yield opened


@pytest.fixture(scope="package")
def client(filled: Path) -> FlaskClient:  # of the same database as the board, over its file
    return create_app(Settings(db=str(filled))).test_client()
