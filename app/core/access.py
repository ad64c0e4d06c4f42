"""Authentication and permissions: API tokens, browser sessions, and users named by a reverse proxy.

A view declares its scope with `@needs("write")`; by default GET and HEAD need `read`, everything
else `write`. `app.server.security` calls `identify_client` and `check_scope` before every request.
"""

from __future__ import annotations

import hmac
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from flask import Flask, Response, abort, current_app, g, has_request_context, redirect, request
from werkzeug.exceptions import TooManyRequests, Unauthorized
from werkzeug.wrappers import Response as BaseResponse

from compileboard.app.core import login_records
from compileboard.app.core.db import get_board_path, get_reader, get_settings, is_read_only
from compileboard.app.core.logins import StoredToken, get_token
from compileboard.app.core.settings import SettingError, Settings
from compileboard.collectors.store.connection import StoreError, open_writer
from compileboard.collectors.store.runs import RunSender
from compileboard.collectors.store.tokens import (
    SCOPES,
    SECRET,
    TokenError,
    expand_scopes,
    hash_secret,
    note_use,
    read_scopes,
)

View = TypeVar("View", bound=Callable[..., Any])

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SESSION_US = 7 * 86_400 * 1_000_000
IDLE_US = 24 * 3_600 * 1_000_000
NOTE_EVERY_US = 60 * 1_000_000
MAX_NOTED = 10_000
PROXY_SECRET_HEADER = "X-CompileBoard-Proxy"  # noqa: S105  a header's name
PROXY_MARKS = (
    "Forwarded",
    "Via",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Real-Ip",
)
NO_NAMES = ("", "(null)")  # what proxies send for a client without a login
MIN_SECRET_LENGTH = 16
_SECRET_IN_ADDRESS = re.compile(r"cb_[0-9a-f]{10}_[0-9a-f]")
_WITHOUT_SECRET = b"\0" * 32
_OPEN = "open"


@dataclass(frozen=True)
class Identity:
    """The sender of a request: a token, a browser session, a user named by a proxy, or an anonymous
    client.
    """

    name: str | None
    scopes: frozenset[str]
    origin: str = "anyone"
    token_id: str | None = None

    @property
    def is_sent_by_browsers(self) -> bool:
        """Return whether a browser or proxy attaches the credentials to cross-site requests as
        well.
        """
        return self.origin in ("session", "proxy")

    def may(self, *scopes: str) -> bool:
        return not self.scopes.isdisjoint(scopes)


READ_ONLY = "This server only reads (--read-only): nothing can be changed here."
NOBODY = Identity(None, frozenset())


def needs(*scopes: str) -> Callable[[View], View]:
    def mark(view: View) -> View:
        view.needed_scopes = scopes  # type: ignore[attr-defined]
        return view

    return mark


def open_to_all(view: View) -> View:
    """Decorate a view that needs no login even if the dashboard requires one for reading."""
    return needs(_OPEN)(view)


def get_identity() -> Identity:
    return g.get("identity", NOBODY) if has_request_context() else NOBODY


def may(*scopes: str) -> bool:
    return get_identity().may(*scopes)


def get_sender() -> RunSender:
    identity = get_identity()
    kind = "login" if identity.origin == "proxy" else "token"
    return RunSender(
        None if identity.name is None else f"{kind}:{identity.name}", identity.may("write")
    )


def choose_author(author: str) -> str:
    """Return the author of a comment: the login's name, else the given name.

    Raises ValueError if `author` differs from the login's name.
    """
    name = get_identity().name
    if name is not None and author not in ("", name):
        raise ValueError(f"author: {author[:40]!r} is not {name!r}, the login's name; leave it out")
    return name or author


def describe_author(author: str) -> str | None:
    return None if get_identity().name else f"by {author}"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_local(settings: Settings) -> bool:
    return (
        is_loopback(settings.host)
        and not settings.allow_host.strip(" ,")
        and not settings.trusted_proxies
    )


def describe_protection(settings: Settings) -> str:
    if settings.read_only == "yes":
        return (
            f"reading: {'tokens' if settings.reading == 'tokens' else 'open'}; writing: never "
            "(--read-only)"
        )
    people = (
        f", people whom the proxy names in {settings.identity_header}"
        if settings.identity_header
        else ""
    )
    reading = f"tokens{people}" if settings.reading == "tokens" else "open"
    writing = (
        "whoever uses this machine"
        if is_local(settings) and reading == "open"
        else f"tokens{people}"
    )
    return f"reading: {reading}; writing: {writing}"


def describe_missing_scope() -> str:
    identity = get_identity()
    if is_read_only():
        return READ_ONLY
    if identity.name is None:
        return "Log in with a token to make changes."
    return f"{identity.name} may not change anything: that needs the scope write."


def read_roles(text: str) -> dict[str, frozenset[str]]:
    """Return scopes by user name as set by the proxy; `*` stands for everyone else.

    Raises SettingError unless each part of the text is NAME=SCOPE with a known scope.
    """
    roles: dict[str, frozenset[str]] = {}
    for part in text.split(","):
        name, equals, scope = part.strip().rpartition("=")
        if not equals or not name:
            raise SettingError(
                f"--identity-scopes: {part.strip()[:80]!r} is not NAME=SCOPE, as ann=admin,*=read"
            )
        try:
            roles[name] = frozenset() if scope == "none" else expand_scopes(read_scopes(scope))
        except TokenError as error:
            raise SettingError(f"--identity-scopes: {error}, or none") from None
    return roles


def read_proxy_secret(settings: Settings) -> bytes | None:
    """Return the secret that authenticates the proxy, None if none is set.

    Raises SettingError if a client other than the proxy could name users.
    """
    if not settings.identity_header:
        return None
    if not settings.trusted_proxies:
        raise SettingError(
            "--identity-header needs --trusted-proxies 1 (the number of reverse proxies in front)"
        )
    if not settings.identity_secret_file:
        if is_loopback(settings.host):
            return None
        raise SettingError(
            f"--identity-header with --host {settings.host}: anyone could send that header. "
            "Listen on 127.0.0.1, or "
            "give --identity-secret-file FILE and let the proxy send its text as "
            f"{PROXY_SECRET_HEADER}"
        )
    try:
        secret = Path(settings.identity_secret_file).read_bytes().strip()
    except OSError as error:
        raise SettingError(
            f"--identity-secret-file {settings.identity_secret_file}: {error.strerror}"
        ) from None
    if len(secret) < MIN_SECRET_LENGTH:
        raise SettingError(
            f"--identity-secret-file: expected at least {MIN_SECRET_LENGTH} characters"
        )
    return secret


def identify_client() -> None:
    """Authenticate the request. Forged, expired and revoked credentials are refused instead of
    treated as anonymous.
    """
    if _SECRET_IN_ADDRESS.search(request.full_path):
        abort(
            400,
            (
                "Logs keep addresses, so no token may stand in one: revoke it, and send a new one "
                "as a header."
            ),
        )
    if _OPEN in list_needed_scopes():
        g.identity = _get_anonymous_identity()
        return
    given = request.headers.get("Authorization")
    if given is not None and given[:10].lower() == "bearer cb_":
        token = _check_bearer(given[7:].strip())
        g.identity = Identity(token.name, expand_scopes(token.scopes.split(",")), "token", token.id)
    else:
        identity = _read_proxy_identity()
        if identity is None and given is not None:
            abort(401, "The header Authorization has no token of this server; expected Bearer cb_…")
        g.identity = identity or read_session() or _get_anonymous_identity()
    if is_read_only():
        g.identity = replace(g.identity, scopes=g.identity.scopes & {"read"})
    g.actor = g.identity.name


class UnknownToken(Unauthorized):
    pass


def _check_bearer(secret: str) -> StoredToken:
    wrong_tokens: login_records.WrongTokenCounter = current_app.config["WRONG_TOKENS"]
    address = request.remote_addr or ""
    wait_s = wrong_tokens.get_wait_s(address)
    try:
        if not wait_s:
            return get_valid_token(secret)
    except UnknownToken:
        wait_s = wrong_tokens.add(address, secret)
        if not wait_s:
            raise
    raise TooManyRequests(
        f"Too many wrong tokens came from {address}. Try again in {wait_s} s.", retry_after=wait_s
    )


def get_valid_token(secret: str) -> StoredToken:
    """Return the token of a secret; abort with 401 if it is unknown, expired or revoked."""
    match = SECRET.fullmatch(secret)
    token = get_token(get_reader(), match[1]) if match else None
    # Compare in both cases, so that the time taken does not reveal whether the token exists. The
    # hashes are of equal length.
    is_right = hmac.compare_digest(
        hash_secret(secret), token.secret_hash if token else _WITHOUT_SECRET
    )
    if token is None or not is_right:
        raise UnknownToken("Unknown token: it is mistyped, or belongs to another server.")
    end = token.describe_end(time.time_ns() // 1000)
    if end is not None:
        abort(
            401,
            (
                f"The token {token.name} is {end}. Make a new one: compileboard token create NAME "
                "--scope …"
            ),
        )
    return token


def _read_proxy_identity() -> Identity | None:
    settings = get_settings()
    name = request.headers.get(settings.identity_header) if settings.identity_header else None
    if name is None:
        return None
    if not _is_from_proxy():
        abort(
            403,
            (
                f"{settings.identity_header} names a person, and this request is not from the "
                "trusted proxy."
            ),
        )
    if name.strip() in NO_NAMES:
        return None
    try:
        name = name.encode("latin-1").decode()
    except UnicodeDecodeError:
        name = ""
    if not name or "," in name or not name.isprintable() or len(name) > 100:
        abort(
            403,
            (
                f"{settings.identity_header}: expected one name of 1 to 100 printable characters, "
                "without commas."
            ),
        )
    roles: dict[str, frozenset[str]] = current_app.config["IDENTITY_ROLES"]
    return Identity(name, roles.get(name, roles.get("*", frozenset())), "proxy")


def _is_from_proxy() -> bool:
    secret: bytes | None = current_app.config["PROXY_SECRET"]
    if secret is not None:
        return hmac.compare_digest(
            request.headers.get(PROXY_SECRET_HEADER, "").encode("latin-1"), secret
        )
    before = request.environ.get("werkzeug.proxy_fix.orig", {})
    return is_loopback(before.get("REMOTE_ADDR") or "")


def read_session() -> Identity | None:
    cookie, now_us = request.cookies.get(cookie_name()), time.time_ns() // 1000
    if not cookie or len(cookie) > 100:
        return None
    session = login_records.find_session(hash_secret(cookie))
    if session is None or session.expires_us <= now_us or session.last_used_us + IDLE_US <= now_us:
        return None
    token = get_token(get_reader(), session.token_id)
    if token is None or token.describe_end(now_us) is not None:
        return None
    g.session_hash = hash_secret(cookie)
    return Identity(token.name, expand_scopes(token.scopes.split(",")), "session", token.id)


def _get_anonymous_identity() -> Identity:
    settings = get_settings()
    if settings.reading == "tokens":
        return NOBODY
    # An unknown proxy that connects from localhost would make every client look local.
    if is_local(settings) and not any(name in request.headers for name in PROXY_MARKS):
        return Identity(None, frozenset(SCOPES))
    return Identity(None, frozenset({"read"}))


def cookie_name() -> str:
    return (
        "__Host-compileboard"
        if is_secure_cookie()
        else f"compileboard-{request.environ['SERVER_PORT']}"
    )


def is_secure_cookie() -> bool:
    return not is_local(get_settings())


def list_scopes(view: Callable[..., Any] | None, method: str) -> tuple[str, ...]:
    needed: tuple[str, ...] = getattr(
        view, "needed_scopes", ("read",) if method in READ_METHODS else ("write",)
    )
    return needed


def list_needed_scopes() -> tuple[str, ...]:
    if request.endpoint == "static":
        return (_OPEN,)
    return list_scopes(current_app.view_functions.get(request.endpoint or ""), request.method)


def check_scope() -> BaseResponse | None:
    """Refuse a request without any of the needed scopes. A browser that asks for a page is
    redirected to the login.
    """
    needed = list_needed_scopes()
    if _OPEN in needed:  # a login changes nothing
        return None
    if request.method not in READ_METHODS and is_read_only():
        abort(403, READ_ONLY)
    if may(*needed):
        return None
    identity = get_identity()
    if identity.name is not None:
        abort(403, f"{identity.name} may not do this: it needs the scope {' or '.join(needed)}.")
    if request.method in READ_METHODS and "text/html" in request.headers.get("Accept", ""):
        path = request.full_path.rstrip("?")
        return redirect(f"/login?{urlencode({'next': path})}", 303)
    abort(
        401,
        (
            f"This needs a token with the scope {' or '.join(needed)}: send Authorization: Bearer "
            "cb_…, or log in."
        ),
    )


def save_token_use(response: Response) -> Response:
    """Save the last use of a token at most once a minute; skipped while the database is busy.

    A read-only server keeps it in memory, for sessions only.
    """
    identity = get_identity()
    if identity.token_id is None or (is_read_only() and "session_hash" not in g):
        return response
    noted: dict[str | bytes, int] = current_app.config["TOKEN_USES"]
    key, now_us = g.get("session_hash") or identity.token_id, time.time_ns() // 1000
    if noted.get(key, 0) + NOTE_EVERY_US > now_us:
        return response
    if len(noted) >= MAX_NOTED:
        noted.clear()
    noted[key] = now_us
    if is_read_only():
        login_records.save_session_use(g.session_hash, now_us)
        return response
    path = get_board_path()
    with (
        suppress(StoreError, sqlite3.Error),
        closing(open_writer(path, busy_timeout_ms=50, create=False)) as writer,
    ):
        note_use(writer, identity.token_id, request.remote_addr, g.get("session_hash"), now_us)
    return response


def init_app(app: Flask) -> None:
    """Read the proxy's settings and register template functions.

    Raises SettingError if a setting would let any client name users.
    """
    settings: Settings = app.config["COMPILEBOARD"]
    app.config["PROXY_SECRET"] = read_proxy_secret(settings)
    app.config["IDENTITY_ROLES"] = read_roles(settings.identity_scopes)
    app.config["TOKEN_USES"] = {}
    login_records.init_app(app)
    app.jinja_env.globals.update(
        may=may,
        identity=get_identity,
        describe_missing_scope=describe_missing_scope,
        is_read_only=is_read_only,
    )
    app.after_request(save_token_use)
