"""Send the long texts that lines refer to by digest, before the lines."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from compileboard.collectors.push.client import Client
from compileboard.collectors.push.losses import Losses
from compileboard.collectors.push.outbox import MOST_REFUSALS, Waiting, find_text
from compileboard.collectors.push.refusals import OF_CONTENT, Refused, explain, find_value, refuse
from compileboard.collectors.wire.lines import WireError, digest_of, list_digests, read_line
from compileboard.collectors.wire.texts import MOST_TEXTS, SentText, dump_texts

MOST_DIGESTS = 500  # in one question
TOGETHER_BYTES, TOGETHER_PLAIN_BYTES = (
    512 << 10,
    8 << 20,
)  # of texts in one request; a larger one goes alone
STORED = (200, 201, 204)
NOT_TOGETHER = (404, 405)  # of an older server


class TextDelivery:
    def __init__(self, waiting: Waiting, losses: Losses) -> None:
        self._folder = waiting.folder
        self._run_id = waiting.run_id
        self._losses = losses
        self._takes_several = True
        self._refused_counts: Counter[str] = Counter()  # by text
        self._refusal: Refused | None = None  # of a text that is tried again

    def send(self, client: Client, digests: list[str]) -> None:
        """Send the texts that the server lacks and report those that no longer exist.

        Raises ServerAway or Refused.
        """
        for first in range(0, len(digests), MOST_DIGESTS):
            asked = digests[first : first + MOST_DIGESTS]
            self._refusal = None
            single = self._send_together(client, self._ask_missing(client, asked))
            dropped = [digest for digest in single if not self._send_one(client, digest)]
            if dropped:
                self._ask_missing(client, [], dropped)
            if self._refusal is not None:
                raise self._refusal

    def _send_together(self, client: Client, digests: list[str]) -> list[str]:
        single: list[str] = []
        texts: list[SentText] = []
        size_bytes = plain_bytes = 0
        for digest in [*digests, ""]:
            text = _read_small(self._folder, digest) if self._takes_several and digest else None
            text_bytes, text_plain_bytes = _measure(text)
            size_bytes, plain_bytes = size_bytes + text_bytes, plain_bytes + text_plain_bytes
            is_full = (
                size_bytes > TOGETHER_BYTES
                or plain_bytes > TOGETHER_PLAIN_BYTES
                or len(texts) >= MOST_TEXTS
            )
            if texts and (is_full or not digest):
                if not self._post(client, texts):
                    single += [sent.digest for sent in texts]
                texts, size_bytes, plain_bytes = [], text_bytes, text_plain_bytes
            if text is not None and self._takes_several:
                texts.append(text)
            elif digest:
                single.append(digest)
        return single

    def _post(self, client: Client, texts: list[SentText]) -> bool:
        answer = client.ask(
            "POST", "texts", dump_texts(texts), Content_Type="application/octet-stream"
        )
        self._takes_several = answer.status not in NOT_TOGETHER
        if answer.status in STORED:
            return True
        if self._takes_several and answer.status != 460 and answer.status not in OF_CONTENT:
            raise refuse(answer)
        return False

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
        path = find_text(self._folder, digest)
        body = _read(path)
        if path is None or body is None:
            return False
        headers = {"Content_Encoding": "gzip"} if path.suffix == ".gz" else {}
        answer = client.ask(
            "PUT", f"texts/{digest}", body, **headers, Content_Type="application/octet-stream"
        )
        if answer.status in STORED:
            return True
        if answer.status == 460 and not _is_whole(path, body, digest):
            return False
        if answer.status not in OF_CONTENT:
            raise refuse(answer)
        self._refused_counts[digest] += 1
        if self._refused_counts[digest] < MOST_REFUSALS:
            self._refusal = refuse(answer)
            return True
        if client.ask("PUT", f"texts/{digest_of(b'')}", b"").status not in STORED:
            raise refuse(answer)  # texts are refused for what all of them have: nothing is lost
        self._losses.text_count += 1
        self._losses.words = explain(answer)
        return False


def _read_small(folder: Path, digest: str) -> SentText | None:
    path = find_text(folder, digest)
    body = _read(path)
    if path is None or body is None:
        return None
    text = SentText(digest, body, path.suffix == ".gz")
    size_bytes, plain_bytes = _measure(text)
    return text if size_bytes <= TOGETHER_BYTES and plain_bytes <= TOGETHER_PLAIN_BYTES else None


def _measure(text: SentText | None) -> tuple[int, int]:
    if text is None:
        return 0, 0
    # The last 4 bytes of a gzip are the size of what it packs.
    return len(text.body), int.from_bytes(text.body[-4:], "little") if text.is_packed else len(
        text.body
    )


def _read(path: Path | None) -> bytes | None:
    with suppress(OSError):
        return None if path is None else path.read_bytes()
    return None


def _is_whole(path: Path, body: bytes, digest: str) -> bool:
    with suppress(OSError, EOFError, zlib.error):
        return digest_of(gzip.decompress(body) if path.suffix == ".gz" else body) == digest
    return False


def list_texts(lines: bytes) -> list[str]:
    digests: dict[str, None] = {}
    for line in lines.splitlines():
        if b'"texts":' in line or b'"pieces":' in line:
            with suppress(WireError):
                digests.update(dict.fromkeys(list_digests(read_line(line))))
    return list(digests)
