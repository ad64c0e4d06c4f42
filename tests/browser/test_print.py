"""Pages on paper: light, without controls, charts whole and as wide as the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.test_report import read_pages
from tests.unit.app.recorded import RUN

PAGES = (
    "/",
    f"/runs/{RUN}",
    "/runs",
    "/graph_breaks",
    "/models",
    "/trends?category=tensor_size",
    "/compare",
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("path", PAGES)
def test_page_prints_light_and_without_navigation(
    open_tab: Callable[..., Any], address: str, path: str
) -> None:
    tab = open_tab(color_scheme="dark")
    tab.goto(f"{address}{path}")
    pdf = tab.pdf()
    assert pdf.startswith(b"%PDF") and read_pages(pdf)
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(24, 32, 44)"
    seen = tab.locator(".bar, .filters, .tabs, .crumbs, .twin, main button, main a.button, .menu")
    assert not any(element.is_visible() for element in seen.all())
    assert tab.locator("h1").is_visible()


def test_charts_are_drawn_for_the_paper_and_back(
    open_tab: Callable[..., Any], address: str
) -> None:
    tab = open_tab(color_scheme="dark")
    tab.goto(f"{address}/runs/{RUN}?tab=compiles")
    tab.locator(".bars__row a").first.click()
    tab.locator("[data-drawn]").first.wait_for()
    shown = "document.querySelector('[data-drawn] .main-svg').clientWidth"
    before, color = tab.evaluate(shown), "document.querySelector('[data-drawn]').layout.font.color"
    dark = tab.evaluate(color)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate(shown) < 690 < before
    assert tab.evaluate(color) == "rgb(86, 97, 115)" != dark
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert (tab.evaluate(shown), tab.evaluate(color)) == (before, dark)
    assert tab.evaluate("document.documentElement.dataset.theme") is None
