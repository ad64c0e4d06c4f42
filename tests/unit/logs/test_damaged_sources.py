"""Damaged and hostile files: what can be read is read, the rest is said."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.collectors.logs.archives import unpack_zstd
from compileboard.collectors.logs.discovery import find_sources
from compileboard.collectors.logs.streams import (
    ChunkStream,
    LimitExceeded,
    Limits,
    NoSuchLog,
    SourceDamaged,
)
from tests.unit.logs.packed import (
    ARCHIVES,
    LOG,
    OTHER,
    PACK,
    RANKS,
    make_tar,
    make_zip,
    read,
    read_all_pieces,
    read_until_damage,
    write,
)


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("size", [100, 1 << 20])
def test_a_truncated_log_gives_what_is_there_then_says_so(
    tmp_path: Path, kind: str, size: int
) -> None:
    noise = os.urandom(300_000).hex().encode()  # several blocks, however it is packed
    packed = PACK[kind](LOG + noise)
    [source] = find_sources(str(write(tmp_path, f"a.log.{kind}", packed[:-20_000]))).sources
    came, error = read_until_damage(source, size)
    assert isinstance(error, SourceDamaged)
    assert f"a.log.{kind}: the" in str(error) and "ends too early" in str(error)
    assert (LOG + noise).startswith(came)
    assert f"{len(came):,} unpacked bytes" in str(error)
    assert kind in ("bz2",) or len(came) >= len(LOG)


def test_lines_of_a_truncated_log_come_before_the_damage(tmp_path: Path) -> None:
    [source] = find_sources(str(write(tmp_path, "a.gz", gzip.compress(LOG)[:-100]))).sources
    lines = []
    with source.open() as file, pytest.raises(SourceDamaged):
        for line in file:
            lines.append(line)
    assert LOG.startswith(b"".join(lines))
    assert len(lines) > 10


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.zst"])
def test_a_truncated_tar_gives_whole_logs_and_part_of_the_cut_one(
    tmp_path: Path, kind: str
) -> None:
    cut = make_tar(RANKS)[: 512 + len(LOG) + 512 + 512 + 30_000]
    data = cut if kind == "tar" else PACK[kind[4:]](cut)
    first, second = find_sources(str(write(tmp_path, "a", data))).sources
    came, error = read_until_damage(second)
    assert (read(first), isinstance(error, SourceDamaged)) == (LOG, True)
    assert OTHER.startswith(came)
    assert len(came) > 20_000


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_a_tar_damaged_between_logs_says_so_behind_the_good_ones(tmp_path: Path, kind: str) -> None:
    whole = bytearray(make_tar({"a.log": b"a" * 512, "b.log": b"b" * 512}))
    whole[1024:1500] = b"\xff" * 476
    data = bytes(whole) if kind == "tar" else gzip.compress(bytes(whole))
    good, rest = find_sources(str(write(tmp_path, "t", data))).sources
    assert read(good) == b"a" * 512
    with pytest.raises(SourceDamaged, match="t: the tar data does not decode"):
        read(rest)


def test_a_damaged_member_of_a_zip_leaves_the_others_alone(tmp_path: Path) -> None:
    data = bytearray(make_zip(RANKS, zipfile.ZIP_STORED))
    position = data.index(LOG) + len(LOG) - 10
    data[position] ^= 1
    first, second = find_sources(str(write(tmp_path, "a.zip", bytes(data)))).sources
    came, error = read_until_damage(first)
    assert (len(came), read(second)) == (len(LOG), OTHER)
    assert "a.zip: trace/rank_0.log: the zip data has another checksum" in str(error)


def test_a_zip_that_was_cut_off_says_so(tmp_path: Path) -> None:
    [source] = find_sources(str(write(tmp_path, "a.zip", make_zip(RANKS)[:-40]))).sources
    with pytest.raises(
        SourceDamaged, match=r"a\.zip: the zip cannot be read \(.*\); copy the file again"
    ):
        read(source)


def test_an_encrypted_zip_member_says_so(tmp_path: Path) -> None:
    data = bytearray(make_zip({"rank_0.log": LOG}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    [source] = find_sources(str(write(tmp_path, "a.zip", bytes(data)))).sources
    with pytest.raises(SourceDamaged, match=r"rank_0\.log: it is encrypted"):
        read(source)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [*PACK, "zip", "tar.gz", "tar.zst"])
def test_a_bomb_stops_at_the_ratio(tmp_path: Path, kind: str) -> None:
    zeros = bytes(64 << 20)
    data = PACK[kind](zeros) if kind in PACK else ARCHIVES[kind]({"a.log": zeros})
    path = write(tmp_path, "bomb", data)
    with pytest.raises(LimitExceeded, match="more than 100 times as much"):
        for source in find_sources(str(path), limits=Limits(ratio=100)).sources:
            with source.open() as file:
                came = 0
                while data := file.read(1 << 20):
                    came += len(data)
                    assert came <= 17 << 20
    assert sum(len(read(source)) for source in find_sources(str(path)).sources) == len(zeros)


def test_zstd_is_unpacked_in_bounded_pieces_also_behind_a_first_frame() -> None:
    size = 256 << 20
    data = zstandard.compress(b"V") + zstandard.compress(bytes(size))
    pieces = [len(entry) for entry in unpack_zstd(ChunkStream(iter([data])), "bomb.zst")]
    assert (sum(pieces), max(pieces) <= 32 << 20) == (size + 1, True)


@pytest.mark.parametrize("kind", ["folder", *ARCHIVES])
def test_the_size_limit_is_for_all_logs_together(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "in"
    for name, data in RANKS.items():
        write(path, f"{name}.gz", gzip.compress(data))
    if kind != "folder":
        path = write(tmp_path, "archive", ARCHIVES[kind](RANKS))
    total = sum(map(len, RANKS.values()))
    enough = find_sources(str(path), limits=Limits(total_bytes=total + 20_000)).sources
    assert [read(source) for source in enough * 2] == [
        LOG,
        OTHER,
    ] * 2  # a log that is read twice counts once
    with pytest.raises(
        LimitExceeded, match=f"the limit is {total - 9000:,} bytes for all logs together"
    ):
        for source in find_sources(str(path), limits=Limits(total_bytes=total - 9000)).sources:
            read_all_pieces(source)


def test_standard_input_is_not_spooled_beyond_the_size_limit() -> None:
    with pytest.raises(LimitExceeded, match=r"standard input: .* the limit is 1,000 bytes"):
        find_sources(
            "-", stdin=io.BytesIO(gzip.compress(os.urandom(5000))), limits=Limits(total_bytes=1000)
        )


def _tar_header(size: bytes, kind: bytes = b"0") -> bytes:
    header = bytearray(tarfile.TarInfo("a.log").tobuf(tarfile.GNU_FORMAT))
    header[124:136], header[156:157] = size, kind
    header[148:156] = b"%06o\0 " % (256 + sum(header[:148]) + sum(header[156:512]))
    return bytes(header)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    "header",
    [
        _tar_header(b"\x80" + b"\0" * 3 + b"\x7f" + b"\xff" * 7),  # 8 EiB
        _tar_header(b"\xff" * 10 + b"\xfc\x00"),  # -1024: tarfile reads such a tar for ever
        _tar_header(b"77777777777\0", tarfile.GNUTYPE_LONGNAME),
        _tar_header(b"00000001000\0", tarfile.GNUTYPE_SPARSE),
        _tar_header(b"00000001000\0", tarfile.GNUTYPE_LONGNAME) * 5000,
    ],
)
def test_a_hostile_tar_header_is_damage(
    tmp_path: Path, header: bytes, pack: Callable[[bytes], bytes]
) -> None:
    sources = find_sources(
        str(write(tmp_path, "t", pack(make_tar({"good.log": LOG})[: -20 * 512] + header)))
    ).sources
    assert sources[0].file_name in ("good.log", "t")
    with pytest.raises(SourceDamaged, match=r"t: .*tar"):
        for source in sources:
            read_all_pieces(source)


_SEEDS = [
    LOG[:2000],
    *(pack(LOG[:2000]) for pack in PACK.values()),
    *(archive({"a.log": LOG[:900]}) for archive in ARCHIVES.values()),
]


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(_SEEDS)))
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 12))] = draw(st.binary(max_size=12))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@settings(max_examples=300)
@given(data=st.binary(max_size=2000) | _damaged(), standard_input=st.booleans())
def test_any_bytes_give_logs_or_one_of_three_errors(
    tmp_path: Path, data: bytes, standard_input: bool
) -> None:
    path = write(tmp_path, "a", data)
    try:
        stdin = io.BytesIO(data) if standard_input else None
        sources = find_sources(
            "-" if stdin else str(path), limits=Limits(1 << 20, 1000), stdin=stdin
        ).sources
    except (NoSuchLog, LimitExceeded):
        return
    for source in sources:
        try:
            read(source), read_all_pieces(source) if not standard_input else None
        except (NoSuchLog, SourceDamaged, LimitExceeded) as error:
            assert str(error).isprintable()
