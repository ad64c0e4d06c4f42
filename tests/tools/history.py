"""The demo's history as an H200 measured it, in a database with its incidents."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from compileboard.app.incidents.update import update_incidents
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.observed import ROOT
from tests.unit.app.benchmarks.test_h200_suite import ingest_recorded

RECORDED = ROOT / "tests" / "data" / "history" / "h200.jsonl.xz"


def record_history(path: Path) -> None:
    """Record the demo's history and look for its incidents."""
    migrate(path)
    with closing(open_writer(path)) as store:
        ingest_recorded(store, RECORDED)
    update_incidents(path)
