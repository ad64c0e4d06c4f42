"""Make a database with some of everything: `python -m tests.tools.make_full_db FOLDER`."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

from compileboard.app.alerts.alert_delivery import send_due
from compileboard.app.cli.main import main as dashboard
from compileboard.app.imports.queue import ImportQueue
from compileboard.app.incidents.update import update_incidents
from compileboard.collectors.cli.main import main as collect
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.source_files import save_trace_file
from tests.tools.make_db import DATA
from tests.tools.make_db import main as make_db
from tests.unit.app.alerts.test_alerts_page import RULES
from tests.unit.app.benched import RUNS, add_results
from tests.unit.app.benchmarks.exported import list_exported
from tests.unit.app.benchmarks.test_h200_suite import ingest_recorded
from tests.unit.app.core.broad_board import make_broad_board
from tests.unit.app.deleted import delete_and_audit
from tests.unit.app.explored import explore
from tests.unit.app.hostile import record_hostile_run
from tests.unit.app.repros.captured import capture_repros
from tests.unit.app.seed import START_US, add_run
from tests.unit.app.series_changes import keep_one_of_each
from tests.unit.app.traced import record_traced_run

NOW_US = START_US + 4 * 86_400_000_000
BENCHED = ("h200-performance", "h200-accuracy", "h200-user_models")


def make_full_db(folder: Path) -> None:
    """Make the database in an empty folder, with the rules of alerts and the states of imports."""
    board, recorded, rules = folder / "board.db", folder / "recorded.db", folder / "alerts.toml"
    make_db([str(recorded)])
    make_broad_board(board, recorded)
    recorded.unlink()
    explore(board)
    for path in (*sorted((DATA / "captures").iterdir()), *sorted((DATA / "upstream").glob("*/"))):
        assert collect(["import", str(path), "--db", str(board), "--name", path.name]) in (0, 1), (
            path
        )
    with closing(open_writer(board)) as store:
        for name in BENCHED:
            ingest_recorded(store, DATA / "bench" / f"{name}.jsonl.xz")
        add_results(store, "01JEXPORTED00000000000000A", *list_exported())
        record_hostile_run(store)
        traced_id = record_traced_run(store)
        save_trace_file(store, traced_id, DATA / "explored" / "zoo_recompiles.xz")
        capture_repros(store)
        delete_and_audit(store)
        add_run(
            store,
            "01JRUNNING000000000000000A",
            state="running",
            started_us=NOW_US - 60_000_000,
            exit_code=None,
        )
        store.execute(
            "update runs set heartbeat_us = ? where id = '01JRUNNING000000000000000A'", (NOW_US,)
        )
    assert dashboard(["baseline", "save", "main", "--run", RUNS[-1], "--db", str(board)]) == 0
    update_incidents(board, now_us=NOW_US)
    rules.write_text(f"{RULES}since = 2000-01-01\n")
    with closing(open_writer(board)) as store:
        keep_one_of_each(store)
    send_due(str(board), str(rules), {}, NOW_US)
    add_imports(board)


def add_imports(board: Path) -> None:
    """Add an import that ended well and one that failed, as the server keeps them."""
    queue = ImportQueue(str(board))
    for name, result in (
        ("trace.log", {"state": "done", "run_id": RUNS[0], "record_count": 7, "log_count": 1}),
        (
            "<b>.log",
            {
                "state": "failed",
                "message": "<b>.log is not a trace log",
                "rejects": {"not_json": 2},
            },
        ),
    ):
        entry = queue.enqueue(name, max_receiving=9, max_waiting=9)
        entry.save(**result)
        entry.close()


if __name__ == "__main__":
    os.makedirs(sys.argv[1])
    make_full_db(Path(sys.argv[1]))
