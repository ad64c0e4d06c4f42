"""`compileboard export --site`: a real copy of recorded databases, read as a host would send it."""

from __future__ import annotations

import html
import json
import posixpath
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from flask.testing import FlaskClient

from compileboard.app.cli.main import main
from compileboard.app.site import crawl
from compileboard.app.site.folder import MARKER
from compileboard.collectors.store.connection import checkpoint, open_writer
from tests.unit.app.hostile import BAD, record_hostile_run
from tests.unit.app.hostile import RUN as HOSTILE
from tests.unit.app.recorded import MARKUP, RUN, record_run

LINK = re.compile(r'\s(?:href|src|action)="([^"]*)"')
Export = Callable[..., int]


@pytest.fixture(scope="module")
def site(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a copy with two of the recorded runs."""
    folder = tmp_path_factory.mktemp("host") / "project"
    assert main(["export", "--site", str(folder), "--db", str(recorded), "--runs", "2"]) == 0
    return folder


def _record(store: sqlite3.Connection) -> None:
    record_run(store)
    record_hostile_run(store)
    checkpoint(store)


@pytest.fixture
def export(store: sqlite3.Connection, database: Path, tmp_path: Path) -> Export:
    _record(store)
    return lambda *more: main(
        ["export", "--site", str(tmp_path / "site"), "--db", str(database), *more]
    )


@pytest.fixture(scope="module")
def hostile_site(empty_database: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a copy of all that `export` has."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "compileboard.db").write_bytes(empty_database)
    with closing(open_writer(folder / "compileboard.db")) as store:
        _record(store)
    assert (
        main(["export", "--site", str(folder / "site"), "--db", str(folder / "compileboard.db")])
        == 0
    )
    return folder / "site"


def _pages(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.html")}


def _assert_links_lead_to_files(folder: Path) -> int:
    count = 0
    for name, text in _pages(folder).items():
        files = re.search(r'id="site-files">(.*?)</script>', text)
        links = [*LINK.findall(text), *(json.loads(files[1]).values() if files else ())]
        for link in map(html.unescape, links):
            if link.startswith(("https://", "#")):
                continue
            assert not link.startswith("/"), f"{name}: {link}"
            target = posixpath.normpath(
                posixpath.join(posixpath.dirname(name), unquote(urlsplit(link).path))
            )
            assert (folder / target).is_file(), f"{name}: {link}"
            count += 1
    return count


def test_every_link_of_every_page_leads_to_a_file(site: Path) -> None:
    assert _assert_links_lead_to_files(site) > 1000
    assert len(_pages(site)) > 50


def test_pages_need_no_server_and_say_that_they_are_a_copy(site: Path) -> None:
    for name, text in _pages(site).items():
        assert "<form" not in text and 'type="module"' not in text and "localhost" not in text, name
        assert "Content-Security-Policy" in text and "frame-ancestors" not in text, name
        assert re.search(r"Static site(?:</a>)? of", text) and str(site.parent) not in text, name


def test_copy_has_its_index_its_data_and_its_licences(site: Path) -> None:
    index = json.loads((site / "data" / "index.json").read_text())
    assert index["runs"] == 2 and index["runs_in_the_database"] == 14
    assert all((site / page["file"]).is_file() and page["title"] for page in index["pages"])
    assert json.loads((site / "data" / "runs.json").read_text())["data"]
    assert (site / "static" / "vendor" / "plotly" / "LICENSE").is_file()
    assert {"404.html", ".nojekyll", MARKER, "copy"} <= {path.name for path in site.iterdir()}


def test_only_the_newest_runs_have_pages(site: Path) -> None:
    runs = {
        path.name for path in (site / "runs").iterdir() if path.is_dir() and len(path.name) == 26
    }
    assert len(runs) == 2
    assert "Not in this site" in (site / "runs" / "index.html").read_text()


@pytest.mark.nightly
def test_two_copies_of_one_database_have_the_same_names(export: Export, tmp_path: Path) -> None:
    names = []
    for _again in range(2):
        assert export("--runs", "1") == 0
        names.append(json.loads((tmp_path / "site" / MARKER).read_text())["files"])
    assert names[0] == names[1]


def test_hostile_text_stays_text(hostile_site: Path) -> None:
    assert _assert_links_lead_to_files(hostile_site) > 100
    text = (hostile_site / "runs" / HOSTILE / "index.html").read_text()
    assert BAD[:30] in html.unescape(text)
    assert not any(
        "<img" in page or "alert(1)</script" in page for page in _pages(hostile_site).values()
    )


def test_copy_without_source_has_no_line_of_it(
    hostile_site: Path, export: Export, tmp_path: Path
) -> None:
    line = f"print('{MARKUP}')"
    files = [path for path in hostile_site.rglob("*") if path.suffix in (".html", ".json")]
    assert any(line in html.unescape(file.read_text()) for file in files), (
        "the recorded run has this line"
    )
    assert export("--no-source") == 0
    files = [path for path in (tmp_path / "site").rglob("*") if path.suffix in (".html", ".json")]
    assert [str(file) for file in files if line in html.unescape(file.read_text())] == []
    assert not list((tmp_path / "site").rglob("stacks"))


@pytest.mark.nightly
def test_limit_of_pages_keeps_the_important_and_says_what_is_beyond(
    export: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export("--pages", "12") == 0
    output = capsys.readouterr().err
    assert "pages beyond --pages" in output and "compiles: " in output and ".show" not in output
    assert _assert_links_lead_to_files(tmp_path / "site") > 10
    assert "beyond the page limit" in (tmp_path / "site" / "copy" / "index.html").read_text()
    assert (tmp_path / "site" / "runs" / "index.html").is_file()


@pytest.mark.nightly
def test_page_that_fails_is_left_out_and_said(
    export: Export,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fetch(client: FlaskClient, address: str) -> tuple[int, bytes]:
        return (500, b"") if address.endswith("tab=breaks") else real(client, address)

    real = crawl.fetch
    monkeypatch.setattr(crawl, "fetch", fetch)
    assert export() == 1
    assert (
        f"failed: /runs/{RUN}?tab=breaks answered 500; links to it are text"
        in capsys.readouterr().err
    )
    _assert_links_lead_to_files(tmp_path / "site")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--format", "csv"), "--format is for a report; --site has none of it"),
        (("--payloads", "--no-source"), "exclude each other"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    export: Export, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], sentence: str
) -> None:
    assert export(*more) == 2
    assert sentence in capsys.readouterr().err


def test_runs_and_pages_are_for_a_site(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--db", str(database), "--format", "json", "--output", "-"]
    assert main(["export", "--run", "latest", "--runs", "3", *where]) == 2
    assert "--runs and --pages are for --site" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "sentence"), [("board.db", "is a file"), ("/proc/site", "cannot write")]
)
def test_folder_that_cannot_be_written_is_said(
    export: Export, database: Path, capsys: pytest.CaptureFixture[str], folder: str, sentence: str
) -> None:
    assert main(["export", "--site", str(database.parent / folder), "--db", str(database)]) == 2
    assert sentence in capsys.readouterr().err


def test_database_that_is_missing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "--site", str(tmp_path / "site"), "--db", str(tmp_path / "no.db")]) == 2
    assert "no.db" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()
