"""A repro as a `.tar.gz` with its manifest, programs and input values.

    manifest.json  program.py  dynamo_program.py  values/<SHA-256 of a storage's bytes>

Archives are untrusted: they are read in memory, never unpacked, and may hold only these names.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Mapping
from typing import IO, NamedTuple

from compileboard.collectors.contract.repros import (
    MOST_PROGRAM_CHARS,
    MOST_STORAGE_BYTES,
    ReproManifest,
    dump_manifest,
    load_manifest,
)

MANIFEST, PROGRAM, DYNAMO_PROGRAM, VALUES = (
    "manifest.json",
    "program.py",
    "dynamo_program.py",
    "values/",
)
MOST_ARCHIVE_BYTES = 512 << 20  # unpacked
MOST_MEMBERS = 10_000
_VALUES = re.compile(r"values/([0-9a-f]{64})\Z")
_GZIP = b"\x1f\x8b"


class BadArchive(ValueError):
    pass


class ReproParts(NamedTuple):
    manifest: ReproManifest
    program: str
    dynamo_program: str | None
    values: dict[str, bytes]


def is_archive(head: bytes) -> bool:
    return head.startswith(_GZIP)


def write_archive(
    manifest: ReproManifest, program: str, dynamo_program: str | None, values: Mapping[str, bytes]
) -> bytes:
    """Return the bytes of the archive; the same repro always gives the same bytes."""
    members = {MANIFEST: json.dumps(dump_manifest(manifest), indent=1, sort_keys=True).encode()}
    members[PROGRAM] = program.encode("utf-8", "surrogatepass")
    if dynamo_program is not None:
        members[DYNAMO_PROGRAM] = dynamo_program.encode("utf-8", "surrogatepass")
    members.update({f"{VALUES}{digest}": body for digest, body in sorted(values.items())})
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, body in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(body), 0o644
            archive.addfile(entry, io.BytesIO(body))
    return packed.getvalue()


def read_archive(file: IO[bytes], most_bytes: int = MOST_ARCHIVE_BYTES) -> ReproParts:
    """Read an archive in memory.

    Raises BadArchive, also when it unpacks to more than `most_bytes`.
    """
    members: dict[str, bytes] = {}
    try:
        with (
            gzip.GzipFile(fileobj=file, mode="rb") as stream,
            _Bounded(stream, most_bytes) as bounded,
            tarfile.open(fileobj=bounded, mode="r:") as tar,
        ):
            for entry in tar:
                if len(members) >= MOST_MEMBERS:
                    raise BadArchive(
                        f"this archive has more than {MOST_MEMBERS:,} files, which no repro has"
                    )
                _check_member(entry, members)
                body = tar.extractfile(entry)
                assert body is not None
                members[entry.name] = body.read()
            while bounded.read(1 << 20):  # to the checksum
                pass
    except (
        tarfile.TarError,
        EOFError,
        OSError,
        zlib.error,
        UnicodeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise BadArchive(
            f"this archive cannot be read ({error or type(error).__name__}); copy it again"
        ) from None
    return _parts_of(members)


def _check_member(entry: tarfile.TarInfo, members: Mapping[str, bytes]) -> None:
    shown = ascii(entry.name[:80])
    if not entry.isreg() or entry.issparse():
        raise BadArchive(
            f"this archive has {shown}, which is no plain file; a repro has plain files alone"
        )
    if entry.name not in (MANIFEST, PROGRAM, DYNAMO_PROGRAM) and not _VALUES.match(entry.name):
        raise BadArchive(
            f"this archive has {shown}; expected {MANIFEST}, {PROGRAM}, {DYNAMO_PROGRAM} and "
            f"{VALUES}<SHA-256>"
        )
    if entry.name in members:
        raise BadArchive(f"this archive has {shown} twice")
    most = MOST_STORAGE_BYTES if entry.name.startswith(VALUES) else 4 * MOST_PROGRAM_CHARS
    if entry.size > most:
        raise BadArchive(
            f"this archive's {shown} has {entry.size:,} bytes; expected at most {most:,}"
        )


def _parts_of(members: Mapping[str, bytes]) -> ReproParts:
    if MANIFEST not in members or PROGRAM not in members:
        raise BadArchive(f"this archive is no repro: expected {MANIFEST} and {PROGRAM} in it")
    values: dict[str, bytes] = {}
    for name, body in members.items():
        match = _VALUES.match(name)
        if match:
            if hashlib.sha256(body).hexdigest() != match.group(1):
                raise BadArchive(
                    f"the values {match.group(1)[:12]}… of this archive are damaged; copy it again"
                )
            values[match.group(1)] = body
    try:
        manifest = load_manifest(json.loads(members[MANIFEST]))
        program = members[PROGRAM].decode("utf-8")
        dynamo_program = (
            members[DYNAMO_PROGRAM].decode("utf-8") if DYNAMO_PROGRAM in members else None
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise BadArchive(f"this archive's repro cannot be read: {error}") from None
    return ReproParts(manifest, program, dynamo_program, values)


class _Bounded(io.RawIOBase):
    def __init__(self, stream: gzip.GzipFile, most_bytes: int) -> None:
        self._stream = stream
        self._most_bytes = most_bytes

    def read(self, size: int = -1) -> bytes:
        position = self._stream.tell()
        chunk = self._stream.read(
            min(size, self._most_bytes + 1 - position) if size >= 0 else self._most_bytes + 1
        )
        if position + len(chunk) > self._most_bytes:
            raise BadArchive(
                f"more than {self._most_bytes:,} bytes come out of this archive, the limit"
            )
        return chunk

    def seek(self, position: int, whence: int = 0) -> int:
        if position > self._most_bytes:
            raise BadArchive(
                f"more than {self._most_bytes:,} bytes come out of this archive, the limit"
            )
        return self._stream.seek(position, whence)

    def tell(self) -> int:
        return self._stream.tell()
