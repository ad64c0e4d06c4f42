"""What the public demo shows."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.logs.log_loader import LoadOptions
from compileboard.collectors.store.connection import open_reader
from tests.tools.public_demo import CAPTURES, DATA, RECORDED, write_suites


def test_each_result_of_the_suites_is_imported_as_it_was_measured(tmp_path: Path) -> None:
    (tmp_path / "suites").mkdir()
    write_suites(tmp_path / "suites")
    database = str(tmp_path / "demo.db")
    import_paths([str(tmp_path / "suites")], database, LoadOptions(), print_line=lambda _line: None)
    with closing(open_reader(database)) as reader:
        counts = reader.execute("select status, count(*) from results group by 1").fetchall()
        failed = reader.execute("select accuracy from results where status = 'failed'").fetchall()
    assert dict(map(tuple, counts)) == {"measured": 172, "failed": 2}
    assert {row["accuracy"] for row in failed} == {"fail_to_run", "eager_1st_run_fail"}


def test_what_it_reads_is_there() -> None:
    assert all((DATA / path).is_file() for path in (*RECORDED, *CAPTURES.values()))
