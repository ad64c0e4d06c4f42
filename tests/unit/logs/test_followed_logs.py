"""Followed logs that come late, are renamed, restarted or deleted are read once, to the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.logs import log_loader
from compileboard.collectors.logs.discovery import SourceGroup, find_sources
from compileboard.collectors.logs.log_loader import LoadOptions, LogLoader
from compileboard.collectors.logs.streams import NoSuchLog
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.source_files import save_rejects
from compileboard.collectors.store.migrations import migrate_connection
from tests.unit.logs.loading import DDP, counts, load, query_value, rows


@pytest.fixture(scope="module")
def ranks() -> list[bytes]:
    texts = []
    for source in find_sources(str(DDP)).sources:
        with source.open() as file:
            texts.append(file.read())
    return texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def run(
    database: Path, folder: Path, steps: Iterator[None], monkeypatch: pytest.MonkeyPatch
) -> LogLoader:
    """Follow a folder; before each look at it one step is taken, and Ctrl-C comes after the
    last.
    """

    def sleep(_seconds: float) -> None:
        try:
            next(steps)
        except StopIteration:
            raise KeyboardInterrupt from None

    def find() -> SourceGroup:
        return find_sources(str(folder))

    monkeypatch.setattr(log_loader.time, "sleep", sleep)
    with closing(open_writer(database)) as connection:
        migrate_connection(connection)
        loader = log_loader.await_log(
            str(folder),
            find,
            lambda group: LogLoader(connection, str(database), group, LoadOptions()),
            lambda _said: None,
        )
        loader.read()
        log_loader.follow(loader, find, lambda _bytes: None)
        loader.finish()
    return loader


def test_ranks_that_come_one_after_another_are_one_run(
    tmp_path: Path, folder: Path, ranks: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps() -> Iterator[None]:
        yield
        for end in (150, 700, 9_000, len(ranks[0])):
            (folder / "rank_0.log").write_bytes(ranks[0][:end])
            yield
        (folder / "rank_1.log").touch()
        yield
        (folder / "rank_1.log").write_bytes(ranks[1])

    run(tmp_path / "t.db", folder, steps(), monkeypatch)
    load(tmp_path / "whole.db", DDP)
    assert counts(tmp_path / "t.db") == counts(tmp_path / "whole.db")
    sql = "select name, torch_version, gpu_name, gpu_count, started_us, ended_us from runs"
    assert [tuple(row) for row in rows(tmp_path / "t.db", sql)] == [
        tuple(row) for row in rows(tmp_path / "whole.db", sql)
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["renamed", "moved away", "deleted", "truncated"])
def test_a_log_whose_file_goes_is_read_once_and_its_successor_too(
    tmp_path: Path, folder: Path, ranks: list[bytes], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = folder / "trace.log"
    log.write_bytes(ranks[0][:2_000_000])

    def steps() -> Iterator[None]:
        yield
        with log.open("ab") as file:
            file.write(ranks[0][2_000_000:])
        if way == "truncated":
            yield
            os.truncate(log, 0)
        elif way == "deleted":
            log.unlink()
        else:
            log.rename((folder if way == "renamed" else tmp_path) / "trace.log.1")
        yield
        log.write_bytes(ranks[1])
        yield

    loader = run(tmp_path / "t.db", folder, steps(), monkeypatch)
    load(tmp_path / "whole.db", DDP)
    assert counts(tmp_path / "t.db") == counts(tmp_path / "whole.db")
    assert loader.imported.rejects.total == 0


def test_a_torn_end_is_counted_once_however_often_it_is_met(
    tmp_path: Path, folder: Path, ranks: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "trace.log").write_bytes(ranks[0][:99_999])
    loader = run(tmp_path / "t.db", folder, iter([None] * 4), monkeypatch)
    assert loader.imported.rejects.count("truncated") == 1
    assert query_value(tmp_path / "t.db", "select reject_count from log_rejects") == 1


def test_what_is_not_there_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoSuchLog, match="no such file or folder"):
        run(tmp_path / "t.db", tmp_path / "nowhere", iter(()), monkeypatch)


def test_ctrl_c_in_the_middle_of_a_batch_loses_no_record(
    tmp_path: Path, folder: Path, ranks: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = folder / "trace.log"
    log.write_bytes(ranks[0])
    monkeypatch.setattr("compileboard.collectors.logs.trace_source.BATCH_EVENTS", 100)
    calls = []

    def interrupted(*arguments: Any, **options: Any) -> None:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        save_rejects(*arguments, **options)

    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        loader = LogLoader(connection, "t.db", find_sources(str(folder)), LoadOptions())
        with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
            context.setattr("compileboard.collectors.logs.sqlite_sink.save_rejects", interrupted)
            loader.read()
        loader.read()  # as `follow` does, to read what was written since
        loader.finish()
    load(tmp_path / "t.db", folder)
    log.rename(tmp_path / "trace.log")
    load(tmp_path / "whole.db", tmp_path / "trace.log")
    assert counts(tmp_path / "t.db") == counts(tmp_path / "whole.db")
