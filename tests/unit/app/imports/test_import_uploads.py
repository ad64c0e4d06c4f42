"""Imports at rest: how they stand in files, who looks after them, and what a child may use."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import tarfile
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.imports.many_rows import count_rows, write_log
from compileboard.app.activity.queries import list_audit
from compileboard.app.core.settings import Settings
from compileboard.app.imports import import_process as child
from compileboard.app.imports import upload
from compileboard.app.imports.queue import (
    KEEP_US,
    STOPPED,
    ImportOptions,
    ImportQueue,
    QueueEntry,
    UploadRejected,
    parse_options,
)
from compileboard.app.imports.upload import ReceivedUpload, clean_path, receive
from compileboard.collectors.logs.trace_source import BATCH_PARTS
from compileboard.collectors.store.bundles import write_bundle
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.migrations import migrate
from compileboard.collectors.store.runs import RunSender
from compileboard.collectors.store.tokens import ActionOrigin
from tests.tools.make_db import DATA
from tests.tools.uploading import BOUNDARY, write_form

LOG = DATA / "trace" / "torch2.13-breaks.log.xz"


@pytest.fixture
def shelf(tmp_path: Path) -> ImportQueue:
    migrate(tmp_path / "team.db")
    return ImportQueue(str(tmp_path / "team.db"))


def enqueue(shelf: ImportQueue, **most: int) -> QueueEntry:
    return shelf.enqueue("a.log", **({"max_receiving": 4, "max_waiting": 8} | most))


def form_environ(body: bytes, **more: object) -> dict[str, object]:
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return {
        "wsgi.input": io.BytesIO(body),
        "CONTENT_TYPE": kind,
        "CONTENT_LENGTH": str(len(body)),
        **more,
    }


def test_only_the_server_may_read_what_was_sent(shelf: ImportQueue) -> None:
    slot = enqueue(shelf)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (shelf.root, slot.folder)] == [
        0o700,
        0o700,
    ]
    slot.close()
    assert [path.name for path in shelf.root.iterdir() if path.is_dir()] == []


def test_a_folder_of_somebody_else_is_not_used(shelf: ImportQueue, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    shelf.root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UploadRejected, match="not a folder of this server's own"):
        enqueue(shelf)


def test_an_import_whose_server_died_has_failed_and_its_files_go(shelf: ImportQueue) -> None:
    slot = enqueue(shelf)
    slot.save(state="running")
    running = shelf.load(slot.upload.id)
    os.close(slot._alive)  # what the system does when a process ends
    dead = shelf.load(slot.upload.id)
    assert (
        running
        and dead
        and (running.state, dead.state, dead.message) == ("running", "failed", STOPPED)
    )
    shelf.clear()
    assert not slot.folder.exists()
    entry = shelf.load(slot.upload.id)
    assert entry and entry.state == "failed"


def test_what_ended_is_known_for_a_day(shelf: ImportQueue) -> None:
    slot = enqueue(shelf)
    slot.save(state="done")
    slot.close()
    shelf.clear()
    assert [other_upload.id for other_upload in shelf.list_newest(9)] == [slot.upload.id]
    shelf.write(replace(slot.upload, updated_us=slot.upload.updated_us - KEEP_US - 1))
    shelf.clear()
    assert shelf.list_newest(9) == []


def test_too_many_at_a_time_are_refused_and_room_comes_back(shelf: ImportQueue) -> None:
    first = enqueue(shelf, max_receiving=1)
    with pytest.raises(UploadRejected, match="the most at a time") as refused:
        enqueue(shelf, max_receiving=1)
    assert (refused.value.status, refused.value.retry_after_s) == (429, 10)
    first.discard()
    enqueue(shelf, max_receiving=1).discard()


@pytest.mark.parametrize("import_id", ["../team", "a/b", ".", "", "x" * 65, "é", "admit"])
def test_an_id_is_never_a_path(shelf: ImportQueue, import_id: str) -> None:
    enqueue(shelf).discard()
    assert shelf.load(import_id) is None


@given(st.text(max_size=400))
def test_any_name_becomes_printable_text_below_its_folder(name: str) -> None:
    cleaned = clean_path(name)
    assert cleaned.isprintable() and 0 < len(cleaned) <= 200
    assert not {"", ".", ".."} & set(cleaned.split("/")) or len(name) > 200


@given(st.binary(max_size=300), st.integers(0, 400))
def test_a_form_that_is_cut_or_broken_is_refused(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, cut: int
) -> None:
    body = write_form([("a.log", b"x" * 100)], name="n")[:cut] + junk
    folder = tmp_path_factory.mktemp("form") / "files"
    try:
        received = receive(form_environ(body), folder, 1000, None)
    except UploadRejected as refused:
        assert refused.status in (400, 413)
    else:
        assert received.names and received.size_bytes >= 0


@pytest.mark.parametrize("part", ["form-data", 'form-data; filename="a.log"', 'form-data; name=""'])
def test_a_part_without_a_name_is_refused(tmp_path: Path, part: str) -> None:
    body = f"--{BOUNDARY}\r\nContent-Disposition: {part}\r\n\r\nx\r\n--{BOUNDARY}--\r\n".encode()
    with pytest.raises(UploadRejected, match="has no name"):
        receive(form_environ(body), tmp_path / "files", 1000, None)


def test_a_body_that_ends_early_is_refused(tmp_path: Path) -> None:
    raw = {
        "wsgi.input": io.BytesIO(b"x" * 10),
        "CONTENT_TYPE": "application/octet-stream",
        "CONTENT_LENGTH": "20",
    }
    with pytest.raises(UploadRejected, match="cut short"):
        receive(raw | {"wsgi.input_terminated": True}, tmp_path / "files", 1000, "a.log")


def test_a_thousand_files_hold_no_thousand_descriptors(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    received = receive(
        form_environ(write_form([(f"f/{n}.log", b"x") for n in range(1000)])),
        tmp_path / "files",
        1 << 20,
        None,
    )
    assert (len(received.names), received.label, received.target) == (1000, "f", "files")
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    with pytest.raises(UploadRejected, match="1000 files"):
        receive(form_environ(write_form([("a", b"x")] * 1100)), tmp_path / "more", 1 << 20, None)


def test_wishes_become_options_that_cannot_be_others() -> None:
    options = parse_options(
        {"name": "--db=/x", "suite": "s", "tags": "a=b,\nc=-d", "payloads": "no", "again": "yes"}
    )
    assert options.options() == [
        "--name=--db=/x",
        "--suite=s",
        "--tag=a=b",
        "--tag=c=-d",
        "--no-payloads",
        "--again",
    ]
    for bad in (
        {"name": "a\nb"},
        {"suite": "x" * 201},
        {"tags": "=b"},
        {"tags": ",".join(["a=b"] * 21)},
    ):
        with pytest.raises(UploadRejected):
            parse_options(bad)


def test_a_child_knows_nothing_of_the_servers_environment(
    shelf: ImportQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    environ = child.build_environ(shelf.root)
    assert "DATABASE_PASSWORD" not in environ and "HOME" not in environ


def run_child(
    shelf: ImportQueue,
    command: list[str] | None = None,
    options: ImportOptions | None = None,
    file: Path = LOG,
) -> QueueEntry:
    slot = enqueue(shelf)
    (slot.folder / "files").mkdir()
    (slot.folder / "files" / "0001").write_bytes(file.read_bytes())
    (slot.folder / "names.json").write_text(json.dumps({"0001": file.name}))
    known = Settings(db=str(shelf.root.with_name("team.db")))
    child.run(
        slot, command or child.build_command(known, options or ImportOptions(), "files/0001"), known
    )
    slot.close()
    return slot


def test_a_child_has_what_a_real_log_needs(
    shelf: ImportQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "MEMORY_BYTES", 256 << 20)
    done = run_child(shelf).upload
    assert (done.state, done.log_count, done.total_bytes) == ("done", 1, None)
    assert done.record_count > 100


@pytest.mark.parametrize(
    ("name", "count"), [("coverage.csv", 2), ("hud_export.csv", 4), ("add_loop_eager.json", 1)]
)
def test_a_child_takes_files_of_results(shelf: ImportQueue, name: str, count: int) -> None:
    done = run_child(shelf, file=DATA / "upstream" / "made" / name).upload
    assert (done.state, done.record_count, done.log_count, done.rejects) == ("done", count, 1, {})
    assert done.run_id and done.read_bytes == (DATA / "upstream" / "made" / name).stat().st_size
    assert ("2 runs in it; the others are" in done.message) == (name == "hud_export.csv")


def test_a_table_of_something_else_is_refused_in_words(shelf: ImportQueue, tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("fruit,price\napple,1\n")
    ended = run_child(shelf, file=tmp_path / "prices.csv").upload
    assert ended.state == "failed" and "prices.csv: fruit,price" in ended.message


def test_a_wish_that_comes_too_late_is_said(shelf: ImportQueue) -> None:
    assert run_child(shelf).upload.message == ""
    late = run_child(shelf, options=ImportOptions(redact_source=True)).upload
    assert late.state == "done"
    assert late.message.startswith(
        "Nothing new: it had been imported before. Note: the log was imported with its source"
    )


def test_a_child_changes_no_run_that_others_sent(shelf: ImportQueue, tmp_path: Path) -> None:
    run_id, bundle = run_child(shelf).upload.run_id, tmp_path / "run.db"
    with closing(open_reader(tmp_path / "team.db")) as reader:
        write_bundle(reader, [str(run_id)], str(bundle))
    assert run_child(shelf, file=bundle).upload.state == "done"
    box = ImportOptions(sender=RunSender("token:--box", may_add_to_all=False))
    refused = run_child(shelf, options=box, file=bundle).upload
    assert (refused.state, "--box did not send it" in refused.message) == ("failed", True)
    assert run_child(shelf, options=box).upload.state == "failed"  # the log itself
    assert "one of the scope write" in refused.message


def test_a_child_without_memory_says_so(
    shelf: ImportQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "MEMORY_BYTES", 64 << 20)
    ended = run_child(shelf).upload
    assert (ended.state, "more than 64 MiB of memory" in ended.message) == ("failed", True)


def test_a_child_that_takes_too_long_is_ended_with_all_that_it_started(
    shelf: ImportQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "TIMEOUT_S", 1)
    sleep = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; "
        "time.sleep(600)'])"
    )  # longer than a test may take: it holds our end of the child's output
    ended = run_child(shelf, [sys.executable, "-c", sleep]).upload
    assert (ended.state, "ended after 1 seconds" in ended.message) == ("failed", True)


def test_the_limits_outlive_exec() -> None:
    import subprocess

    code = (
        "import os, resource as r; print(r.getrlimit(r.RLIMIT_AS)[0], "
        "r.getrlimit(r.RLIMIT_CPU)[0], os.nice(0))"
    )
    bounds = [str(1 << 30), "7", str(1 << 20)]
    command = [sys.executable, "-I", "-S", str(child.SANDBOX), *bounds, sys.executable, "-c", code]
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()
    assert output[:2] == [str(1 << 30), "7"]
    assert int(output[2]) >= 10


@pytest.mark.parametrize("limit", ["records", "rows", "entries"])
def test_an_import_above_a_limit_is_ended_with_what_was_reached(
    shelf: ImportQueue, tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, f"MAX_{limit.upper()}", 10)
    file = LOG
    if limit == "entries":
        file = tmp_path / "many.tar.gz"
        with tarfile.open(file, "w:gz") as archive:
            for number in range(12):
                archive.addfile(tarfile.TarInfo(f"empty/{number}"))
            archive.add(LOG, "a.log.xz")
    ended = run_child(shelf, file=file).upload
    assert ended.state == "failed"
    assert f"the limit is 10 {limit}" in ended.message and child.ON_THE_SERVER in ended.message


def test_a_small_log_of_very_many_rows_is_ended_within_a_batch_of_the_limit(
    shelf: ImportQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 KB, whose 200 stacks share no frame: benchmarks.imports.many_rows has it at full size."""
    file = tmp_path / "stacks.log.gz"
    write_log(file, "stacks", max_bytes=1 << 20, max_records=200)
    monkeypatch.setattr(child, "MAX_ROWS", 20_000)
    ended = run_child(shelf, file=file).upload
    assert ended.state == "failed" and "the limit is 20,000 rows" in ended.message
    assert 20_000 < count_rows(tmp_path / "team.db") < 20_000 + 2 * BATCH_PARTS


def test_who_sends_a_log_is_kept_before_its_turn_comes(
    shelf: ImportQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = str(shelf.root.with_name("team.db"))
    slot, seen = enqueue(shelf), []

    def read_actions() -> list[tuple[str, str, str]]:
        with closing(open_reader(database)) as reader:
            return [(row.action, row.subject, row.address or "") for row in list_audit(reader).rows]

    def end(slot: QueueEntry, *_: object) -> bool:
        until_s = time.monotonic() + 10
        while not seen and time.monotonic() < until_s:
            seen.extend(read_actions())
        slot.save(state="done", run_id="R1")
        return False

    monkeypatch.setattr(child, "run", end)
    received = ReceivedUpload(slot.folder / "files", {"0001": "a.log"})
    upload._run_import(
        slot,
        received,
        ImportOptions(),
        Settings(db=database),
        ActionOrigin("page", address="10.0.0.9"),
    )
    assert seen == [("import.upload", slot.upload.id, "10.0.0.9")]
    assert read_actions()[0] == ("import.done", "R1", "10.0.0.9")


def test_an_import_that_makes_way_is_read_to_its_end_later(shelf: ImportQueue) -> None:
    """The first part stops behind its first batch; both together are what one import would have
    been.
    """
    whole = run_child(shelf).upload
    os.remove(shelf.root.with_name("team.db"))
    migrate(shelf.root.with_name("team.db"))
    slot = enqueue(shelf)
    (slot.folder / "files").mkdir()
    (slot.folder / "files" / "0001").write_bytes(LOG.read_bytes())
    (slot.folder / "names.json").write_text(json.dumps({"0001": LOG.name}))
    known = Settings(db=str(shelf.root.with_name("team.db")))
    command = child.build_command(known, ImportOptions(), "files/0001")
    pausing = "import compileboard.collectors.logs.import_progress as b\n"
    pausing += "b.Budget.listen = lambda self: self._pause(0, None)\n"
    code = pausing + (
        "import sys; from compileboard.collectors.cli.main import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    at = command.index("compileboard.collectors")
    assert child.run(slot, [*command[: at - 1], "-c", code, *command[at + 1 :]], known)
    assert not child.run(slot, command, known)
    slot.close()
    assert (slot.upload.state, slot.upload.record_count) == ("done", whole.record_count)


def test_an_import_of_minutes_lets_one_of_seconds_pass(shelf: ImportQueue) -> None:
    shelf.enqueue("a", max_receiving=9, max_waiting=9).discard()  # makes the folder
    with shelf.lane() as long, ExitStack() as others:
        assert long.try_second()  # it goes on beside the next
        short = others.enter_context(shelf.lane())
        assert not short.try_second()  # which is as long as that: it has to stop
        began = threading.Thread(target=lambda: others.enter_context(shelf.lane()), daemon=True)
        began.start()
        began.join(0.1)
        assert began.is_alive()
        waiting = threading.Thread(target=short.enter_second, daemon=True)
        waiting.start()
        began.join(5)
        assert not began.is_alive() and waiting.is_alive()
        long.leave()
        waiting.join(5)
        assert not waiting.is_alive()
