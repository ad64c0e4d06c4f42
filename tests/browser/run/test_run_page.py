"""The run and compile pages in a real browser, served by the real server over a recorded run."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate
from tests.tools.serving import serving
from tests.tools.waiting import assert_fits_in_both_themes, expect_count
from tests.unit.app.recorded import RUN, list_events

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_run_page_walks_through_every_tab_view_and_explorer(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs/{RUN}")
    row = tab.locator(".tabs__row .tabs__link")
    labels = [text.split()[0] for text in row.all_inner_texts()]
    tabs = ["Summary", "Compiles", "Graph", "Recompiles", "Steps", "Timeline", "Environment"]
    assert labels == tabs
    assert row.first.bounding_box()["y"] == row.last.bounding_box()["y"]  # type: ignore[index]
    links = tab.locator(".tabs__link[href], .tabs .menu__item")
    addresses = [str(link.get_attribute("href")) for link in links.all()]
    for view in ("compiles", "environment"):
        tab.goto(f"{address}/runs/{RUN}?tab={view}")
        addresses += [
            str(link.get_attribute("href"))
            for link in tab.locator(".switch").first.locator("a").all()
        ]
    # tabs; explorers; stacks and failures; processes; search
    assert len(set(addresses)) == 7 + 7 + 2 + 1 + 1
    for link in addresses:
        tab.goto(f"{address}{link}")
        opened = tab.locator(".tabs [aria-current=page], .switch [aria-current=page]").last
        assert opened.get_attribute("href") == link
        assert tab.locator("main .panel, main .empty").count() > 0


def test_explorers_without_data_say_so_in_the_menu_and_lead_to_a_command(
    tab: Page, address: str
) -> None:
    tab.goto(f"{address}/runs/{RUN}")
    tab.locator("#more-tabs > summary").click()
    labels = ("Artifacts", "Guards", "Symbolic shapes", "AOT graphs")
    for label in labels:
        entry = tab.locator("#more-tabs .menu__item", has_text=label)
        assert "not recorded" in entry.inner_text()
    addresses = [
        tab.locator("#more-tabs .menu__item", has_text=label).get_attribute("href")
        for label in labels
    ]
    for link in [*addresses, f"/runs/{RUN}/timeline"]:
        tab.goto(f"{address}{link}")
        command = tab.locator(".empty .command code").inner_text()
        assert command.startswith("compileboard-collect run --level full --db ")
        assert command.endswith(" -- python train.py")


def test_a_bar_names_its_compile_and_opens_it(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs/{RUN}?tab=compiles")
    assert "First compile" in tab.locator(".bars__role").all_inner_texts()
    tab.locator(".bars__row a").first.click()
    tab.wait_for_url(re.compile(r"/compiles/\d+$"))
    assert tab.locator("h1").inner_text() == "f"


def test_compiles_sort_filter_and_link_by_address(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs/{RUN}?tab=compiles")
    tab.get_by_role("link", name="Compile time").click()
    assert "sort=time" in tab.url
    tab.locator(".narrow summary").first.click()
    tab.get_by_label("Outcome").select_option("failed")
    tab.wait_for_url(re.compile("outcome=failed"))
    assert tab.locator("table.table tbody tr td:first-child .fn").last.inner_text() == "g"


def test_run_page_fits_a_phone(open_tab: Callable[..., Page], address: str) -> None:
    page = open_tab(400)
    for query in (
        "",
        "?tab=compiles",
        "?tab=breaks",
        "?tab=recompiles",
        "?tab=caches",
        "?tab=environment",
    ):
        page.goto(f"{address}/runs/{RUN}{query}")
        assert_fits_in_both_themes(page)


def test_run_page_works_by_keyboard_and_folds_open(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs/{RUN}?tab=failures")
    tab.get_by_text("Traceback", exact=True).focus()
    tab.keyboard.press("Enter")
    assert tab.locator("details[open] pre").inner_text().startswith("Traceback <b onclick")
    assert tab.locator("main b").count() == 0


def test_a_person_renames_and_notes_a_run(tab: Page, address: str) -> None:
    tab.goto(f"{address}/runs/{RUN}?tab=breaks")
    tab.locator("#actions > summary").click()
    tab.get_by_text("Edit name and note").click()
    tab.get_by_label("Title").fill("<i>mine</i>")
    tab.get_by_label("Note").fill("a note")
    tab.get_by_role("button", name="Save").click()
    assert tab.locator("h1").inner_text() == "<i>mine</i>"
    assert tab.locator(".note").inner_text() == "a note"
    assert "tab=breaks" in tab.url


def test_a_running_run_refreshes_and_keeps_what_is_open(tab: Page, tmp_path: Path) -> None:
    database = tmp_path / "live.db"
    migrate(database)
    told = list_events("running")
    with closing(open_writer(database)) as store:
        ingestor = Ingestor(store)
        ingestor.ingest(RUN, told[:8])
        with serving(database) as server:
            tab.goto(f"{server.address}/runs/{RUN}?tab=breaks&view=each")
            tab.get_by_text(re.compile(r"^Stack \(")).click()
            ingestor.ingest(RUN, told[8:])
            tab.locator(".tabs__count", has_text="4").first.wait_for(timeout=15_000)
            expect_count(tab.locator("details.fold[open]"), 1)
            tab.close()  # before its server goes
