"""Incidents in a browser: opened and acknowledged by keyboard, on a phone, without JavaScript."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.serving import serving
from tests.tools.waiting import assert_fits_in_both_themes, expect_count
from tests.unit.app.benched import bench_suite
from tests.unit.app.series_changes import keep, keep_one_of_each, make_change

if TYPE_CHECKING:
    from playwright.sync_api import Page

ONE = f"/incidents/{'f' * 16}"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a database with an incident of every kind."""
    path = tmp_path_factory.mktemp("incidents") / "compileboard.db"
    migrate(path)
    with closing(open_writer(path)) as store:
        bench_suite(store)
        keep_one_of_each(store)
        keep(
            store,
            *[make_change(id=f"m{n:02}", suite=f"suite_{n}", relative=-n / 100) for n in range(20)],
        )
        checkpoint(store)
    return path


@pytest.fixture(scope="module")
def board(database: Path) -> Iterator[str]:
    """Serve it to tests that change nothing."""
    with serving(database) as server:
        yield server.address


@pytest.fixture
def own_board(database: Path, tmp_path: Path) -> Iterator[str]:
    """Serve a copy of it to one test."""
    copy = tmp_path / "compileboard.db"
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    with serving(copy) as server:
        yield server.address


@pytest.mark.sampled(2)
@pytest.mark.parametrize("script", [True, False], ids=["script", "no_script"])
def test_an_incident_is_opened_and_acknowledged_by_keyboard(
    open_tab: Callable[..., Page], own_board: str, script: bool
) -> None:
    tab = open_tab(java_script_enabled=script)
    tab.goto(f"{own_board}/incidents")
    link = tab.get_by_role("link", name="Sleeper: no longer measured")
    link.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile("/incidents/gone$"))
    if script:
        tab.get_by_role("link", name="Acknowledge").press("Enter")
    else:
        tab.locator("#acknowledge summary").press("Enter")
    fold = tab.locator("#acknowledge")
    fold.get_by_label("Your name").fill("Ada Lovelace")
    fold.get_by_label("Comment").fill("removed on purpose")
    fold.get_by_role("button", name="Acknowledge").press("Enter")
    tab.wait_for_url(re.compile("/incidents/gone#activity"))
    text = tab.locator("#activity").inner_text()
    assert re.search(r"Ada Lovelace acknowledged\s+removed on purpose", text)
    assert "Acknowledged by Ada Lovelace" in tab.locator(".meta").inner_text()
    expect_count(tab.locator("#acknowledge"), 0)
    tab.goto(f"{own_board}/incidents?status=acknowledged")
    expect_count(tab.locator("a[href='/incidents/gone']"), 1)


@pytest.mark.nightly
def test_a_name_is_typed_once_a_browser(open_tab: Callable[..., Page], own_board: str) -> None:
    tab = open_tab()
    tab.goto(f"{own_board}{ONE}")
    tab.get_by_role("link", name="Acknowledge").click()
    fold = tab.locator("#acknowledge")
    assert fold.get_by_label("Your name").evaluate("field => field === document.activeElement")
    fold.get_by_label("Your name").fill("Ada")
    fold.get_by_role("button", name="Acknowledge").click()
    tab.wait_for_url(re.compile("#activity"))
    tab.goto(f"{own_board}/incidents/gone")
    tab.get_by_role("link", name="Ignore…").click()
    assert tab.locator("#ignore").get_by_label("Your name").input_value() == "Ada"
    assert (
        tab.locator("#ignore")
        .get_by_label("Reason")
        .evaluate("field => field === document.activeElement")
    )


@pytest.mark.nightly
def test_to_ignore_needs_a_reason_and_what_was_typed_stays(
    open_tab: Callable[..., Page], own_board: str
) -> None:
    tab = open_tab(allow="400", java_script_enabled=False)
    tab.goto(f"{own_board}{ONE}")
    tab.locator("#ignore summary").click()
    fold = tab.locator("#ignore")
    fold.get_by_label("Your name").fill("Ada")
    fold.get_by_label("Reason").fill("  ")
    fold.get_by_role("button", name="Ignore").press("Enter")
    tab.get_by_role("alert").wait_for()
    assert "a reason is required" in tab.get_by_role("alert").inner_text()
    assert fold.get_by_label("Your name").input_value() == "Ada"
    fold.get_by_label("Reason").fill("a busy machine")
    fold.get_by_role("button", name="Ignore").press("Enter")
    tab.wait_for_url(re.compile("#activity"))
    tab.goto(f"{own_board}/incidents")
    expect_count(tab.locator(f"a[href='{ONE}']"), 0)


def test_the_chart_shows_the_series_with_its_levels(tab: Page, board: str) -> None:
    tab.goto(f"{board}{ONE}")
    tab.locator("[data-chart=series-data][data-drawn]").wait_for()
    assert tab.locator("#series .legend").inner_text().split("\n") == [
        "commit range",
        "before",
        "after",
        "Breaky",
    ]
    assert tab.locator("#series .scatterlayer .trace").count() == 4
    assert "0.572×" in tab.locator("#series-table").text_content()  # type: ignore[operator]


def test_a_mark_on_a_trend_opens_its_incident(tab: Page, board: str) -> None:
    tab.goto(f"{board}/trends?model=Breaky&metric=speedup")
    tab.locator("[data-chart=trend-0-data][data-drawn]").wait_for()
    mark = tab.locator("#trend-0 .scatterlayer .trace").last.locator(".points path")
    box = mark.bounding_box()
    assert box is not None
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.locator(".chart__tip").get_by_text("speedup 0.65× → 0.578×").wait_for()
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.wait_for_url(re.compile(ONE))


def test_incidents_fit_a_phone(open_tab: Callable[..., Page], board: str) -> None:
    page = open_tab(400)
    for address in (
        "/incidents",
        ONE,
        "/incidents/runs",
        "/incidents/gone",
        "/alerts",
        "/",
        "/models/Breaky",
    ):
        page.goto(f"{board}{address}")
        assert_fits_in_both_themes(page)
