"""A log that was read while it was short, damaged or beside broken files ends as if it had been
read whole at once.
"""

from __future__ import annotations

import gzip
import time
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.logs.discovery import find_sources
from compileboard.collectors.logs.log_loader import LoadOptions, LogLoader
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate_connection
from tests.unit.logs.loading import PROGRAMS, counts, load, query_value, rows

FACTS = "select name, torch_version, gpu_count, started_us from runs"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (source,) = (
        source
        for source in find_sources(str(PROGRAMS)).sources
        if "zoo_backend_failure" in source.label
    )
    path = tmp_path / "trace.log"
    with source.open() as file:
        path.write_bytes(file.read())
    return path


@pytest.mark.parametrize("record_count", [1, 2, 3, 4, 9])
def test_a_log_is_known_from_its_first_record_on(
    tmp_path: Path, log: Path, record_count: int
) -> None:
    whole = log.read_bytes()
    load(tmp_path / "whole.db", log)
    starts = [
        position + 1 for position in range(len(whole)) if whole[position : position + 2] == b"\nV"
    ]
    log.write_bytes(whole[: starts[record_count - 1]])
    first = load(tmp_path / "t.db", log)
    log.write_bytes(whole)
    assert load(tmp_path / "t.db", log).run_id == first.run_id
    assert counts(tmp_path / "t.db") == counts(tmp_path / "whole.db")
    # What only later records tell, the run and its process say as well.
    assert [tuple(row) for row in rows(tmp_path / "t.db", FACTS)] == [
        tuple(row) for row in rows(tmp_path / "whole.db", FACTS)
    ]
    assert query_value(tmp_path / "t.db", "select torch_version from processes") == "2.11.0+cu130"


def test_a_whole_copy_goes_on_where_a_damaged_one_ended(tmp_path: Path, log: Path) -> None:
    load(tmp_path / "whole.db", log)
    packed = gzip.compress(log.read_bytes())
    copy = tmp_path / "copy.gz"
    copy.write_bytes(packed[: len(packed) * 2 // 3])
    for _ in range(2):
        load(tmp_path / "t.db", copy)
        recorded = rows(tmp_path / "t.db", "select kind, reject_count from log_rejects")
        assert [tuple(row) for row in recorded] == [("damaged_file", 1)]
    copy.write_bytes(packed)
    load(tmp_path / "t.db", copy)
    assert counts(tmp_path / "t.db") == counts(tmp_path / "whole.db")
    assert query_value(tmp_path / "t.db", "select sum(span_count) from span_totals") == query_value(
        tmp_path / "whole.db", "select count(*) from spans"
    )


def test_files_of_which_nothing_can_be_read_are_counted_each_time_anew(
    tmp_path: Path, log: Path
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log.rename(folder / "good.log")
    (folder / "empty.log").touch()
    (folder / "cut.log.gz").write_bytes(gzip.compress(b"V")[:9])
    for _ in range(2):
        load(tmp_path / "t.db", folder)
    recorded = rows(
        tmp_path / "t.db", "select kind, reject_count, example from log_rejects order by kind"
    )
    assert [(row["kind"], row["reject_count"]) for row in recorded] == [
        ("damaged_file", 1),
        ("empty_log", 1),
    ]
    assert "cut.log.gz" in recorded[0]["example"] and recorded[1]["example"] == "empty.log"


def test_damage_before_a_kill_stays_counted(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_bytes(log.read_bytes().replace(b"\nV", b"\nstray\nV", 3))
    load(tmp_path / "whole.db", log)
    monkeypatch.setattr("compileboard.collectors.logs.trace_source.BATCH_EVENTS", 8)
    monkeypatch.setattr(
        "compileboard.collectors.logs.sqlite_sink.save_rejects",
        _killed_at_the_third(),
        raising=True,
    )
    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        loader = LogLoader(connection, "t.db", find_sources(str(log)), LoadOptions())
        with pytest.raises(KeyboardInterrupt):
            loader.read()
        monkeypatch.undo()
        loader.finish()
    load(tmp_path / "t.db", log)
    sql = "select kind, reject_count, first_line from log_rejects"
    assert [tuple(row) for row in rows(tmp_path / "t.db", sql)] == [
        tuple(row) for row in rows(tmp_path / "whole.db", sql)
    ]
    assert counts(tmp_path / "t.db") == counts(tmp_path / "whole.db")


def _killed_at_the_third():  # type: ignore[no-untyped-def]
    from compileboard.collectors.store.ingest.source_files import save_rejects

    calls = []

    def keep(*arguments):  # type: ignore[no-untyped-def]
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        save_rejects(*arguments)

    return keep


def test_redacted_examples_of_damage_hold_no_code(tmp_path: Path, log: Path) -> None:
    log.write_bytes(log.read_bytes() + b"    secret = self.weights(x)\nV")
    load(tmp_path / "t.db", log, redact_source=True)
    recorded = rows(
        tmp_path / "t.db",
        "select kind, reject_count, example from log_rejects where kind = 'stray_line'",
    )
    assert [tuple(row) for row in recorded] == [("stray_line", 1, None)]


@pytest.mark.parametrize(
    "junk", [b"epoch 3 loss 0.2\n" * 200_000, b'] {"str": ["' * 200_000 + b"\n"]
)
def test_foreign_lines_cost_no_more_than_reading_them(
    tmp_path: Path, log: Path, junk: bytes
) -> None:
    log.write_bytes(log.read_bytes() + junk)
    began_s = time.process_time()
    done = load(tmp_path / "t.db", log)
    assert done.rejects.count("stray_line") == junk.count(b"\n")
    assert (
        time.process_time() - began_s < 10
    )  # a minute and more, when each asked anew for its line


def test_a_run_that_was_killed_before_its_end_gets_it(tmp_path: Path, log: Path) -> None:
    load(tmp_path / "whole.db", log)
    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        loader = LogLoader(connection, "t.db", find_sources(str(log)), LoadOptions())
        loader.read()
        loader.close()
    load(tmp_path / "t.db", log)
    ended = "select ended_us - started_us from runs"
    assert (
        query_value(tmp_path / "t.db", ended) == query_value(tmp_path / "whole.db", ended) > 100_000
    )
