"""The overview in a browser: a healthy suite is one screen, a regression needs no scrolling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from compileboard.app.incidents.update import update_incidents
from compileboard.collectors.store.connection import open_writer
from tests.tools.history import record_history
from tests.tools.serving import serving
from tests.tools.waiting import wait_for_visible_charts

if TYPE_CHECKING:
    from playwright.sync_api import Page

HEALTHY_COUNT = 6  # runs of the demo's history before its first regression


@pytest.fixture(scope="module", params=[True, False], ids=["healthy", "regressed"])
def board(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[bool, str]]:
    """Serve the demo's history, its healthy beginning or the whole; give which, and the address."""
    path = tmp_path_factory.mktemp("overview") / "compileboard.db"
    record_history(path)
    if request.param:
        with closing(open_writer(path)) as store:
            later = "select id from runs order by started_us limit -1 offset ?"
            store.execute(f"delete from runs where id in ({later})", (HEALTHY_COUNT,))
            store.execute("update series_changes set incident_id = null")
            store.execute("delete from incidents")
            store.execute("delete from series_changes")
        update_incidents(path)
    with serving(path) as server:
        yield request.param, server.address


def test_what_matters_is_on_the_first_screen(tab: Page, board: tuple[bool, str]) -> None:
    is_healthy, address = board
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.goto(address)
    height = tab.evaluate("document.documentElement.scrollHeight")
    if is_healthy:
        assert tab.locator("#recent tbody tr").count() == 5 and height <= 900
        return
    cause = tab.locator(".incident__cause").first
    assert "ranker.py:70" in cause.inner_text()
    for part in (cause, tab.locator(".incident .code-line").first, tab.locator(".glance")):
        box = part.bounding_box()
        assert box and box["y"] + box["height"] <= 900
    assert height <= 1_800
    tab.set_viewport_size({"width": 400, "height": 900})
    for page in ("", "/models/ranker", "/compare"):
        tab.goto(address + page)
        wait_for_visible_charts(tab)
        assert tab.evaluate("document.documentElement.scrollHeight") <= 4_000, page
