"""Log in a browser with a token, and log it out."""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import Blueprint, abort, g, make_response, redirect, render_template, request, url_for
from werkzeug.exceptions import Unauthorized
from werkzeug.wrappers import Response

from compileboard.app.core.access import (
    LOOPBACK_NAMES,
    SESSION_US,
    cookie_name,
    get_valid_token,
    is_secure_cookie,
    open_to_all,
    read_session,
)
from compileboard.app.core.filters import is_local_path
from compileboard.app.core.login_records import (
    add_login_failure,
    begin_session,
    end_session,
    get_login_wait_s,
)
from compileboard.collectors.store.tokens import expand_scopes

blueprint = Blueprint("login", __name__)
NO_HTTPS = (
    "This address is not encrypted, so it takes no login. Open it over https; a proxy sends "
    "X-Forwarded-Proto."
)


@blueprint.get("/login")
@open_to_all
def index() -> str:
    return _render("" if _is_safe_address() else NO_HTTPS)


@blueprint.post("/login")
@open_to_all
def log_in() -> Response:
    address = request.remote_addr or ""
    if not _is_safe_address():
        abort(403, NO_HTTPS)
    wait_s = get_login_wait_s(address)
    if wait_s:
        return _refuse_attempt(wait_s)
    try:
        token = get_valid_token(request.form.get("token", "").strip())
    except Unauthorized as error:
        wait_s = add_login_failure(address)
        if wait_s:
            return _refuse_attempt(wait_s)
        return make_response(_render(error.description or ""), 401)
    if "read" not in expand_scopes(token.scopes.split(",")):
        return make_response(
            _render(f"The token {token.name} may not read pages: it has the scope {token.scopes}."),
            403,
        )
    g.actor = token.name
    cookie = begin_session(token.id, request.cookies.get(cookie_name(), ""), SESSION_US)
    response = redirect(_read_next(), 303)
    _set_cookie(response, cookie, SESSION_US // 1_000_000)
    return response


@blueprint.post("/logout")
@open_to_all
def log_out() -> Response:
    identity = read_session()
    if identity is not None:
        g.actor = identity.name
        end_session(identity.token_id or "", request.cookies[cookie_name()])
    response = redirect(url_for("login.index"), 303)
    _set_cookie(response, "", 0)
    return response


def _refuse_attempt(wait_s: int) -> Response:
    refusal = make_response(_render(f"Too many attempts failed. Try again in {wait_s} s."), 429)
    refusal.headers["Retry-After"] = str(wait_s)
    return refusal


def _set_cookie(response: Response, value: str, max_age_s: int) -> None:
    response.set_cookie(
        cookie_name(),
        value,
        max_age=max_age_s,
        secure=is_secure_cookie(),
        httponly=True,
        samesite="Lax",
        path="/",
    )


def _is_safe_address() -> bool:
    return request.is_secure or (urlsplit(f"//{request.host}").hostname or "") in LOOPBACK_NAMES


def _read_next() -> str:
    path = request.values.get("next", "")
    return (
        path
        if is_local_path(path) and not path.startswith(("/login", "/logout"))
        else url_for("overview.index")
    )


def _render(problem: str) -> str:
    return render_template("login.html", problem=problem, next=_read_next())
