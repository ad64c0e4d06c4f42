"""Read members of tar and zip archives as streams. Nothing is written at the paths in an
archive.
"""

from __future__ import annotations

import bz2
import calendar
import io
import lzma
import math
import re
import struct
import tarfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Protocol

from compileboard.collectors.logs.streams import (
    CHUNK_BYTES,
    ChunkStream,
    LimitExceeded,
    SourceDamaged,
    StreamLimits,
    clean_name,
    read_chunks,
)

HEAD_BYTES = 512  # one tar header, more than any other magic number needs
_IN_BYTES = 64 * 1024
_MAX_LAYERS = 3  # log.gz.zst happens by accident; a file that unpacks to itself never ends
_MEMORY_BYTES = 128 << 20  # the maximum for xz -9 and zstd --ultra -22 --long=27
# The only bound on an input's output: 16 MiB, at a frame's start 32.
_ZSTD_IN_BYTES = 512
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPED = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)", re.DOTALL)

Unpack = Callable[[ChunkStream, str], Iterator[bytes]]


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Unzstd:
    """zstandard's decoder with the interface of the others. 4 bytes of input may give 128 KiB."""

    needs_input = True

    def __init__(self) -> None:
        import zstandard

        self._errors = (zstandard.ZstdError, MemoryError)
        self._decoder = zstandard.ZstdDecompressor(max_window_size=_MEMORY_BYTES).decompressobj()

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        try:
            return self._decoder.decompress(data)
        except self._errors as error:
            raise ValueError(error) from None


class _Inflate:
    def __init__(self, window_bits: int) -> None:
        self._it = zlib.decompressobj(window_bits)

    @property
    def eof(self) -> bool:
        return self._it.eof

    @property
    def needs_input(self) -> bool:
        return not self._it.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._it.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._it.decompress(self._it.unconsumed_tail + data, max_length)


def unpack_layers(
    stream: ChunkStream, where: str, watch: Callable[[int], None] | None = None
) -> ChunkStream:
    for _ in range(_MAX_LAYERS):
        unpack = find_unpack(stream.peek(HEAD_BYTES))
        if unpack is None:
            break
        stream = ChunkStream(unpack(stream, where), [stream], watch)
    return stream


def find_unpack(head: bytes) -> Unpack | None:
    if head.startswith(b"\x1f\x8b\x08"):
        return unpack_gzip
    if _is_zstd(head):
        return unpack_zstd
    if head.startswith(b"\xfd7zXZ\x00"):
        return unpack_xz
    return unpack_bzip2 if _BZIP2.match(head) else None


def _is_zstd(head: bytes) -> bool:
    return head.startswith(_ZSTD) or _ZSTD_SKIPPED.match(head) is not None


def unpack_gzip(stream: ChunkStream, where: str) -> Iterator[bytes]:
    return _unpack_stream(
        stream, where, "gzip", lambda: _Inflate(31), lambda rest: rest.startswith(b"\x1f\x8b")
    )


def unpack_deflate(stream: ChunkStream, where: str) -> Iterator[bytes]:
    return _unpack_stream(stream, where, "deflate", lambda: _Inflate(-15), None)


def unpack_bzip2(stream: ChunkStream, where: str) -> Iterator[bytes]:
    return _unpack_stream(
        stream, where, "bzip2", bz2.BZ2Decompressor, lambda rest: rest.startswith(b"BZh")
    )


def unpack_xz(stream: ChunkStream, where: str) -> Iterator[bytes]:
    def make() -> _Decoder:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_BYTES)

    return _unpack_stream(stream, where, "xz", make, lambda rest: rest.startswith(b"\xfd7zXZ"))


def unpack_zstd(stream: ChunkStream, where: str) -> Iterator[bytes]:
    try:
        yield from _unpack_stream(stream, where, "zstd", _Unzstd, _is_zstd, _ZSTD_IN_BYTES)
    except ImportError:
        raise SourceDamaged(
            f"{where}: it is compressed with zstd, which needs a package; pip install "
            "zstandard, or unpack it first."
        ) from None


def _unpack_stream(
    stream: ChunkStream,
    where: str,
    kind: str,
    make: Callable[[], _Decoder],
    goes_on: Callable[[bytes], bool] | None,
    in_bytes: int = _IN_BYTES,
) -> Iterator[bytes]:
    decoder, out_bytes = make(), 0
    data = stream.read(in_bytes) or b""
    while True:
        try:
            chunk = decoder.decompress(data, CHUNK_BYTES)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
            raise make_damage_error(where, kind, out_bytes, f"does not decode ({error})") from None
        out_bytes += len(chunk)
        yield chunk
        data = b""
        if decoder.eof:
            data = decoder.unused_data.lstrip(b"\0")
            while goes_on and len(data) < HEAD_BYTES and (more := stream.read(in_bytes)):
                data = (data + more).lstrip(b"\0")
            if goes_on is None or not goes_on(data):
                return
            decoder = make()
        elif decoder.needs_input:
            data = stream.read(in_bytes) or b""
            if not data and not chunk:
                stream.check()
                raise make_damage_error(where, kind, out_bytes, "ends too early")


def make_damage_error(where: str, kind: str, out_bytes: int, what: str) -> SourceDamaged:
    return SourceDamaged(
        f"{where}: the {kind} data {what} after {out_bytes:,} unpacked bytes, which were read; "
        "copy the file again, or pack the log again."
    )


_LONG_NAME_BYTES = 1 << 20  # a longer name would be read into memory
_UNPACK: dict[int, Unpack | None] = {0: None, 8: unpack_deflate, 12: unpack_bzip2, 93: unpack_zstd}
# Raised by tarfile and zipfile for bytes that are not an archive.
_ERRORS = (
    *(
        tarfile.TarError,
        zipfile.BadZipFile,
        NotImplementedError,
        RecursionError,
        struct.error,
        zlib.error,
    ),
    *(
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        LookupError,
        EOFError,
        OSError,
        MemoryError,
    ),
)


@dataclass(frozen=True)
class Container:
    name: str  # The displayed name.
    size_bytes: int
    open: Callable[[], io.RawIOBase]
    gauge: StreamLimits

    def chunks(self, offset: int = 0, size: int | None = None) -> ChunkStream:
        file = self.open()
        file.seek(offset)
        return ChunkStream(read_chunks(file, size), [file])

    def peeled(self, chunks: ChunkStream | None = None) -> ChunkStream:
        return unpack_layers(
            chunks or self.chunks(), self.name, self.gauge.layer(self.name, self.size_bytes)
        )


@dataclass(frozen=True)
class Member:
    name: str
    modified_us: int | None
    size_bytes: int | None  # None if it is compressed once more
    head: bytes
    open: Callable[[], ChunkStream]


@dataclass(frozen=True)
class Listing:
    members: list[Member]
    passed_over: list[str]  # links, devices
    damage: ValueError | None = None  # found while listing, outside any member


def is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return False
    return True


def is_zip(head: bytes) -> bool:
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def list_zip(container: Container) -> Listing:
    members: list[Member] = []
    passed_over: list[str] = []
    try:
        with io.BufferedReader(container.open()) as file:
            container.gauge.check_entries(
                container.name, _read_zip_count(file, container.size_bytes)
            )
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
    except LimitExceeded:
        raise
    except _ERRORS as error:
        raise SourceDamaged(
            f"{container.name}: the zip cannot be read ({error}); copy the file again."
        ) from None
    container.gauge.add_entries(container.name, len(entries))
    for entry in entries:
        kind = entry.external_attr >> 28  # Unix's file type: 8 file, 0 unknown, 10 link
        if entry.filename.endswith("/"):
            continue
        if kind not in (0, 8):
            passed_over.append(entry.filename)
            continue
        members.append(_zip_member(container, entry))
    return Listing(members, passed_over)


def _read_zip_count(file: IO[bytes], size_bytes: int) -> int:
    file.seek(max(0, size_bytes - 65_557))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    return int.from_bytes(tail[at + 10 : at + 12], "little") if at >= 0 else 0


def _zip_member(container: Container, entry: zipfile.ZipInfo) -> Member:
    def open_member() -> ChunkStream:
        return container.peeled(_zip_chunks(container, entry))

    head, unpacked = _read_head(_zip_chunks(container, entry), container)
    modified_us: int | None
    try:
        modified_us = (
            calendar.timegm((*entry.date_time, 0, 0, 0)) * 1_000_000
        )  # a zip has no time zone
    except (ValueError, OverflowError):
        modified_us = None
    return Member(
        entry.filename, modified_us, None if unpacked else entry.file_size, head, open_member
    )


def _zip_chunks(container: Container, entry: zipfile.ZipInfo) -> ChunkStream:
    """Read one member with its own file; zipfile's reader loses buffered data if a member is
    damaged.
    """
    where = f"{container.name}: {clean_name(entry.filename)}"
    file = container.open()
    packed = ChunkStream(_zip_packed(file, entry, where), [file])
    unpack = _UNPACK.get(entry.compress_type)
    out = packed if unpack is None else ChunkStream(unpack(packed, where), [packed])
    return ChunkStream(
        _zip_checked(out, entry, where),
        [out],
        container.gauge.layer(container.name, container.size_bytes),
    )


def _zip_packed(file: io.RawIOBase, entry: zipfile.ZipInfo, where: str) -> Iterator[bytes]:
    if entry.flag_bits & 0x1:
        raise SourceDamaged(
            f"{where}: it is encrypted, which is not read; pack it without a password."
        )
    if entry.compress_type not in _UNPACK:
        method = entry.compress_type
        raise SourceDamaged(
            f"{where}: it is packed with method {method}, which is not read; pack it with deflate."
        )
    file.seek(entry.header_offset)
    header = file.read(30) or b""
    if len(header) < 30 or not header.startswith(b"PK\x03\x04"):
        raise SourceDamaged(f"{where}: the zip's directory points to no file; copy the zip again.")
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
    file.seek(entry.header_offset + 30 + name_bytes + extra_bytes)
    yield from read_chunks(file, entry.compress_size)


def _zip_checked(stream: ChunkStream, entry: zipfile.ZipInfo, where: str) -> Iterator[bytes]:
    size, checksum = 0, 0
    for chunk in read_chunks(stream):
        size += len(chunk)
        checksum = zlib.crc32(chunk, checksum)
        yield chunk
    stream.check()
    if size < entry.file_size:
        raise make_damage_error(where, "zip", size, f"ends before its {entry.file_size:,} bytes")
    if checksum != entry.CRC:
        raise make_damage_error(where, "zip", size, "has another checksum than it should")


class _TarInfo(tarfile.TarInfo):
    """A header that raises on damage or endless names, where tarfile ends silently or fills
    memory.
    """

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> _TarInfo:
        try:
            return super().fromtarfile(tarfile_)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(str(error)) from None

    def _proc_member(self, tarfile_: tarfile.TarFile) -> tarfile.TarInfo:
        named = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
        if self.size < 0:
            raise tarfile.ReadError("a negative size")
        if (
            self.type in (*named, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
            and self.size > _LONG_NAME_BYTES
        ):
            raise tarfile.ReadError(f"a name of {self.size:,} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            self._proc_gnusparse_10()
        member: tarfile.TarInfo = super()._proc_member(tarfile_)  # type: ignore[misc]
        return member

    def _proc_gnusparse_10(self, *_: object) -> None:
        # Its map of holes has no length limit and is read into memory.
        raise tarfile.ReadError("a sparse file, which is not read; pack it without --sparse")


class _TarFile(tarfile.TarFile):
    tarinfo = _TarInfo
    members: list[tarfile.TarInfo]


class _TarPass:
    def __init__(self, container: Container, packed: bool) -> None:
        self._where = container.name
        self._packed: ChunkStream | None = container.peeled() if packed else None
        self._plain = None if packed else io.BufferedReader(container.open())
        self._plain_bytes = container.size_bytes
        self._tar: _TarFile | None = None
        self._end = 0  # end of the current member in the tar
        self._has_ended = False
        self.next_number = 0
        self.damage: ValueError | None = None  # what ended it, if not within a member

    def step(self) -> tarfile.TarInfo | None:
        try:
            if self._tar is None:
                file, mode = (
                    (self._packed, "r|") if self._packed is not None else (self._plain, "r:")
                )
                self._tar = _TarFile.open(fileobj=file, mode=mode, bufsize=CHUNK_BYTES)  # type: ignore[call-overload]
                assert self._tar is not None
            if self.next_number:  # the first header was read by opening
                self._skip(self._tar)
            member: tarfile.TarInfo | None = self._tar.next()
            if member is not None and self._tar.offset < member.offset_data:
                raise tarfile.ReadError("a negative size")  # it would loop
            self._tar.members.clear()  # tarfile would keep all members
        except _ERRORS as error:
            member, wrong = None, f"does not decode ({error})"
        else:
            wrong = ""
        if member is None:
            self._mark_ended(wrong)
            return None
        self.next_number += 1
        self._end = member.offset_data + (member.size if member.isreg() else 0)
        return member

    def _skip(self, archive: _TarFile) -> None:
        file = archive.fileobj
        while (
            self._packed is not None
            and file is not None
            and (left := archive.offset - file.tell()) > 0
        ):
            if not file.read(min(CHUNK_BYTES, left)):
                raise tarfile.ReadError("ends too early")

    def chunks(self, member: tarfile.TarInfo) -> Iterator[bytes]:
        # Not by extractfile, whose file raises at a truncated member and drops what it had read.
        assert self._tar is not None and self._tar.fileobj is not None
        file, size = self._tar.fileobj, 0
        file.seek(member.offset_data)
        while size < member.size:
            try:
                chunk = file.read(min(CHUNK_BYTES, member.size - size))
            except _ERRORS:
                chunk = b""
            if not chunk:
                if self._packed is not None:
                    self._packed.check()
                raise _tar_cut(self._where, member, size)
            size += len(chunk)
            yield chunk

    def close(self) -> None:
        for stream in (self._tar, self._packed, self._plain):
            if stream is not None:
                stream.close()

    @property
    def is_usable(self) -> bool:
        return not self._has_ended and (self._packed is None or self._packed.damage is None)

    def _mark_ended(self, wrong: str) -> None:
        self._has_ended = True
        position = self._plain_bytes if self._packed is None else self._packed.position
        below = self._packed.damage if self._packed is not None else None
        if position >= self._end:
            self.damage = below or (
                make_damage_error(self._where, "tar", position, wrong) if wrong else None
            )


class _CompressedTar:
    """Opens the members of a compressed tar in any order.

    Everything before a member has to be unpacked first. In order this costs nothing, because a
    closed stream passes its position on to the next one.
    """

    def __init__(self, container: Container) -> None:
        self._it = container
        self._idle: list[_TarPass] = []
        weakref.finalize(self, _close_all, self._idle)

    def open(self, number: int) -> ChunkStream:
        at = self._idle.pop() if self._idle else None
        if at is not None and at.next_number > number:
            at.close()
            at = None
        at = at or _TarPass(self._it, packed=True)
        return self._it.peeled(ChunkStream(self._chunks(at, number), [_PooledPass(at, self._idle)]))

    def _chunks(self, at: _TarPass, number: int) -> Iterator[bytes]:
        member = None
        while at.next_number <= number:
            member = at.step()
            if member is None:
                raise at.damage or SourceDamaged(
                    f"{self._it.name}: the archive changed while it was read; try again."
                )
        assert member is not None
        yield from at.chunks(member)


@dataclass(frozen=True)
class _PooledPass:
    at: _TarPass
    idle: list[_TarPass]

    def close(self) -> None:
        _close_all(self.idle)
        if self.at.is_usable:
            self.idle.append(self.at)
        else:
            self.at.close()


def _close_all(passes: list[_TarPass]) -> None:
    while passes:
        passes.pop().close()


def list_tar(container: Container, packed: bool) -> Listing:
    members: list[Member] = []
    passed_over: list[str] = []
    archive = _CompressedTar(container)
    at = _TarPass(container, packed)
    try:
        while (member := at.step()) is not None:
            container.gauge.add_entries(container.name)
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                passed_over.append(member.name)
                continue
            number = at.next_number - 1
            head, unpacked = _read_head(ChunkStream(at.chunks(member)), container)
            open_it = (
                partial(archive.open, number) if packed else partial(_open_plain, container, member)
            )
            size_bytes = None if unpacked else member.size
            members.append(Member(member.name, _tar_time_us(member), size_bytes, head, open_it))
    finally:
        at.close()
    if isinstance(at.damage, LimitExceeded):
        raise at.damage
    return Listing(members, passed_over, at.damage)


def _open_plain(container: Container, member: tarfile.TarInfo) -> ChunkStream:
    def chunks() -> Iterator[bytes]:
        size = 0
        with container.open() as file:
            file.seek(member.offset_data)
            for chunk in read_chunks(file, member.size):
                size += len(chunk)
                yield chunk
        if size < member.size:
            raise _tar_cut(container.name, member, size)

    return container.peeled(ChunkStream(chunks()))


def _tar_cut(where: str, member: tarfile.TarInfo, size: int) -> SourceDamaged:
    return make_damage_error(
        f"{where}: {clean_name(member.name)}", "tar", size, f"ends before its {member.size:,} bytes"
    )


def _tar_time_us(member: tarfile.TarInfo) -> int | None:
    return (
        int(member.mtime * 1e6) if math.isfinite(member.mtime) and 0 < member.mtime < 1e11 else None
    )


def _read_head(chunks: ChunkStream, container: Container) -> tuple[bytes, bool]:
    stream = container.peeled(chunks)
    try:
        head = stream.peek(HEAD_BYTES)
    finally:
        stream.close()
    if isinstance(stream.damage, LimitExceeded):
        raise stream.damage
    return head, stream is not chunks
