"""Wait for what a page shall show: a click returns before the next page is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


def expect_count(locator: Locator, count: int) -> None:
    """Wait until there are so many of what a locator finds; fail if there never are."""
    from playwright.sync_api import expect

    expect(locator).to_have_count(count)


def wait_for_visible_charts(page: Page) -> None:
    """Wait until every chart that is seen is drawn."""
    page.locator("[data-chart]:not([data-drawn]):visible").first.wait_for(state="detached")


def show_theme(page: Page, scheme: Literal["light", "dark"]) -> None:
    """Show a page in a theme, and wait until its charts are drawn in it."""
    dark = "matchMedia('(prefers-color-scheme: dark)')"
    if page.evaluate(f"{dark}.matches") != (scheme == "dark"):
        told = (
            f"new Promise((done) => {dark}.addEventListener('change', () => done(), {{ once: "
            f"true }}))"
        )
        page.evaluate(f"() => {{ globalThis.themeTold = {told} }}")
        page.emulate_media(color_scheme=scheme)
        page.evaluate("() => themeTold")  # a page is told some frames later
    wait_for_visible_charts(page)


def assert_fits_in_both_themes(page: Page) -> None:
    """Fail if a page scrolls sideways once its charts are drawn, in either theme."""
    show_theme(page, "light")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{page.url} light"
    show_theme(page, "dark")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{page.url} dark"
