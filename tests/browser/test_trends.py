"""Chips and the trend page in a browser: by keyboard, by mouse, on a phone, no JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.serving import serving
from tests.tools.waiting import (
    assert_fits_in_both_themes,
    expect_count,
    show_theme,
    wait_for_visible_charts,
)
from tests.unit.app.benched import BREAK_ID, HOSTILE, RUNS, bench_suite

if TYPE_CHECKING:
    from playwright.sync_api import Page

RANGES = """
  () => [...document.querySelectorAll("[data-linked] [data-chart]")].map(
    (it) => it.layout.xaxis.range.map(String))
"""
# A date comes back from Plotly as a text or as a number, whichever it was given.
SPAN = """
  () => {
    const [plot] = document.querySelectorAll("[data-linked] [data-chart]");
    const [from, to] = plot.layout.xaxis.range.map(
      (it) => typeof it === "number" ? it : Date.parse(it + "Z"));
    return to - from;
  }
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve three runs of the suite, the last of them on a newer torch; give the address."""
    path = tmp_path_factory.mktemp("trends") / "compileboard.db"
    migrate(path)
    with closing(open_writer(path)) as store:
        bench_suite(store)
        store.execute("update runs set torch_version = '2.12.0' where id = ?", (RUNS[2],))
        checkpoint(store)
    with serving(path) as server:
        yield server.address


def wait_for_charts(page: Page, count: int) -> None:
    page.wait_for_function(
        f"() => document.querySelectorAll('[data-chart][data-drawn]').length >= {count}"
    )


def test_a_number_of_the_overview_leads_to_its_trend_by_keyboard(tab: Page, suite: str) -> None:
    tab.goto(suite)
    tab.get_by_role("link", name="Geomean speedup").focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile(r"/trends\?metric=geomean_speedup&suite=bench_models"))
    expect_count(tab.get_by_role("heading", name="Geomean speedup"), 1)
    assert tab.locator("input[name=metric][value=speedup]").is_checked()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("javascript", [True, False])
def test_a_chip_chooses_by_keyboard_and_without_javascript(
    open_tab: Callable[..., Page], suite: str, javascript: bool
) -> None:
    tab = open_tab(java_script_enabled=javascript)
    tab.goto(suite)
    tab.locator("summary.chip", has_text="Last 90 runs").focus()
    tab.keyboard.press("Enter")
    tab.get_by_role("link", name="Last 30 runs").focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile(r"\?last=30$"))
    expect_count(tab.locator("summary.chip", has_text="Last 30 runs"), 1)


def test_charts_zoom_and_move_together_by_keyboard(tab: Page, suite: str) -> None:
    tab.goto(f"{suite}/trends?metric=speedup&metric=recompiles&metric=graph_breaks")
    wait_for_charts(tab, 3)
    whole = tab.evaluate(SPAN)
    tab.get_by_role("button", name="Zoom in").focus()
    tab.keyboard.press("Enter")
    tab.wait_for_function(f"() => ({SPAN})() < {whole} * 0.6")
    tab.wait_for_function(f"() => new Set(({RANGES})().map(String)).size === 1")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    tab.wait_for_function(f"() => Math.abs(({SPAN})() - {whole}) < 1000")


def test_a_link_shows_what_was_zoomed_to(tab: Page, suite: str) -> None:
    tab.goto(f"{suite}/trends?metric=speedup&metric=recompiles")
    wait_for_charts(tab, 2)
    whole = tab.evaluate(SPAN)
    tab.get_by_role("button", name="Zoom in").press("Enter")
    tab.wait_for_url(re.compile(r"zoom=\d{4}-"))
    zoomed = tab.evaluate(SPAN)
    tab.reload()
    wait_for_charts(tab, 2)
    tab.wait_for_function(f"() => Math.abs(({SPAN})() - {zoomed}) < 120000")
    tab.get_by_role("button", name="Show all").press("Enter")
    tab.wait_for_function(f"() => Math.abs(({SPAN})() - {whole}) < 1000")
    assert "zoom" not in tab.url


@pytest.mark.nightly
def test_an_address_has_no_zoom_until_a_reader_zooms_and_a_theme_keeps_it(
    tab: Page, suite: str
) -> None:
    tab.goto(f"{suite}/trends?metric=speedup&metric=recompiles&metric=graph_breaks")
    wait_for_charts(tab, 3)
    tab.wait_for_timeout(500)
    assert "zoom" not in tab.url
    whole = tab.evaluate(SPAN)
    tab.get_by_role("button", name="Earlier").press("Enter")  # there is nothing earlier
    tab.get_by_role("button", name="Zoom in").press("Enter")
    tab.wait_for_function(f"() => Math.abs(({SPAN})() - {whole} / 2) < 1000")
    tab.get_by_role("button", name="Theme").press("Enter")
    tab.wait_for_timeout(500)
    assert tab.evaluate(SPAN) == pytest.approx(whole / 2, abs=1000)


@pytest.mark.nightly
def test_a_finger_on_a_chart_scrolls_the_page(open_tab: Callable[..., Page], suite: str) -> None:
    page = open_tab(400, has_touch=True, is_mobile=True)
    page.goto(f"{suite}/trends?metric=speedup&metric=recompiles")
    wait_for_charts(page, 2)
    chart = page.locator("[data-linked] [data-chart]").first
    page.evaluate("scrollTo(0, 300)")
    before, address, box = page.evaluate("scrollY"), page.url, chart.bounding_box()
    assert box is not None and before > 200
    finger = page.context.new_cdp_session(page)
    for step in range(12):
        at = {"x": box["x"] + 150, "y": box["y"] + 60 + 15 * step}
        kind = "touchMove" if step else "touchStart"
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [at]})
        page.wait_for_timeout(16)
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function(f"() => scrollY < {before - 80}")
    assert page.url == address


@pytest.mark.nightly
def test_a_zoom_of_another_axis_is_passed_over(tab: Page, suite: str) -> None:
    tab.goto(f"{suite}/trends?metric=speedup&zoom=5.0..9.0")
    wait_for_charts(tab, 1)
    assert tab.evaluate(SPAN) > 1e8
    tab.goto(f"{suite}/trends?metric=speedup&zoom=<b>..")
    wait_for_charts(tab, 1)
    assert tab.evaluate(SPAN) > 1e8


def test_dragging_over_one_chart_zooms_all(tab: Page, suite: str) -> None:
    tab.goto(f"{suite}/trends?metric=speedup&metric=recompiles")
    wait_for_charts(tab, 2)
    before = tab.evaluate(SPAN)
    second = tab.locator("[data-linked] [data-chart]").nth(1)
    second.scroll_into_view_if_needed()
    box: Any = second.bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] / 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2, steps=5)
    tab.mouse.up()
    tab.wait_for_function(f"() => ({SPAN})() < {before} * 0.6")


def test_models_are_chosen_and_a_change_of_torch_is_marked_with_words(
    tab: Page, suite: str
) -> None:
    tab.goto(f"{suite}/trends")
    tab.locator(".narrow summary").first.click()
    tab.locator("summary", has_text="Metrics, models").press("Enter")
    tab.get_by_role("listbox", name="Models").select_option(["Breaky", HOSTILE])
    tab.get_by_role("button", name="Apply").click()
    tab.wait_for_url(re.compile("model=Breaky"))
    wait_for_charts(tab, 1)
    assert tab.locator(".annotation-text").first.text_content() == "torch 2.12.0"
    assert "2.11.0" in tab.locator("#changes").inner_text()
    assert tab.locator("[onclick]").count() == 0


def test_a_point_opens_its_run(tab: Page, suite: str) -> None:
    tab.goto(f"{suite}/trends?model=Breaky&metric=speedup")
    wait_for_charts(tab, 1)
    tab.locator("#trend-0").scroll_into_view_if_needed()
    box: Any = tab.locator("#trend-0 .scatterlayer .points path").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.locator(".chart__tip").get_by_text("Fuse the two norms").wait_for()
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.wait_for_url(re.compile(f"/runs/{RUNS[0]}"))


def test_a_chart_counts_as_drawn_once_it_has_the_colours_of_the_theme(
    tab: Page, suite: str
) -> None:
    tab.goto(f"{suite}/trends?metric=speedup&metric=recompiles&metric=graph_breaks")
    wait_for_visible_charts(tab)
    colours = (
        "[...document.querySelectorAll('[data-linked] [data-chart]')].map((it) => "
        "it.layout.font.color)"
    )
    light = tab.evaluate(colours)
    show_theme(tab, "dark")
    dark = tab.evaluate(colours)
    assert len(dark) >= 3 and len(set(dark)) == 1 and not set(dark) & set(light)


@pytest.mark.nightly
def test_charts_that_wait_for_another_theme_zoom_with_the_others(tab: Page, suite: str) -> None:
    tab.goto(f"{suite}/trends?metric=speedup&metric=recompiles&metric=graph_breaks")
    wait_for_visible_charts(tab)
    whole = tab.evaluate(SPAN)
    tab.get_by_role("button", name="Zoom in").evaluate(
        "it => { document.dispatchEvent(new Event('themechange')); it.click() }"
    )
    wait_for_visible_charts(tab)
    tab.wait_for_function(f"() => ({SPAN})() < {whole} * 0.6")
    tab.wait_for_function(f"() => new Set(({RANGES})().map(String)).size === 1")


def test_trends_fit_a_phone(open_tab: Callable[..., Page], suite: str) -> None:
    page = open_tab(400)
    for address in ("/", "/trends", f"/trends?model=Breaky&break={BREAK_ID}&axis=torch"):
        page.goto(f"{suite}{address}")
        assert_fits_in_both_themes(page)


def test_trends_read_without_javascript(open_tab: Callable[..., Page], suite: str) -> None:
    page = open_tab(java_script_enabled=False)
    page.goto(f"{suite}/trends?model=Breaky&model=Hungry&metric=speedup")
    page.locator("#trend-table summary").click()
    table = page.locator("#trend-table table").inner_text()
    assert "0.587×" in table
    assert "failed: out of memory" in table
    assert page.get_by_role("button", name="Zoom in").count() == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]
)
def test_words_of_a_point_at_the_edge_are_whole_and_inside_the_window(
    open_tab: Callable[..., Page], suite: str, width: int, scheme: str
) -> None:
    tab = open_tab(width, color_scheme=scheme)
    tab.goto(f"{suite}/trends?metric=speedup&metric=recompiles")
    wait_for_charts(tab, 2)
    for card in tab.locator("[data-linked] .chart:has(.scatterlayer)").all():
        card.scroll_into_view_if_needed()
        box: Any = card.locator(".scatterlayer .points path").last.bounding_box()
        tab.mouse.move(0, 0)
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        tip = tab.locator(".chart__tip")
        tip.get_by_text("torch 2.12.0").wait_for()
        at: Any = tip.bounding_box()
        assert at["x"] >= 0 and at["x"] + at["width"] <= width
        assert at["y"] >= 0 and at["y"] + at["height"] <= 900
        assert tip.evaluate(
            "(it) => it.scrollWidth <= it.clientWidth && getComputedStyle(it).overflow === "
            "'visible'"
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_row_of_tiles_that_is_not_full_has_no_cell_of_another_colour(
    open_tab: Callable[..., Page], suite: str, scheme: str
) -> None:
    tab = open_tab(700, color_scheme=scheme)
    tab.goto(f"{suite}/models/Breaky")
    colors = tab.locator(".tiles").first.evaluate(
        "(it) => [it, it.firstElementChild].map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert colors[0] == colors[1]
    places = tab.locator(".tile").evaluate_all(
        "(all) => all.map((it) => it.getBoundingClientRect().right)"
    )
    assert len(places) % (places.index(max(places)) + 1) != 0, "the last row is not full"
