"""Write and read several texts in one body, each after a line with digest, size and encoding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compileboard.collectors.wire.lines import WireError

MAX_TEXTS = 1000  # per body
_HEAD = re.compile(rb"([0-9a-f]{32}) (\d{1,8}) (plain|gzip)\n")


@dataclass(frozen=True)
class SentText:
    digest: str
    body: bytes
    is_packed: bool  # Whether it is compressed with gzip.


def dump_texts(texts: Iterable[SentText]) -> bytes:
    return b"".join(
        b"%s %d %s\n%s"
        % (text.digest.encode(), len(text.body), b"gzip" if text.is_packed else b"plain", text.body)
        for text in texts
    )


def split_texts(body: bytes) -> Iterator[SentText]:
    begin = count = 0
    while begin < len(body):
        head = _HEAD.match(body, begin)
        end = head.end() + int(head[2]) if head else 0
        if head is None or end > len(body):
            raise WireError(
                f"byte {begin:,} of the body: expected DIGEST BYTES plain|gzip and so many bytes"
            )
        count += 1
        if count > MAX_TEXTS:
            raise WireError(f"more than {MAX_TEXTS:,} texts")
        yield SentText(head[1].decode(), body[head.end() : end], head[3] == b"gzip")
        begin = end
