"""Notes on the pages as they are served: twelve words at most."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from werkzeug.exceptions import HTTPException

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from tests.tools.history import record_history
from tests.unit.app.explored import explore

NOTE = re.compile(
    (
        r"<(p|dd|span)[^>]* "
        r'class="[^"]*\b(?:panel__note|chart__note|tile__note|empty__note)\b[^"]*"[^>]*>(.*?)</\1>'
    ),
    re.S,
)
BADGE = re.compile(r'<span class="[^"]*\bbadge\b[^"]*"[^>]* title="([^"]*)"', re.S)
MAX_PAGES = 150
MAX_HELP_WORDS = 12


def list_links(page: str, address: str) -> Iterator[str]:
    for link in re.findall(r'href="([^"#]*)', page):
        parts = urlsplit(urljoin(f"http://localhost{address}", html.unescape(link)))
        if parts.netloc == "localhost":
            yield parts.path + (f"?{parts.query}" if parts.query else "")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Serve one page of each kind, tab and view, from the overview on, of the demo's history and of
    whole logs.
    """
    database: Path = tmp_path_factory.mktemp("language") / "team.db"
    record_history(database)
    explore(database)
    app = create_app(Settings(db=str(database)))
    client, router = app.test_client(), app.url_map.bind("localhost")
    waiting, shown, counts = (
        ["/", "/search?q=forward", "/runs?q=nothing", "/nothing"],
        dict[str, str](),
        dict[object, int](),
    )
    while waiting and len(shown) < MAX_PAGES:
        address = waiting.pop(0)
        query = parse_qs(urlsplit(address).query)
        try:
            endpoint = router.match(urlsplit(address).path)[0]
        except HTTPException:
            endpoint = "none"
        kind = (endpoint, *(query.get(name, [""])[0] for name in ("tab", "view", "state")))
        if address in shown or endpoint == "static" or counts.get(kind, 0) >= 4:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        answer = client.get(address, follow_redirects=True)
        if answer.mimetype == "text/html" and "report" not in endpoint:
            shown[address] = answer.text
            waiting += list_links(answer.text, address)
    assert len(shown) > 60
    return shown


def strip_tags(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


@pytest.mark.nightly
def test_notes_are_short(pages: dict[str, str]) -> None:
    notes = {
        strip_tags(match[1]): address
        for address, page in pages.items()
        for match in NOTE.findall(page)
    }
    notes |= {
        html.unescape(title): address
        for address, page in pages.items()
        for title in BADGE.findall(page)
    }
    assert len(notes) > 100
    assert {
        note: at
        for note, at in notes.items()
        if len(note.replace("·", "").split()) > MAX_HELP_WORDS or ";" in note
    } == {}
