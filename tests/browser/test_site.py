"""A static copy in a real browser: below a prefix of any web server, and opened from a disk."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from compileboard.app.cli.main import main
from compileboard.collectors.store.migrations import migrate
from tests.unit.app.explored import explore

Open = Callable[..., Any]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the tests read the requests."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, database: Path) -> Path:
    """Write the copy of the recorded database, and of one with timelines, below one host."""
    host = tmp_path_factory.mktemp("host")
    explored = host.parent / "explored.db"
    migrate(explored)
    explore(explored)
    for name, path, runs in (("project", database, "2"), ("explored", explored, "4")):
        assert (
            main(["export", "--site", str(host / "some" / name), "--db", str(path), "--runs", runs])
            == 0
        )
    return host


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[str]:
    """Serve the folder above the copies, as a host with a prefix does."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/some"
        server.shutdown()
        thread.join()


def _fits(page: Any) -> bool:
    return bool(
        page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_overview_leads_to_a_run_and_its_tabs(
    open_tab: Open, host: str, width: int, scheme: str
) -> None:
    page = open_tab(width, color_scheme=scheme)
    page.goto(f"{host}/project/")
    assert _fits(page) and page.locator("form, .find").count() == 0
    page.locator("#recent tbody td.text > a").first.click()
    run = page.locator("h1").inner_text()
    for tab in ("Compiles", "Graph breaks", "Recompiles", "Environment", "Processes"):
        page.locator(".tabs__row a, .switch a", has_text=re.compile(f"^{tab}")).click()
        assert (
            page.locator("h1").inner_text() == run
            and tab.split()[-1].lower() in page.title().lower()
        )
        assert _fits(page)
    assert f"{host}/project/runs/" in page.url


def test_bar_of_a_compile_opens_its_page(open_tab: Open, host: str) -> None:
    page = open_tab()
    page.goto(f"{host}/project/index.html")
    page.locator("#recent tbody td.text > a").last.click()  # the newest run has loaded code alone
    page.locator(".bars__row a").first.click()
    page.wait_for_url(re.compile(r"/compiles/\d+/index\.html$"))


def test_pages_are_read_with_the_keyboard_alone(open_tab: Open, host: str) -> None:
    page = open_tab()
    page.goto(f"{host}/project/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.get_by_role("link", name="Runs", exact=True).first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/index.html")
    page.get_by_role("button", name="Theme").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_copy_says_what_is_in_it(open_tab: Open, host: str) -> None:
    page = open_tab(allow="404")  # Chromium asks for an icon beside what is no page
    page.goto(f"{host}/project/")
    page.get_by_role("link", name="Static site").click()
    assert page.locator("h1").inner_text() == "About this site"
    page.get_by_role("link", name="data/runs.json").click()
    assert '"data":' in page.locator("body").inner_text()


def test_timeline_zooms_and_opens_a_compile_without_a_server(
    open_tab: Open, host: str, folder: Path
) -> None:
    page = open_tab()
    timeline = next((folder / "some" / "explored" / "runs").glob("*/timeline/index.html"))
    page.goto(f"{host}/{timeline.relative_to(folder / 'some')}")
    canvas = page.locator("#flame canvas[data-drawn]")
    canvas.wait_for()
    before = canvas.get_attribute("data-drawn")
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function(
        "before => document.querySelector('#flame canvas').dataset.drawn !== before", arg=before
    )
    page.get_by_role("button", name="Show all", exact=True).click()
    canvas.focus()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Enter")
    page.locator("#flame-details a").click()
    page.wait_for_url(re.compile(r"/compiles/\d+/index\.html$"))


def test_copy_works_from_a_disk(browser: Any, folder: Path) -> None:
    wrong: list[str] = []
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.on(
        "console",
        lambda message: (
            wrong.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    page.goto((folder / "some" / "project" / "index.html").as_uri())
    page.locator("#recent tbody td.text > a").last.click()  # the newest run has loaded code alone
    page.locator(".bars__row a").first.click()
    page.wait_for_url(re.compile(r"^file:.*/compiles/\d+/index\.html$"))
    context.close()
    assert wrong == []


def test_copy_reads_without_javascript(open_tab: Open, host: str) -> None:
    page = open_tab(java_script_enabled=False)
    page.goto(f"{host}/project/")
    page.get_by_role("link", name="Breaks & recompiles", exact=True).first.click()
    assert page.locator("h1").inner_text() == "Graph breaks"
    page.get_by_text("Show table").first.click()
    assert page.locator("details.twin[open] tbody tr").count() > 0
