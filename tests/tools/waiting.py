"""Wait for what a page shall show: a click returns before the next page is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator


def expect_count(locator: Locator, count: int) -> None:
    """Wait until there are so many of what a locator finds; fail if there never are."""
    from playwright.sync_api import expect

    expect(locator).to_have_count(count)
