"""The Compare page in a real browser: by keyboard alone, on a phone, in the dark, without
JavaScript, as a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.serving import serving
from tests.tools.waiting import assert_fits_in_both_themes
from tests.unit.app.benched import DAY_US, RUNS, add_results, bench_suite, list_suite
from tests.unit.app.comparison.test_comparison_page import NEW, change
from tests.unit.app.seed import START_US

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROWS = "#models > .scroll .results tbody td:first-child > a"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve three runs of the suite and a fourth in which much changed; give the address."""
    path = tmp_path_factory.mktemp("compare") / "compileboard.db"
    migrate(path)
    with closing(open_writer(path)) as store:
        bench_suite(store)
        add_results(store, NEW, *map(change, list_suite(2)), started_us=START_US + 4 * DAY_US)
        checkpoint(store)
    with serving(path) as server:
        yield server.address


def go_to(page: Page, name: str) -> None:
    """Press Tab until a link or field of that name has the focus."""
    for _ in range(120):
        page.keyboard.press("Tab")
        named = page.evaluate(
            "(() => { const it = document.activeElement;"
            " return (it.labels?.[0] ?? it).innerText.split('\\n')[0].trim(); })()"
        )
        if named == name:
            return
    raise AssertionError(f"Tab never comes to {name!r}")


def test_two_sides_are_compared_by_keyboard_alone(tab: Page, suite: str) -> None:
    tab.goto(f"{suite}/runs/{NEW}")
    go_to(tab, "Compare")
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile(f"/compare\\?new={NEW}$"))
    assert tab.locator("input[name=base]").input_value() == RUNS[2]
    go_to(tab, "Choose sides")
    tab.keyboard.press("Enter")
    go_to(tab, "Base")
    tab.keyboard.press("Control+A")
    tab.keyboard.type(RUNS[0])
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile(f"base={RUNS[0]}&new={NEW}"))
    go_to(tab, "Graphs and breaks")
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile("metric=graphs"))
    assert tab.locator(ROWS).first.inner_text() == "Resnet18"  # now wrong: the worst comes first
    assert sorted(tab.locator(ROWS).all_inner_texts()) == ["GPT2x4", "Resnet18"]


def test_the_chart_is_drawn_and_a_dot_leads_to_its_model(tab: Page, suite: str) -> None:
    tab.goto(f"{suite}/compare?new={NEW}")
    tab.locator("#changes-chart .main-svg").first.wait_for()
    tab.locator("#changes-chart .chart__plot[data-drawn]").wait_for()
    dots = tab.locator("#changes-chart .scatterlayer .points path")
    tab.locator("#changes-chart").scroll_into_view_if_needed()
    box = dots.first.bounding_box()
    assert box is not None
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.wait_for_url(re.compile("/models/Bert4\\?"))


def test_the_page_fits_a_phone(open_tab: Callable[..., Page], suite: str) -> None:
    page = open_tab(400)
    for query in ("", f"?base={RUNS[0]}&new={NEW}&metric=graphs", f"?new={RUNS[0]}"):
        page.goto(f"{suite}/compare{query}")
        assert_fits_in_both_themes(page)


def test_the_page_reads_without_javascript(open_tab: Callable[..., Page], suite: str) -> None:
    page = open_tab(java_script_enabled=False)
    page.goto(f"{suite}/compare?new={NEW}")
    assert "by 95% intervals" in page.locator("#models").inner_text()
    assert page.locator(ROWS).all_inner_texts() == ["Resnet18", "Bert4"]
    page.locator("#unchanged summary").click()
    assert page.locator("#unchanged tbody tr").first.is_visible()


def test_the_file_opens_from_disk(
    open_tab: Callable[..., Page], suite: str, tmp_path: Path
) -> None:
    page = open_tab()
    page.goto(f"{suite}/compare?new={NEW}")
    with page.expect_download() as saved:
        page.get_by_role("link", name="HTML").click()
    path = tmp_path / saved.value.suggested_filename
    saved.value.save_as(path)
    report = page.context.new_page()
    report.goto(path.as_uri())
    report.locator("#changes-chart .main-svg").first.wait_for()
    assert "now wrong" in report.locator("#models").inner_text()
