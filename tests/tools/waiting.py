"""Wait for what a page shall show: a click returns before the next page is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


def expect_count(locator: Locator, count: int) -> None:
    """Wait until there are so many of what a locator finds; fail if there never are."""
    from playwright.sync_api import expect

    expect(locator).to_have_count(count)


def wait_for_visible_charts(page: Page) -> None:
    """Wait until every chart that is seen is drawn."""
    page.locator("[data-chart]:not([data-drawn]):visible").first.wait_for(state="detached")


def assert_fits_in_both_themes(page: Page) -> None:
    """Fail if a page scrolls sideways once its charts are drawn, in either theme."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        wait_for_visible_charts(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{page.url} {scheme}"
