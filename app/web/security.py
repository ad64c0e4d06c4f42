"""What keeps other sites out: response headers, the Host check and the CSRF check. No cookie, no token, no state.

CSRF by headers as in https://words.filippo.io/csrf/: a browser says where a request comes from. A client that sends
neither Sec-Fetch-Site nor Origin is not a browser that another site can steer, and passes.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from flask import Flask, Request, Response, abort, request

from compileboard.app.settings import Settings

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # plotly writes style elements; without them its charts fall apart
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
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
READ_ONLY = "This server is read-only: it can be reached from other machines and was not started with --allow-writes."
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """List the names a browser may use."""
    given = {name.strip().strip("[]").lower() for name in settings.allow_host.split(",") if name.strip()}
    return LOOPBACK_NAMES | given | ({settings.host.strip("[]")} if is_loopback(settings.host) else set())


def is_writable(settings: Settings) -> bool:
    """Return whether pages and the API may change data: on this machine alone, or where --allow-writes permits it."""
    return is_loopback(settings.host) or settings.allow_writes == "yes"


def is_cross_site(req: Request) -> bool:
    """Return whether a browser sent this request from another site's page."""
    fetch_site = req.headers.get("Sec-Fetch-Site")
    if fetch_site is not None:
        return fetch_site not in ("same-origin", "none")
    origin = req.headers.get("Origin")
    return origin is not None and urlsplit(origin).netloc.lower() != req.host.lower()


def check_request(settings: Settings) -> None:
    """Refuse a host name that is not ours (DNS rebinding), any change where none is allowed, and other sites' ones."""
    name = _host_name(request.headers.get("Host", ""))
    if name not in allowed_hosts(settings):
        abort(403, f"The host name {name[:80]!r} is not one this server answers to. Start it with --allow-host NAME.")
    if request.method in SAFE_METHODS:
        return
    if not is_writable(settings):
        abort(403, READ_ONLY)
    if is_cross_site(request):
        abort(
            403, "This change was asked for by another site's page, so nothing was changed. Use this site's own form."
        )


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def add_headers(response: Response) -> Response:
    """Set the security headers of a response; one with its own policy, as a report has, keeps that."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def init_app(app: Flask) -> None:
    """Check every request and mark every response."""
    settings: Settings = app.config["COMPILEBOARD"]
    app.jinja_env.globals.update(writable=is_writable(settings), read_only=READ_ONLY)
    app.before_request(lambda: check_request(settings))
    app.after_request(add_headers)
