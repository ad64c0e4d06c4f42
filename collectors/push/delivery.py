"""Send one stream or bundle, one request at a time, by the push protocol."""

from __future__ import annotations

import gzip
import json
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.push.client import (
    OF_CONTENT,
    Client,
    Refused,
    ServerResponse,
    explain,
    find_value,
    pack,
    quote_path,
    refuse,
)
from compileboard.collectors.push.outbox import (
    MAX_REFUSALS,
    DeliveryProgress,
    OutboxStream,
    WaitingDelivery,
    find_text,
)
from compileboard.collectors.wire.lines import (
    REQUEST_BYTES,
    WireError,
    checksum_of,
    digest_of,
    list_digests,
    read_line,
)
from compileboard.collectors.wire.marks import SpoolRejects, StreamEnd, dump_mark
from compileboard.collectors.wire.texts import MAX_TEXTS, SentText, dump_texts

FREE_CHARACTERS = 32  # one per bit of the checksum
MAX_WORDS = 60


@dataclass
class Losses:
    line_count: int = 0
    text_count: int = 0
    words: str = ""

    def describe(self) -> str | None:
        counts = ((self.line_count, "line"), (self.text_count, "text"))
        named = [f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count]
        return f"{' and '.join(named)} lost: {self.words}" if named else None


def make_loss_line(line: bytes, stream_id: str, lost_count: int, reason: str) -> bytes | None:
    """Return a line that reports a lost one and has its length and CRC-32, or None if the lost line
    is too short.

    Later offsets and checksums of the stream therefore stay valid.
    """
    rejects = Rejects()
    rejects.add("not_taken", None, reason[:MAX_WORDS], lost_count)
    head = dump_mark(SpoolRejects(stream_id, rejects))[:-2] + b',"filler":"'
    end = b'"}\n'
    filler_count = len(line) - len(head) - len(end) - FREE_CHARACTERS
    if filler_count < 0:
        return None
    head += b"A" * filler_count
    return head + _fit_checksum(checksum_of(head), end, checksum_of(line)) + end


def _fit_checksum(before: int, end: bytes, expected: int) -> bytes:
    """Choose the free characters of a line, each A or C, so that it has the expected checksum.

    CRC-32 is linear: the changes of the characters combine by XOR. Its polynomial is irreducible,
    so changes of 32 bits at distances of 8 are independent, and Gaussian elimination finds a
    solution for any checksum.
    """
    plain = b"A" * FREE_CHARACTERS
    base = checksum_of(plain + end, before)
    rows: dict[
        int, tuple[int, int]
    ] = {}  # by its highest bit: a change, and the characters that make it
    for position in range(FREE_CHARACTERS):
        changed = plain[:position] + b"C" + plain[position + 1 :]
        change, characters = _reduce_row(
            checksum_of(changed + end, before) ^ base, 1 << position, rows
        )
        rows[change.bit_length()] = (change, characters)
    _rest, characters = _reduce_row(base ^ expected, 0, rows)
    return bytes(b"AC"[characters >> position & 1] for position in range(FREE_CHARACTERS))


def _reduce_row(change: int, characters: int, rows: dict[int, tuple[int, int]]) -> tuple[int, int]:
    while change and (row := rows.get(change.bit_length())):
        change, characters = change ^ row[0], characters ^ row[1]
    return change, characters


MAX_DIGESTS = 500  # per request
TOGETHER_BYTES, TOGETHER_PLAIN_BYTES = (
    512 << 10,
    8 << 20,
)  # Size of the texts in one request; a larger text is sent alone.
STORED = (200, 201, 204)


class TextDelivery:
    def __init__(self, waiting: WaitingDelivery, losses: Losses) -> None:
        self._folder = waiting.folder
        self._run_id = waiting.run_id
        self._losses = losses
        self._refused_counts: Counter[str] = Counter()  # by text
        self._refusal: Refused | None = None  # The refusal of a text that is retried.

    def send(self, client: Client, digests: list[str]) -> None:
        """Send the texts that the server lacks and report those that no longer exist.

        Raises ServerUnavailable or Refused.
        """
        for first in range(0, len(digests), MAX_DIGESTS):
            asked = digests[first : first + MAX_DIGESTS]
            self._refusal = None
            single = self._send_small_texts(client, self._ask_missing(client, asked))
            dropped = [digest for digest in single if not self._send_one(client, digest)]
            if dropped:
                self._ask_missing(client, [], dropped)
            if self._refusal is not None:
                raise self._refusal

    def _send_small_texts(self, client: Client, digests: list[str]) -> list[str]:
        """Send the small texts, several per request; return those that must be sent
        individually.
        """
        single: list[str] = []

        def read_small() -> Iterator[SentText]:
            for digest in digests:
                text = _read_text(self._folder, digest)
                if text is not None and _is_small(text):
                    yield text
                else:
                    single.append(digest)

        for texts in _group_texts(read_small()):
            if not self._post(client, texts):
                single += [text.digest for text in texts]
        return single

    def _post(self, client: Client, texts: list[SentText]) -> bool:
        answer = client.ask(
            "POST", "texts", dump_texts(texts), Content_Type="application/octet-stream"
        )
        if answer.status not in (*STORED, *OF_CONTENT, 460):
            raise refuse(answer)
        return answer.status in STORED

    def delete(self, digests: Iterable[str]) -> None:
        for digest in digests:
            if (path := find_text(self._folder, digest)) is not None:
                path.unlink(missing_ok=True)

    def _ask_missing(
        self, client: Client, digests: list[str], dropped: Iterable[str] = ()
    ) -> list[str]:
        question: dict[str, Any] = {
            "digests": digests,
            "run": self._run_id,
            "dropped": list(dropped),
        }
        answer = client.ask(
            "POST", "texts/missing", json.dumps(question).encode(), Content_Type="application/json"
        )
        if answer.status != 200:
            raise refuse(answer)
        asked = set(digests)
        return [digest for digest in find_value(answer, "missing", list) or [] if digest in asked]

    def _send_one(self, client: Client, digest: str) -> bool:
        text = _read_text(self._folder, digest)
        if text is None:
            return False
        headers = {"Content_Encoding": "gzip"} if text.is_packed else {}
        answer = client.ask(
            "PUT", f"texts/{digest}", text.body, **headers, Content_Type="application/octet-stream"
        )
        if answer.status in STORED:
            return True
        if answer.status == 460 and not _is_whole(text):
            return False
        if answer.status not in OF_CONTENT:
            raise refuse(answer)
        self._refused_counts[digest] += 1
        if self._refused_counts[digest] < MAX_REFUSALS:
            self._refusal = refuse(answer)
            return True
        if client.ask("PUT", f"texts/{digest_of(b'')}", b"").status not in STORED:
            raise refuse(answer)  # the reason concerns all texts: nothing is lost
        self._losses.text_count += 1
        self._losses.words = explain(answer)
        return False


def _read_text(folder: Path, digest: str) -> SentText | None:
    path = find_text(folder, digest)
    with suppress(OSError):
        if path is not None:
            return SentText(digest, path.read_bytes(), path.suffix == ".gz")
    return None


def _is_small(text: SentText) -> bool:
    return len(text.body) <= TOGETHER_BYTES and _measure_plain(text) <= TOGETHER_PLAIN_BYTES


def _measure_plain(text: SentText) -> int:
    # The last 4 bytes of a gzip file are its unpacked size.
    return int.from_bytes(text.body[-4:], "little") if text.is_packed else len(text.body)


def _group_texts(texts: Iterable[SentText]) -> Iterator[list[SentText]]:
    group: list[SentText] = []
    size_bytes = plain_bytes = 0
    for text in texts:
        size_bytes, plain_bytes = size_bytes + len(text.body), plain_bytes + _measure_plain(text)
        if group and (
            size_bytes > TOGETHER_BYTES
            or plain_bytes > TOGETHER_PLAIN_BYTES
            or len(group) >= MAX_TEXTS
        ):
            yield group
            group, size_bytes, plain_bytes = [], len(text.body), _measure_plain(text)
        group.append(text)
    if group:
        yield group


def _is_whole(text: SentText) -> bool:
    with suppress(OSError, EOFError, zlib.error):
        body = gzip.decompress(text.body) if text.is_packed else text.body
        return digest_of(body) == text.digest
    return False


def list_texts(lines: bytes) -> list[str]:
    digests: dict[str, None] = {}
    for line in lines.splitlines():
        if b'"texts":' in line or b'"pieces":' in line:
            with suppress(WireError):
                digests.update(dict.fromkeys(list_digests(read_line(line))))
    return list(digests)


LONG_PAUSE_S = 600.0  # before a bundle that cannot be imported is sent again


class StreamDelivery:
    def __init__(self, waiting: WaitingDelivery) -> None:
        self.waiting = waiting
        self._path = f"runs/{quote_path(waiting.run_id)}/streams/{quote_path(waiting.name)}"
        self._state: DeliveryProgress | None = None  # None: must be requested
        self._refused_offset = -1  # The offset of a line that was refused once.
        self.losses = Losses(waiting.read_sent().lost_count)
        self._texts = TextDelivery(waiting, self.losses)

    def forget(self) -> None:
        self._state = None

    def step(self, client: Client) -> bool:
        """Send at most one request of lines; return whether it made progress.

        Raises ServerUnavailable or Refused.
        """
        is_written = (
            self.waiting.is_written()
        )  # checked before reading, so that all of a finished writer's data is read
        if self._state is None:
            self._state = self._ask_state(client)
            if self._state is None:
                return self._restart(is_written)
        lines = self.waiting.read(self._state.offset, REQUEST_BYTES)
        if not lines:
            if is_written:
                return False
            self.waiting.delete()  # a torn last line was left by a process that died
            return True
        self._texts.send(client, list_texts(lines))
        return self._send_lines(client, lines, self._state, is_written)

    def _ask_state(self, client: Client) -> DeliveryProgress | None:
        answer = client.ask("HEAD", self._path)
        if answer.status == 404 and answer.offset is None:
            return self._check_state(DeliveryProgress())
        if answer.status != 200 or answer.offset is None:
            self._check_refusal(answer)
        text = answer.headers.get("upload-checksum", "").removeprefix("crc32").strip()
        try:
            checksum = int(text, 16)
        except ValueError:
            checksum = 0
        return self._check_state(DeliveryProgress(answer.offset or 0, checksum))

    def _check_state(self, stored: DeliveryProgress) -> DeliveryProgress | None:
        known = self.waiting.read_sent()
        is_known = (stored.offset, stored.checksum) == (known.offset, known.checksum)
        if stored.offset == 0:
            self.losses.line_count = 0  # they will be refused again
        if is_known or (stored.offset == 0 and self._begins_at(0)):
            return stored
        offset, checksum = (
            (known.offset, known.checksum) if known.offset <= stored.offset else (0, 0)
        )
        if not self._begins_at(offset):
            return None
        while offset < stored.offset:
            lines = self.waiting.read(offset, REQUEST_BYTES)
            if not lines or offset + len(lines) > stored.offset:
                lines = lines[: stored.offset - offset]
                if not lines.endswith(b"\n"):
                    return None  # the server has more than this machine, or ends inside a line
            checksum, offset = checksum_of(lines, checksum), offset + len(lines)
        if checksum != stored.checksum:
            return None
        self.waiting.write_sent(replace(stored, lost_count=self.losses.line_count))
        return stored

    def _begins_at(self, offset: int) -> bool:
        segments = self.waiting.list_segments()
        return offset == 0 if not segments else segments[0][0] <= offset

    def _restart(self, is_written: bool) -> bool:
        if is_written:
            self.waiting.write_stop("restart")
            return False
        copy_stream(self.waiting)
        self.waiting.delete()
        return True

    def _send_lines(
        self, client: Client, lines: bytes, state: DeliveryProgress, is_written: bool
    ) -> bool:
        answer = self._patch(client, lines, state)
        if self._state is not None:
            return True
        if answer.status in OF_CONTENT:
            return self._send_half(client, lines, state, answer, is_written)
        if answer.status == 409:
            if find_value(answer, "restart", bool):
                return self._restart(is_written)
            if missing := find_value(answer, "missing", list):
                self._texts.send(client, [str(digest) for digest in missing])
            return False  # a gap: the next step asks where to continue
        if answer.status not in (200, 204):
            self._check_refusal(answer)
        return False

    def _patch(self, client: Client, lines: bytes, state: DeliveryProgress) -> ServerResponse:
        self._state = None  # unknown until the response arrives
        body, headers = pack(lines)
        answer = client.ask(
            "PATCH",
            self._path,
            body,
            Upload_Offset=str(state.offset),
            Upload_Checksum=f"crc32 {checksum_of(lines):08x}",
            Content_Type="application/offset+octet-stream",
            **headers,
        )
        end = state.offset + len(lines)
        if answer.status in (200, 204) and answer.offset == end:
            self._state = DeliveryProgress(
                end, checksum_of(lines, state.checksum), lost_count=self.losses.line_count
            )
            self.waiting.write_sent(self._state)
            self._texts.delete(list_texts(lines))
        return answer

    def _send_half(
        self,
        client: Client,
        lines: bytes,
        state: DeliveryProgress,
        refusal: ServerResponse,
        is_written: bool,
    ) -> bool:
        """Send the first half of rejected lines. A single line that is rejected twice is replaced
        by a line that reports its loss.

        Raises Refused the first time, or if the replacement is rejected too: then the content is
        not the reason, and nothing is lost.
        """
        if lines.count(b"\n") > 1:
            half = lines.rfind(b"\n", 0, len(lines) // 2) + 1 or lines.index(b"\n") + 1
            return self._send_lines(client, lines[:half], state, is_written)
        words = explain(refusal)
        stand_in = make_loss_line(lines, self.waiting.name, self.losses.line_count + 1, words)
        if stand_in is None or self._refused_offset != state.offset:
            self._refused_offset = state.offset
            raise refuse(refusal)
        self.losses.line_count += 1
        self._patch(client, stand_in, state)
        if self._state is None:
            self.losses.line_count -= 1
            raise refuse(refusal)
        self.losses.words = words
        self._texts.delete(list_texts(lines))
        return True

    def _check_refusal(self, answer: ServerResponse) -> None:
        """Raise Refused with the server's reason. If the server has deleted or pruned the run,
        delete the data waiting for it, or stop the stream if it is still being written.
        """
        if answer.status == 410 and self.waiting.is_written():
            self.waiting.write_stop("deleted")
        elif answer.status == 410:
            self.waiting.delete()
        raise refuse(answer)


def read_lines(waiting: WaitingDelivery) -> Iterator[bytes]:
    segments = waiting.list_segments()
    offset = segments[0][0] if segments else 0
    while lines := waiting.read(offset, REQUEST_BYTES):
        yield from lines.splitlines(keepends=True)
        offset += len(lines)


def copy_stream(waiting: WaitingDelivery) -> None:
    """Copy the lines of a stream that are still on disk to a new stream, which is sent from its
    start. An end mark is rewritten with the new stream's size and checksum.

    Raises OSError if the disk is full; the old stream then still exists.
    """
    writer = OutboxStream(waiting.folder.parent, waiting.run_id, uuid.uuid4().hex, waiting.target)
    checksum = 0
    try:
        for line in read_lines(waiting):
            lost_count = _read_end(line)
            if lost_count is not None:
                line = dump_mark(StreamEnd(writer.size_bytes, checksum, lost_count))
            if writer.append([line]) != 1:
                raise OSError(28, "the disk is full")
            checksum = checksum_of(line, checksum)
    finally:
        writer.close()


def _read_end(line: bytes) -> int | None:
    try:
        body = read_line(line)
    except WireError:
        return None
    return int(body.get("lost_count", 0)) if body.get("mark") == StreamEnd.MARK else None


class BundleDelivery:
    """The delivery of one bundle: an import on the server, polled until it ends.

    A bundle that is rejected or fails three times is set aside until the user pushes again.
    """

    def __init__(self, waiting: WaitingDelivery) -> None:
        self.waiting = waiting
        self.losses = Losses()

    def forget(self) -> None: ...

    def step(self, client: Client) -> bool:
        waiting, state = self.waiting, self.waiting.read_sent()
        if state.import_id is None:
            return self._send(client, state)
        answer = client.ask("GET", f"imports/{quote_path(state.import_id)}")
        if (
            answer.status == 404
        ):  # no longer listed: sending it again adds nothing if the run exists
            waiting.write_sent(replace(state, import_id=None))
            return False
        if answer.status != 200:
            raise refuse(answer)
        import_state = find_value(answer, "state", str)
        if import_state not in ("done", "failed"):
            return False
        if import_state == "failed":
            words = find_value(answer, "message", str) or answer.describe()
            raise self._count_refusal(
                state, Refused(f"the server could not import it: {words}", 400, LONG_PAUSE_S)
            )
        waiting.delete()
        return True

    def _send(self, client: Client, state: DeliveryProgress) -> bool:
        waiting = self.waiting
        with waiting.bundle.open("rb") as file:
            path = f"imports?filename={quote_path(waiting.run_id)}.db"
            answer = client.ask("POST", path, file, Content_Type="application/octet-stream")
        import_id = find_value(answer, "id", str)
        if answer.status in OF_CONTENT:
            raise self._count_refusal(state, Refused(explain(answer), answer.status, LONG_PAUSE_S))
        if answer.status not in (200, 202) or import_id is None:
            raise refuse(answer)
        waiting.write_sent(replace(state, import_id=import_id))
        return True

    def _count_refusal(self, state: DeliveryProgress, refused: Refused) -> Refused:
        counted = replace(state, import_id=None, refused_count=state.refused_count + 1)
        self.waiting.write_sent(replace(counted, refused_us=read_clock_us(), refusal=str(refused)))
        return refused


def open_delivery(waiting: WaitingDelivery) -> StreamDelivery | BundleDelivery:
    return StreamDelivery(waiting) if waiting.kind == "stream" else BundleDelivery(waiting)
