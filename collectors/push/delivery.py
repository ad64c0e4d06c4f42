"""Send one stream or bundle, one request at a time, by the push protocol."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from compileboard.collectors.push.client import Client, ServerAnswer, pack, quote_path
from compileboard.collectors.push.losses import Losses, make_stand_in
from compileboard.collectors.push.outbox import OutboxStream, SentState, Waiting
from compileboard.collectors.push.refusals import OF_CONTENT, Refused, explain, find_value, refuse
from compileboard.collectors.push.texts import TextDelivery, list_texts
from compileboard.collectors.wire.lines import REQUEST_BYTES, WireError, checksum_of, read_line
from compileboard.collectors.wire.marks import StreamEnd, dump_mark

LONG_PAUSE_S = 600.0  # before what cannot be imported is sent again


@dataclass
class Sent:
    plain_bytes: int = 0
    is_done: bool = False


class StreamDelivery:
    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting
        self._path = f"runs/{quote_path(waiting.run_id)}/streams/{quote_path(waiting.name)}"
        self._state: SentState | None = None  # None: to be asked for
        self._refused_offset = -1  # of a line that was refused once
        self.losses = Losses(waiting.read_sent().lost_count)
        self._texts = TextDelivery(waiting, self.losses)

    def forget(self) -> None:
        self._state = None

    def step(self, client: Client) -> Sent:
        """Send at most one request of lines. Raises ServerAway or Refused."""
        is_written = (
            self.waiting.is_written()
        )  # before: what its writer wrote before it went is then read
        if self._state is None:
            self._state = self._ask_state(client)
            if self._state is None:
                return Sent(is_done=self._restart(is_written))
        lines = self.waiting.read(self._state.offset, REQUEST_BYTES)
        if not lines:
            if is_written:
                return Sent()
            self.waiting.delete()  # a torn last line is nobody's: what died wrote it
            return Sent(is_done=True)
        self._texts.send(client, list_texts(lines))
        return self._send_lines(client, lines, self._state, is_written)

    def _ask_state(self, client: Client) -> SentState | None:
        answer = client.ask("HEAD", self._path)
        if answer.status == 404 and answer.offset is None:
            return self._check_state(SentState())
        if answer.status != 200 or answer.offset is None:
            self._check_refusal(answer)
        text = answer.headers.get("upload-checksum", "").removeprefix("crc32").strip()
        try:
            checksum = int(text, 16)
        except ValueError:
            checksum = 0
        return self._check_state(SentState(answer.offset or 0, checksum))

    def _check_state(self, stored: SentState) -> SentState | None:
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
                    return None  # the server has more than is here, or another line's middle
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

    def _send_lines(self, client: Client, lines: bytes, state: SentState, is_written: bool) -> Sent:
        answer = self._patch(client, lines, state)
        if self._state is not None:
            return Sent(len(lines))
        if answer.status in OF_CONTENT:
            return self._send_less(client, lines, state, answer, is_written)
        if answer.status == 409:
            if find_value(answer, "restart", bool):
                return Sent(is_done=self._restart(is_written))
            if missing := find_value(answer, "missing", list):
                self._texts.send(client, [str(digest) for digest in missing])
            return Sent()  # a gap: the next step asks where to go on
        if answer.status not in (200, 204):
            self._check_refusal(answer)
        return Sent()

    def _patch(self, client: Client, lines: bytes, state: SentState) -> ServerAnswer:
        self._state = None  # until the answer is here, nothing is known
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
            self._state = SentState(
                end, checksum_of(lines, state.checksum), lost_count=self.losses.line_count
            )
            self.waiting.write_sent(self._state)
            self._texts.delete(list_texts(lines))
        return answer

    def _send_less(
        self,
        client: Client,
        lines: bytes,
        state: SentState,
        refusal: ServerAnswer,
        is_written: bool,
    ) -> Sent:
        """Send the first half of rejected lines; a single line rejected twice is replaced by its
        loss.

        Raises Refused the first time, or if the replacement is rejected too: then the content is
        not the cause, and nothing is lost.
        """
        if lines.count(b"\n") > 1:
            half = lines.rfind(b"\n", 0, len(lines) // 2) + 1 or lines.index(b"\n") + 1
            return self._send_lines(client, lines[:half], state, is_written)
        words = explain(refusal)
        stand_in = make_stand_in(lines, self.waiting.name, self.losses.line_count + 1, words)
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
        return Sent(len(lines))

    def _check_refusal(self, answer: ServerAnswer) -> None:
        """Raises Refused. For a run deleted or pruned on the server, its waiting data is deleted
        too.
        """
        if answer.status == 410 and self.waiting.is_written():
            self.waiting.write_stop("deleted")
        elif answer.status == 410:
            self.waiting.delete()
        raise refuse(answer)


def read_lines(waiting: Waiting) -> Iterator[bytes]:
    segments = waiting.list_segments()
    offset = segments[0][0] if segments else 0
    while lines := waiting.read(offset, REQUEST_BYTES):
        yield from lines.splitlines(keepends=True)
        offset += len(lines)


def copy_stream(waiting: Waiting) -> None:
    """Copy the rest of a stream into a new one with its own end.

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

    A bundle rejected or failing three times is set aside until the user pushes again.
    """

    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting
        self.losses = Losses()

    def forget(self) -> None: ...

    def step(self, client: Client) -> Sent:
        waiting, state = self.waiting, self.waiting.read_sent()
        if state.import_id is None:
            return self._send(client, state)
        answer = client.ask("GET", f"imports/{quote_path(state.import_id)}")
        if (
            answer.status == 404
        ):  # it is not listed any more: sent again, a run that is there adds nothing
            waiting.write_sent(replace(state, import_id=None))
            return Sent()
        if answer.status != 200:
            raise refuse(answer)
        import_state = find_value(answer, "state", str)
        if import_state not in ("done", "failed"):
            return Sent()
        if import_state == "failed":
            words = find_value(answer, "message", str) or answer.describe()
            raise self._count_refusal(
                state, Refused(f"the server could not import it: {words}", 400, LONG_PAUSE_S)
            )
        waiting.delete()
        return Sent(is_done=True)

    def _send(self, client: Client, state: SentState) -> Sent:
        waiting = self.waiting
        size_bytes = waiting.measure()
        with waiting.bundle.open("rb") as file:
            path = f"imports?filename={quote_path(waiting.run_id)}.db"
            answer = client.ask("POST", path, file, Content_Type="application/octet-stream")
        import_id = find_value(answer, "id", str)
        if answer.status in OF_CONTENT:
            raise self._count_refusal(state, Refused(explain(answer), answer.status, LONG_PAUSE_S))
        if answer.status not in (200, 202) or import_id is None:
            raise refuse(answer)
        waiting.write_sent(replace(state, import_id=import_id))
        return Sent(size_bytes)

    def _count_refusal(self, state: SentState, refused: Refused) -> Refused:
        counted = replace(state, import_id=None, refused_count=state.refused_count + 1)
        self.waiting.write_sent(
            replace(counted, refused_us=time.time_ns() // 1000, refusal=str(refused))
        )
        return refused


def open_delivery(waiting: Waiting) -> StreamDelivery | BundleDelivery:
    return StreamDelivery(waiting) if waiting.kind == "stream" else BundleDelivery(waiting)
