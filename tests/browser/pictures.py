"""Take README's pictures, pages of the public demo.

python -m tests.browser.pictures
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from playwright.sync_api import sync_playwright

from tests.tools.observed import ROOT
from tests.tools.public_demo import fill
from tests.tools.serving import serving

if TYPE_CHECKING:
    from playwright.sync_api import ViewportSize

SIZE: ViewportSize = {"width": 1280, "height": 920}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
# A picture -> its page, with a run by its name, and what it waits for.
PAGES = {
    "overview": ("/?suite=demo_history", ".spark polyline"),
    "causes": ("/runs/{GPT-2, BERT, Llama, T5, ResNet}", "#fixes"),
    "timeline": ("/runs/{DDP on two GPUs}/timeline", "#flame canvas"),
    "steps": ("/runs/{in_training}/steps", "#step-parts"),
}


def list_addresses(database: Path) -> dict[str, str]:
    with closing(sqlite3.connect(database)) as reader:
        runs = dict(reader.execute("select '{' || name || '}', id from runs").fetchall())
    addresses = {}
    for picture, (address, _element) in PAGES.items():
        for name, run_id in runs.items():
            address = address.replace(name, run_id)
        addresses[picture] = address
    return addresses


def draw_pictures(folder: Path) -> None:
    with TemporaryDirectory() as temporary, sync_playwright() as playwright:
        database = Path(temporary) / "compileboard.db"
        fill(database)
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        with serving(database, COMPILEBOARD_FOLLOW="no") as server:
            for picture, address in list_addresses(database).items():
                for scheme in SCHEMES:
                    page = chromium.new_page(viewport=SIZE, color_scheme=scheme)
                    page.goto(server.address + address)
                    page.locator(PAGES[picture][1]).first.wait_for()
                    page.wait_for_load_state("networkidle")
                    page.screenshot(path=folder / f"{picture}-{scheme}.png")
                    page.close()
        chromium.close()


if __name__ == "__main__":
    draw_pictures(ROOT / "docs" / "images")
