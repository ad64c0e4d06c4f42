"""The dashboard in a browser: pages, filters, charts, themes, keyboard, a phone, no JavaScript."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.migrations import migrate
from tests.browser.conftest import PAGE_SIZE
from tests.tools.serving import serving
from tests.tools.waiting import expect_count
from tests.unit.app.recorded import RUN
from tests.unit.app.seed import add_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAMES = "table.table tbody td:first-child > a:first-child"
ENTRIES = {
    "Overview": ["Overview"],
    "Incidents": ["Incidents", "Alerts"],
    "Runs": ["Runs", "Compare", "Import", "Machines", "Activity"],
    "Benchmarks": ["Models", "Trends"],
    "Breaks & recompiles": ["Graph breaks", "Recompiles"],
}
PAGES = ("/", "/runs", f"/runs/{RUN}", f"/runs/{RUN}?tab=compiles", "/graph_breaks", "/recompiles")


def _names(tab: Page) -> list[str]:
    return tab.locator(NAMES).all_inner_texts()


def _detail_pages(tab: Page, address: str) -> list[str]:
    """List an address of each kind of page, those behind the lists as well."""
    addresses = [*PAGES, f"/runs/{RUN}/delete"]
    for page, link in (
        ("/graph_breaks", "a[href^='/graph_breaks/']"),
        ("/recompiles", "a[href^='/recompiles/']"),
        (f"/runs/{RUN}?tab=compiles", "a[href*='/compiles/']"),
    ):
        tab.goto(f"{address}{page}")
        addresses.append(tab.locator(link).first.get_attribute("href") or "")
    return addresses


def test_navigation_reaches_every_page_and_says_where_it_is(tab: Page, address: str) -> None:
    tab.goto(address)
    for entry, pages in ENTRIES.items():
        for number, label in enumerate(pages):
            tab.get_by_role("navigation", name="Main").get_by_role("link", name=entry).click()
            if number:
                tab.get_by_role("navigation", name=entry, exact=True).get_by_role(
                    "link", name=label
                ).click()
                assert tab.locator(".subnav [aria-current=page]").inner_text() == label
            tab.wait_for_load_state()
            assert tab.locator(".nav__link[aria-current]").inner_text() == entry
            assert tab.title().endswith(" · CompileBoard")


@pytest.mark.nightly
def test_on_a_phone_the_bar_is_one_row_and_a_menu(
    open_tab: Callable[..., Page], address: str
) -> None:
    for javascript in (True, False):
        page = open_tab(400, java_script_enabled=javascript)
        page.goto(f"{address}/graph_breaks")
        bar = page.locator(".bar").bounding_box()
        assert bar is not None
        assert bar["height"] < 64
        links = page.get_by_role("navigation", name="Main").get_by_role("link")
        assert links.count() == 0
        page.get_by_role("button", name="Menu").click()
        assert links.count() == len(ENTRIES) <= 6
        page.keyboard.press("Escape")
        assert links.count() == 0
        page.get_by_role("button", name="Menu").press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{address}/")


def test_nothing_in_the_bar_overlaps_whatever_its_width(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs")
    for width in (1600, 1280, 1024, 980, 961):
        tab.set_viewport_size({"width": width, "height": 900})
        parts = [
            tab.locator(".bar").locator(part).last.bounding_box()
            for part in (".brand", ".nav__link", ".find", ".theme")
        ]
        edges = [(box["x"], box["x"] + box["width"]) for box in parts if box]
        assert len(edges) == 4 and edges[-1][1] <= width
        assert all(right <= left for (_, right), (left, _) in itertools.pairwise(edges)), (
            width,
            edges,
        )


def test_the_search_box_suggests_pages_and_is_used_by_keys(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs/{RUN}?tab=compiles")
    tab.keyboard.press("/")
    tab.keyboard.type("seed-2")
    options = tab.get_by_role("listbox", name="Suggestions").get_by_role("option")
    options.filter(has_text="seed-2").first.wait_for()
    assert options.last.inner_text().startswith("“seed-2” in all runs")
    tab.keyboard.press("ArrowDown")
    assert (
        tab.get_by_label("Search everything").get_attribute("aria-activedescendant")
        == "suggestion-0"
    )
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"{address}/runs/SEED2")
    tab.keyboard.press("Control+k")
    tab.keyboard.type("forward")
    options.filter(has_text="in this run").wait_for()
    tab.keyboard.press("Escape")
    assert options.count() == 0
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"{address}/search?q=forward")


@pytest.mark.nightly
def test_lists_lead_to_their_things_and_back(tab: Page, address: str) -> None:
    for page in ("graph_breaks", "recompiles"):
        tab.goto(f"{address}/{page}")
        tab.locator(NAMES).first.click()
        tab.wait_for_url(re.compile(rf"/{page}/[0-9a-f]{{16}}$"))
        tab.locator("a[href*='/runs/']").first.click()
        tab.wait_for_url(re.compile("/runs/[0-9A-Z]+"))
        tab.go_back()
        tab.locator(".subnav [aria-current]").click()
        tab.wait_for_url(re.compile(rf"/{page}$"))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("q=seed-2", ["seed-2"]),
        ("name=seed-1", ["seed-1"]),
        ("suite=seeds", ["seed-3", "seed-2", "seed-1", "seed-0"]),
        ("tag=lr=3", ["seed-3"]),
        ("state=killed", ["seed-2"]),
        ("suite=seeds&until=2026-11-10", ["seed-1", "seed-0"]),
    ],
)
def test_runs_filters_are_in_the_address(
    tab: Page, address: str, query: str, names: list[str]
) -> None:
    tab.goto(f"{address}/runs?{query}")
    assert _names(tab) == names
    assert tab.get_by_text(f"{len(names)} run").first.is_visible()


def test_runs_filter_form_writes_the_address(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs")
    tab.locator(".narrow summary").first.click()
    tab.get_by_label("Search", exact=True).fill("seed")
    tab.get_by_label("Search", exact=True).press("Enter")
    tab.wait_for_url(f"{address}/runs?q=seed&sort=started")
    tab.get_by_label("State").select_option("failed")
    tab.wait_for_url(re.compile("state=failed"))
    assert _names(tab) == ["seed-1"]
    assert [chip.split() for chip in tab.locator(".chip").all_inner_texts()] == [
        ["Search", "seed", "×"],
        ["State", "failed", "×"],
    ]
    tab.locator(".chip", has_text="Search").click()
    tab.wait_for_url(re.compile(r"/runs\?state=failed&sort=started$"))
    tab.get_by_role("link", name="Clear filters").click()
    tab.wait_for_url(f"{address}/runs?sort=started")
    assert len(_names(tab)) == PAGE_SIZE


@pytest.mark.nightly
def test_a_filter_that_matches_nothing_offers_to_clear_it(tab: Page, address: str) -> None:
    for path in ("/runs", "/graph_breaks", "/recompiles", f"/runs/{RUN}?tab=compiles"):
        tab.goto(f"{address}{path}{'&' if '?' in path else '?'}q=nothing-is-called-so")
        tab.locator(".empty").get_by_role("link", name="Clear filters").click()
        tab.wait_for_url(f"{address}{path}")
        assert tab.locator(".empty").count() == 0


def test_runs_sort_both_ways_by_their_headings(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs?suite=seeds")
    heading = tab.locator("th a.sort", has_text="Recompiles")
    heading.click()
    tab.wait_for_url(re.compile("sort=recompiles$"))
    assert _names(tab) == ["seed-3", "seed-2", "seed-1", "seed-0"]
    heading.click()
    tab.wait_for_url(re.compile("sort=recompiles.asc"))
    assert _names(tab) == ["seed-0", "seed-1", "seed-2", "seed-3"]
    assert tab.locator("th[aria-sort=ascending]").inner_text().startswith("Recompiles")


def test_paging_by_keyboard_visits_every_run_once(tab: Page, address: str, database: Path) -> None:
    with closing(sqlite3.connect(database)) as store:
        ids = {row[0] for row in store.execute("select id from runs")}
    tab.goto(f"{address}/runs")
    seen: list[str] = []
    while True:
        seen += [link.get_attribute("title") or "" for link in tab.locator(NAMES).all()]
        more = tab.get_by_role("link", name="More runs")
        if more.count() == 0:
            break
        more.focus()
        with tab.expect_navigation():
            tab.keyboard.press("Enter")
    assert len(seen) == len(set(seen))
    assert set(seen) == ids


def test_charts_are_drawn_where_they_are_promised(tab: Page, address: str) -> None:
    for page, least in (("/trends", 4), ("/graph_breaks", 1), ("/recompiles", 1)):
        tab.goto(f"{address}{page}")
        tab.locator("[data-drawn=yes] .main-svg").first.wait_for()
        plots = tab.locator("[data-chart]").count()
        assert plots >= least, page
        tab.locator("[data-chart]:not([data-drawn]):visible").first.wait_for(state="detached")
        marks = tab.locator("[data-chart] :is(.point, .points path, .js-line)").count()
        assert marks >= plots, page


def test_a_link_shows_what_a_chart_was_zoomed_to(tab: Page, address: str) -> None:
    shown = "() => document.querySelector('.js-plotly-plot').layout.xaxis.range.map(Number)"
    tab.goto(f"{address}/graph_breaks")
    tab.wait_for_selector("[data-drawn] .nsewdrag")
    plot = tab.locator(".nsewdrag").first
    plot.scroll_into_view_if_needed()
    whole, box = tab.evaluate(shown), plot.bounding_box()
    assert box is not None and "#" not in tab.url
    tab.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 10)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 10, steps=4)
    tab.mouse.up()
    tab.wait_for_url(re.compile(r"#zoom=graph-breaks-trend:"))
    zoomed = tab.evaluate(shown)
    assert zoomed[1] - zoomed[0] == pytest.approx(0.4 * (whole[1] - whole[0]), rel=0.05)
    tab.reload()
    tab.wait_for_selector("[data-drawn]")
    assert tab.evaluate(shown) == pytest.approx(zoomed, abs=0.01)
    tab.mouse.dblclick(box["x"] + 20, box["y"] + 10)
    tab.wait_for_url(re.compile(r"/graph_breaks$"))
    assert tab.evaluate(shown) == pytest.approx(whole)


def test_a_chart_moves_nothing_when_it_is_drawn(
    open_tab: Callable[..., Page], address: str
) -> None:
    measure = """[...document.querySelectorAll('.chart__plot')].map((plot) => {
      const empty = plot.cloneNode(false);
      empty.removeAttribute("style");
      plot.after(empty);
      const heights = [plot, empty].map((element) => element.getBoundingClientRect().height);
      empty.remove();
      return heights;
    })"""
    page = open_tab()
    page.goto(f"{address}/graph_breaks")
    page.locator("[data-drawn=yes] .main-svg").first.wait_for()
    heights = page.evaluate(measure)
    assert heights and all(drawn == empty > 100 for drawn, empty in heights)


def test_without_scripts_a_chart_leaves_no_blank(
    open_tab: Callable[..., Page], address: str
) -> None:
    page = open_tab(java_script_enabled=False)
    page.goto(f"{address}/graph_breaks")
    heights = page.evaluate(
        "[...document.querySelectorAll('.chart__plot')].map((it) => it.offsetHeight)"
    )
    assert heights and max(heights) < 60


def _ground(tab: Page) -> str:
    return str(tab.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_theme_follows_the_system_until_a_person_chooses(
    open_tab: Callable[..., Page], address: str
) -> None:
    light, dark = open_tab(color_scheme="light"), open_tab(color_scheme="dark")
    for tab in (light, dark):
        tab.goto(f"{address}/graph_breaks")
    assert _ground(light) != _ground(dark)
    button = light.get_by_role("button", name="Theme")
    before = light.locator("[data-chart] .xtick text").first.evaluate("it => it.style.fill")
    button.click()
    button.click()
    assert button.get_attribute("title") == "Theme: dark"
    assert _ground(light) == _ground(dark)
    assert light.locator("[data-chart] .xtick text").first.evaluate("it => it.style.fill") != before
    light.goto(f"{address}/runs")
    assert _ground(light) == _ground(dark)
    light.get_by_role("button", name="Theme").click()
    assert _ground(light) != _ground(dark)


def test_keyboard_skips_to_the_content_and_goes_in_order(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs")
    order = []
    for _step in range(14):
        tab.keyboard.press("Tab")
        order.append(
            tab.evaluate("document.activeElement.textContent.trim().replace(/\\s+/g, ' ')")
        )
    # "": the box to search in, and the theme button
    assert order == ["Skip to the content", "CompileBoard", *ENTRIES, "", "", *ENTRIES["Runs"]]
    tab.goto(f"{address}/runs")
    tab.keyboard.press("Tab")
    assert tab.locator(".skip").bounding_box() is not None
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.closest('main') !== null")


def test_what_has_the_focus_is_seen(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs")
    for _step in range(12):
        tab.keyboard.press("Tab")
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert tab.evaluate(outline) != "none", tab.evaluate("document.activeElement.outerHTML")


def test_pages_read_well_without_javascript(open_tab: Callable[..., Page], address: str) -> None:
    page = open_tab(java_script_enabled=False)
    for path in PAGES:
        page.goto(f"{address}{path}")
        assert page.locator("h1").is_visible()
        assert page.locator("main :is(tbody tr, dt)").count() > 0, path
        assert not page.locator(".theme").is_visible()
    page.goto(f"{address}/graph_breaks")
    assert "The table below has the same numbers" in (
        page.locator("[data-chart] noscript").first.text_content() or ""
    )
    page.get_by_text("Show table").first.click()
    assert page.locator("details.twin[open] tbody tr").count() > 0
    page.goto(f"{address}/runs")
    page.locator(".narrow summary").first.click()
    page.get_by_label("Search", exact=True).fill("seed-3")
    page.get_by_role("button", name="Apply").click()
    assert _names(page) == ["seed-3"]


def test_no_page_scrolls_sideways_on_a_phone(open_tab: Callable[..., Page], address: str) -> None:
    page = open_tab(400)
    for path in _detail_pages(page, address):
        page.goto(f"{address}{path}")
        page.locator("[data-chart]:not([data-drawn]):visible").first.wait_for(state="detached")
        over = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert over <= 0, path


@pytest.fixture
def own_run(database: Path, request: pytest.FixtureRequest) -> str:
    """Add a run that this test alone changes; it stays out of the others' filters."""
    run_id = f"OWN{abs(hash(request.node.name)) % 10**9}"
    with closing(open_writer(database)) as store:
        add_run(store, run_id, name="own", started_us=1_700_000_000_000_000)
    return run_id


def _open_actions(tab: Page) -> None:
    tab.locator("#actions > summary").click()


def test_a_person_renames_notes_and_pins_a_run(tab: Page, address: str, own_run: str) -> None:
    tab.goto(f"{address}/runs/{own_run}")
    _open_actions(tab)
    tab.get_by_text("Edit name and note").click()
    tab.get_by_label("Title").fill("My baseline")
    tab.get_by_label("Note").fill("before the rewrite")
    tab.get_by_role("button", name="Save").click()
    assert tab.locator("h1").inner_text() == "My baseline"
    assert tab.locator(".note").inner_text() == "before the rewrite"
    _open_actions(tab)
    tab.get_by_role("button", name="Pin My baseline").click()
    tab.goto(f"{address}/runs")
    assert _names(tab)[0] == "My baseline"
    tab.get_by_role("link", name="My baseline").click()
    _open_actions(tab)
    tab.get_by_role("button", name="Unpin My baseline").click()
    tab.goto(f"{address}/runs")
    assert _names(tab)[0] != "My baseline"


def test_menus_work_by_keyboard_and_close_with_escape_and_a_press_beside(
    tab: Page, address: str
) -> None:
    tab.goto(f"{address}/runs/{RUN}")
    boxes = tab.locator(".menu__box:visible")
    tab.locator("#export > summary").focus()
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "HTML report"
    tab.keyboard.press("Escape")
    assert boxes.count() == 0
    assert tab.evaluate("document.activeElement.parentElement.id") == "export"
    _open_actions(tab)
    tab.locator("#export > summary").click()
    assert boxes.count() == 1
    tab.mouse.click(5, 700)
    assert boxes.count() == 0


def test_menus_open_without_javascript(open_tab: Callable[..., Page], address: str) -> None:
    page = open_tab(400, java_script_enabled=False)
    page.goto(f"{address}/runs/{RUN}")
    for menu, entry in (("export", "HTML report"), ("actions", "Delete"), ("more-tabs", "Caches")):
        page.locator(f"#{menu} > summary").click()
        item = page.locator(f"#{menu} .menu__item", has_text=entry).first
        box = item.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 400
        page.locator(f"#{menu} > summary").click()


def test_a_person_deletes_a_run_after_being_asked(
    open_tab: Callable[..., Page], address: str, own_run: str
) -> None:
    tab = open_tab(allow="404")
    tab.goto(f"{address}/runs/{own_run}")
    _open_actions(tab)
    tab.get_by_role("link", name="Delete").click()
    tab.get_by_role("link", name="Cancel").click()
    assert tab.locator("h1").inner_text() == "own"
    _open_actions(tab)
    tab.get_by_role("link", name="Delete").click()
    tab.get_by_role("button", name="Delete").click()
    tab.get_by_role("status").get_by_role("link", name="Restore it within 7 days").wait_for()
    tab.goto(f"{address}/runs/{own_run}")
    assert f"Run {own_run} was deleted." in tab.locator("main").inner_text()


def test_a_deleted_run_comes_back_from_the_activity_page(
    open_tab: Callable[..., Page], address: str, own_run: str
) -> None:
    tab = open_tab()
    tab.goto(f"{address}/runs/{own_run}/delete")
    tab.get_by_role("button", name="Delete").click()
    tab.get_by_role("link", name="Restore it within 7 days").click()
    tab.get_by_role("row").filter(has_text=own_run).get_by_role(
        "button", name="Restore own"
    ).click()
    tab.goto(f"{address}/runs/{own_run}")
    assert tab.locator("h1").inner_text() == "own"


def test_a_shared_link_shows_exactly_the_same(open_tab: Callable[..., Page], address: str) -> None:
    mine, theirs = open_tab(), open_tab()
    mine.goto(f"{address}/runs/{RUN}?tab=compiles&sort=time&outcome=compiled")
    mine.locator("#export > summary").click()
    link = mine.get_by_label("Link to this view").input_value()
    theirs.goto(link)
    assert theirs.url == mine.url
    assert theirs.locator("table").first.inner_text() == mine.locator("table").first.inner_text()


def test_an_empty_database_says_how_to_fill_it(tab: Page, tmp_path: Path) -> None:
    database = tmp_path / "new.db"
    migrate(database)
    with serving(database) as server:
        tab.goto(server.address)
        commands = [
            f"compileboard-collect run --db {database} -- python train.py",
            f"compileboard-collect bench --db {database}",
        ]
        for page in ("", "runs", "graph_breaks", "recompiles"):
            tab.goto(f"{server.address}/{page}")
            assert tab.get_by_role("heading", name="No runs yet").is_visible()
            assert tab.locator("main pre").all_inner_texts() == commands
        tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
        tab.get_by_role("button", name="Copy").first.click()
        tab.get_by_role("button", name="Copied").wait_for()
        assert tab.evaluate("navigator.clipboard.readText()") == commands[0]
        tab.get_by_role("link", name="Import files").click()
        tab.wait_for_url(re.compile("/imports$"))
        tab.close()


@pytest.mark.nightly
def test_the_list_of_runs_fits_a_laptop_whatever_failed_or_was_not_recorded(
    tab: Page, tmp_path: Path
) -> None:
    database = tmp_path / "runs.db"
    migrate(database)
    with closing(open_writer(database)) as store:
        add_run(
            store, "R1", totals={"failure_count": 3, "result_count": 2, "failed_result_count": 1}
        )
        bare = {
            "torch_version": None,
            "git_commit": None,
            "gpu_name": None,
            "gpu_count": 0,
            "source": "import",
        }
        add_run(store, "R2", **bare, totals={"result_count": 2, "failed_result_count": 2})
    with serving(database) as server:
        tab.goto(f"{server.address}/runs")
        assert tab.locator(".scroll").evaluate("(box) => box.scrollWidth <= box.clientWidth")
        tab.close()


def test_an_unknown_run_is_one_sentence_with_a_way_on(
    open_tab: Callable[..., Page], address: str
) -> None:
    tab = open_tab(allow="404")
    answer = tab.goto(f"{address}/runs/nope")
    assert answer is not None
    assert answer.status == 404
    assert tab.get_by_text("There is no run nope").is_visible()
    tab.locator("main a").first.click()
    expect_count(tab.locator("h1"), 1)
