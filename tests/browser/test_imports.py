"""Trace logs are dropped or chosen in a browser, with JavaScript and without."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tools.make_db import DATA
from tests.tools.make_db import main as make_db
from tests.tools.serving import serving
from tests.tools.waiting import expect_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

LOG = DATA / "trace" / "torch2.11-cuda-hf_Bert_train.log.xz"
OTHER = DATA / "trace" / "torch2.13-breaks.log.xz"
DROP = """
([files, target]) => {
  const transfer = new DataTransfer();
  for (const [name, body] of files) {
    const bytes = Uint8Array.from(atob(body), (it) => it.charCodeAt(0));
    transfer.items.add(new File([bytes], name));
  }
  for (const kind of ["dragover", "drop"]) {
    const event = new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true });
    document.querySelector(target).dispatchEvent(event);
    const isHidden = document.querySelector("[data-drop]").hidden;
    if (kind === "dragover" && isHidden) throw new Error("nothing shows");
  }
}
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(
        tmp_path_factory.mktemp("imports") / "team.db", COMPILEBOARD_UPLOAD_MIB="4"
    ) as server:
        yield server.address


def packed(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_dropped_logs_become_a_run_and_a_screen_reader_hears_it(tab: Page, base: str) -> None:
    tab.goto(f"{base}/")
    tab.get_by_role("link", name="Import files").click()
    tab.wait_for_url(f"{base}/imports")  # and for its script
    tab.evaluate(DROP, [[["<b>one</b>.log.xz", packed(LOG)], ["two.log.xz", packed(OTHER)]], "h1"])
    row = tab.locator("[data-import][data-state=done]")
    row.wait_for()
    assert row.locator(".import__name").inner_text() == "<b>one</b>.log.xz and 1 more"
    assert "imported" in tab.locator("[aria-live]").inner_text()
    row.get_by_role("link", name="Open the run").click()
    tab.locator(".tabs__row a", has_text="Environment").click()
    tab.locator(".switch a", has_text="Processes").click()
    expect_count(tab.locator("#logs tbody tr"), 2)


def test_what_is_no_log_or_too_large_is_said_in_words(tab: Page, base: str) -> None:
    tab.goto(f"{base}/imports")
    tab.evaluate(DROP, [[["notes.txt", base64.b64encode(b"hello").decode()]], "body"])
    messages = tab.locator(".import__said")
    messages.filter(has_text="there is no record of torch's trace in it").wait_for()
    big = {"name": "big.log", "mimeType": "text/plain", "buffer": b"x" * (5 << 20)}
    tab.locator("input[name=files]").first.set_input_files(big)
    tab.get_by_role("button", name="Import").click()
    messages.filter(has_text="this server takes 4 MiB at once").wait_for()
    assert tab.get_by_role("progressbar").count() == 0


def test_a_bundle_becomes_its_runs_and_one_that_is_cut_off_says_so(
    tab: Page, base: str, tmp_path: Path
) -> None:
    made = tmp_path / "team.db"
    make_db([str(made)])
    with closing(sqlite3.connect(made)) as team:
        team.execute("pragma journal_mode = delete")
    body = made.read_bytes()
    for name, sent in (("team.db", body), ("cut.db", body[: len(body) // 2])):
        tab.goto(f"{base}/imports")
        file = {"name": name, "mimeType": "application/vnd.sqlite3", "buffer": sent}
        tab.locator("input[name=files]").first.set_input_files(file)
        tab.get_by_role("button", name="Import").click()
        if name == "cut.db":
            tab.locator(
                ".import__said", has_text="cut.db is damaged or cut off; send it again"
            ).wait_for()
            continue
        row = tab.locator("[data-import][data-state=done]", has_text=name)
        row.get_by_role("link", name="Open the run").click()
        assert tab.locator("h1").inner_text() == "torch2.13-precompile"


@pytest.mark.nightly
def test_a_chosen_folder_is_sent_with_its_name(tab: Page, base: str, tmp_path: Path) -> None:
    folder = tmp_path / "trace_7"
    folder.mkdir()
    for path in (LOG, OTHER):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / ".DS_Store").write_bytes(b"x")
    tab.goto(f"{base}/imports")
    tab.locator("input[webkitdirectory]").set_input_files(folder)
    tab.get_by_role("button", name="Import").click()
    row = tab.locator("[data-import]", has_text="trace_7")
    row.and_(tab.locator("[data-state=done]")).wait_for()
    assert "2 files" in row.inner_text()


@pytest.mark.nightly
def test_the_form_works_without_javascript(open_tab: Callable[..., Page], base: str) -> None:
    tab = open_tab(width=400, java_script_enabled=False)
    tab.goto(f"{base}/imports")
    tab.locator("input[name=files]").first.set_input_files(LOG)
    tab.get_by_text("Options", exact=True).click()
    tab.get_by_label("Suite").fill("by hand")
    tab.get_by_role("button", name="Import").click()
    tab.get_by_role(
        "link", name="Open the run"
    ).click()  # the page loads itself again until it is there
    assert tab.get_by_role("link", name="Environment").is_visible()
