"""Send one stream or bundle, a request at a time, exactly as the wire's protocol says."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compileboard.collectors.push.client import Client, ServerAnswer, pack, quote_path
from compileboard.collectors.push.outbox import OutboxStream, SentState, Waiting, find_text
from compileboard.collectors.wire.lines import REQUEST_BYTES, checksum_of, list_digests, read_line
from compileboard.collectors.wire.marks import StreamEnd, dump_mark

MOST_DIGESTS = 500  # in one question
LONG_PAUSE_S = 600.0  # before what cannot be imported is sent again


class Refused(Exception):
    """The server does not take what was sent. `pause_s` is how long it asks to wait."""

    def __init__(self, words: str, status: int, pause_s: float = 0.0) -> None:
        super().__init__(words)
        self.pause_s = pause_s
        self.is_token = status in (401, 403)
        self.is_deleted = status == 410
        self.is_of_one = status in (400, 403, 404, 409, 410, 413, 426)  # other runs may be taken


@dataclass
class Sent:
    """What one step sent: bytes of lines as they are, and whether all is delivered."""

    plain_bytes: int = 0
    is_done: bool = False


class StreamDelivery:
    """The delivery of one stream: where it stands, and the next request. After any error it asks where to go on."""

    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting
        self._path = f"runs/{quote_path(waiting.run_id)}/streams/{quote_path(waiting.name)}"
        self._state: SentState | None = None  # None: to be asked for
        self._sent_texts: list[Path] = []  # to be deleted when the lines that name them are stored

    def forget(self) -> None:
        """Drop what is known of the server: a request failed, and may have been stored."""
        self._state = None

    def step(self, client: Client) -> Sent:
        """Send what comes next, at most one request of lines.

        Raises: ServerAway; Refused.
        """
        is_written = self.waiting.is_written()  # before: what its writer wrote before it went is then read
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
        self._send_texts(client, lines)
        return self._send_lines(client, lines, is_written)

    def _ask_state(self, client: Client) -> SentState | None:
        """Return how far the server has the stream, None where it has another than this one."""
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
        """Compare what the server has with the same bytes here, as far as they are here."""
        known = self.waiting.read_sent()
        if stored == known or (stored.offset == 0 and self._begins_at(0)):
            return stored
        offset, checksum = (known.offset, known.checksum) if known.offset <= stored.offset else (0, 0)
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
        self.waiting.write_sent(stored)
        return stored

    def _begins_at(self, offset: int) -> bool:
        segments = self.waiting.list_segments()
        return offset == 0 if not segments else segments[0][0] <= offset

    def _restart(self, is_written: bool) -> bool:
        """Begin a new stream: its recorder does, or, where that is gone, what is left of the lines is copied."""
        if is_written:
            self.waiting.write_stop("restart")
            return False
        copy_stream(self.waiting)
        self.waiting.delete()
        return True

    def _send_texts(self, client: Client, lines: bytes) -> None:
        digests = list_texts(lines)
        for first in range(0, len(digests), MOST_DIGESTS):
            self._offer_texts(client, digests[first : first + MOST_DIGESTS])

    def _offer_texts(self, client: Client, digests: list[str]) -> None:
        """Send those of some texts that the server lacks and that are still here; tell it which are not."""
        folder, run_id = self.waiting.folder, self.waiting.run_id
        missing = self._ask_missing(client, {"digests": digests, "run": run_id, "dropped": []})
        dropped = []
        for digest in missing:
            path = find_text(folder, digest)
            try:
                body = path.read_bytes() if path is not None else None
            except OSError:
                body = None
            if path is None or body is None:
                dropped.append(digest)
                continue
            headers = {"Content_Encoding": "gzip"} if path.suffix == ".gz" else {}
            answer = client.ask("PUT", f"texts/{digest}", body, **headers, Content_Type="application/octet-stream")
            if answer.status not in (200, 201, 204):
                self._check_refusal(answer)
        if dropped:
            self._ask_missing(client, {"digests": [], "run": run_id, "dropped": dropped})
        for digest in digests:
            if (path := find_text(folder, digest)) is not None:
                self._sent_texts.append(path)

    def _ask_missing(self, client: Client, question: dict[str, Any]) -> list[str]:
        body = json.dumps(question).encode()
        answer = client.ask("POST", "texts/missing", body, Content_Type="application/json")
        if answer.status != 200:
            self._check_refusal(answer)
        asked = set(question["digests"])
        return [digest for digest in _find(answer, "missing", list) or [] if digest in asked]

    def _send_lines(self, client: Client, lines: bytes, is_written: bool) -> Sent:
        assert self._state is not None
        state = self._state
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
        if answer.status in (200, 204) and answer.offset is not None:
            end = state.offset + len(lines)
            if answer.offset == end:
                self._state = SentState(end, checksum_of(lines, state.checksum))
                self.waiting.write_sent(self._state)
            for path in self._sent_texts:
                path.unlink(missing_ok=True)
            self._sent_texts.clear()
            return Sent(len(lines))
        if answer.status == 409:
            if _find(answer, "restart", bool):
                return Sent(is_done=self._restart(is_written))
            if missing := _find(answer, "missing", list):
                self._offer_texts(client, [str(digest) for digest in missing][:MOST_DIGESTS])
            return Sent()  # a gap: the next step asks where to go on
        if answer.status == 460:
            return Sent()
        self._check_refusal(answer)
        return Sent()

    def _check_refusal(self, answer: ServerAnswer) -> None:
        """Raises: Refused; what waits of a deleted or pruned run goes, and nothing more of it is written."""
        if answer.status == 410 and self.waiting.is_written():
            self.waiting.write_stop("deleted")
        elif answer.status == 410:
            self.waiting.delete()
        raise Refused(explain(answer), answer.status, answer.pause_s)


def explain(answer: ServerAnswer) -> str:
    """Return what a refusal means and what to do, with the server's own words."""
    actions = {
        401: "the token is missing, wrong, expired or revoked; make one on the server with `token create`",
        403: "the token lacks the scope `ingest`, or another token began this stream",
        404: "there is no such address; is it a CompileBoard server of this version?",
        410: "the run was deleted or pruned on the server",
        426: "the server is older than this collector; upgrade the server",
        507: "the server's disk is full",
    }
    if 300 <= answer.status < 400:
        return (
            f"the server redirects to {answer.headers.get('location', 'another address')[:200]}; give that to --server"
        )
    action = actions.get(answer.status)
    return f"{action} ({answer.describe()})" if action else f"the server answers {answer.describe()}"


def _find(answer: ServerAnswer, name: str, kind: type) -> Any:
    """Return a value of an answer, at its top or in its `data`."""
    data = answer.body.get("data")
    for body in (answer.body, data):
        if isinstance(body, dict) and isinstance(body.get(name), kind):
            return body[name]
    return None


def list_texts(lines: bytes) -> list[str]:
    """List the texts that lines leave to be sent by content, each once, in their order."""
    digests: dict[str, None] = {}
    for line in lines.splitlines():
        if b'"texts":' in line or b'"pieces":' in line:
            digests.update(dict.fromkeys(list_digests(read_line(line))))
    return list(digests)


def read_lines(waiting: Waiting) -> Iterator[bytes]:
    """Yield the lines of a stream that are still here."""
    segments = waiting.list_segments()
    offset = segments[0][0] if segments else 0
    while lines := waiting.read(offset, REQUEST_BYTES):
        yield from lines.splitlines(keepends=True)
        offset += len(lines)


def copy_stream(waiting: Waiting) -> None:
    """Write what is left of a stream as a new one, with an end of its own.

    Raises: OSError if the disk does not take it; the old stream is then still there.
    """
    writer = OutboxStream(waiting.folder.parent, waiting.run_id, uuid.uuid4().hex, waiting.target)
    checksum = 0
    try:
        for line in read_lines(waiting):
            body = read_line(line)
            if body.get("mark") == StreamEnd.MARK:
                line = dump_mark(StreamEnd(writer.size_bytes, checksum, int(body.get("lost_count", 0))))
            if writer.append([line]) != 1:
                raise OSError(28, "the disk is full")
            checksum = checksum_of(line, checksum)
    finally:
        writer.close()


class BundleDelivery:
    """The delivery of one bundle: an import of the server's, asked after until it ends."""

    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting

    def forget(self) -> None:
        """Do nothing: the outbox has all that is known."""

    def step(self, client: Client) -> Sent:
        """Send it, or ask how its import stands.

        Raises: ServerAway; Refused.
        """
        waiting, state = self.waiting, self.waiting.read_sent()
        if state.import_id is None:
            return self._send(client)
        answer = client.ask("GET", f"imports/{quote_path(state.import_id)}")
        if answer.status == 404:  # it is not listed any more: sent again, a run that is there adds nothing
            waiting.write_sent(replace(state, import_id=None))
            return Sent()
        if answer.status != 200:
            raise Refused(explain(answer), answer.status, answer.pause_s)
        import_state = _find(answer, "state", str)
        if import_state not in ("done", "failed"):
            return Sent()
        if import_state == "failed":
            waiting.write_sent(replace(state, import_id=None))
            words = _find(answer, "message", str) or answer.describe()
            raise Refused(f"the server could not import it: {words}", 400, LONG_PAUSE_S)
        waiting.delete()
        return Sent(is_done=True)

    def _send(self, client: Client) -> Sent:
        waiting = self.waiting
        size_bytes = waiting.measure()
        with waiting.bundle.open("rb") as file:
            path = f"imports?filename={quote_path(waiting.run_id)}.db"
            answer = client.ask("POST", path, file, Content_Type="application/octet-stream")
        import_id = _find(answer, "id", str)
        if answer.status not in (200, 202) or import_id is None:
            raise Refused(explain(answer), answer.status, answer.pause_s)
        waiting.write_sent(SentState(import_id=import_id))
        return Sent(size_bytes)


def open_delivery(waiting: Waiting) -> StreamDelivery | BundleDelivery:
    """Return the delivery of what waits."""
    return StreamDelivery(waiting) if waiting.kind == "stream" else BundleDelivery(waiting)
