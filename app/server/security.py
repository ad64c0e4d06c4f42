"""Response headers, Host check and CSRF check; then authentication (app.core.access).

CSRF by headers as in https://words.filippo.io/csrf/. A client that sends neither Sec-Fetch-Site nor
Origin is not a browser that another site can control, and passes unless it sends a cookie or a
proxy's login.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import Flask, Request, Response, abort, request
from werkzeug.wrappers import Response as BaseResponse

from compileboard.app.core.access import (
    LOOPBACK_NAMES,
    READ_METHODS,
    check_scope,
    get_identity,
    identify_client,
    is_loopback,
)
from compileboard.app.core.db import get_settings
from compileboard.app.core.settings import Settings

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        # Plotly writes style elements, and its charts break without them
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def list_allowed_hosts(settings: Settings) -> frozenset[str]:
    given = {
        name.strip().strip("[]").lower() for name in settings.allow_host.split(",") if name.strip()
    }
    return (
        LOOPBACK_NAMES
        | given
        | ({settings.host.strip("[]")} if is_loopback(settings.host) else set())
    )


def is_cross_site(req: Request) -> bool:
    fetch_site = req.headers.get("Sec-Fetch-Site")
    if fetch_site is not None:
        return fetch_site not in ("same-origin", "none")
    origin = req.headers.get("Origin")
    return origin is not None and urlsplit(origin).netloc.lower() != req.host.lower()


def check_request() -> BaseResponse | None:
    name = _host_name(request.headers.get("Host", ""))
    if name not in list_allowed_hosts(get_settings()):
        abort(
            403,
            (
                f"The host name {name[:80]!r} is not one this server answers to. Start it with "
                "--allow-host NAME."
            ),
        )
    identify_client()
    if request.method not in READ_METHODS:
        says_from = "Sec-Fetch-Site" in request.headers or "Origin" in request.headers
        if is_cross_site(request) or (get_identity().is_sent_by_browsers and not says_from):
            abort(
                403,
                (
                    "This change was asked for by another site's page, so nothing was changed. Use "
                    "this site's own form."
                ),
            )
    return check_scope()


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def add_headers(response: Response) -> Response:
    """Set security headers; a response with its own Content-Security-Policy, such as a report,
    keeps it.
    """
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def init_app(app: Flask) -> None:
    app.before_request(check_request)
    app.after_request(add_headers)
