"""Findings in a real browser: found, opened, answered and read by keyboard; on a phone; without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.serving import serving
from tests.tools.waiting import expect_count
from tests.unit.app.benched import bench_suite
from tests.unit.app.series_changes import keep, keep_one_of_each, make_change

if TYPE_CHECKING:
    from playwright.sync_api import Page

ONE = f"/findings/{'f' * 16}"


@pytest.fixture
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a database with a finding of every kind; give the address."""
    path = tmp_path_factory.mktemp("findings") / "compileboard.db"
    migrate(path)
    with closing(open_writer(path)) as store:
        bench_suite(store)
        keep_one_of_each(store)
        keep(store, *[make_change(id=f"m{n:02}", model=f"model_{n}", relative=-n / 100) for n in range(20)])
        checkpoint(store)
    with serving(path) as server:
        yield server.address


def focus(page: Page, name: str, role: str = "link") -> None:
    """Press Tab until something has the focus."""
    element = page.get_by_role(role, name=name, exact=True).first  # type: ignore[arg-type]
    element.wait_for()
    for _ in range(80):
        if element.evaluate("it => it === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach the {role} {name}")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no_script"])
def test_a_finding_is_opened_and_acknowledged_by_keyboard(
    open_tab: Callable[..., Page], board: str, script: bool
) -> None:
    tab = open_tab(java_script_enabled=script)
    tab.goto(board)
    focus(tab, "Findings")
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile("/findings$"))
    focus(tab, "Resnet18 fails")
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile("/findings/fails"))
    focus(tab, "Your name (required)", "textbox")
    tab.keyboard.type("Ada Lovelace")
    tab.keyboard.press("Tab")
    tab.keyboard.type("the new fusion")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile("/findings/fails#said"))
    text = tab.locator("#said").inner_text()
    assert re.search(r"Ada Lovelace acknowledged it 20\d\d-\d\d-\d\d \d\d:\d\d\s+the new fusion", text)
    assert tab.locator(".head__badges").inner_text().split() == ["worse", "confirmed", "acknowledged"]
    expect_count(tab.get_by_role("button", name="Acknowledge"), 0)
    tab.goto(f"{board}/findings?handling=acknowledged")
    expect_count(tab.locator("a[href='/findings/fails']"), 1)


def test_to_ignore_needs_a_reason_and_what_was_typed_stays(open_tab: Callable[..., Page], board: str) -> None:
    tab = open_tab(allow="400")
    tab.goto(f"{board}{ONE}")
    assert tab.get_by_label("Your name (required)").get_attribute("autocomplete") == "name"
    tab.get_by_label("Your name (required)").fill("Ada")
    tab.get_by_role("button", name="Ignore, with this reason").press("Enter")
    tab.get_by_role("alert").wait_for()
    assert "say why" in tab.get_by_role("alert").inner_text()
    assert tab.get_by_label("Your name (required)").input_value() == "Ada"
    tab.get_by_label("What you know of it").fill("a busy machine")
    tab.get_by_role("button", name="Ignore, with this reason").press("Enter")
    tab.wait_for_url(re.compile("#said"))
    tab.goto(f"{board}/findings")
    expect_count(tab.locator(f"a[href='{ONE}']"), 0)


def test_the_chart_shows_the_series_with_its_levels(tab: Page, board: str) -> None:
    tab.goto(f"{board}{ONE}")
    tab.locator("[data-chart][data-drawn]").wait_for()
    assert tab.locator("#finding .legend").inner_text().split("\n") == [
        "where the change came in", "level before", "level after", "Breaky",
    ]  # fmt: skip
    assert tab.locator("#finding .scatterlayer .trace").count() == 4
    assert "0.572×" in tab.locator("#series-table").text_content()  # type: ignore[operator]


def test_a_mark_on_a_trend_opens_its_finding(tab: Page, board: str) -> None:
    tab.goto(f"{board}/trends?model=Breaky&metric=speedup")
    tab.locator("[data-chart][data-drawn]").wait_for()
    mark = tab.locator("#trend-0 .scatterlayer .trace").last.locator(".points path")
    box = mark.bounding_box()
    assert box is not None
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.locator(".chart__tip").get_by_text("speedup fell by 11.0 %").wait_for()
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.wait_for_url(re.compile(ONE))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_findings_fit_a_phone(open_tab: Callable[..., Page], board: str, scheme: str) -> None:
    page = open_tab(400, color_scheme=scheme)
    for address in ("/findings", ONE, "/findings/runs", "/findings/gone", "/alerts", "/", "/models/Breaky"):
        page.goto(f"{board}{address}")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
