"""Pushed data: streams of events, and texts by content hash. `collectors/wire` has the protocol."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

from flask import Response, current_app, request

from compileboard.app.core.access import get_identity, get_sender, needs
from compileboard.app.core.api import PageQuery, operation
from compileboard.app.core.db import (
    get_board_path,
    get_reader,
    get_run_reader,
    get_settings,
    renew_reader,
)
from compileboard.app.core.fields import Count
from compileboard.app.core.page import Page
from compileboard.app.core.schema import Keywords
from compileboard.app.push import queries as streams
from compileboard.app.push.queries import StreamRow
from compileboard.app.push.receive import (
    PushRefused,
    RateLimit,
    append_lines,
    check_checksum,
    describe_place,
    find_stream,
    get_writer_thread,
    receive_body,
    unpack_texts,
)
from compileboard.collectors.store.bundles import count_contents
from compileboard.collectors.store.codec import pack_large
from compileboard.collectors.store.runs import NotOwner, may_add
from compileboard.collectors.store.stream_rows import (
    find_texts,
    get_removal,
    save_dropped_digests,
    save_text,
    save_texts,
)
from compileboard.collectors.store.stream_writer import StreamWriter
from compileboard.collectors.wire.lines import (
    DIGEST,
    MAX_BODY_BYTES,
    MAX_PLAIN_BYTES,
    MAX_TEXT_BYTES,
    WireError,
    digest_of,
)
from compileboard.collectors.wire.texts import split_texts

MIB = 1 << 20
MAX_DIGESTS = 10_000
MAX_OFFSET_DIGITS = 18
SMALL_BYTES = 1 << 20  # As sent. Clients send smaller lines, and few texts are larger.
LARGE_BODIES, LARGE_BODY_WAIT_S = 8, 10.0
Result = TypeVar("Result")
rates = RateLimit()
large_bodies = threading.BoundedSemaphore(LARGE_BODIES)  # Each process has its own.


@dataclass(frozen=True)
class TextQuestion:
    """Hashes of texts: those that a client would send, and those that it no longer has."""

    digests: Annotated[
        list[str],
        Keywords(examples=[["cae66941d9efbd404e4d88758ea67670"]]),
        "32 hex digits each: BLAKE2b of the text, 16 bytes.",
    ]
    run: Annotated[str | None, "The run of those that were dropped."] = None
    dropped: Annotated[list[str] | None, "Texts that the client no longer has."] = None


@dataclass(frozen=True)
class MissingTexts:
    """Texts that the server lacks."""

    missing: Annotated[list[str], "Digests that the server lacks."]


@dataclass(frozen=True)
class RunContentsJson:
    """How much of a run's recording the server has. Adding to the run increases some of the
    numbers.
    """

    process_count: Annotated[Count, "Processes that the server knows of the run."]
    event_count: Annotated[Count, "Events of its processes."]
    kept_text_count: Annotated[Count, "Graphs, code and other texts."]
    log_bytes: Annotated[Count, "Of its trace logs, as far as they were read."]
    result_file_count: Annotated[Count, "Imported files of results."]
    result_count: Annotated[Count, "Results of benchmarks."]
    newest_result_us: Annotated[Count, "Time of the newest of them, 0 without one."]
    repro_count: Annotated[Count, "Repros that the run captured."]
    trial_count: Annotated[Count, "Fixes that were tried."]


@operation("/streams")
def list_streams(page: PageQuery) -> Page[StreamRow]:
    """List pushed streams, the most recently active first."""
    return streams.list_streams(get_reader(), page.cursor, page.limit)


@operation("/runs/<run_id>/contents")
@needs("ingest", "read")
def get_contents(run_id: str) -> RunContentsJson:
    """Return how much of a run's recording is stored, so that a client that has more can send it;
    410 for a pruned run. A token with only the scope `ingest` can query the runs that it may add
    to.
    """
    if not get_identity().may("read") and not may_add(get_reader(), run_id, get_sender()):
        raise PushRefused(403, str(NotOwner(get_sender(), run_id)))
    if get_removal(get_reader(), run_id) == "pruned":
        raise PushRefused(
            410, f"Run {run_id} was pruned on the server; nothing more of it is stored."
        )
    contents = count_contents(get_run_reader(run_id), run_id)
    if contents is None:
        raise PushRefused(404, f"There is no run {run_id[:80]}.")
    return RunContentsJson(**contents)


@operation("/runs/<run_id>/streams/<stream_id>", method="HEAD")
@needs("ingest")
def measure(run_id: str, stream_id: str) -> Annotated[Response, None]:
    """Return how much of a stream is stored: Upload-Offset in bytes, and Upload-Checksum of these
    bytes.
    """
    return _answer(
        200,
        describe_place(
            find_stream(get_reader(), run_id, stream_id, get_identity().token_id, get_sender())
        ),
    )


@operation("/runs/<run_id>/streams/<stream_id>", method="PATCH", status=204)
@needs("ingest")
def append(run_id: str, stream_id: str) -> Annotated[Response, None]:
    """Store whole lines of a stream from Upload-Offset on; lines already stored are skipped."""
    find = partial(
        find_stream,
        run_id=run_id,
        stream_id=stream_id,
        token_id=get_identity().token_id,
        sender=get_sender(),
    )
    find(get_reader())
    offset = request.headers.get("Upload-Offset", "")
    if not offset.isascii() or not offset.isdigit() or len(offset) > MAX_OFFSET_DIGITS:
        raise PushRefused(400, f"Upload-Offset: expected a number of bytes, got {offset[:40]!r}.")
    with _limit_large_bodies():
        plain = _receive(MAX_BODY_BYTES, MAX_PLAIN_BYTES)
        check_checksum(request.headers.get("Upload-Checksum"), plain)
        return _answer(
            204,
            describe_place(
                append_lines(renew_reader, _store, find, get_sender(), int(offset), plain)
            ),
        )


@operation("/texts/missing", method="POST", body=TextQuestion)
@needs("ingest")
def list_missing() -> MissingTexts:
    """Return which of the given texts have to be sent; those that were dropped are recorded."""
    question = request.get_json(silent=True)
    if not isinstance(question, dict):
        raise PushRefused(400, 'Expected {"digests": […]} as JSON.')
    digests, dropped = _read_digests(question, "digests"), _read_digests(question, "dropped")
    if dropped:
        run_id = question.get("run")
        if not isinstance(run_id, str):
            raise PushRefused(400, "run: expected the run of what was dropped.")
        if not may_add(get_reader(), run_id, get_sender()):
            raise PushRefused(403, str(NotOwner(get_sender(), run_id)))
        _store(lambda writer: save_dropped_digests(writer.connection, run_id, dropped))
    return MissingTexts(
        [digest for digest in digests if digest not in find_texts(get_reader(), [digest])]
    )


@operation("/texts/<digest>", method="PUT", status=201)
@needs("ingest")
def save(digest: str) -> Annotated[Response, None]:
    """Store a text by its content; returns 200 if it is already stored."""
    if not DIGEST.fullmatch(digest):
        raise PushRefused(400, f"digest: expected 32 hex digits, got {digest[:80]!r}.")
    with _limit_large_bodies():
        text = _receive(MAX_TEXT_BYTES, MAX_TEXT_BYTES)
        if digest_of(text) != digest:
            raise PushRefused(460, f"The text is {digest_of(text)}, not {digest}. Send it again.")
        if find_texts(get_reader(), [digest]):
            return _answer(200, {})
        size_bytes, packed, now_us = len(text), pack_large(text), time.time_ns() // 1000
        del text  # not needed while waiting for its turn
        is_new = _store(
            lambda writer: save_text(writer.connection, digest, size_bytes, packed, now_us)
        )
        return _answer(201 if is_new else 200, {})


@operation("/texts", method="POST", status=204)
@needs("ingest")
def save_several() -> Annotated[Response, None]:
    """Store several texts by their content, all or none. Each text is `DIGEST BYTES plain|gzip`, a
    newline and the bytes.
    """
    with _limit_large_bodies():
        body = _receive(MAX_BODY_BYTES, MAX_BODY_BYTES)
        try:
            texts = list(split_texts(body))
        except WireError as error:
            raise PushRefused(400, f"{error}.") from None
        there = find_texts(get_reader(), [text.digest for text in texts])
        packed = [
            (digest, len(text), pack_large(text))
            for digest, text in unpack_texts(texts, MAX_PLAIN_BYTES)
            if digest not in there
        ]
        _count_bytes(sum(size_bytes for _, size_bytes, _ in packed))
        now_us = time.time_ns() // 1000
        _store(lambda writer: save_texts(writer.connection, packed, now_us))
        return _answer(204, {})


def _read_digests(question: dict[str, Any], name: str) -> list[str]:
    digests = question.get(name) or []
    is_list = isinstance(digests, list) and len(digests) <= MAX_DIGESTS
    if not is_list or not all(
        isinstance(digest, str) and DIGEST.fullmatch(digest) for digest in digests
    ):
        raise PushRefused(400, f"{name}: expected at most {MAX_DIGESTS:,} texts of 32 hex digits.")
    return list(digests)


@contextmanager
def _limit_large_bodies() -> Iterator[None]:
    if (request.content_length or 0) <= SMALL_BYTES:
        yield
        return
    with _without_permit():
        is_admitted = large_bodies.acquire(timeout=LARGE_BODY_WAIT_S)
    if not is_admitted:
        raise PushRefused(
            503, "Other large bodies are being received. Try again soon.", retry_after_s=1
        )
    try:
        yield
    finally:
        large_bodies.release()


def _without_permit() -> AbstractContextManager[None]:
    connection = request.environ.get("gunicorn.socket")
    return nullcontext() if connection is None else connection.without_permit()


def _receive(max_bytes: int, max_plain_bytes: int) -> bytes:
    bytes_per_min = get_settings().push_rate_mib * MIB
    wait_s = rates.get_wait_s(_get_client(), bytes_per_min)
    if wait_s:
        raise PushRefused(
            429,
            f"Expected {bytes_per_min // MIB:,} MiB a minute at most. Wait {wait_s} s.",
            retry_after_s=wait_s,
        )
    renew_reader()
    plain = receive_body(request.environ, max_bytes, max_plain_bytes)
    _count_bytes(len(plain))
    return plain


def _count_bytes(size_bytes: int) -> None:
    rates.charge(_get_client(), size_bytes, get_settings().push_rate_mib * MIB)


def _get_client() -> str:
    return get_identity().token_id or request.remote_addr or ""


def _store(job: Callable[[StreamWriter], Result]) -> Result:
    renew_reader()
    settings = get_settings()
    future = get_writer_thread(get_board_path(), settings.push_queue).submit(job)
    with _without_permit():
        return future.result()


def _answer(status: int, headers: dict[str, str]) -> Response:
    response: Response = current_app.response_class(status=status, headers=headers)
    return response
