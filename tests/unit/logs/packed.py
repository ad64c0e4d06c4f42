"""Recorded logs, packed in every way, and how to read them back."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from compileboard.collectors.logs.discovery import LogSource

_RECORDED = Path(__file__).parents[2] / "data" / "trace"
LOG = lzma.decompress((_RECORDED / "torch2.11-cuda-zoo_backend_failure.log.xz").read_bytes())
OTHER = lzma.decompress((_RECORDED / "torch2.11-cuda-hf_Llama_dynamic.log.xz").read_bytes())

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}


def make_tar(members: dict[str, bytes], mtime: int = 1_795_000_000) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), mtime
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def make_zip(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 11, 21, 3, 27, 48)), data, method)
    return out.getvalue()


RANKS = {"trace/rank_0.log": LOG, "trace/rank_1.log": OTHER, "trace/result.json": b"{}"}
ARCHIVES: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "tar": make_tar,
    "zip": make_zip,
    **{
        f"tar.{kind}": lambda members, other_kind=kind: PACK[other_kind](make_tar(members))
        for kind in PACK
    },  # type: ignore[misc]
}


def read(source: LogSource) -> bytes:
    with source.open() as file:
        return file.read()


def read_until_damage(source: LogSource, size: int = 1000) -> tuple[bytes, ValueError]:
    """Read in small pieces; return what came and what then was raised."""
    came = b""
    with source.open() as file, pytest.raises(ValueError) as caught:
        while data := file.read(size):
            came += data
    return came, caught.value


def write(folder: Path, name: str, data: bytes, age_s: float = 0) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (1_795_000_000 - age_s,) * 2)
    return path


def read_all_pieces(source: LogSource) -> None:
    with source.open() as file:
        while file.read(1000):
            pass
