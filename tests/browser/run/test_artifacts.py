"""Artifacts and the Compile directory in a real browser, over whole recorded logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.tools.serving import serving
from tests.tools.waiting import assert_fits_in_both_themes, expect_count
from tests.unit.app.explored import explore

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def explored_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("explored") / "explored.db"
    explore(path)
    with serving(path) as server:
        yield server.address


def _open(page: Page, address: str, name: str = "zoo_recompiles") -> str:
    """Open the directory of a run; return the run's address."""
    page.goto(f"{address}/runs?q={name}")
    page.locator("table.table a", has_text=name).first.click()
    page.locator("#more-tabs > summary").click()
    page.get_by_role("link", name="Artifacts", exact=True).click()
    return page.url.removesuffix("/directory")


def test_a_line_of_an_artifact_is_an_address(tab: Page, explored_address: str) -> None:
    _open(tab, explored_address)
    tab.locator(".step a", has_text="inductor_output_code").first.click()
    line = tab.locator("#L9")
    line.locator(".no").click()
    assert tab.url.endswith("#L9")
    assert line.evaluate("it => it.matches(':target')")
    tab.goto(tab.url.replace("#L9", "#L40"))
    tab.reload()
    assert tab.locator("#L40").is_visible()
    before = tab.locator("h2").first.inner_text()
    tab.locator("a[rel=prev]").click()
    assert tab.locator("h2").first.inner_text() != before


def test_a_recompile_shows_what_changed_in_one_click(tab: Page, explored_address: str) -> None:
    run = _open(tab, explored_address)
    tab.locator(".entry a", has_text="changes against 0/0").click()
    expect_count(tab.locator("#guards tbody tr"), 2)
    assert tab.locator("#graph ins").first.inner_text() == "8"
    tab.locator("#graph").get_by_role("link", name="Side by side").click()
    tab.wait_for_url(re.compile("/artifacts/diff"))
    assert tab.locator(".diff__count--changed").inner_text() == "~ 4 lines changed"
    assert tab.locator("del").first.inner_text() == "4"
    tab.get_by_role("link", name="Swap sides").click()
    assert tab.locator("del").first.inner_text() == "8"
    tab.goto(f"{run}?tab=recompiles")
    tab.locator("[id^=steps-] > summary").first.click()
    tab.get_by_role("link", name="graph", exact=True).first.click()
    assert tab.url.endswith("/changes#graph")


def test_the_other_artifact_is_chosen_without_javascript(
    open_tab: Callable[..., Page], explored_address: str
) -> None:
    page = open_tab(java_script_enabled=False)
    _open(page, explored_address)
    page.locator(".step a", has_text="dynamo_output_graph").first.click()
    page.get_by_role("link", name="Compare with another").click()
    page.get_by_label("The same of compile").select_option(label="0/2 forward")
    page.get_by_role("button", name="Compare").first.click()
    assert "dynamo_output_graph of 0/2" in page.locator("h2").first.inner_text()


def test_pages_of_artifacts_fit_a_phone(
    open_tab: Callable[..., Page], explored_address: str
) -> None:
    page = open_tab(400)
    run = _open(page, explored_address)
    addresses = [
        link.get_attribute("href") for link in page.locator(".step a, .entry__head a").all()
    ]
    for part in ("/directory", "/artifacts/", "/changes"):
        address = next(
            (address for address in addresses if address and part in address),
            f"{run}/directory".removeprefix(explored_address),
        )
        page.goto(f"{explored_address}{address}")
        assert_fits_in_both_themes(page)


def test_a_line_selected_marks_and_shows_its_partners(tab: Page, explored_address: str) -> None:
    _open(tab, explored_address)
    tab.get_by_role("link", name="source ↔ kernel").first.click()
    tab.locator("#kernels .prov__kernel").first.click()
    expect_count(tab.locator("#code .ln--on"), 1)
    assert tab.locator(".ln--partner").count() > 0
    for pane in ("source", "pre"):
        partner, box = (
            tab.locator(f"#{pane} .ln--partner").first,
            tab.locator(f"#{pane} .source__box"),
        )
        inside, outside = partner.bounding_box(), box.bounding_box()
        assert inside and outside
        assert outside["y"] <= inside["y"] < outside["y"] + outside["height"]
    tab.locator("#code .source__box").focus()
    tab.keyboard.press("ArrowDown")
    expect_count(tab.locator("#code .ln--on"), 1)
    assert tab.url.endswith(f"#{tab.locator('.ln--on').get_attribute('id')}")
    tab.keyboard.press("Escape")
    expect_count(tab.locator(".ln--on, .ln--partner"), 0)
    assert_fits_in_both_themes(tab)
