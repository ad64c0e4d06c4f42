"""Access tokens, browser sessions and the audit log."""

from __future__ import annotations

import getpass
import hashlib
import re
import secrets
import socket
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.store.connection import (
    has_row,
    read_value,
    write,
    write_transaction,
)

SCOPES = ("ingest", "read", "write", "admin")
IMPLIED = {"write": ("ingest", "read"), "admin": ("ingest", "read", "write")}
NAME_LIMIT = 100
SECRET = re.compile(
    r"cb_([0-9a-f]{10})_([0-9a-f]{48})"
)  # 192 random bits: their SHA-256 needs no salt

INSERT = """
insert into tokens (id, name, secret_hash, scopes, created_us, created_by, expires_us)
values (:id, :name, :secret_hash, :scopes, :created_us, :created_by, :expires_us)
"""
FIND_LIVE = """
select id
from tokens
where revoked_us is null
  and (expires_us is null or expires_us > :now_us)
  and (name = :name or id = :name)
"""
NOTE_USE = """
update tokens
set last_used_us = :now_us, last_address = :address
where id = :token_id
"""


class TokenError(ValueError):
    pass


def read_scopes(text: str) -> tuple[str, ...]:
    given = {part.strip() for part in text.split(",")}
    unknown = sorted(given - set(SCOPES))
    if unknown:
        raise TokenError(
            f"scope: {unknown[0][:40]!r} is unknown; expected one or more of {', '.join(SCOPES)}"
        )
    return tuple(scope for scope in SCOPES if scope in given)


def expand_scopes(scopes: Iterable[str]) -> frozenset[str]:
    return frozenset(other for scope in scopes for other in (scope, *IMPLIED.get(scope, ())))


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def create_token(
    connection: sqlite3.Connection,
    name: str,
    scopes: tuple[str, ...],
    *,
    created_by: str,
    expires_us: int | None = None,
    now_us: int | None = None,
) -> str:
    """Store a token; return its secret, which is not stored. Raises TokenError for an
    invalid name.
    """
    name, now_us = name.strip(), read_clock_us() if now_us is None else now_us
    if not name or len(name) > NAME_LIMIT or not name.isprintable() or not scopes:
        raise TokenError(
            f"name: expected a printable text of 1 to {NAME_LIMIT} characters, and a scope"
        )
    token_id = secrets.token_hex(5)
    secret = f"cb_{token_id}_{secrets.token_hex(24)}"
    with write_transaction(connection):
        if has_row(connection, FIND_LIVE, {"name": name, "now_us": now_us}):
            raise TokenError(
                f"name: {name!r} has a token already; revoke that first, or choose another name"
            )
        values = {
            "id": token_id,
            "name": name,
            "secret_hash": hash_secret(secret),
            "scopes": ",".join(scopes),
            "created_us": now_us,
            "created_by": created_by,
            "expires_us": expires_us,
        }
        connection.execute(INSERT, values)
    return secret


def revoke_token(connection: sqlite3.Connection, name: str) -> str | None:
    """Revoke a token by id or name and end its sessions; return its id, or None if there is
    none.
    """
    now_us = read_clock_us()
    with write_transaction(connection):
        values = {"name": name, "now_us": now_us}
        token_id: str | None = read_value(connection, FIND_LIVE, values)
        if token_id is not None:
            connection.execute("update tokens set revoked_us = ? where id = ?", (now_us, token_id))
            connection.execute("delete from sessions where token_id = ?", (token_id,))
    return token_id


def open_session(
    connection: sqlite3.Connection, token_id: str, *, expires_us: int, now_us: int
) -> str:
    cookie = secrets.token_urlsafe(32)
    with write_transaction(connection):
        connection.execute("delete from sessions where expires_us <= ?", (now_us,))
        connection.execute(
            """
            insert into sessions (session_hash, token_id, created_us, expires_us, last_used_us)
            values (?, ?, ?, ?, ?)
            """,
            (hash_secret(cookie), token_id, now_us, expires_us, now_us),
        )
    return cookie


def close_session(connection: sqlite3.Connection, cookie: str) -> None:
    write(connection, "delete from sessions where session_hash = ?", (hash_secret(cookie),))


def note_use(
    connection: sqlite3.Connection,
    token_id: str,
    address: str | None,
    session_hash: bytes | None,
    now_us: int,
) -> None:
    with write_transaction(connection):
        connection.execute(NOTE_USE, {"token_id": token_id, "address": address, "now_us": now_us})
        connection.execute(
            "update sessions set last_used_us = ? where session_hash = ?", (now_us, session_hash)
        )


def save_login_failure(
    connection: sqlite3.Connection, address: str, *, now_us: int, window_us: int
) -> None:
    with write_transaction(connection):
        connection.execute(
            "delete from login_failures where failed_us <= ? or failed_us > ?",
            (now_us - window_us, now_us),
        )
        connection.execute(
            "insert into login_failures (address, failed_us) values (?, ?)", (address, now_us)
        )


USER_AGENT_LIMIT = 300


@dataclass(frozen=True)
class ActionOrigin:
    channel: str
    actor: str | None = None
    address: str | None = None
    user_agent: str | None = None


def command_origin() -> ActionOrigin:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        user = "unknown"
    return ActionOrigin("command", f"{user}@{socket.gethostname()}")


def record_action(
    connection: sqlite3.Connection,
    action: str,
    subject: str,
    origin: ActionOrigin,
    *,
    detail: str | None = None,
) -> None:
    values = {
        **vars(origin),
        "user_agent": origin.user_agent and origin.user_agent[:USER_AGENT_LIMIT],
        "time_us": read_clock_us(),
        "action": action,
        "subject": subject,
        "detail": detail,
    }
    write(connection, f"insert {TABLES['audit'].insert_sql('id')}", values)
