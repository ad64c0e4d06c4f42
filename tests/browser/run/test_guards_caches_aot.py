"""Guards, cache look-ups and AOT graphs of a real log in a real browser."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tools.serving import serving
from tests.unit.app.explored import explore

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guarded") / "explored.db"
    explore(path)
    return path


@pytest.fixture(scope="module")
def run_address(database: Path) -> Iterator[str]:
    with closing(sqlite3.connect(database)) as reader:
        run_id = reader.execute("select id from runs where name = 'zoo_recompiles'").fetchone()[0]
    with serving(database) as server:
        yield f"{server.address}/runs/{run_id}"


def test_guards_lead_from_the_sums_to_what_changed(tab: Page, run_address: str) -> None:
    tab.goto(f"{run_address}/guards")
    tab.locator("#guard-kinds-chart .barlayer path").first.wait_for()
    row = tab.locator("#guard-sets tbody tr", has_text="0/1")
    row.get_by_role("link", name="Guards of 0/1 as a tree").click()
    branch = tab.locator("#guard-tree details:not([open]) > summary").first
    branch.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("#guard-tree details[open] details[open]").count() > 0
    tab.get_by_role("link", name="Changes from 0/0").click()
    assert "[4, 32]" in tab.locator("#changed").inner_text()


def test_guards_are_searched_by_address(tab: Page, run_address: str) -> None:
    tab.goto(f"{run_address}/guards")
    tab.get_by_role("link", name="as a tree").first.click()
    tab.locator(".narrow summary").first.click()
    tab.get_by_label("Text in a guard").fill("TENSOR_MATCH")
    tab.get_by_role("button", name="Apply").click()
    tab.wait_for_url(re.compile("q=TENSOR_MATCH"))
    types = tab.locator("#guard-tree .guard__type").all_inner_texts()
    assert types
    assert set(types) == {"TENSOR_MATCH"}


def test_a_miss_says_what_its_key_differs_in(tab: Page, run_address: str) -> None:
    tab.goto(f"{run_address}?tab=caches")
    tab.get_by_role("link", name="Why the lookup of 0/1 was a miss").last.click()
    assert "shape [4, 32] → [8, 32]" in tab.locator("#nearest").inner_text()
    assert tab.locator("#more-tabs > summary").inner_text().split()[0] == "Caches"
    tab.locator("#component-1 summary").click()
    assert tab.locator("#component-1 li").first.is_visible()


def test_a_finding_leads_to_its_graph(tab: Page, run_address: str) -> None:
    tab.goto(f"{run_address}/aot")
    tab.locator("#finding-1 summary").click()
    tab.locator("#finding-1 a").first.click()
    tab.wait_for_url(re.compile(r"#graph-\d+$"))
    row = tab.locator("tr:target")
    row.locator("summary").click()
    assert "Fix\n" in row.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_work_without_javascript(
    open_tab: Callable[..., Page], run_address: str, scheme: str
) -> None:
    page = open_tab(400, color_scheme=scheme, java_script_enabled=False)
    page.goto(f"{run_address}/guards")
    tree = page.get_by_role("link", name="as a tree").first.get_attribute("href")
    for address in (f"{run_address}/guards", f"{run_address}/aot", f"{run_address}?tab=caches"):
        page.goto(address)
        assert page.locator("main").evaluate("it => it.scrollWidth <= it.clientWidth")
    page.goto(run_address.partition("/runs")[0] + str(tree))
    assert page.locator("#guard-tree li").count() > 10
    assert page.locator("main").evaluate("it => it.scrollWidth <= it.clientWidth")
