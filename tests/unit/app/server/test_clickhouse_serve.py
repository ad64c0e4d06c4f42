"""`serve` over a folder beside ClickHouse: publishing, and what works while it is away."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app import create_app
from compileboard.app.cli.main import main
from compileboard.app.core.settings import Settings
from compileboard.app.server.follow import follow
from compileboard.collectors.store.connection import open_writer
from tests.tools.observed import wait_for
from tests.tools.serving import serving
from tests.unit.app.recorded import RUN, record_run


@pytest.fixture
def folder(tmp_path: Path, empty_database: bytes) -> Path:
    """Make a folder whose board has one run."""
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "board.db").write_bytes(empty_database)
    with closing(open_writer(folder / "board.db")) as store:
        record_run(store)
    return folder


def _get(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(f"{address}: {error.read().decode()}") from None


def _is_ready(address: str) -> bool:
    try:
        return bool(json.loads(_get(f"{address}/readyz"))["ready"])
    except AssertionError:
        return False


def _list_titles(address: str) -> dict[str, str | None]:
    return {run["id"]: run["title"] for run in json.loads(_get(f"{address}/api/v1/runs"))["data"]}


@pytest.mark.clickhouse
def test_a_server_publishes_what_is_recorded_and_what_people_do(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(folder / "board.db", "--db", f"clickhouse://{folder}") as server:
        wait_for(lambda: _is_ready(server.address))
        assert wait_for(lambda: _list_titles(server.address)) == {RUN: None}
        form = urllib.parse.urlencode({"title": "a name of its own"}).encode()
        change = urllib.request.Request(
            f"{server.address}/runs/{RUN}/annotate", form, {"Origin": server.address}
        )
        with urllib.request.urlopen(change, timeout=20) as answer:
            assert answer.status == 200
        wait_for(
            lambda: _list_titles(server.address) == {RUN: "a name of its own"}
        )  # at once, on a quiet machine
        assert "compileboard_runs_unpublished 0" in _get(f"{server.address}/metrics")
        assert main(["serve", "--db", f"clickhouse://{folder}", "--port", "0"]) == 2
        assert "is served already" in capsys.readouterr().err
        assert (
            main(["report", "--db", f"clickhouse://{folder}", "--folder", str(folder / "reports")])
            == 2
        )
        assert "is open in another process" in capsys.readouterr().err
        server.process.terminate()
        assert server.process.wait(20) == 0
    assert "Traceback" not in server.output


@pytest.mark.clickhouse
def test_runs_own_pages_go_on_while_clickhouse_is_away(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = f"clickhouse://127.0.0.1:1/board?folder={folder}"
    passes = iter((False, True))
    assert follow(db, "", {}, lambda _seconds: next(passes)) == 0
    assert capsys.readouterr().err.count("cannot be reached") == 1, "reported once"
    away = create_app(Settings(db=db)).test_client()
    page = away.get(f"/runs/{RUN}")
    assert page.status_code == 200 and "Pages across runs are behind" in page.text
    for address in ("/runs", "/api/v1/runs"):
        refused = away.get(address)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert "cannot be reached" in refused.text
    ready = away.get("/readyz")
    assert ready.status_code == 503 and ready.json is not None
    assert ready.json["checks"]["clickhouse"].startswith("does not answer")
    metrics = away.get("/metrics").text
    assert (
        "compileboard_clickhouse_up 0" in metrics and "compileboard_runs_unpublished 1" in metrics
    )
    renamed = away.post(
        f"/runs/{RUN}/annotate", data={"title": "meanwhile"}, headers={"Origin": "http://localhost"}
    )
    assert renamed.status_code == 303 and "meanwhile" in away.get(f"/runs/{RUN}").text
