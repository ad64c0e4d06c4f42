"""`show` of a run that records CUDA graphs again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.terminal.run_summary import summarize
from tests.tools.make_db import DATA, record_events


def test_show_counts_graphs_recorded_again_and_does_not_call_them_fine(tmp_path: Path) -> None:
    path = DATA / "events" / "torch2.11-cuda-graphs-another_output.jsonl.xz"
    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        run_id = record_events(Ingestor(connection), path)
    summary = summarize(str(tmp_path / "t.db"), run_id)
    assert summary is not None
    assert dict(summary.headline())["CUDA graphs recorded again"] == "4"
    assert "Nothing to fix" not in summary.text()
    (again,) = summary.cudagraphs
    assert (again.text, again.count) == ("CudagraphManagedIdxMismatch", 4)
    assert again.note.startswith(
        "another_output.<locals>.<lambda>, benchmarks/cuda_graphs/programs.py:143\nClone what"
    )
