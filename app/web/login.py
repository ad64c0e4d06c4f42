"""Log a browser in with a token, and out."""

from __future__ import annotations

import threading
import time
from collections import deque
from urllib.parse import urlsplit

from flask import Blueprint, abort, g, make_response, redirect, render_template, request, url_for
from werkzeug.exceptions import Unauthorized
from werkzeug.wrappers import Response

from compileboard.app.db import writing
from compileboard.app.web.access import (
    LOOPBACK_NAMES,
    SESSION_US,
    cookie_name,
    get_valid_token,
    is_secure_cookie,
    open_to_all,
    read_session,
)
from compileboard.app.web.filters import is_local_path
from compileboard.collectors.store.dashboard.tokens import close_session, expand_scopes, open_session

blueprint = Blueprint("login", __name__)
NO_HTTPS = "This address is not encrypted, so it takes no login. Open it over https; a proxy sends X-Forwarded-Proto."


class AttemptLimit:
    """Failed attempts of the last minutes, by address and of all; each process counts its own.

    Units: window_s in seconds.
    """

    def __init__(self, most_of_address: int = 10, most: int = 200, window_s: float = 300.0) -> None:
        self._most_of_address, self._most, self._window_s = most_of_address, most, window_s
        self._failures: deque[tuple[float, str]] = deque(maxlen=most)
        self._lock = threading.Lock()

    def get_wait_s(self, address: str, now_s: float) -> int:
        """Return the seconds after which an address may try again, 0 for at once."""
        with self._lock:
            while self._failures and self._failures[0][0] + self._window_s <= now_s:
                self._failures.popleft()
            own = [time_s for time_s, other in self._failures if other == address]
            if len(self._failures) < self._most and len(own) < self._most_of_address:
                return 0
            oldest_s = own[0] if len(own) >= self._most_of_address else self._failures[0][0]
            return int(oldest_s + self._window_s - now_s) + 1

    def add_failure(self, address: str, now_s: float) -> None:
        """Count a failed attempt."""
        with self._lock:
            self._failures.append((now_s, address))


attempts = AttemptLimit()


@blueprint.get("/login")
@open_to_all
def index() -> str:
    """Show the form."""
    return _render("" if _is_safe_address() else NO_HTTPS)


@blueprint.post("/login")
@open_to_all
def log_in() -> Response:
    """Take a token, and answer with the cookie of a new login; that of an earlier one ends."""
    address, now_s = request.remote_addr or "", time.monotonic()
    if not _is_safe_address():
        abort(403, NO_HTTPS)
    wait_s = attempts.get_wait_s(address, now_s)
    if wait_s:
        refusal = make_response(_render(f"Too many attempts failed. Try again in {wait_s} s."), 429)
        refusal.headers["Retry-After"] = str(wait_s)
        return refusal
    try:
        token = get_valid_token(request.form.get("token", "").strip())
    except Unauthorized as error:
        attempts.add_failure(address, now_s)
        return make_response(_render(error.description or ""), 401)
    if "read" not in expand_scopes(token.scopes.split(",")):
        return make_response(
            _render(f"The token {token.name} may not read pages: it has the scope {token.scopes}."), 403
        )
    g.actor, now_us = token.name, time.time_ns() // 1000
    with writing("login.start", token.id) as writer:
        close_session(writer, request.cookies.get(cookie_name(), ""))
        cookie = open_session(writer, token.id, expires_us=now_us + SESSION_US, now_us=now_us)
    response = redirect(_read_next(), 303)
    _set_cookie(response, cookie, SESSION_US // 1_000_000)
    return response


@blueprint.post("/logout")
@open_to_all
def log_out() -> Response:
    """End this browser's login."""
    identity = read_session()
    if identity is not None:
        g.actor = identity.name
        with writing("login.end", identity.token_id or "") as writer:
            close_session(writer, request.cookies[cookie_name()])
    response = redirect(url_for("login.index"), 303)
    _set_cookie(response, "", 0)
    return response


def _set_cookie(response: Response, value: str, max_age_s: int) -> None:
    response.set_cookie(
        cookie_name(), value, max_age=max_age_s, secure=is_secure_cookie(), httponly=True, samesite="Lax", path="/"
    )


def _is_safe_address() -> bool:
    """Return whether a token may be typed in: over https, or on this machine."""
    return request.is_secure or (urlsplit(f"//{request.host}").hostname or "") in LOOPBACK_NAMES


def _read_next() -> str:
    path = request.values.get("next", "")
    return path if is_local_path(path) and not path.startswith(("/login", "/logout")) else url_for("overview.index")


def _render(problem: str) -> str:
    return render_template("login.html", problem=problem, next=_read_next())
