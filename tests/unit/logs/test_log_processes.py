"""Logs that several processes read: the same rows as from one, and words where a process dies."""

from __future__ import annotations

import lzma
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app.timeline.run_queries import iterate_spans
from compileboard.collectors.logs import log_blocks, log_loader, trace_log
from compileboard.collectors.logs.discovery import find_sources
from compileboard.collectors.logs.log_loader import LoadOptions, LogLoader
from compileboard.collectors.logs.log_processes import AHEAD_COUNT, WorkerProcesses
from compileboard.collectors.store.connection import open_reader, open_writer
from compileboard.collectors.store.migrations import migrate_connection
from tests.unit.app.explored import LOGS
from tests.unit.decode.recorded_logs import log_bytes
from tests.unit.logs.loading import DDP, dump, load


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks, a log that breaks off, one that is damaged, and one without a record."""
    for number, source in enumerate(find_sources(str(DDP)).sources):
        with source.open() as file:
            (tmp_path / f"rank_{number}_.log").write_bytes(file.read(3_000_000))
    log = log_bytes("torch2.11-cuda-zoo_recompiles")
    (tmp_path / "a.log").write_bytes(log[:300_000].replace(b'"attempt": 0', b'"attempt": x', 3))
    (tmp_path / "empty.log").touch()
    return tmp_path


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{}, {"payloads": False, "redact_source": True}])
def test_several_processes_make_the_same_rows(
    folder: Path, tmp_path: Path, options: dict[str, bool]
) -> None:
    alone, several = tmp_path / "1.db", tmp_path / "2.db"
    done = [load(alone, folder, **options), load(several, folder, process_count=2, **options)]
    assert done[0] == done[1]
    assert {"truncated", "bad_json", "empty_log"} <= done[0].rejects.by_kind.keys()
    assert dump(alone) == dump(several)


@pytest.mark.nightly
def test_an_archive_is_read_by_several_and_again_adds_nothing(tmp_path: Path) -> None:
    load(tmp_path / "1.db", DDP)
    load(tmp_path / "2.db", DDP, process_count=2)
    assert dump(tmp_path / "1.db") == dump(tmp_path / "2.db")
    again = load(tmp_path / "2.db", DDP, process_count=2)
    assert (again.known_run, again.record_count) == (True, 0)


def test_items_come_in_order_and_not_far_ahead(tmp_path: Path) -> None:
    def work(number: int) -> Iterator[bytes]:
        for position in range(3 * AHEAD_COUNT):
            (tmp_path / f"{number}").write_text(str(position))
            yield bytes([number, position]) + bytes(1 << 20)  # more than a pipe holds

    with closing(WorkerProcesses(work, 5, 2)) as processes:
        first = next(processes.read(0))
        assert first[:2] == b"\0\0"
        assert all(int(path.read_text() or 0) <= AHEAD_COUNT + 2 for path in tmp_path.iterdir())
        rest = [item[:2] for number in range(5) for item in processes.read(number)]
    assert (
        rest
        == [
            bytes([number, position]) for number in range(5) for position in range(3 * AHEAD_COUNT)
        ][1:]
    )


def test_what_a_task_raises_is_raised_and_a_death_is_said() -> None:
    def work(number: int) -> Iterator[int]:
        yield number
        if number:
            os.kill(os.getpid(), signal.SIGKILL)
        raise FileNotFoundError(2, "gone")

    with closing(WorkerProcesses(work, 2, 2)) as processes:
        with pytest.raises(FileNotFoundError, match="gone"):
            list(processes.read(0))
        with pytest.raises(ChildProcessError, match=r"exit code -9.*--jobs 1"):
            list(processes.read(1))


def list_children() -> set[str]:
    """Return this process's children: other tests may have left some that end by themselves."""
    lists = Path("/proc/self/task").glob("*/children")
    return {child for path in lists for child in path.read_text().split()}


def test_a_failed_import_leaves_no_process(folder: Path, tmp_path: Path) -> None:
    others = list_children()
    with closing(open_writer(tmp_path / "t.db")) as connection:
        migrate_connection(connection)
        loader = LogLoader(
            connection, "t.db", find_sources(str(folder)), LoadOptions(), process_count=2
        )

        def stop(read_bytes: int) -> None:
            raise ValueError("enough")

        with pytest.raises(ValueError, match="enough"):
            loader.read(stop)
        loader.finish()
    assert list_children() <= others


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part_bytes", [7_001, 100_000])
@pytest.mark.parametrize("options", [{}, {"payloads": False}])
def test_parts_of_one_log_make_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int, options: dict[str, bool]
) -> None:
    log = log_bytes("torch2.11-cuda-zoo_graph_breaks")
    damaged = log[:200_000].replace(b'"attempt": 0', b'"attempt": x', 3)
    other = log_bytes("torch2.11-cuda-zoo_recompiles")[
        :400_000
    ]  # another process, and a last record cut off
    path = tmp_path / "trace.log"
    path.write_bytes(damaged + b"\nno record\n" + log[200_000:500_000] + b"\n" + other)
    alone, several = tmp_path / "1.db", tmp_path / "2.db"
    done = load(alone, path, **options)
    for module in (log_loader, trace_log):
        monkeypatch.setattr(module, "PART_BYTES", part_bytes)
    monkeypatch.setattr(
        log_blocks, "BLOCK_BYTES", 3_000
    )  # so that whole blocks of other parts are skipped
    assert load(several, path, process_count=3, **options) == done
    assert {"truncated", "bad_json", "second_log", "stray_line"} <= done.rejects.by_kind.keys()
    # When a process was seen last is the latest end of a batch, and times go back where another log
    # begins.
    hidden = ("last_seen_us",)
    assert dump(alone, *hidden) == dump(several, *hidden)


def test_spans_of_a_log_in_parts_have_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.log"
    log = lzma.decompress(LOGS["zoo_graph_breaks"].read_bytes())
    path.write_bytes(log.replace(b'"ph": "B"', b'"ph": "\xff"', 2))
    for module in (log_loader, trace_log):
        monkeypatch.setattr(module, "PART_BYTES", 20_000)
    monkeypatch.setattr(log_blocks, "BLOCK_BYTES", 3_000)
    dumps = []
    for database, process_count in ((tmp_path / "1.db", 1), (tmp_path / "2.db", 3)):
        rejects = load(database, path, process_count=process_count).rejects
        tables = dump(database, "last_seen_us")
        with closing(open_reader(database)) as reader:
            spans = [
                list(iterate_spans(reader, row["id"]))
                for row in reader.execute("select id from lanes")
            ]
        dumps.append(
            (spans, Counter(row[1:] for row in tables.pop("spans")), tables, rejects.by_kind.keys())
        )
    assert dumps[0] == dumps[1] and sum(map(len, spans)) > 100
    assert rejects.by_kind.keys() == {"bad_utf8", "wrong_md5"}


def test_parts_of_a_longer_copy_add_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_bytes("torch2.11-cuda-zoo_recompiles")
    path = tmp_path / "trace.log"
    for module in (log_loader, trace_log):
        monkeypatch.setattr(module, "PART_BYTES", 50_000)
    monkeypatch.setattr(log_blocks, "BLOCK_BYTES", 3_000)
    for database, process_count in ((tmp_path / "1.db", 1), (tmp_path / "2.db", 2)):
        for end in (333_333, len(log)):
            path.write_bytes(log[:end])
            load(database, path, process_count=process_count)
    assert dump(tmp_path / "1.db") == dump(tmp_path / "2.db")
