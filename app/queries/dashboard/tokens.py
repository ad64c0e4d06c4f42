"""Tokens, and the logins of browsers."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

GET_SQL = """
select id, name, secret_hash, scopes, created_us, created_by, expires_us, revoked_us, last_used_us, last_address
from tokens
where id = :id
"""
GET_SESSION_SQL = """
select token_id, expires_us, last_used_us
from sessions
where session_hash = :session_hash
"""
LIST_SQL = """
select id, name, x'' as secret_hash, scopes, created_us, created_by, expires_us, revoked_us, last_used_us, last_address
from tokens
order by created_us desc, id desc
limit :limit
"""


@dataclass(frozen=True)
class Token:
    """A token without its secret."""

    id: str
    name: str
    secret_hash: bytes
    scopes: str
    created_us: int
    created_by: str
    expires_us: int | None
    revoked_us: int | None
    last_used_us: int | None
    last_address: str | None

    def get_state(self, now_us: int) -> str:
        """Return live, expired or revoked."""
        if self.revoked_us is not None:
            return "revoked"
        return "expired" if self.expires_us is not None and self.expires_us <= now_us else "live"


@dataclass(frozen=True)
class BrowserSession:
    """A browser's login."""

    token_id: str
    expires_us: int
    last_used_us: int


def get_token(connection: sqlite3.Connection, token_id: str) -> Token | None:
    """Return a token."""
    row = connection.execute(GET_SQL, {"id": token_id}).fetchone()
    return Token(**dict(row)) if row else None


def get_session(connection: sqlite3.Connection, session_hash: bytes) -> BrowserSession | None:
    """Return a login by the hash of its cookie."""
    row = connection.execute(GET_SESSION_SQL, {"session_hash": session_hash}).fetchone()
    return BrowserSession(**dict(row)) if row else None


def list_tokens(connection: sqlite3.Connection, limit: int = 1000) -> list[Token]:
    """List tokens, newest first, without their hashes."""
    return [Token(**dict(row)) for row in connection.execute(LIST_SQL, {"limit": limit})]
