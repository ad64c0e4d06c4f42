"""Receive the request bodies of pushing clients: unpack them within limits, check them, and store
them in one thread.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
from werkzeug.wsgi import get_input_stream

from compileboard.app.imports.queue import UploadRejected
from compileboard.collectors.store.connection import PartFailed, StoreError, explain, open_writer
from compileboard.collectors.store.large_runs import RunSealed, reopen_run_of_database
from compileboard.collectors.store.runs import NotOwner, RunSender, may_add
from compileboard.collectors.store.stream_lines import (
    StreamDiffers,
    TextsMissing,
    TooManyLines,
    read_lines,
)
from compileboard.collectors.store.stream_rows import Stream, StreamMoved, get_removal, get_stream
from compileboard.collectors.store.stream_writer import RunDeleted, StreamWriter
from compileboard.collectors.wire.lines import (
    MAX_RATIO,
    STREAM_ID,
    UnknownLine,
    checksum_of,
    digest_of,
)
from compileboard.collectors.wire.texts import SentText


class PushRefused(UploadRejected):
    """A rejected push request; `headers` and `fields` are added to the response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(status, message, retry_after_s=retry_after_s)
        self.headers = dict(headers or {})
        self.fields = dict(fields or {})


SILENCE_S = 30.0
BODY_READ = "compileboard.body_read"  # Set in the environ of a request whose body was received.
BLOCK_BYTES = 64 << 10
RATIO_FROM_BYTES = 1 << 20  # below this any ratio is harmless
_CHECKSUM = re.compile(r"crc32 ([0-9a-fA-F]{1,8})")


def receive_body(environ: dict[str, Any], max_bytes: int, max_plain_bytes: int) -> bytes:
    """Receive a body and unpack it. Raises PushRefused if its length or encoding is not accepted,
    or it is incomplete, too large or damaged.
    """
    expected = check_length(environ, max_bytes)
    encoding = environ.get("HTTP_CONTENT_ENCODING", "").strip().lower() or "identity"
    if encoding not in ("identity", "gzip"):
        raise PushRefused(
            400, f"Content-Encoding: expected gzip or nothing, got {encoding[:40]!r}."
        )
    body = _receive(environ, expected, max_bytes)
    return body if encoding == "identity" else unpack_gzip(body, max_plain_bytes)


def check_length(environ: dict[str, Any], max_bytes: int) -> int:
    """Return the Content-Length. Raises PushRefused if it is missing or too large."""
    text = environ.get("CONTENT_LENGTH") or ""
    if not text.isascii() or not text.isdigit() or environ.get("HTTP_TRANSFER_ENCODING"):
        raise PushRefused(411, "Content-Length: expected the number of bytes of the body.")
    if len(text) > 18 or int(text) > max_bytes:
        raise PushRefused(413, f"The body is {text[:18]} bytes; expected {max_bytes:,} at most.")
    return int(text)


def _receive(environ: dict[str, Any], expected: int, max_bytes: int) -> bytes:
    connection = environ.get("gunicorn.socket")
    if connection is not None:
        connection.settimeout(SILENCE_S)
    environ[BODY_READ] = True
    blocks = []
    try:
        stream = get_input_stream(environ, max_content_length=max_bytes)
        while block := stream.read(BLOCK_BYTES):
            blocks.append(block)
    except RequestEntityTooLarge:
        raise PushRefused(413, f"The body is longer than {max_bytes:,} bytes.") from None
    except (ClientDisconnected, OSError):
        raise PushRefused(408, "The body came too slowly, or broke off. Send it again.") from None
    body = b"".join(blocks)
    if len(body) != expected:
        raise PushRefused(460, f"{len(body):,} of {expected:,} bytes came. Send it again.")
    return body


def unpack_gzip(body: bytes, max_bytes: int) -> bytes:
    """Unpack a body up to its limit. Raises PushRefused beyond it."""
    most = min(max_bytes, max(RATIO_FROM_BYTES, len(body) * MAX_RATIO))
    expander = zlib.decompressobj(wbits=31)
    try:
        plain = expander.decompress(body, most + 1)
    except zlib.error:
        raise PushRefused(460, "The body is not gzip, or is damaged. Send it again.") from None
    if len(plain) > most:
        raise PushRefused(
            413,
            (
                f"It unpacks to more than {most:,} bytes: expected {max_bytes:,}, and "
                f"{MAX_RATIO}× its size."
            ),
        )
    if not expander.eof or expander.unused_data:
        raise PushRefused(
            460, "The body's gzip breaks off, or something follows it. Send it again."
        )
    return plain


def unpack_texts(texts: Iterable[SentText], max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Unpack texts up to a common limit; yield each with its digest.

    Raises PushRefused beyond the limit, or for a wrong digest.
    """
    left_bytes = max_bytes
    for text in texts:
        plain = unpack_gzip(text.body, left_bytes) if text.is_packed else text.body
        left_bytes -= len(plain)
        if left_bytes < 0:
            raise PushRefused(
                413, f"The texts are more than {max_bytes:,} bytes; send fewer at once."
            )
        if digest_of(plain) != text.digest:
            raise PushRefused(
                460, f"A text is {digest_of(plain)}, not {text.digest}. Send it again."
            )
        yield text.digest, plain


def check_checksum(header: str | None, plain: bytes) -> None:
    """Raise PushRefused if a body does not match its Upload-Checksum, or that is malformed."""
    match = _CHECKSUM.fullmatch(header or "")
    if match is None:
        raise PushRefused(
            400, f"Upload-Checksum: expected crc32 and 8 hex digits, got {str(header)[:40]!r}."
        )
    if int(match[1], 16) != checksum_of(plain):
        raise PushRefused(460, "The body does not match its checksum. Send it again.")


MIN_BYTES = 4 << 10  # minimum cost of a request
MAX_CLIENTS = 16_384  # the least recent one is dropped: its bucket is full again


class RateLimit:
    """Limits the rate of each client. Each server process has limits of its own.

    A request passes if its client's bucket is not empty, and may overdraw it.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._buckets: dict[
            str, tuple[int, float]
        ] = {}  # when it was last used, and the bytes in it then
        self._lock = threading.Lock()

    def get_wait_s(self, client: str, bytes_per_min: float) -> int:
        level_bytes = self._charge(client, 0, bytes_per_min)
        return 0 if level_bytes > 0 else max(1, math.ceil(-level_bytes * 60 / bytes_per_min))

    def charge(self, client: str, size_bytes: int, bytes_per_min: float) -> None:
        self._charge(client, max(MIN_BYTES, size_bytes), bytes_per_min)

    def _charge(self, client: str, size_bytes: int, bytes_per_min: float) -> float:
        with self._lock:
            now_ns = self._clock_ns()
            touched_ns, before_bytes = self._buckets.pop(client, (now_ns, bytes_per_min))
            filled_bytes = (now_ns - touched_ns) / 1e9 * bytes_per_min / 60
            level_bytes = min(bytes_per_min, before_bytes + filled_bytes) - size_bytes
            self._buckets[client] = (now_ns, level_bytes)
            if len(self._buckets) > MAX_CLIENTS:
                del self._buckets[next(iter(self._buckets))]
        return level_bytes


ATTEMPTS = 3
MAX_LISTED_DIGESTS = 1000  # missing texts per response


def find_stream(
    reader: sqlite3.Connection, run_id: str, stream_id: str, token_id: str | None, sender: RunSender
) -> Stream:
    """Return a stream. Raises PushRefused if its run was deleted or pruned, or belongs to another
    sender.
    """
    for name, value in (("run", run_id), ("stream", stream_id)):
        if not STREAM_ID.fullmatch(value):
            raise PushRefused(
                400,
                f"{name}: expected letters, digits, dots and dashes, 64 at most: {value[:80]!r}.",
            )
    if removal := get_removal(reader, run_id):
        raise PushRefused(
            410, f"Run {run_id} was {removal} on the server; nothing more of it is stored."
        )
    if not may_add(reader, run_id, sender):
        raise PushRefused(403, str(NotOwner(sender, run_id)))
    return get_stream(reader, run_id, stream_id) or Stream(run_id, stream_id, token_id)


def describe_place(stream: Stream) -> dict[str, str]:
    return {
        "Upload-Offset": str(stream.stored_bytes),
        "Upload-Checksum": f"crc32 {stream.checksum:08x}",
    }


def append_lines(
    open_reader: Callable[[], sqlite3.Connection],
    store: Callable[[Callable[[StreamWriter], Stream]], Stream],
    find: Callable[[sqlite3.Connection], Stream],
    sender: RunSender,
    offset: int,
    plain: bytes,
) -> Stream:
    """Append the lines of a body that are not stored yet; return the stream's new state.

    Raises PushRefused, StoreError.
    """
    if plain and not plain.endswith(b"\n"):
        raise PushRefused(400, "The body ends within a line; expected whole lines.")
    for _attempt in range(ATTEMPTS):
        reader = open_reader()
        stream = find(reader)
        try:
            fresh = _drop_stored(stream, offset, plain)
            if not fresh:
                return stream
            lines = read_lines(reader, stream, fresh)
            return store(partial(StreamWriter.store, lines=lines, sender=sender))
        except NotOwner as error:
            raise PushRefused(403, str(error)) from None
        except StreamMoved:
            continue  # the same request, sent again while the first one was stored
        except StreamDiffers as error:
            store(partial(_restart, stream))
            fields = {"restart": True}
            raise PushRefused(
                409, f"{error}. Send everything again, under a new stream.", fields=fields
            ) from None
        except UnknownLine as error:
            raise PushRefused(
                426, f"{error}. Upgrade the server; the waiting data is then sent."
            ) from None
        except TooManyLines as error:
            raise PushRefused(413, f"{error}.") from None
        except TextsMissing as error:
            missing = error.digests[:MAX_LISTED_DIGESTS]
            raise PushRefused(
                409, f"{error}: PUT texts/DIGEST.", fields={"missing": missing}
            ) from None
        except RunDeleted:
            continue  # changed since the lookup: look it up again
    raise PushRefused(
        503, "Other requests of the stream are being stored. Try again soon.", retry_after_s=1
    )


def _drop_stored(stream: Stream, offset: int, plain: bytes) -> bytes:
    known_bytes = stream.stored_bytes - offset
    if known_bytes < 0:
        raise PushRefused(
            409,
            (
                f"{stream.stored_bytes:,} bytes of the stream are stored; this would begin at "
                f"{offset:,}."
            ),
            headers=describe_place(stream),
        )
    if 0 < known_bytes < len(plain) and plain[known_bytes - 1 : known_bytes] != b"\n":
        raise StreamDiffers(
            f"{stream.stored_bytes:,} bytes are stored, which is within a line of the stream"
        )
    return plain[known_bytes:]


def _restart(stream: Stream, writer: StreamWriter) -> Stream:
    writer.restart(stream)
    return stream


Result = TypeVar("Result")
RETRY_S = 1
TURN_S = 0.1  # per worker: others, and pages that write, wait meanwhile


class _WriteJob(Generic[Result]):
    def __init__(self, call: Callable[[StreamWriter], Result]) -> None:
        self.future: Future[Result] = Future()
        self.error: Exception | None = None
        self._call = call
        self._result: Result | None = None

    def run(self, writer: StreamWriter) -> None:
        self.error = None
        try:
            self._result = self._call(writer)
        except PartFailed:
            raise
        except Exception as error:  # any exception goes to whoever waits for the job
            self.error = explain(error, writer.path) if isinstance(error, sqlite3.Error) else error

    def answer(self) -> None:
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("Result", self._result))


class WriterThread:
    """A thread that stores all waiting jobs in one transaction, and returns their results after the
    commit.

    If a job fails, each job gets a transaction of its own.
    """

    def __init__(self, path: str, max_waiting: int) -> None:
        self.path = path
        self._pool = ThreadPoolExecutor(1, "push")
        self._room = threading.BoundedSemaphore(max_waiting + 1)
        self._waiting: deque[_WriteJob[Any]] = deque()
        self._writer: StreamWriter | None = None
        self._identity: tuple[int, int] | None = None
        self._reopening: set[str] = set()  # large sealed runs that other threads restore
        self._failures: dict[str, StoreError] = {}  # their errors

    def submit(self, call: Callable[[StreamWriter], Result]) -> Future[Result]:
        """Queue a job. Raises PushRefused if too many wait."""
        if not self._room.acquire(blocking=False):
            raise PushRefused(
                503, "Too much waits to be stored. Try again soon.", retry_after_s=RETRY_S
            )
        job = _WriteJob(call)
        job.future.add_done_callback(lambda _future: self._room.release())
        self._waiting.append(job)
        self._pool.submit(self._work)
        return job.future

    def _work(self) -> None:
        if not self._waiting:
            return
        jobs: list[_WriteJob[Any]] = []
        try:
            with _wait_for_turn(self.path):
                self._store(jobs)
        except BaseException as error:
            self._close()
            for job in jobs or [self._waiting.popleft()]:
                job.future.set_exception(
                    explain(error, self.path) if isinstance(error, sqlite3.Error) else error
                )
        else:
            for job in jobs:
                job.answer()

    def _store(self, jobs: list[_WriteJob[Any]]) -> None:
        writer, until_s = self._open(), time.monotonic() + TURN_S
        try:
            with writer.single_transaction():
                while self._waiting and (not jobs or time.monotonic() < until_s):
                    jobs.append(self._waiting.popleft())
                    jobs[-1].run(writer)
        except PartFailed:
            for job in jobs:
                job.run(self._open())
                if isinstance(job.error, StoreError):
                    self._close()
        if self._writer is not None:
            self._writer.checkpoint_if_due()
        for job in jobs:
            if isinstance(job.error, RunSealed):
                job.error = self._reopen(job.error)

    def _reopen(self, refusal: RunSealed) -> StoreError:
        failure = self._failures.pop(refusal.run_id, None)
        if failure is None and refusal.run_id not in self._reopening:
            self._reopening.add(refusal.run_id)
            threading.Thread(
                target=self._restore_run, args=(refusal.run_id,), name="reopen", daemon=True
            ).start()
        return failure or refusal

    def _restore_run(self, run_id: str) -> None:
        try:
            reopen_run_of_database(self.path, run_id)
        except (StoreError, sqlite3.Error) as error:
            self._failures[run_id] = (
                explain(error, self.path) if isinstance(error, sqlite3.Error) else error
            )
        finally:
            self._reopening.discard(run_id)

    def _open(self) -> StreamWriter:
        status = os.stat(self.path) if os.path.exists(self.path) else None
        identity = (status.st_dev, status.st_ino) if status else None
        if self._writer is None or identity != self._identity:
            self._close()
            self._writer = StreamWriter(open_writer(self.path, create=False), self.path)
            self._identity = identity
        return self._writer

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.connection.close()


@contextmanager
def _wait_for_turn(path: str) -> Iterator[None]:
    """Wait for this worker's turn. SQLite itself would sleep, and in no order.

    The folder is locked, not the file, because closing a file drops SQLite's locks on it.
    """
    folder = os.open(Path(path).absolute().parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


_threads: dict[tuple[int, str], WriterThread] = {}
_lock = threading.Lock()


def get_writer_thread(path: str, max_waiting: int) -> WriterThread:
    key = (os.getpid(), path)
    with _lock:
        if key not in _threads:
            _threads[key] = WriterThread(path, max_waiting)
        return _threads[key]
