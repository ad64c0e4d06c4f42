from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from flask.testing import FlaskClient

import compileboard
from compileboard.app import create_app
from compileboard.app.notebook.board import Board
from compileboard.app.settings import Settings
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.dashboard.baselines import save_baseline
from tests.tools.make_db import DATA
from tests.tools.make_db import main as make_db
from tests.unit.app.benched import RUNS, bench_suite
from tests.unit.app.explored import explore
from tests.unit.app.hostile import record_hostile_run
from tests.unit.app.recorded import record_run
from tests.unit.app.series_changes import keep_one_of_each


@pytest.fixture(scope="package")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a database with something of everything that frames are made of."""
    path = tmp_path_factory.mktemp("notebook") / "team.db"
    make_db([str(path), *(str(DATA / "trace" / f"torch2.11-cuda-{name}.log.xz") for name in ("hf_Bert_train",))])
    with closing(open_writer(path)) as connection:
        record_run(connection)
        bench_suite(connection)
        save_baseline(connection, "first", {}, run_id=RUNS[0])
        keep_one_of_each(connection)
        record_hostile_run(connection)
    explore(path)
    return path


@pytest.fixture(scope="package")
def board(filled: Path) -> Iterator[Board]:
    with compileboard.open(filled) as opened:
        yield opened


@pytest.fixture(scope="package")
def client(filled: Path) -> FlaskClient:  # of the same database as the board
    return create_app(Settings(db=str(filled))).test_client()
