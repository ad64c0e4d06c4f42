from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.store.search import index_run, remove_run_words
from tests.unit.app.benched import bench_suite
from tests.unit.app.hostile import record_hostile_run
from tests.unit.app.repros.captured import capture_repros
from tests.unit.app.series_changes import keep_one_of_each
from tests.unit.store.sealed.sealed_board import copy_board, seal_all


@pytest.fixture(scope="module")
def live(explored: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    with closing(copy_board(explored, folder)) as store:
        bench_suite(store)
        capture_repros(store)
        keep_one_of_each(store)
        record_hostile_run(store)
        store.execute("update runs set heartbeat_us = 1 where state = 'running'")
        for row in store.execute("select id from runs order by started_us, id").fetchall():
            remove_run_words(store, row["id"])  # so that the newest run's were indexed last
            index_run(store, row["id"])
    return folder / "board.db"


@pytest.fixture(scope="module")
def sealed(live: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed")
    with closing(copy_board(live, folder)) as board:
        assert len(seal_all(board)) == 9
    return folder / "board.db"
