"""Apache with mod_auth_openidc in front, as the docs set it up, and a provider of OpenID Connect.

Runs where Debian's apache2-bin and libapache2-mod-auth-openidc and PyPI's oidc-provider-mock are
installed.
"""

from __future__ import annotations

import os
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.serve.proxies import (
    HOST,
    ORIGIN,
    PIN,
    Board,
    find_port,
    listening,
    make_certificate,
    read_config,
    serve_board,
)

APACHE = Path(os.environ.get("COMPILEBOARD_APACHE_ROOT", "/"))
MODULES = APACHE / "usr" / "lib" / "apache2" / "modules"
NEEDED = [
    "mpm_event",
    "authn_core",
    "authz_core",
    "authz_user",
    "headers",
    "proxy",
    "proxy_http",
    "ssl",
    "auth_openidc",
]

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not (MODULES / "mod_auth_openidc.so").exists() or find_spec("oidc_provider_mock") is None,
        reason="needs Apache with mod_auth_openidc, and oidc-provider-mock",
    ),
]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    folder, port, provider = tmp_path_factory.mktemp("board"), find_port(), find_port()
    make_certificate(folder)
    config = folder / "apache.conf"
    top = f"ServerRoot {folder}\nServerName x\nPidFile {folder}/pid\nDefaultRuntimeDir {folder}\n"
    top += f"Listen 127.0.0.1:{port}\nErrorLog {folder}/error.log\nUser nobody\nGroup nogroup\n"
    top += "".join(f"LoadModule {name}_module {MODULES}/mod_{name}.so\n" for name in NEEDED)
    with serve_board(folder, port, "ann@example.com=write,*=read") as served:
        text = read_config("apache").replace(
            "https://login.example.com", f"http://127.0.0.1:{provider}"
        )
        text = text.replace("*:443", f"*:{port}").replace("/etc/apache2", str(folder))
        config.write_text(top + text.replace("http://127.0.0.1:8000", served.address))
        own = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(provider)]
        # Debian's packages may be unpacked into a folder.
        environ = {
            **os.environ,
            "LD_LIBRARY_PATH": str(APACHE / "usr" / "lib" / "x86_64-linux-gnu"),
        }
        apache = [str(APACHE / "usr" / "sbin" / "apache2"), "-f", str(config), "-DFOREGROUND"]
        with listening(command, provider, own), listening(apache, port, environ):
            yield served


def _read_cookies(answer: str) -> tuple[str, str]:
    return "Cookie", "; ".join(re.findall(r"(?m)^Set-Cookie: ([^;]+)", answer))


def log_in(board: Board, person: str) -> tuple[str, str]:
    """Log in at the provider as a browser does; return the cookie of Apache's login."""
    status, answer = board.ask("/activity", ("Accept", "text/html"))
    assert status == 302, answer
    address = re.findall(r"(?m)^Location: (.+)$", answer)[0].strip()
    form = urllib.parse.urlencode({"sub": person, "email": person}).encode()
    opener = urllib.request.build_opener(_Stay)
    back = opener.open(urllib.request.Request(address, form)).headers["Location"]
    assert back.startswith(f"https://{HOST}/oidc/callback?"), back
    status, answer = board.ask(back.removeprefix(f"https://{HOST}"), _read_cookies(answer))
    assert status == 302 and f"Location: https://{HOST}" in answer, answer
    return _read_cookies(answer)


class _Stay(urllib.request.HTTPRedirectHandler):
    def http_error_302(self, req, fp, code, msg, headers):  # type: ignore[no-untyped-def]
        return fp


def test_people_of_the_provider_get_their_scopes_and_nobody_else(board: Board) -> None:
    ann, bob = log_in(board, "ann@example.com"), log_in(board, "bob@example.com")
    named = ("X-Forwarded-User", "ann@example.com")
    status, page = board.ask("/activity", ann)
    assert (status, ">ann@example.com</span>" in page) == (200, True)
    assert board.ask(PIN, ann, ORIGIN, body="title=by+Ann")[0] == 303
    assert board.ask(PIN, ann, ("Origin", "https://evil.example"), body="title=crossed")[0] == 403
    assert board.ask(PIN, bob, named, ORIGIN, body="title=forged")[0] == 403
    assert board.ask("/runs", named)[0] == 401
    changes = board.ask("/api/v1/audit", bob)[1]
    assert changes.count('"actor":"ann@example.com"') == 1


def test_a_token_needs_no_provider(board: Board) -> None:
    bearer = ("Authorization", f"Bearer {board.token}")
    assert board.ask("/api/v1/runs", bearer)[0] == 200
    assert (
        board.ask(PIN, bearer, ("X-Forwarded-User", "ann@example.com"), body="title=by+box")[0]
        == 303
    )
    assert board.ask("/api/v1/runs", ("Authorization", "Bearer cb_0123456789_0"))[0] == 401
    assert '"actor":"box-1"' in board.ask("/api/v1/audit", bearer)[1]
