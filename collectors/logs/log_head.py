"""Read the beginning of a log: its identity, clock, torch version and GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, BinaryIO

from compileboard.collectors.contract.events import ArtifactSeen, Compiled, Event
from compileboard.collectors.logs.log_blocks import MAX_BYTES
from compileboard.collectors.logs.trace_log import PREFIX, LogClock, pid_of

HEAD_BYTES = 4 << 20  # the first compile's metrics are within this in every log seen so far
_PID = re.compile(rb"^(?:\[rank\d+\]:)?[VDIWEC]\d{4} \S+ +(\d{1,20}) ", re.MULTILINE)
_RANK = re.compile(rb'"rank": (\d{1,6})\b')
# In metrics, or in the comment that inductor writes into standalone code.
_TORCH = re.compile(rb'(?:"pytorch_version": ?"|# torch version: )([\w.+-]{1,60})')
_COMMIT = re.compile(rb'"commit": ?"([0-9a-f]{7,40})"')
_CODE_COMMIT = re.compile(rb"# torch git version: ([0-9a-f]{7,40})")
_PYTHON = re.compile(rb'"python_version": ?"(\d[\w.]{0,20})')
_CUDA = re.compile(rb'(?:"cuda_version": ?"|# torch cuda version: )(\d+\.\d[\w.]{0,10})')
_TRITON = re.compile(rb'"triton_version": ?"(\d[\w.+-]{0,40})')
_CUDA_OF_TORCH = re.compile(r"\+cu(\d+)(\d)$")
# Of a cache key's components; torch reports its GPU nowhere else.
_GPU = re.compile(rb"system_info\[device\]: \{'name': '([^'\\]{1,80})'")
_STACK = re.compile(rb'\{"dynamo_start": \{"stack": \[\{[^{}]*?"filename": ?(\d{1,9})\b')
_STRING = re.compile(rb'\] \{"str": (\["(?:[^"\\\n]|\\.)*", \d{1,9}\])')
_NO_PROGRAM = re.compile(r"^<|/(?:site|dist)-packages/|/lib/python\d")


KEY_RECORDS = 4  # lines of a log's first records that identify it


@dataclass(frozen=True)
class LogHead:
    key: str | None  # None: no whole record
    earlier_keys: tuple[str, ...]  # its keys while it had fewer records
    clock: LogClock
    first_us: int | None
    pid: int | None
    rank: int | None
    torch_version: str | None
    torch_git: str | None
    cuda_version: str | None
    triton_version: str | None
    python_version: str | None
    gpu_name: str | None
    program: str | None  # file of the outermost frame


def read_head(head: bytes, modified_us: int | None) -> LogHead:
    clock = LogClock.of(head, fallback_us=modified_us)
    first = re.search(
        rb"^(?:\[rank\d+\]:)?[VDIWEC](\d{4} \d\d:\d\d:\d\d)\.(\d{6}) ", head, re.MULTILINE
    )
    pid, rank = _PID.search(head), _RANK.search(head)
    torch_version = _find_first(_TORCH, head)
    keys = log_keys(head)
    return LogHead(
        key=keys[0] if keys else None,
        earlier_keys=tuple(keys[1:]),
        clock=clock,
        first_us=clock.time_us(first[1], first[2]) if first else None,
        pid=pid_of(pid[1]) if pid else None,
        rank=int(rank[1]) if rank else None,
        torch_version=torch_version,
        torch_git=(_find_first(_COMMIT, head) if b'"torch_version"' in head else None)
        or _find_first(_CODE_COMMIT, head),
        cuda_version=_read_cuda_version(torch_version) or _find_first(_CUDA, head),
        triton_version=_find_first(_TRITON, head),
        python_version=_find_first(_PYTHON, head),
        gpu_name=_find_first(_GPU, head),
        program=_find_program(head),
    )


def collect_facts(event: Event, names: Collection[str]) -> dict[str, Any]:
    if isinstance(event, Compiled):
        torch_version, python, cuda, triton = (
            _decode_text(event.metrics.get(f"{name}_version"))
            for name in ("pytorch", "python", "cuda", "triton")
        )
        return {
            "torch_version": torch_version,
            "python_version": python and python.split()[0],
            "cuda_version": _read_cuda_version(torch_version) or cuda,
            "triton_version": triton,
        }
    if isinstance(event, ArtifactSeen) and event.text is not None:
        is_code = (
            bool({"torch_version", "cuda_version"} & set(names))
            and "# torch version: " in event.text
        )
        if event.name == "torch_version" or is_code:
            torch_version, cuda, commit = (
                _find_first(pattern, event.text.encode("utf-8", "replace"))
                for pattern in (_TORCH, _CUDA, _CODE_COMMIT if is_code else _COMMIT)
            )
            return {
                "torch_version": torch_version,
                "torch_git": commit,
                "cuda_version": _read_cuda_version(torch_version) or cuda,
            }
        if "gpu_name" in names and "_cache_" in event.name:
            return {"gpu_name": _find_first(_GPU, event.text.encode("utf-8", "replace"))}
    return {}


def _decode_text(value: Any) -> str | None:
    return value[:60] if isinstance(value, str) and value.strip() else None


def _read_cuda_version(torch_version: str | None) -> str | None:
    match = _CUDA_OF_TORCH.search(torch_version or "")
    return f"{match[1]}.{match[2]}" if match else None


def _find_first(pattern: re.Pattern[bytes], head: bytes) -> str | None:
    match = pattern.search(head)
    return match[1].decode("utf-8", "replace") if match else None


def _find_program(head: bytes) -> str | None:
    names: dict[int, str] = {}
    for match in _STRING.finditer(head):
        try:
            text, number = json.loads(match[1])
            names[number] = text
        except (ValueError, TypeError):
            continue
    for match in _STACK.finditer(head):
        path = names.get(int(match[1]))
        if isinstance(path, str) and not _NO_PROGRAM.search(path):
            return path.replace("\\", "/").rsplit("/", 1)[-1][:200] or None
    return None


def _record_lines(head: bytes) -> Iterator[tuple[int, bytes]]:
    begin = 0
    while (end := head.find(b"\n", begin)) >= 0:
        if PREFIX.match(head, begin, end):
            yield begin, head[begin:end]
        begin = end + 1


def log_keys(head: bytes) -> list[str]:
    """Return a log's key, then the keys it had with fewer records; empty if there is no whole
    record.
    """
    lines = [line for _offset, line in islice(_record_lines(head), KEY_RECORDS)]
    return [
        blake2b(b"\n".join(lines[:count]), digest_size=16).hexdigest()
        for count in range(len(lines), 0, -1)
    ]


class PeekedFile:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._ahead = b""
        self._passed_bytes = 0  # already discarded
        self.damage: Exception | None = None  # met while peeking, and again by `read`

    def peek(self, size: int) -> bytes:
        """Return the first bytes without consuming them. Errors are deferred to `read`."""
        try:
            while len(self._ahead) < size and (block := self._file.read(size - len(self._ahead))):
                self._ahead += block
        except (OSError, ValueError, EOFError) as error:
            self.damage = error
        return self._ahead[:size]

    def peek_log(self) -> bytes:
        size = HEAD_BYTES
        head = self.peek(size)
        while not log_keys(head) and self.damage is None and len(head) == size:
            if size < MAX_BYTES + HEAD_BYTES:
                size *= 2
            else:  # This text is larger than any record that is read: its last line may continue.
                self._skip_bytes(max(len(head) - MAX_BYTES, head.rfind(b"\n") + 1))
            head = self.peek(size)
        begin = next((at for at, _line in _record_lines(head)), 0) if size > HEAD_BYTES else 0
        return head[begin:]

    def _skip_bytes(self, count: int) -> None:
        self._passed_bytes += count
        self._ahead = self._ahead[count:]

    def read(self, size: int = -1, /) -> bytes:
        if self._passed_bytes:
            count = self._passed_bytes if size < 0 else min(size, self._passed_bytes)
            self._passed_bytes -= count
            return b"." * count
        if self._ahead:
            taken, self._ahead = (
                (self._ahead, b"") if size < 0 else (self._ahead[:size], self._ahead[size:])
            )
            return taken
        return self._file.read(size)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
