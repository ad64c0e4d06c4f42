"""The timeline in a real browser: drawn, zoomed, searched, chosen, shared, and without a script."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.logs.log_loader import LoadOptions
from tests.tools.observed import wait_for
from tests.tools.serving import serving
from tests.unit.app.explored import LOGS, explore

if TYPE_CHECKING:
    from playwright.sync_api import Page

CANVAS = "#flame canvas"


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a run of a whole log; give its timeline's address."""
    database: Path = tmp_path_factory.mktemp("timeline") / "explored.db"
    explore(database, payloads=False)
    with closing(sqlite3.connect(database)) as reader:
        (run_id,) = reader.execute("select run_id from lanes order by span_count desc").fetchone()
    with serving(database) as server:
        yield f"{server.address}/runs/{run_id}/timeline"


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a run of two processes; give its timeline's address."""
    folder, database = (
        tmp_path_factory.mktemp("logs"),
        tmp_path_factory.mktemp("ranked") / "compileboard.db",
    )
    for name in ("zoo_recompiles", "zoo_graph_breaks"):
        shutil.copy(LOGS[name], folder)
    import_paths(
        [str(folder)], str(database), LoadOptions(payloads=False), print_line=lambda _line: None
    )
    with closing(sqlite3.connect(database)) as reader:
        ((run_id, lane_count),) = reader.execute(
            "select run_id, count(*) from lanes group by run_id"
        )
    assert lane_count == 2
    with serving(database) as server:
        yield f"{server.address}/runs/{run_id}/timeline"


def pixels(page: Page) -> str:
    drawn: str = page.evaluate(f"document.querySelector('{CANVAS}').toDataURL()")
    return drawn


def settle(page: Page) -> None:
    """Wait until the window that is looked at has come from the server and is drawn."""
    page.wait_for_timeout(150)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(50)


def window(page: Page) -> tuple[int, int]:
    asked = parse_qs(urlsplit(page.url).query)
    return int(asked["from"][0]), int(asked["to"][0])


def test_timeline_is_drawn_and_zoomed_by_keyboard_wheel_and_button(
    tab: Page, timeline: str
) -> None:
    tab.goto(timeline)
    first = pixels(tab)
    blank = tab.evaluate(
        f"(() => {{ const it = document.querySelector('{CANVAS}'); const c = "
        "document.createElement('canvas');"
        " c.width = it.width; c.height = it.height; return c.toDataURL(); })()"
    )
    assert first != blank
    tab.focus(CANVAS)
    tab.keyboard.press("+")
    settle(tab)
    view = window(tab)
    tab.hover(CANVAS)
    tab.mouse.wheel(0, -300)
    settle(tab)
    two = window(tab)
    assert view[0] <= two[0] < two[1] <= view[1] and two != view
    assert pixels(tab) != first
    tab.get_by_role("button", name="Show all").click()
    settle(tab)
    assert window(tab)[0] <= view[0] < view[1] <= window(tab)[1]


def test_a_shared_window_shows_the_same(
    tab: Page, open_tab: Callable[..., Page], timeline: str
) -> None:
    tab.goto(timeline)
    tab.focus(CANVAS)
    for key in ("+", "+", "ArrowRight"):
        tab.keyboard.press(key)
    settle(tab)
    assert "from=" in tab.url
    other = open_tab()
    other.goto(tab.url)
    status = "#flame-status"
    assert other.inner_text(status) == tab.inner_text(status)
    assert other.get_attribute(CANVAS, "data-drawn") == tab.get_attribute(CANVAS, "data-drawn")


def test_a_phase_is_chosen_by_keys_and_opens_its_compile(tab: Page, timeline: str) -> None:
    tab.goto(timeline)
    tab.focus(CANVAS)
    tab.keyboard.press("Shift+ArrowRight")
    text = tab.inner_text("#flame-said")
    assert text.startswith("dynamo, ") and "first compile 0/0" in text
    tab.keyboard.press("Shift+ArrowDown")
    assert "% of dynamo" in tab.inner_text("#flame-said")
    tab.keyboard.press("Enter")
    assert "of dynamo" in tab.inner_text("#flame-details dl")
    tab.keyboard.press("Escape")
    assert not tab.locator("#flame-details").is_visible()
    assert tab.evaluate("document.activeElement.tagName") == "CANVAS"
    tab.keyboard.press("Enter")
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile(r"/compiles/\d+$"))


def test_a_link_shows_the_phase_that_was_chosen(
    tab: Page, open_tab: Callable[..., Page], timeline: str
) -> None:
    tab.goto(timeline)
    tab.focus(CANVAS)
    for key in ("Shift+ArrowRight", "Shift+ArrowDown", "Enter"):
        tab.keyboard.press(key)
    details = tab.inner_text("#flame-details")
    assert "#at=" in tab.url and "of dynamo" in details
    other = open_tab()
    other.goto(tab.url)
    other.wait_for_selector("#flame-details", state="visible")
    assert other.inner_text("#flame-details") == details and other.url == tab.url


def test_pointing_says_what_it_is_and_a_click_shows_its_details(tab: Page, timeline: str) -> None:
    tab.goto(timeline)
    box = tab.locator(CANVAS).bounding_box()
    assert box is not None
    for share in range(1, 100):
        tab.mouse.move(box["x"] + box["width"] * share / 100, box["y"] + 60)
        if tab.locator("#flame-tip").is_visible() and "compile " in tab.inner_text("#flame-tip"):
            break
    tab.mouse.down()
    tab.mouse.up()
    assert tab.url.partition("#at=")[0] == timeline  # it chose a phase, and opened no page
    tab.locator("#flame-details a").click()
    tab.wait_for_url(re.compile(r"/compiles/\d+$"))


def test_search_highlights_and_idle_time_is_folded(tab: Page, timeline: str) -> None:
    tab.goto(timeline)
    plain = pixels(tab)
    tab.fill("#flame-search", "inductor")
    wait_for(lambda: pixels(tab) != plain)
    button = tab.get_by_role("button", name="Show idle")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    tab.wait_for_url(re.compile("idle=shown"))
    assert button.get_attribute("aria-pressed") == "true"
    tab.reload()
    assert button.get_attribute("aria-pressed") == "true"


@pytest.mark.nightly
def test_each_process_but_the_busiest_is_folded(tab: Page, ranked: str) -> None:
    tab.goto(ranked)
    canvas = tab.locator(CANVAS)
    button = tab.get_by_role("button", name="Unfold processes")
    before = canvas.bounding_box()
    button.click()
    settle(tab)
    after = canvas.bounding_box()
    assert before and after and after["height"] > before["height"]
    assert button.get_attribute("aria-pressed") == "true"
    canvas.focus()
    drawn = pixels(tab)
    tab.keyboard.press("f")
    settle(tab)
    assert pixels(tab) != drawn and button.get_attribute("aria-pressed") == "false"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_timeline_fits_a_phone_and_moves_nothing(
    open_tab: Callable[..., Page], timeline: str, scheme: str
) -> None:
    page = open_tab(400, color_scheme=scheme)
    page.add_init_script(
        "globalThis.shift = 0; new PerformanceObserver((list) => { for (const it of "
        "list.getEntries())"
        " globalThis.shift += it.value; }).observe({ type: 'layout-shift', buffered: true });"
    )
    page.goto(timeline)
    settle(page)
    assert (
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        <= 0
    )
    assert page.evaluate("globalThis.shift") < 0.02
    page.close()  # with its script


def test_without_a_script_the_table_says_it(open_tab: Callable[..., Page], timeline: str) -> None:
    page = open_tab(java_script_enabled=False)
    page.goto(timeline)
    assert not page.locator("#flame").is_visible()
    row = page.locator("#names tbody tr", has_text="entire_frame_compile").first
    assert "dynamo" in row.inner_text()
    assert (
        page.get_by_role("link", name="Chrome trace file")
        .get_attribute("href", timeout=1000)
        .endswith("download=1")
    )
