"""Tokens, and the logins of browsers."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.core.page import Page, decode_cursor, make_page
from compileboard.app.core.schema import one_of

STATES = ("live", "expired", "revoked")
TOKENS_SQL = """
select
  id, name, scopes,
  case
    when revoked_us is not null then 'revoked'
    when expires_us <= :now_us then 'expired'
    else 'live'
  end as state,
  created_us, created_by, expires_us, revoked_us, last_used_us, last_address
from tokens
where :created_us is null or (created_us, id) < (:created_us, :id)
order by created_us desc, id desc
limit :limit
"""
GET_SQL = """
select id, name, secret_hash, scopes, expires_us, revoked_us
from tokens
where id = :id
"""
GET_SESSION_SQL = """
select token_id, expires_us, last_used_us
from sessions
where session_hash = :session_hash
"""
LIST_FAILURES_SQL = """
select address, failed_us
from login_failures
where failed_us > :since_us
  and failed_us <= :now_us
order by failed_us, id
limit :limit
"""


@dataclass(frozen=True)
class TokenRow:
    """A token, without its secret."""

    tables = ("tokens",)

    id: str
    name: str
    scopes: str
    state: Annotated[str, one_of(STATES), "Whether it is valid."]
    created_us: int
    created_by: str
    expires_us: int | None
    revoked_us: int | None
    last_used_us: int | None
    last_address: str | None


@dataclass(frozen=True)
class StoredToken:
    id: str
    name: str
    secret_hash: bytes
    scopes: str
    expires_us: int | None
    revoked_us: int | None

    def describe_end(self, now_us: int) -> str | None:
        """Return "revoked" or "expired", None while the token is valid."""
        if self.revoked_us is not None:
            return "revoked"
        return "expired" if self.expires_us is not None and self.expires_us <= now_us else None


@dataclass(frozen=True)
class LoginFailure:
    address: str
    failed_us: int


@dataclass(frozen=True)
class BrowserSession:
    token_id: str
    expires_us: int
    last_used_us: int


def list_tokens(
    connection: sqlite3.Connection, cursor: str | None = None, limit: int = 1000
) -> Page[TokenRow]:
    after = decode_cursor(cursor, int, str) or (None, None)
    values = {
        "now_us": time.time_ns() // 1000,
        "created_us": after[0],
        "id": after[1],
        "limit": limit + 1,
    }
    rows = [TokenRow(**dict(row)) for row in connection.execute(TOKENS_SQL, values)]
    return make_page(rows, limit, lambda row: (row.created_us, row.id))


def get_token(connection: sqlite3.Connection, token_id: str) -> StoredToken | None:
    row = connection.execute(GET_SQL, {"id": token_id}).fetchone()
    return StoredToken(**dict(row)) if row else None


def get_session(connection: sqlite3.Connection, session_hash: bytes) -> BrowserSession | None:
    row = connection.execute(GET_SESSION_SQL, {"session_hash": session_hash}).fetchone()
    return BrowserSession(**dict(row)) if row else None


def list_login_failures(
    connection: sqlite3.Connection, since_us: int, now_us: int, limit: int = 1000
) -> list[LoginFailure]:
    values = {"since_us": since_us, "now_us": now_us, "limit": limit}
    return [LoginFailure(**dict(row)) for row in connection.execute(LIST_FAILURES_SQL, values)]
