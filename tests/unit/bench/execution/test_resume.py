"""Which run `--resume` goes on with."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.bench.execution.resume import NotMeasured, find_resume_point
from compileboard.collectors.contract.events import RunStarted
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate


@pytest.mark.parametrize("named", ["latest", "RUN"])
def test_an_observed_run_is_none_of_benchs(tmp_path: Path, named: str) -> None:
    database = str(tmp_path / "test.db")
    migrate(database)
    with closing(open_writer(database)) as connection:
        Ingestor(connection).ingest("RUN1", [RunStarted("p", 0, 1, "RUN1", "train")])
    with pytest.raises(NotMeasured, match="no run of bench with this id"):
        find_resume_point(database, "plan", named)
