"""A real server over a recorded database, and a real Chromium whose pages forgive nothing: of each
worker of xdist.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compileboard.collectors.cli.indexing import index_runs
from compileboard.collectors.store.connection import checkpoint, open_writer
from tests.tools.make_db import main as make_db
from tests.tools.serving import Server, serving
from tests.unit.app.recorded import record_run
from tests.unit.app.seed import START_US, add_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize

HERE = Path(__file__).parent
DAY_US = 86_400_000_000
PAGE_SIZE = 5
VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
TIMEOUT_MS = 15_000


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record torch's own logs, one told run, and runs that differ in what the list filters by."""
    path = tmp_path_factory.mktemp("browser") / "compileboard.db"
    assert make_db([str(path)]) == 0
    with closing(open_writer(path)) as store:
        record_run(store)
        for day, state in enumerate(("finished", "failed", "killed", "interrupted")):
            totals = {
                "compile_count": 10 + day,
                "recompile_count": day,
                "compile_us": 1000 * (day + 1),
            }
            more: dict[str, Any] = {
                "tags": {"lr": str(day)},
                "totals": totals,
                "name": f"seed-{day}",
                "suite": "seeds",
            }
            add_run(
                store, f"SEED{day}", state=state, started_us=START_US - (9 - day) * DAY_US, **more
            )
        checkpoint(store)
    index_runs(str(path), [], print_line=lambda _line: None)
    return path


@pytest.fixture(scope="session")
def server(database: Path) -> Iterator[Server]:
    with serving(database, COMPILEBOARD_PAGE_SIZE=str(PAGE_SIZE)) as server:
        yield server


@pytest.fixture
def address(server: Server) -> str:
    assert server.process.poll() is None, f"the server died:\n{server.output}"
    return server.address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        reason = "needs Debian's chromium"
        if os.environ.get("COMPILEBOARD_REQUIRE_ALL") == "1":
            pytest.fail(
                f"{reason}, and COMPILEBOARD_REQUIRE_ALL=1 lets nothing be skipped", pytrace=False
            )
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class _EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href='data:,'>")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def empty_page() -> Iterator[str]:
    """Serve an empty page of this machine and return its address: a tab that waits there keeps its
    renderer.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@dataclass
class SharedTab:
    """A tab that tests take one after the other: a new one has a new renderer, 0.4 s of CPU.

    A test that changes it for good, by a script of every page or a route, closes it.
    """

    context: BrowserContext
    empty_page: str
    page: Page | None = None
    is_taken: bool = False

    def take(self, width: int, color_scheme: Any = "light") -> Page:
        """Return the tab as a new one would be."""
        self.is_taken = True
        if self.page is None or self.page.is_closed():
            self.page = self.context.new_page()
            self._session = self.context.new_cdp_session(self.page)
        self.page.set_viewport_size({**VIEWPORT, "width": width})
        self.page.emulate_media(
            media="null", color_scheme=color_scheme, reduced_motion="null", forced_colors="null"
        )
        return self.page

    def leave(self, origins: set[str]) -> None:
        """Close what the test opened from the tab, and forget what it stored, visited and was
        permitted.
        """
        assert self.page is not None
        for page in self.context.pages:
            if page != self.page:
                page.close()
        if not self.page.is_closed():
            self.page.evaluate(
                "try { sessionStorage.clear() } catch { /* about:blank has none */ }"
            )
            self.page.goto(self.empty_page)
            self._session.send("Page.resetNavigationHistory")
            for origin in origins:
                self._session.send(
                    "Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"}
                )
        self.context.clear_cookies()
        self.context.clear_permissions()
        self.is_taken = False


@pytest.fixture(scope="session")
def shared_tabs(browser: Browser, empty_page: str) -> dict[bool, SharedTab]:
    """Return a tab with JavaScript and one without, empty for each test."""
    shared = {}
    for has_javascript in (True, False):
        context = browser.new_context(viewport=VIEWPORT, java_script_enabled=has_javascript)
        context.set_default_timeout(TIMEOUT_MS)
        shared[has_javascript] = SharedTab(context, empty_page)
    return shared


@pytest.fixture
def open_tab(browser: Browser, shared_tabs: dict[bool, SharedTab]) -> Iterator[Callable[..., Page]]:
    """Open tabs of their own that fail the test on what a person would find in the console, or on
    the network.

    That is an error or a warning (a CSP violation is one), an exception, a request that failed or
    that left this machine. `allow` is a pattern of what this test expects.
    """
    lines: list[str] = []
    contexts = []
    taken: list[SharedTab] = []
    heard: list[tuple[Page, Any, Callable[[Any], None]]] = []
    origins: set[str] = set()

    def make_page(width: int, options: dict[str, Any]) -> Page:
        shared = shared_tabs[options.get("java_script_enabled", True)]
        if shared.is_taken or not options.keys() <= {
            "java_script_enabled",
            "color_scheme",
        }:  # of two tabs, one shares
            context = browser.new_context(viewport={**VIEWPORT, "width": width}, **options)
            context.set_default_timeout(TIMEOUT_MS)
            contexts.append(context)
            return context.new_page()
        taken.append(shared)
        return shared.take(width, options.get("color_scheme", "light"))

    def open_one(width: int = 1280, *, allow: str = "", **options: Any) -> Page:
        def note(kind: str, text: str) -> None:
            if not (allow and re.search(allow, text)):
                lines.append(f"{kind}: {text}")

        def note_request(url: str) -> None:
            origins.add("/".join(url.split("/")[:3]))
            if not _is_ours(url):
                note("left this machine", url)

        def listen(event: Any, handler: Callable[[Any], None]) -> None:
            page.on(event, handler)
            heard.append((page, event, handler))

        page = make_page(width, options)
        listen(
            "console",
            lambda message: (
                note(message.type, message.text) if message.type in ("error", "warning") else None
            ),
        )
        listen("pageerror", lambda error: note("exception", str(error)))
        listen("request", lambda request: note_request(request.url))
        listen(
            "requestfailed",
            lambda request: (
                None
                if _is_left(request.failure)
                else note("failed", f"{request.url} {request.failure}")
            ),
        )
        listen(
            "response",
            lambda response: (
                note("status", f"{response.status} {response.url}")
                if response.status >= 400
                else None
            ),
        )
        return page

    yield open_one
    for context in contexts:
        context.close()
    for shared in taken:
        shared.leave({origin for origin in origins if origin.startswith("http:")})
    for page, event, handler in heard:
        page.remove_listener(event, handler)
    assert lines == []


@pytest.fixture
def tab(open_tab: Callable[..., Page]) -> Page:
    return open_tab()


def _is_ours(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:http://127.0.0.1:"))


def _is_left(failure: str | None) -> bool:
    """Return whether a request only ended because the page was left for another."""
    return failure is not None and "ERR_ABORTED" in failure
