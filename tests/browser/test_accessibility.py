"""axe-core over every kind of page, in both themes; 400% zoom; menus open."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe

from compileboard.collectors.store.connection import checkpoint, open_writer
from compileboard.collectors.store.migrations import migrate
from tests.tools.serving import serving
from tests.tools.waiting import show_theme, wait_for_visible_charts
from tests.unit.app.benched import bench_suite
from tests.unit.app.explored import explore
from tests.unit.app.pages import list_benched, list_explored, list_pages
from tests.unit.app.repros.captured import capture_repros
from tests.unit.app.series_changes import keep_one_of_each

if TYPE_CHECKING:
    from playwright.sync_api import Page

# What a theme changes; the rest of a page is the same in both.
COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}
VIOLATIONS = {
    "resultTypes": ["violations"],
    "selectors": False,
}  # the rest of its answer is not read, and takes long
AT_400_PERCENT = 320  # what is left of 1280 CSS px
EXPLORED = [*list_pages.values(), *list_explored.values()]
BENCHED = list(list_benched.values())
ALONE = [
    "/nope",
    "/imports",
    "/login",
    "/search",
    "/runs?q=nothing",
    "/graph_breaks?q=nothing",
    "/incidents?model=nothing",
]
# Every entry of the top bar, before anything is recorded.
EMPTY = [
    "/",
    "/incidents",
    "/alerts",
    "/runs",
    "/compare",
    "/boxes",
    "/activity",
    "/models",
    "/trends",
    "/graph_breaks",
    "/recompiles",
    "/cuda_graphs",
    "/repros",
]


def _pick_kinds(addresses: Iterable[str]) -> list[str]:
    """Pick one address of each kind of page: numbers, ids and filters make no kind, a tab does."""
    kinds: dict[str, str] = {}
    for address in addresses:
        path, _mark, query = address.partition("?")
        tab = re.search(r"tab=\w+", query)
        kind = re.sub(r"[0-9a-f]{16}|[0-9A-Z]{26}|\d+", "#", path) + (tab[0] if tab else "")
        if not path.startswith(("/api", "/healthz", "/metrics")) and not re.search(r"\.\w+$", path):
            kinds.setdefault(kind, address)
    return list(kinds.values())


@contextmanager
def _serve(
    path: Path, lists: Iterable[Callable[[sqlite3.Connection], list[str]]]
) -> Iterator[list[str]]:
    """Serve a database; give an address of each kind of page that it has."""
    with closing(sqlite3.connect(path)) as reader:
        reader.row_factory = sqlite3.Row
        addresses = _pick_kinds(address for function in lists for address in function(reader))
    with serving(path) as server:
        yield [f"{server.address}{address}" for address in [*addresses, *ALONE]]


@pytest.fixture(scope="module", params=["explored", "benched", "empty"])
def addresses(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    path = tmp_path_factory.mktemp("axe") / "compileboard.db"
    if request.param == "explored":
        explore(path)
    else:
        migrate(path)
    if request.param == "benched":
        with closing(open_writer(path)) as store:
            bench_suite(store)
            keep_one_of_each(store)
            capture_repros(store)
            checkpoint(store)
    lists = {"explored": EXPLORED, "benched": BENCHED, "empty": [lambda _reader: EMPTY]}[
        request.param
    ]
    with _serve(path, lists) as served:
        yield served


def _list_violations(page: Page, options: dict[str, object]) -> list[str]:
    if (
        page.evaluate("typeof axe") == "undefined"
    ):  # loading it takes as long as its rules of colours
        page.evaluate(Axe().axe_script)
    violations = page.evaluate(
        "async options => (await axe.run(document, options)).violations", VIOLATIONS | options
    )
    return [
        f"{page.url} {broken['id']}: {node['html'][:160]}"
        for broken in violations
        for node in broken["nodes"][:2]
    ]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("first", [0, 1, 2, 3])  # of each four kinds of pages
def test_no_kind_of_page_breaks_a_rule_of_axe_or_scrolls_sideways_at_400_percent(
    open_tab: Callable[..., Page], addresses: list[str], first: int
) -> None:
    page = open_tab(allow="404")
    lines = []
    for address in addresses[first::4]:
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(address)
        wait_for_visible_charts(page)
        lines += _list_violations(page, {})
        show_theme(page, "dark")
        lines += _list_violations(page, COLOURS)
        page.set_viewport_size({"width": AT_400_PERCENT, "height": 900})
        page.reload()  # a chart is drawn for the width that it finds
        wait_for_visible_charts(page)
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > AT_400_PERCENT:
            lines.append(f"{address} is {width} px wide")
    assert lines == []


@pytest.mark.sampled(3)
def test_open_menus_break_no_rule_either(
    open_tab: Callable[..., Page], addresses: list[str]
) -> None:
    page = open_tab(400, allow="404")
    page.goto(
        next(
            (address for address in addresses if re.search(r"/runs/[0-9A-Z]{26}$", address)),
            addresses[0],
        )
    )
    page.get_by_role("button", name="Menu").click()
    page.evaluate("for (const menu of document.querySelectorAll('details.menu')) menu.open = true")
    assert _list_violations(page, {}) == []
