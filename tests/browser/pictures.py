"""Take README's pictures, the overview over the demo's history.

python -m tests.browser.pictures
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from playwright.sync_api import sync_playwright

from tests.tools.history import record_history
from tests.tools.observed import ROOT
from tests.tools.serving import serving

SIZE = {"width": 1280, "height": 920}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def draw_pictures(folder: Path) -> None:
    """Write the overview in both themes."""
    with TemporaryDirectory() as temporary, sync_playwright() as playwright:
        database = Path(temporary) / "compileboard.db"
        record_history(database)
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        with serving(database, COMPILEBOARD_FOLLOW="no") as server:
            for scheme in SCHEMES:
                page = chromium.new_page(viewport=SIZE, color_scheme=scheme)
                page.goto(server.address)
                page.locator(".spark polyline").first.wait_for()
                page.wait_for_load_state("networkidle")
                page.screenshot(path=folder / f"overview-{scheme}.png")
        chromium.close()


if __name__ == "__main__":
    draw_pictures(ROOT / "docs" / "images")
