"""Records that the server rejected for their content. They are counted, reported at their position,
and skipped so that later records can be sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from compileboard.collectors.contract.rejects import Rejects
from compileboard.collectors.wire.lines import checksum_of
from compileboard.collectors.wire.marks import SpoolRejects, dump_mark

FREE_CHARACTERS = 32  # one for each bit of the checksum
MOST_WORDS = 60


@dataclass
class Losses:
    line_count: int = 0
    text_count: int = 0
    words: str = ""

    def describe(self) -> str | None:
        counts = ((self.line_count, "line"), (self.text_count, "text"))
        named = [f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count]
        return f"{' and '.join(named)} lost: {self.words}" if named else None


def make_stand_in(line: bytes, stream_id: str, lost_count: int, words: str) -> bytes | None:
    """Return a line that reports a lost one with the same length and CRC-32, or None if that is too
    short.

    So the stream's later offsets and checksums stay valid.
    """
    rejects = Rejects()
    rejects.add("not_taken", None, words[:MOST_WORDS], lost_count)
    head = dump_mark(SpoolRejects(stream_id, rejects))[:-2] + b',"filler":"'
    end = b'"}\n'
    filler_count = len(line) - len(head) - len(end) - FREE_CHARACTERS
    if filler_count < 0:
        return None
    head += b"A" * filler_count
    return head + _fit_checksum(checksum_of(head), end, checksum_of(line)) + end


def _fit_checksum(before: int, end: bytes, expected: int) -> bytes:
    """Choose free characters, each A or C, that give a line the expected checksum.

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
        change, characters = _reduce(checksum_of(changed + end, before) ^ base, 1 << position, rows)
        rows[change.bit_length()] = (change, characters)
    _rest, characters = _reduce(base ^ expected, 0, rows)
    return bytes(b"AC"[characters >> position & 1] for position in range(FREE_CHARACTERS))


def _reduce(change: int, characters: int, rows: dict[int, tuple[int, int]]) -> tuple[int, int]:
    while change and (row := rows.get(change.bit_length())):
        change, characters = change ^ row[0], characters ^ row[1]
    return change, characters
