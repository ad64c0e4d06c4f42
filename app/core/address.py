"""The address in `--db`: a SQLite file, or a folder with ClickHouse."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from compileboard.collectors.store.connection import (
    BOARD,
    EXPECTED,
    AddressError,
    is_address,
    read_folder,
)

_PASSWORD = "COMPILEBOARD_CLICKHOUSE_PASSWORD"  # noqa: S105  the name of a variable
_OPTIONS = ("folder", "secure")


@dataclass(frozen=True)
class ClickHouseAddress:
    """The address of a ClickHouse server. Without a host, ClickHouse runs in this process (chdb)
    with its data in `path`.
    """

    host: str | None
    port: int | None
    user: str
    database: str
    path: str
    is_secure: bool = False

    @property
    def label(self) -> str:
        port = f":{self.port}" if self.port else ""
        return (
            f"clickhouse://{self.host}{port}/{self.database}" if self.host else f"chdb {self.path}"
        )


@dataclass(frozen=True)
class StoreAddress:
    board: str  # the SQLite file, in a folder or alone
    folder: str | None = None
    clickhouse: ClickHouseAddress | None = None

    @property
    def run_files(self) -> str:
        return os.path.join(self.folder or os.path.dirname(self.board), "runs")

    @property
    def cache(self) -> str:
        return os.path.join(self.folder or os.path.dirname(self.board), "cache")


def make_in_process_address(folder: str) -> ClickHouseAddress:
    return ClickHouseAddress(None, None, "default", "default", os.path.join(folder, "clickhouse"))


def parse_address(text: str) -> StoreAddress:
    """Parse the address in `--db`. Raises AddressError for an invalid ClickHouse address."""
    if not is_address(text):
        return StoreAddress(text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise AddressError(f"--db: {error}; expected {EXPECTED}") from None
    if parts.password is not None:
        raise AddressError(
            f"--db: an address must not contain a password; set {_PASSWORD} or {_PASSWORD}_FILE"
        )
    options = {
        name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()
    }
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise AddressError(
            f"--db: {unknown[0][:40]!r} is not an option of an address; expected {EXPECTED}"
        )
    if options.get("secure", "no") not in ("yes", "no"):
        raise AddressError(f"--db: secure={options['secure'][:40]!r}; expected yes or no")
    folder = read_folder(text)
    if not parts.hostname:
        if "secure" in options:
            raise AddressError(
                f"--db: secure is for a server, and the address has no host; expected {EXPECTED}"
            )
        return StoreAddress(os.path.join(folder, BOARD), folder, make_in_process_address(folder))
    database = unquote(parts.path).strip("/")
    if not database or "/" in database:
        raise AddressError(f"--db {text[:200]!r}: expected {EXPECTED}")
    engine = ClickHouseAddress(
        *(parts.hostname, port, unquote(parts.username or "default"), database, folder),
        is_secure=options.get("secure") == "yes",
    )
    return StoreAddress(os.path.join(folder, BOARD), folder, engine)


def read_password(environ: Mapping[str, str]) -> str:
    """Return ClickHouse's password, '' if none is set. Raises AddressError if its file cannot be
    read.
    """
    name = environ.get(f"{_PASSWORD}_FILE")
    if not name:
        return environ.get(_PASSWORD, "")
    try:
        with open(name, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AddressError(
            f"{_PASSWORD}_FILE: {name} cannot be read ({error}); expected a file with the password"
        ) from error
