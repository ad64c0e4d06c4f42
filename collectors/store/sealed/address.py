"""Map a ClickHouse address to the SQLite file that collectors write into."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, unquote, urlsplit

from compileboard.collectors.store.errors import StoreError

SCHEME = "clickhouse://"
BOARD = "board.db"
EXPECTED = (
    "clickhouse://[USER@]HOST[:PORT]/DATABASE?folder=/DIR or, in this process, clickhouse:///DIR"
)

_addresses: dict[str, str] = {}  # what this process was given, by the board that it found


class AddressError(StoreError):
    pass


def is_address(text: str) -> bool:
    if text.startswith(SCHEME):
        return True
    if text.lower().startswith("clickhouse:"):
        raise AddressError(f"--db {text[:200]!r}: expected {EXPECTED}")
    return False


def read_folder(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise AddressError(f"--db: {error}; expected {EXPECTED}") from None
    folder = parse_qs(parts.query).get("folder", [""])[-1]
    if not folder and not parts.hostname:
        folder = unquote(parts.path)
    if not os.path.isabs(folder) or folder == "/":
        raise AddressError(
            f"--db: an address of ClickHouse names an absolute folder; expected {EXPECTED}"
        )
    return folder


def find_board(text: str) -> str:
    """Return the database to write into, for a file or address.

    Raises AddressError if it is invalid or its folder is not on this machine.
    """
    if not is_address(text):
        return text
    folder = read_folder(text)
    if not os.path.isdir(folder):
        raise AddressError(
            f"--db: the folder {folder} is not on this machine. Send to its dashboard with "
            "--server URL, or make it "
            "with `compileboard migrate --db ADDRESS`"
        )
    board = os.path.join(folder, BOARD)
    _addresses[board] = text
    return board


def find_address(board: str) -> str:
    return _addresses.get(board, board)
