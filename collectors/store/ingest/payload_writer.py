"""Store each text once by content, compressed in background threads."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b

from compileboard.collectors.store.codec import pack_large
from compileboard.collectors.store.connection import read_value
from compileboard.collectors.store.ingest.insert import Insert

_PAYLOAD = Insert("payloads")
_REMEMBERED = 20_000  # texts whose row is known by heart
_REMEMBERED_BYTES = 16 << 20  # The size of packed texts whose rows are remembered.
_AT_ONCE_BYTES = 4 << 10  # a shorter text is packed before a thread would have begun


@dataclass
class _Packed:
    digest: bytes
    size_bytes: int
    body: bytes | None  # None: its row was known


@dataclass
class PendingText:
    """A text whose row exists once its batch is flushed."""

    row_id: int = 0


class TextReference(str):
    row_id: int

    @classmethod
    def of(cls, row_id: int) -> TextReference:
        text = cls()
        text.row_id = row_id
        return text


class PackedText(str):
    """A text compressed by another process. Its str value is empty."""

    packed: _Packed


class TextPacker:
    """Compresses each distinct text once, for another process that stores it."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, bytes] = OrderedDict()
        self._known_bytes = 0
        self._pending: list[tuple[PackedText, Future[_Packed]]] = []
        self._pool = ThreadPoolExecutor(1, "pack")

    def pack(self, text: str) -> PackedText:
        packed = PackedText()
        if len(text) < _AT_ONCE_BYTES:
            packed.packed = self._pack(text)
        else:
            self._pending.append((packed, self._pool.submit(self._pack, text)))
        return packed

    def finish(self) -> None:
        for packed, future in self._pending:
            packed.packed = future.result()
        self._pending.clear()

    def _pack(self, text: str) -> _Packed:
        body = text.encode("utf-8", "surrogatepass")
        digest = blake2b(body, digest_size=16).digest()
        packed = self._known.get(digest)
        if packed is None:
            packed = self._known[digest] = pack_large(body)
            self._known_bytes += len(packed)
            while self._known_bytes > _REMEMBERED_BYTES:
                self._known_bytes -= len(self._known.popitem(last=False)[1])
        return _Packed(digest, len(body), packed)


class PayloadWriter:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self._pending: list[tuple[PendingText, Callable[[], _Packed]]] = []
        self._pool = ThreadPoolExecutor(1, "pack")

    def forget(self) -> None:
        self._known.clear()
        self._pending.clear()

    def add(self, text: str) -> PendingText:
        if isinstance(text, TextReference):
            return PendingText(text.row_id)
        pending = PendingText()
        if isinstance(text, PackedText) or len(text) < _AT_ONCE_BYTES:
            packed = text.packed if isinstance(text, PackedText) else self._pack(text)
            self._pending.append((pending, lambda: packed))
        else:
            self._pending.append((pending, self._pool.submit(self._pack, text).result))
        return pending

    def add_now(self, text: str) -> int:
        return self._write(self._pack(text))

    def flush(self) -> None:
        for pending, select_table_fields in self._pending:
            packed = select_table_fields()
            pending.row_id = self._known.get(packed.digest) or self._write(packed)
            self._known[packed.digest] = pending.row_id
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._pending.clear()

    def _pack(self, text: str) -> _Packed:
        body = text.encode("utf-8", "surrogatepass")
        digest = blake2b(body, digest_size=16).digest()
        return _Packed(digest, len(body), None if digest in self._known else pack_large(body))

    def _write(self, packed: _Packed) -> int:
        query = "select id from payloads where digest = ?"
        row_id: int | None = read_value(self.connection, query, (packed.digest,))
        if row_id is None:
            assert packed.body is not None
            row_id = _PAYLOAD.add_for_id(self.connection, vars(packed))
        return row_id
