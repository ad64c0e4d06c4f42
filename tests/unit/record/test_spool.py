"""The spool writer: whatever happens to its file, the program goes on and the loss is counted."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.decode.records import TorchRecord
from compileboard.collectors.observe.spool_writer import Spool
from compileboard.collectors.record import spool as spool_files
from compileboard.collectors.record.spool import (
    EMPTY,
    TORN,
    UNREADABLE,
    Manifest,
    SpoolReader,
    read_manifest,
    writers_alive,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "spool" / "RUN"
    path.mkdir(parents=True)
    Manifest(run_id="RUN", database=str(tmp_path / "t.db"), name="a run", started_us=1).write(path)
    return path


@pytest.fixture
def spool(folder: Path, tmp_path: Path) -> Iterator[Spool]:
    made = Spool(
        str(folder), "RUN", str(tmp_path / "t.db"), lambda: {"run_id": "RUN", "pid": os.getpid()}
    )
    yield made
    made.close()


def names(folder: Path) -> list[str]:
    return [captured.name for captured in SpoolReader(folder).read()]


def test_each_record_is_a_whole_line_with_its_place(spool: Spool, folder: Path) -> None:
    spool.write("one", {"a": {1, 2}}, "payload\n", [None, 0, 1, 2, None], {"qualname": "f"})
    spool.write("two", {"odd": object}, "\ud800 half a character")
    first, second, third = SpoolReader(folder).read()
    assert (first.name, second.name, third.name) == ("process_started", "one", "two")
    assert (second.metadata, second.payload, second.compile_id, second.attempt) == (
        {"a": [1, 2]},
        "payload\n",
        "0/1",
        2,
    )
    assert [first.sequence, second.sequence, third.sequence] == [0, 1, 2]
    assert not spool.losses


def test_a_forked_child_is_a_process_of_its_own(spool: Spool, folder: Path) -> None:
    spool.write("before", None)
    parent_id = spool.process_id
    pid = os.fork()
    if pid == 0:
        spool.after_fork()
        spool.write("child", None)
        os._exit(0)
    os.waitpid(pid, 0)
    spool.write("after", None)
    origins = {(c.name, c.process_id == parent_id) for c in SpoolReader(folder).read()}
    assert {("before", True), ("after", True), ("child", False)} <= origins
    parents = [
        c.metadata["parent_process_id"]
        for c in SpoolReader(folder).read()
        if c.name == "process_started"
    ]
    assert sorted(parents, key=str) == sorted([None, parent_id], key=str)


def test_a_program_that_closes_every_descriptor_keeps_its_own_files_clean(
    spool: Spool, folder: Path
) -> None:
    spool.write("before", None)
    taken = spool._descriptor
    assert taken is not None
    os.close(taken)
    own = os.open(folder.parent / "theirs.txt", os.O_CREAT | os.O_RDWR)
    assert own == taken, "the number is used again: that is the danger"
    spool.write("after", None)
    assert os.fstat(own).st_size == 0
    os.close(own)
    assert names(folder).count("after") == 1
    assert not spool.losses


def test_a_deleted_folder_is_made_again_for_the_next_command(spool: Spool, folder: Path) -> None:
    spool.write("before", None)
    shutil.rmtree(folder)
    spool.write("after", None)
    assert names(folder) == ["process_started", "after"]
    assert read_manifest(folder).late
    assert spool.losses == {"spool: its file was deleted": 1}


def test_a_late_process_finds_no_folder_and_makes_one(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "gone" / "RUN"), "RUN", "t.db", dict)
    spool.write("one", None)
    manifest = read_manifest(tmp_path / "gone" / "RUN")
    assert (manifest.run_id, manifest.database, manifest.late) == ("RUN", "t.db", True)
    assert not spool.losses
    spool.close()


def test_a_spool_that_cannot_be_made_counts_every_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    spool = Spool(str(tmp_path / "file" / "RUN"), "RUN", "t.db", dict)
    spool.write("one", None)
    spool.write("two", None)
    assert sum(spool.losses.values()) == 2


def limited(size: int, work: Any) -> None:
    """Do something in a child whose files cannot grow beyond a size, as on a full disk."""
    import resource
    import signal

    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_full_disk_is_a_counted_loss_that_can_still_be_said(spool: Spool, folder: Path) -> None:
    def work() -> None:
        spool.after_fork()
        for _ in range(200):
            spool.write("record", "x" * 100)

    limited(8192, work)
    reader = SpoolReader(folder)
    written = sum(captured.name == "record" for captured in reader.read())
    (losses,) = reader.losses().values()
    assert 20 < written < 100
    assert losses[TORN] == 1
    assert losses["spool: File too large"] == 200 - written - 1  # the torn one is counted as such


def test_a_disk_full_from_the_start_shows_as_an_empty_file(spool: Spool, folder: Path) -> None:
    def work() -> None:
        spool.after_fork()
        spool.write("record", None)

    limited(0, work)
    reader = SpoolReader(folder)
    assert list(reader.read()) == []
    (losses,) = reader.losses().values()
    assert losses == {EMPTY: 1}


def test_a_torn_line_costs_itself_alone(spool: Spool, folder: Path) -> None:
    spool.write("one", None)
    assert spool._descriptor >= 0
    os.write(spool._descriptor, b'{"s":9,"t":1,"n":"to')
    spool._torn = True
    spool.write("two", None)
    reader = SpoolReader(folder)
    assert [captured.name for captured in reader.read()] == ["process_started", "one", "two"]
    assert reader.losses() == {spool.process_id: {UNREADABLE: 1}}


def test_a_record_that_loses_one_value_is_not_lost(spool: Spool, folder: Path) -> None:
    spool.write("one", None)
    reader = SpoolReader(folder)
    assert list(reader.read())
    reader.reject(f"{spool.process_id}.jsonl", "bad_field", 1)
    assert reader.losses() == {}


def test_the_reader_waits_for_the_rest_of_a_line(folder: Path) -> None:
    path, reader = folder / "p.jsonl", SpoolReader(folder)
    line = json.dumps({"s": 0, "t": 1, "n": "one", "m": None}).encode() + b"\n"
    path.write_bytes(line + line[:10])
    assert len(list(reader.read())) == 1
    path.write_bytes(line + line)
    assert len(list(reader.read())) == 1
    assert reader.losses() == {}


@pytest.mark.parametrize(
    ("time_us", "is_read"), [(-1, False), (0, True), (2**63 - 1, True), (2**63, False)]
)
def test_a_time_is_read_up_to_what_a_column_holds(
    folder: Path, time_us: int, is_read: bool
) -> None:
    line = json.dumps({"s": 0, "t": time_us, "n": "one", "m": None})
    (folder / "p.jsonl").write_text(line + "\n")
    assert [captured.time_us for captured in SpoolReader(folder).read()] == [time_us] * is_read


def test_the_reader_goes_back_to_a_mark(spool: Spool, folder: Path) -> None:
    reader = SpoolReader(folder)
    spool.write("one", None)
    mark = reader.mark()
    assert len(list(reader.read())) == 2
    assert list(reader.read()) == []
    reader.rewind(mark)
    assert [type(record) for record in reader.read()] == [TorchRecord, TorchRecord]


def test_the_lock_tells_who_still_writes(spool: Spool, folder: Path) -> None:
    assert writers_alive(folder) == 0
    spool.write("one", None)
    assert writers_alive(folder) == 1
    spool.close()
    assert writers_alive(folder) == 0


def test_a_fork_begins_without_its_parents_losses(spool: Spool, folder: Path) -> None:
    spool.write("before", None)
    spool._lose("spool: disk full")
    counted_into = spool.losses
    spool.after_fork()
    spool.write("child", None)
    spool._lose("spool: quota")
    assert spool.losses is counted_into and dict(counted_into) == {"spool: quota": 1}
    reader = SpoolReader(folder)
    assert len(list(reader.read())) == 4
    assert reader.losses()[spool.process_id] == {"spool: quota": 1}


def test_an_empty_file_is_a_loss_where_no_room_was_left_and_none_where_there_was(
    folder: Path,
) -> None:
    for process_id in ("full", "killed"):
        (folder / f"{process_id}.jsonl").touch()
    (folder / "full.losses").touch()
    (folder / "killed.losses").write_bytes(bytes(4096))
    reader = SpoolReader(folder)
    assert list(reader.read()) == []
    assert reader.losses() == {"full": {EMPTY: 1}}


@pytest.mark.parametrize(("size", "is_read"), [(8, True), (9, False)])
def test_a_line_longer_than_the_largest_is_passed_over_and_the_next_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, size: int, is_read: bool
) -> None:
    monkeypatch.setattr(spool_files, "BATCH_BYTES", 1)
    monkeypatch.setattr(spool_files, "MAX_LINE_BYTES", 8)
    path, reader = folder / "p.jsonl", SpoolReader(folder)
    path.write_bytes(b"x" * size)
    assert list(reader.read_lines(path)) == []  # its end is still to come
    with path.open("ab") as file:
        file.write(b"\nnext\n")
    lines = list(reader.read_lines(path))
    assert lines == [(1, b"x" * size)] * is_read + [(2, b"next")]
    assert [rejects.total for rejects in reader.rejects.values()] == [1] * (not is_read)
    assert list(reader.read_lines(path)) == []


def test_a_count_below_0_is_no_loss(folder: Path) -> None:
    (folder / "p.jsonl").write_bytes(b"{}\n")
    (folder / "p.losses").write_text('{"disk full": 2, "odd": -5}\n')
    assert SpoolReader(folder).losses()["p"]["disk full"] == 2
    assert "odd" not in SpoolReader(folder).losses()["p"]


def test_a_manifest_whose_names_are_no_text_has_those_of_its_run(folder: Path) -> None:
    path = folder / "run.json"
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "name": 5, "recorder_process_id": [1]}))
    manifest = read_manifest(folder)
    assert (manifest.name, manifest.recorder_process_id) == ("RUN", "RUN")
    assert len(manifest.troubles) == 2
