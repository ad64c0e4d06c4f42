"""Ranks, stacks and symbolic shapes of real logs in a real browser."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.tools.serving import serving
from tests.tools.waiting import assert_fits_in_both_themes, expect_count
from tests.unit.app.explored import explore

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Serve imported logs; give the address of each run by its name."""
    database = tmp_path_factory.mktemp("ranked") / "explored.db"
    explore(database)
    with closing(sqlite3.connect(database)) as reader:
        ids = dict(reader.execute("select name, id from runs").fetchall())
    with serving(database) as server:
        yield {name: f"{server.address}/runs/{run_id}" for name, run_id in ids.items()}


def test_ranks_say_where_they_part_and_lead_to_that_compile(
    tab: Page, runs: dict[str, str]
) -> None:
    tab.goto(f"{runs['train_ddp']}?tab=recompiles")
    tab.get_by_role("link", name="Ranks", exact=True).click()
    tab.locator("#ranks-chart .barlayer path").first.wait_for()
    assert "Rank 1 recompiled inner as 0/1" in tab.locator("#divergence").inner_text()
    expect_count(tab.locator("#aligned tbody tr"), 3)
    tab.get_by_role("link", name=re.compile("All compiles")).click()
    expect_count(tab.locator("#aligned tbody tr"), 9)
    tab.locator("#aligned tbody tr", has_text="0/1").get_by_role("link").click()
    assert "size mismatch at index 1. expected 128, actual 96" in tab.locator("#why").inner_text()


def test_stacks_open_fold_and_filter_by_keyboard(tab: Page, runs: dict[str, str]) -> None:
    tab.goto(f"{runs['train_ddp']}/stacks")
    folds = tab.locator("#trie details")
    assert 0 < tab.locator("#trie details[open]").count() <= folds.count()
    tab.get_by_role("button", name="Collapse all").focus()
    tab.keyboard.press("Enter")
    expect_count(tab.locator("#trie details[open]"), 0)
    tab.get_by_role("button", name="Expand all").click()
    expect_count(tab.locator("#trie details[open]"), folds.count())
    tab.locator(".narrow summary").first.click()
    tab.get_by_label("Rank").select_option("1")
    tab.wait_for_url(re.compile("rank=1"))
    assert "9 compiles" in tab.locator("#trie").inner_text()


def test_stacks_and_shapes_work_without_javascript(
    open_tab: Callable[..., Page], runs: dict[str, str]
) -> None:
    page = open_tab(java_script_enabled=False)
    page.goto(f"{runs['train_ddp']}/stacks")
    page.locator("#trie summary").first.click()
    assert page.locator("#trie details").first.get_attribute("open") is None
    assert page.get_by_role("button", name="Expand all").count() == 0
    page.goto(f"{runs['torch2.13-shapes']}/shapes")
    page.locator(".fold summary").first.click()
    assert "must be" in page.locator(".fold[open]").first.inner_text()


def test_ranks_stacks_and_shapes_fit_a_phone(
    open_tab: Callable[..., Page], runs: dict[str, str]
) -> None:
    page = open_tab(400)
    for run, part in (
        ("train_ddp", "ranks"),
        ("train_ddp", "stacks?library=shown"),
        ("torch2.13-shapes", "shapes"),
    ):
        page.goto(f"{runs[run]}/{part}")
        assert_fits_in_both_themes(page)
