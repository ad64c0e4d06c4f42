"""Where logs come from: files, folders, real archives of recorded logs, standard input."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import socket
import tarfile
import zipfile
from pathlib import Path
from threading import Thread

import pytest
import zstandard

from compileboard.collectors.logs.discovery import LogSource, find_sources
from compileboard.collectors.logs.streams import NoSuchLog, SourceDamaged
from compileboard.collectors.repro.loading import load_path
from compileboard.collectors.repro.repro import save_answer
from compileboard.collectors.store.repros import ReproResult
from tests.unit.logs.packed import (
    ARCHIVES,
    LOG,
    OTHER,
    PACK,
    RANKS,
    make_tar,
    make_zip,
    read,
    write,
)

DYNAMIC_REPRO = Path(__file__).parents[2] / "data" / "repros" / "dynamic_pad.txt"


def test_a_log_is_read_as_it_is_and_can_be_followed(tmp_path: Path) -> None:
    path = write(tmp_path, "rank_0.log", LOG)
    [source] = find_sources(str(path)).sources
    assert (source.label, source.file_name, source.path) == ("rank_0.log", "rank_0.log", path)
    assert (source.size_bytes, source.modified_us) == (len(LOG), 1_795_000_000_000_000)
    with source.open() as file:
        assert file.seekable()
        assert file.read() == LOG


@pytest.mark.parametrize("kind", PACK)
def test_a_compressed_log_is_known_by_its_first_bytes_not_its_name(
    tmp_path: Path, kind: str
) -> None:
    path = write(tmp_path, "rank_0.log", PACK[kind](LOG))
    [source] = find_sources(str(path)).sources
    assert (source.label, source.size_bytes, source.path) == ("rank_0.log", None, None)
    assert read(source) == LOG
    with source.open() as file:
        assert list(file) == LOG.splitlines(keepends=True)


@pytest.mark.parametrize("kind", PACK)
def test_a_compressed_log_may_have_several_parts_and_zeros_behind(
    tmp_path: Path, kind: str
) -> None:
    data = PACK[kind](LOG) + PACK[kind](b"") + PACK[kind](OTHER)
    data += b"" if kind == "zst" else bytes(1024)
    [source] = find_sources(str(write(tmp_path, "log", data))).sources
    assert read(source) == LOG + OTHER


@pytest.mark.parametrize("kind", ["gz", "zst", "bz2"])
def test_other_bytes_behind_a_compressed_log_are_ignored(tmp_path: Path, kind: str) -> None:
    [source] = find_sources(
        str(write(tmp_path, "log", PACK[kind](LOG) + b"uploaded by somebody"))
    ).sources
    assert read(source) == LOG


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_gives_its_logs_in_any_order_and_side_by_side(tmp_path: Path, kind: str) -> None:
    group = find_sources(str(write(tmp_path, "trace.bin", ARCHIVES[kind](RANKS))))
    assert [source.label for source in group.sources] == [
        f"trace.bin: trace/rank_{n}.log" for n in (0, 1)
    ]
    assert [source.size_bytes for source in group.sources] == [len(LOG), len(OTHER)]
    assert group.ignored == ["trace.bin: trace/result.json"]
    first, second = group.sources
    assert [read(source) for source in (first, second, first, second, second, first)] == [
        LOG,
        OTHER,
        LOG,
        OTHER,
        OTHER,
        LOG,
    ]
    with second.open() as after, first.open() as before:
        assert (after.read(1000), before.read(1000)) == (OTHER[:1000], LOG[:1000])
        assert (after.read(), before.read()) == (OTHER[1000:], LOG[1000:])


def test_members_of_a_compressed_tar_in_order_unpack_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {f"rank_{n}.log": LOG + b"%d" % n for n in range(20)}
    group = find_sources(str(write(tmp_path, "t.tgz", gzip.compress(make_tar(members)))))
    opened: list[object] = []
    real = open
    monkeypatch.setattr(
        "builtins.open", lambda *args, **more: opened.append(args) or real(*args, **more)
    )
    assert [read(source) for source in group.sources] == list(members.values())
    assert len(opened) == 1


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.parametrize("packing", PACK)
def test_a_compressed_log_in_an_archive_is_unpacked_too(
    tmp_path: Path, kind: str, packing: str
) -> None:
    data = ARCHIVES[kind](
        {"rank_0": PACK[packing](LOG), f"rank_1.log.{packing}": PACK[packing](b"")}
    )
    first, second = find_sources(str(write(tmp_path, "a", data))).sources
    assert (read(first), first.size_bytes, second.file_name) == (LOG, None, f"rank_1.log.{packing}")
    assert read(second) == b""


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2])
def test_a_zip_may_be_packed_otherwise(tmp_path: Path, method: int) -> None:
    [source] = find_sources(
        str(write(tmp_path, "a.zip", make_zip({"rank_0.log": LOG}, method)))
    ).sources
    assert read(source) == LOG
    assert source.modified_us == 1_795_231_668_000_000  # 2026-11-21 03:27:48


def test_a_folder_gives_what_is_or_is_named_a_log(tmp_path: Path) -> None:
    write(tmp_path, "b/no_suffix", LOG)
    write(tmp_path, "b/ranked", b"[rank3]:" + LOG)
    write(tmp_path, "a.log", b"")
    write(tmp_path, "c/old.tar", make_tar(RANKS))
    write(tmp_path, "c/packed.log.zst", zstandard.compress(LOG))
    for name in ("readme.txt", ".hidden.log", ".git/x.log", "data.gz", "other.zip"):
        write(
            tmp_path,
            name,
            {"data.gz": gzip.compress(b"x"), "other.zip": make_zip({"x": b"x"})}.get(name, b"x"),
        )
    (tmp_path / "linked").symlink_to(tmp_path / "b", target_is_directory=True)
    group = find_sources(str(tmp_path))
    assert [source.label for source in group.sources] == [
        *("a.log", "b/no_suffix", "b/ranked"),
        *("c/old.tar: trace/rank_0.log", "c/old.tar: trace/rank_1.log", "c/packed.log.zst"),
    ]
    assert group.label == tmp_path.name
    assert group.ignored == [
        "data.gz",
        "other.zip: x",
        "readme.txt",
        "c/old.tar: trace/result.json",
    ]


def test_a_file_that_is_given_is_always_a_source(tmp_path: Path) -> None:
    [source] = find_sources(str(write(tmp_path, "notes.txt", b"no log at all"))).sources
    assert read(source) == b"no log at all"


def test_latest_takes_the_newest_log_alone(tmp_path: Path) -> None:
    write(tmp_path, "dedicated_log_torch_trace_old.log", LOG, age_s=60)
    write(tmp_path, "dedicated_log_torch_trace_new.log", OTHER)
    [source] = find_sources(str(tmp_path), latest=True).sources
    assert source.file_name == "dedicated_log_torch_trace_new.log"


def test_latest_takes_the_other_ranks_of_the_same_job(tmp_path: Path) -> None:
    ages_s = {
        "0_new": 3,
        "1_new": 0,
        "1_old": 40,
        "2_new": 599,
        "3_older_job": 601,
        "4_old": 90_000,
    }
    for name, age_s in ages_s.items():
        write(tmp_path, f"dedicated_log_torch_trace_rank_{name}.log", LOG, age_s)
    write(tmp_path, "single.log", LOG, age_s=1)
    names = [
        source.file_name.removeprefix("dedicated_log_torch_trace_rank_")
        for source in _latest(tmp_path)
    ]
    assert names == ["0_new.log", "1_new.log", "2_new.log"]


def _latest(folder: Path) -> list[LogSource]:
    return find_sources(str(folder), latest=True).sources


@pytest.mark.parametrize("kind", ["plain", *PACK, *ARCHIVES])
def test_standard_input_takes_every_kind(tmp_path: Path, kind: str) -> None:
    data = LOG if kind == "plain" else PACK[kind](LOG) if kind in PACK else ARCHIVES[kind](RANKS)
    reading, writing = os.pipe()
    with open(reading, "rb") as stdin, open(writing, "wb") as sink:
        writer = Thread(target=lambda: (sink.write(data), sink.close()))
        writer.start()
        group = find_sources("-", stdin=stdin)
        assert [read(source) for source in group.sources] == (
            [LOG, OTHER] if kind in ARCHIVES else [LOG]
        )
        writer.join()
    assert group.label == "standard input"


def test_standard_input_that_is_a_plain_log_is_read_once() -> None:
    [source] = find_sources("-", stdin=io.BytesIO(LOG)).sources
    assert read(source) == LOG
    with pytest.raises(NoSuchLog, match="was read already"):
        source.open()


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd.log",
        "/etc/x.log",
        "a\\..\\b.log",
        "new\nline\x1b[31m.log",
        "x" * 90_000 + ".log",
    ],
)
@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip"])
def test_an_absurd_name_is_only_a_label(tmp_path: Path, kind: str, name: str) -> None:
    if kind == "zip" and len(name) > 65_535:
        pytest.skip("a zip cannot hold it")
    folder = tmp_path / "in"
    [source] = find_sources(str(write(folder, "a", ARCHIVES[kind]({name: LOG})))).sources
    assert read(source) == LOG
    assert source.label.isprintable() and source.file_name.isprintable()
    assert len(source.label) < 400 and "/" not in source.file_name and "\\" not in source.file_name
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "a"]


def test_links_devices_and_hidden_files_of_a_tar_are_passed_over(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind in (
            ("a.log", tarfile.SYMTYPE),
            ("b.log", tarfile.LNKTYPE),
            ("c.log", tarfile.CHRTYPE),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
        for name in ("./trace/rank_0.log", "./trace/._rank_0.log"):
            entry = tarfile.TarInfo(name)
            entry.size = len(LOG)
            archive.addfile(entry, io.BytesIO(LOG))
    group = find_sources(str(write(tmp_path, "t", out.getvalue())))
    assert [source.label for source in group.sources] == ["t: ./trace/rank_0.log"]
    assert [sentence[3:] for sentence in group.ignored] == [
        "a.log",
        "b.log",
        "c.log",
        "./trace/._rank_0.log",
    ]


def test_what_is_missing_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        NoSuchLog, match="absent: there is no such file or folder; give a torch trace log"
    ):
        find_sources(str(tmp_path / "absent"))
    write(tmp_path, "a.txt", b"x")
    with pytest.raises(
        NoSuchLog,
        match=(
            "none of the 1 files in this folder is a torch trace log, a file of benchmark "
            "results or"
        ),
    ):
        find_sources(str(tmp_path))
    with pytest.raises(NoSuchLog, match="only a folder has a newest log"):
        find_sources(str(tmp_path / "a.txt"), latest=True)
    with pytest.raises(NoSuchLog, match=r"z\.zip: none of the 1 files in this archive"):
        find_sources(str(write(tmp_path, "z.zip", make_zip({"x": b"x"}))))
    with pytest.raises(NoSuchLog, match="cannot be read"):
        find_sources("null\0byte")


def test_a_socket_and_a_device_are_no_logs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s.log"))
        for path in (str(tmp_path / "s.log"), "/dev/null"):
            with pytest.raises(NoSuchLog, match="neither a file nor a folder"):
                find_sources(path)
        with pytest.raises(NoSuchLog, match="none of the 0 files"):
            find_sources(str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_said(tmp_path: Path) -> None:
    write(tmp_path, "good.log", LOG)
    write(tmp_path, "locked.log", LOG).chmod(0)
    with pytest.raises(NoSuchLog, match=r"locked.log: it cannot be read \(Permission denied\)"):
        find_sources(str(tmp_path / "locked.log"))
    good, locked = find_sources(str(tmp_path)).sources
    assert read(good) == LOG
    with pytest.raises(SourceDamaged, match="Permission denied"):
        read(locked)


def test_answers_of_repro_beside_a_script_are_not_listed_as_skipped(tmp_path: Path) -> None:
    shutil.copy(DYNAMIC_REPRO, tmp_path / "repro.py")
    write(tmp_path, "notes.json", b"{}")
    result = ReproResult("minify", "found", 1.0, 1, 2, program="import torch")
    answer = save_answer(load_path(tmp_path / "repro.py"), result)
    assert Path(answer).parent == tmp_path / "repro.py.repro"
    group = find_sources(str(tmp_path))
    assert ([source.label for source in group.repros], group.ignored) == (
        ["repro.py"],
        ["notes.json"],
    )
