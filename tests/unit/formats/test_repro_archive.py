"""A repro's archive: written, read back, and hostile ones refused in a sentence."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.repros import ReproInput, ReproManifest
from compileboard.collectors.formats.repro_archive import (
    BadArchive,
    is_archive,
    read_archive,
    write_archive,
)

MANIFEST = ReproManifest(
    kind="compile",
    level="aot",
    inputs=(ReproInput("x", dtype="float32", shape=("s0", 4), stride=(4, 1)),),
)


def _pack(fill: Callable[[tarfile.TarFile], None]) -> io.BytesIO:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as archive:
        fill(archive)
    return io.BytesIO(body.getvalue())


def _add(
    archive: tarfile.TarFile, name: str, body: bytes = b"", kind: bytes = tarfile.REGTYPE
) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname = len(body), kind, "/etc/passwd"
    archive.addfile(entry, io.BytesIO(body))


@given(st.text(), st.none() | st.text(), st.lists(st.binary(max_size=50), max_size=3))
def test_archive_is_read_back_as_it_was_written(
    program: str, dynamo: str | None, storages: list[bytes]
) -> None:
    program = program.encode("utf-8", "replace").decode()
    dynamo = None if dynamo is None else dynamo.encode("utf-8", "replace").decode()
    values = {hashlib.sha256(body).hexdigest(): body for body in storages}
    packed = write_archive(MANIFEST, program, dynamo, values)
    assert is_archive(packed) and packed == write_archive(MANIFEST, program, dynamo, values)
    assert tuple(read_archive(io.BytesIO(packed))) == (MANIFEST, program, dynamo, values)


@pytest.mark.parametrize(
    "name", ["../program.py", "/program.py", "./program.py", "values/x", "values/" + "g" * 64, "a"]
)
def test_archive_with_another_name_is_refused(name: str) -> None:
    with pytest.raises(BadArchive, match="expected manifest"):
        read_archive(_pack(lambda archive: _add(archive, name)))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_archive_with_a_link_or_a_device_is_refused(kind: bytes) -> None:
    with pytest.raises(BadArchive, match="not a regular file"):
        read_archive(_pack(lambda archive: _add(archive, "program.py", kind=kind)))


def test_archive_that_unpacks_to_too_much_is_refused() -> None:
    bomb = io.BytesIO(gzip.compress(b"\0" * (8 << 20)))
    with pytest.raises(BadArchive, match="the limit"):
        read_archive(bomb, max_bytes=1 << 20)
    large = _pack(lambda archive: _add(archive, "program.py", b" " * (2 << 20)))
    with pytest.raises(BadArchive, match="the limit"):
        read_archive(large, max_bytes=1 << 20)


def test_archive_with_damaged_values_or_cut_short_is_refused() -> None:
    with pytest.raises(BadArchive, match="damaged"):
        read_archive(
            _pack(
                lambda tar: (
                    [_add(tar, name, b"{}") for name in _names("values/" + "0" * 64)] and None
                )
            )
        )
    packed = write_archive(MANIFEST, "x = 1\n" * 1000, None, {})
    for cut in (0, 5, len(packed) // 2, len(packed) - 9):
        with pytest.raises(BadArchive):
            read_archive(io.BytesIO(packed[:cut]))


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"\xff", b'{"kind": "compile", "level": "aot", "format": 99}', b"1"]
)
def test_archive_with_a_manifest_that_is_none_is_refused(body: bytes) -> None:
    def fill(archive: tarfile.TarFile) -> None:
        _add(archive, "manifest.json", body)
        _add(archive, "program.py", b"")

    with pytest.raises(BadArchive, match="cannot be read"):
        read_archive(_pack(fill))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_archive_or_refused(body: bytes) -> None:
    for packed in (body, gzip.compress(body)):
        with pytest.raises(BadArchive):
            read_archive(io.BytesIO(packed))


def _names(last: str) -> list[str]:
    return ["manifest.json", "program.py", last]
