"""Saved views: saved from a page, shown on it, renamed and deleted; other addresses are refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.app import create_app
from compileboard.app.core.settings import Settings
from compileboard.app.views import queries
from compileboard.collectors.store import saved_views
from compileboard.collectors.store.connection import open_reader
from tests.unit.app.clickhouse.published import OpenClient, on_both_engines
from tests.unit.app.hostile import MARKUP

RUNS = "/runs?state=failed&q=bert"


@pytest.fixture
def save(database: Path, open_client: OpenClient) -> Callable[..., str]:
    client = open_client(database)

    def post(name: str = "Bert fails", address: str = RUNS, expected: int = 303) -> str:
        answer = client.post("/views", data={"name": name, "address": address})
        assert answer.status_code == expected, answer.text
        return answer.headers.get("Location", answer.text)

    return post


def _list(database: Path) -> list[queries.SavedView]:
    with closing(open_reader(database)) as reader:
        return [*queries.list_views(reader).rows]


@on_both_engines
def test_a_view_is_on_its_page_and_in_the_list_without_the_position(
    database: Path, open_client: OpenClient, save: Callable[..., str]
) -> None:
    assert save(address=f"{RUNS}&cursor=WzFd#zoom=a:1..2") == f"{RUNS}#zoom=a:1..2"
    client = open_client(database)
    link = f'href="{RUNS.replace("&", "&amp;")}#zoom=a:1..2">Bert fails</a>'
    assert link in client.get("/runs").text and link in client.get("/views").text
    assert "Bert fails" not in client.get("/graph_breaks").text
    assert "View saved" in client.get("/activity").text


def test_a_view_is_renamed_and_deleted(
    database: Path, open_client: OpenClient, save: Callable[..., str]
) -> None:
    save()
    client, address = open_client(database), f"/views/{_list(database)[0].id}"
    assert client.post(address, data={"action": "rename", "name": "  Bert \n"}).status_code == 303
    assert [view.name for view in _list(database)] == ["Bert"]
    assert client.post(address, data={"action": "burn"}).status_code == 400
    assert client.post(address, data={"action": "delete"}).status_code == 303
    assert _list(database) == [] and client.post(address).status_code == 404


def test_a_name_is_text(database: Path, open_client: OpenClient, save: Callable[..., str]) -> None:
    save(MARKUP)
    client = open_client(database)
    assert all(MARKUP not in client.get(page).text for page in ("/runs", "/views"))


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\u202eb", "Bert  fails"])
def test_a_name_that_is_empty_long_or_used_is_refused(
    database: Path, save: Callable[..., str], name: str
) -> None:
    save()
    assert "The view was not saved: name: " in save(name, expected=400)
    assert len(_list(database)) == 1


@pytest.mark.parametrize(
    "address",
    [
        "",
        "//evil.example/runs",
        "https://evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "/no/such/page",
        "/api/v1/runs",
        "/static/css/app.css",
        "/login?next=/runs",
        "/runs/R/annotate",
        "/runs?q=" + "x" * 4_000,
    ],
)
def test_what_is_no_page_of_ours_is_refused(
    database: Path, save: Callable[..., str], address: str
) -> None:
    assert "The view was not saved: address: " in save(address=address, expected=400)
    assert _list(database) == []


def test_there_is_a_most(
    database: Path, save: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_views, "MAX_VIEWS", 1)
    save()
    assert "the most" in save("another", expected=400) and len(_list(database)) == 1


def test_a_server_that_only_reads_shows_views_and_saves_none(
    database: Path, save: Callable[..., str]
) -> None:
    save()
    client = create_app(Settings(db=str(database), read_only="yes")).test_client()
    page = client.get("/runs").text
    assert "Bert fails" in page and "Save view" not in page
    listed = client.get("/views").text
    assert "Bert fails" in listed and ">Delete<" not in listed and "read-only" in listed
    assert client.post("/views", data={"name": "b", "address": "/runs"}).status_code == 403
    assert client.post("/api/v1/views/1/delete").status_code == 403


def test_the_api_saves_lists_renames_and_deletes_views(
    database: Path, open_client: OpenClient
) -> None:
    client, views = open_client(database), "/api/v1/views"
    saved = [client.post(views, json={"name": name, "address": RUNS}) for name in "ba"]
    assert [answer.status_code for answer in saved] == [201, 201]
    first = client.get(views, query_string={"limit": 1}).json
    rest = client.get(views, query_string={"cursor": first["next"]}).json
    assert [*first["data"], *rest["data"]] == [answer.json["data"] for answer in reversed(saved)]
    one = f"{views}/{first['data'][0]['id']}"
    assert client.post(f"{one}/rename", json={"name": "c"}).json["data"]["name"] == "c"
    assert client.post(f"{one}/delete").json["data"]["name"] == "c"
    assert client.post(f"{one}/delete").status_code == 404
    actions = {row["action"] for row in client.get("/api/v1/audit").json["data"]}
    assert actions == {"view.save", "view.rename", "view.delete"}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ([], "body: expected a JSON object"),
        ({"name": "a"}, "address: is missing"),
        ({"name": "a", "address": "/runs", "path": "/"}, "path: there is no such field"),
        ({"name": None, "address": "/runs"}, "name: expected a string, got NoneType"),
        ({"name": "", "address": "/runs"}, "name: must be 1 to 100"),
        ({"name": "a", "address": "/api/v1/runs"}, "is not a page"),
        ({"name": "a", "address": "//evil.example"}, "is not the address of a page"),
    ],
)
def test_the_api_refuses_what_is_no_view(
    database: Path, open_client: OpenClient, body: object, problem: str
) -> None:
    answer = open_client(database).post("/api/v1/views", json=body)
    assert answer.status_code == 400 and problem in answer.json["error"]
    assert _list(database) == []
