"""Search in a real browser: from any page by one key to the line that has the words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.tools.serving import serving
from tests.unit.app.explored import explore

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def explored_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("searched") / "explored.db"
    explore(path)
    with serving(path) as server:
        yield server.address


def test_a_slash_leads_from_any_page_to_the_line(tab: Page, explored_address: str) -> None:
    tab.goto(f"{explored_address}/runs")
    tab.keyboard.press("/")
    tab.keyboard.type("torch.ops.aten.addmm")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/search?q=torch.ops.aten.addmm")
    assert tab.locator("mark").first.inner_text() == "torch.ops.aten.addmm"
    tab.locator(".kinds__link", has_text="Artifacts").click()
    tab.locator(".found__no").first.click()
    tab.wait_for_url("**/artifacts/*#L*")
    assert "torch.ops.aten.addmm" in tab.locator(".ln:target").inner_text()


def test_search_fits_a_phone_and_works_without_javascript(
    open_tab: Callable[..., Page], explored_address: str
) -> None:
    page = open_tab(400, color_scheme="dark", java_script_enabled=False)
    page.goto(f"{explored_address}/search")
    page.locator("#seek").fill('"size mismatch"')
    page.get_by_role("button", name="Search").click()
    assert page.locator("#recompile .found").count() > 0
    assert page.locator("body").bounding_box()["width"] <= 400
