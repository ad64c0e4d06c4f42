"""Benchmark results in a real browser: the suite, a model, a phone, no JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.serving import serving
from tests.tools.waiting import assert_fits_in_both_themes
from tests.unit.app.benched import COMMAND, RUNS, bench_suite

if TYPE_CHECKING:
    from playwright.sync_api import Page

MODELS = ".results tbody th > a"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve three runs of the suite; give the address."""
    path = tmp_path_factory.mktemp("models") / "compileboard.db"
    migrate(path)
    with closing(open_writer(path)) as store:
        bench_suite(store)
        checkpoint(store)
    with serving(path) as server:
        yield server.address


def test_the_suite_sorts_filters_and_leads_to_a_model(tab: Page, suite: str) -> None:
    tab.goto(f"{suite}/models")
    tab.get_by_role("columnheader", name="Speedup").get_by_role("link").click()
    tab.wait_for_url(re.compile("sort=speedup$"))
    assert tab.locator(MODELS).first.inner_text() == "Bert4"
    tab.locator(".narrow summary").first.click()
    tab.get_by_label("Status").select_option("failed")
    tab.wait_for_url(re.compile("status=failed"))
    assert sorted(tab.locator(MODELS).all_inner_texts()) == ["Hungry", "Sleeper", "WrongAnswer"]
    tab.get_by_role("link", name="Hungry").click()
    tab.wait_for_url(re.compile("/models/Hungry"))
    assert "96.00 GiB" in tab.locator("pre[aria-label=traceback]").inner_text()


def test_a_point_of_a_models_history_opens_what_is_known_of_it(tab: Page, suite: str) -> None:
    tab.goto(f"{suite}/models/Breaky")
    tab.locator("#more-charts > summary").click()
    for chart in tab.locator("#history [data-chart]").all():
        chart.locator(".main-svg").first.wait_for()
    assert tab.locator("#graphs-chart .main-svg").first.bounding_box()["width"] > 300  # type: ignore[index]
    tab.locator("#latency-chart").scroll_into_view_if_needed()
    point = tab.locator("#latency-chart .scatterlayer .points path").first
    box = point.bounding_box()
    assert box is not None
    # Plotly has an invisible layer over its points, so the place is clicked, not the point.
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.wait_for_url(re.compile(f"run={RUNS[0]}#point"))
    assert "0.563× to 0.581×" in tab.locator("#point").inner_text()


@pytest.mark.nightly
def test_the_command_of_a_point_is_copied(open_tab: Callable[..., Page], suite: str) -> None:
    page = open_tab(permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"{suite}/models/Breaky")
    page.get_by_text("Command to reproduce: performance").click()
    page.locator("#command").get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == COMMAND.format("Breaky")


def test_pages_of_results_fit_a_phone(open_tab: Callable[..., Page], suite: str) -> None:
    page = open_tab(400)
    for address in ("/models", "/models/Breaky", "/models/Hungry", f"/runs/{RUNS[0]}/results"):
        page.goto(f"{suite}{address}")
        assert_fits_in_both_themes(page)


def test_results_read_without_javascript(open_tab: Callable[..., Page], suite: str) -> None:
    page = open_tab(java_script_enabled=False)
    page.goto(f"{suite}/runs/{RUNS[2]}/results")
    assert page.locator(".tabs__link[aria-current=page]").inner_text() == "Results"
    assert "no clear difference" in page.locator("main").inner_text()
    page.goto(f"{suite}/models/Breaky")
    page.locator("#speedup-chart-table summary").click()
    assert "0.578–0.596" in page.locator("#speedup-chart-table table").inner_text()


@pytest.mark.nightly
def test_a_table_of_results_fits_1280_and_a_chosen_row_is_marked_whole(
    open_tab: Callable[..., Page], suite: str
) -> None:
    page = open_tab(1280)
    page.goto(f"{suite}/models")
    box = page.locator(".scroll:has(.results)")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(f"{suite}/models/Breaky")
    row = page.locator(".point--chosen")
    assert (
        row.evaluate(
            "row => [row, ...row.children].map(cell => getComputedStyle(cell).backgroundColor)"
        )[1:]
        == ["rgba(0, 0, 0, 0)"] * row.locator("> *").count()
    )
