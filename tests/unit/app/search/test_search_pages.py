"""Search: a query from typed words, hits as text, at their place, page by page."""

from __future__ import annotations

import html
import re
import sqlite3
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.app.search.model import find_lines
from compileboard.app.search.queries import KIND_WORDS, read_terms, search
from compileboard.collectors.store.connection import checkpoint
from compileboard.collectors.store.search import KINDS, READERS, index_run
from compileboard.collectors.store.trash import delete_run
from tests.unit.app import recorded
from tests.unit.app.benched import MLP, add_results, measure
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.hostile import MARKUP, RUN, record_hostile_run
from tests.unit.app.recorded import record_run

pytestmark = on_both_engines

HOSTILE = [
    '"',
    '""',
    "-",
    "--",
    "a OR",
    "NEAR(a b)",
    "body:x",
    "{tags}: run",
    "*",
    "x*y",
    "'; drop table runs",
    "\0",
]
HOSTILE += ["𝔘 é", "(" * 400, "a " * 400]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("addmm", '("addmm" *)'),
        ("torch.ops.aten view_12", '("torch ops aten" AND "view 12")'),
        ('"size mismatch" -expected x', '("size mismatch" AND "x") NOT ("expected")'),
        ('"addmm"', '("addmm")'),
        ("-only", None),
        ("+ ()", None),
    ],
)
def test_what_is_typed_becomes_a_query(text: str, match: str | None) -> None:
    assert read_terms(text).match == match


@given(text=st.text() | st.sampled_from(HOSTILE))
@settings(max_examples=150)
def test_any_text_is_answered(explored_reader: sqlite3.Connection, text: str) -> None:
    terms = read_terms(text)
    for group in search(explored_reader, terms):
        assert group.count > 0
        for hit in group.hits:
            assert all(line.pieces for line in find_lines(hit.text, terms))


@pytest.mark.parametrize("query", HOSTILE)
def test_any_address_is_answered(explored_client: FlaskClient, query: str) -> None:
    assert explored_client.get(f"/search?q={quote(query)}").status_code == 200
    assert explored_client.get(f"/api/v1/search?q={quote(query)}").status_code == 200


def test_lines_have_the_words_marked_and_long_ones_are_cut() -> None:
    text = "nothing\n  addmm_1 = torch.ops.aten.addmm.default(x)\n" + "y" * 900 + " addmm\nxaddmm"
    first, second = find_lines(text, read_terms("torch.ops addmm"))
    assert (first.line, second.line) == (2, 3)
    assert [piece for piece, marked in first.pieces if marked] == ["addmm", "torch.ops", "addmm"]
    assert first.pieces[0] == ("addmm", True)
    assert len("".join(piece for piece, _ in second.pieces)) < 300


def test_a_line_leads_to_the_line_of_the_artifact(explored_client: FlaskClient) -> None:
    page = explored_client.get('/search?q="torch.ops.aten.addmm.default"&kind=artifact').text
    address, number = re.findall(r'href="(/runs/\w+/artifacts/\d+)#L(\d+)"', page)[0]
    there = explored_client.get(f"{address}/raw").text.splitlines()[int(number) - 1]
    assert "torch.ops.aten.addmm.default" in there


def test_every_kind_is_named_read_and_leads_somewhere(explored_client: FlaskClient) -> None:
    assert set(KIND_WORDS) == set(KINDS)
    assert len(READERS) == len(KINDS)
    page = explored_client.get("/search?q=forward").text
    shown = re.findall(r'class="found__title" href="([^"]+)"', page)
    assert len(shown) > 5
    assert [
        address
        for address in shown
        if explored_client.get(html.unescape(address)).status_code != 200
    ] == []


def test_a_failed_model_is_found_by_its_status_and_by_its_message(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    failed = {"model": "Bad", "status": "failed", "values": {}, "repeats": {}}
    message = "RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    add_results(store, "R1", measure(**failed, reason="fail_to_run", message=message))
    index_run(store, "R1")
    checkpoint(store)
    for words in ("fail to run", "shapes multiplied"):
        page = client.get("/search", query_string={"q": words}).text
        (address,) = re.findall(r'class="found__title" href="([^"]+)"', page)
        assert "Bad: fail to run" in page and client.get(address).status_code == 200


def test_pages_of_a_kind_bring_each_text_once(explored_client: FlaskClient) -> None:
    address, seen, cursor = "/api/v1/search?q=torch&kind=artifact&limit=7", [], ""
    while cursor is not None:
        (group,) = [
            group
            for group in explored_client.get(address + cursor).json["data"]["groups"]
            if group["hits"]
        ]
        seen += [(hit["run_id"], hit["ref_id"]) for hit in group["hits"]]
        cursor = group["next"] and f"&cursor={group['next']}"
    assert len(seen) == len(set(seen)) == group["count"] > 14


def test_one_run_finds_only_its_own(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    for (run_id,) in explored_reader.execute("select id from runs").fetchall():
        groups = explored_client.get(f"/api/v1/search?q=torch&run={run_id}").json["data"]["groups"]
        assert {hit["run_id"] for group in groups for hit in group["hits"]} == {run_id}
        assert explored_client.get(f"/runs/{run_id}/search?q=torch").text.count("<mark>") > 3


def test_hostile_text_is_shown_as_text(store: sqlite3.Connection, client: FlaskClient) -> None:
    record_hostile_run(store)
    index_run(store, RUN)
    for query in ("alert", "img onerror", quote(MARKUP)):
        page = client.get(f"/search?q={query}").text
        assert "<mark>" in page
        assert "<img" not in page
        assert "<script>alert" not in page


def test_what_is_not_indexed_is_said(store: sqlite3.Connection, client: FlaskClient) -> None:
    assert "No runs yet" in client.get("/search?q=x").text
    record_run(store)
    assert "Indexing: 1 run to go" in client.get("/search?q=mismatch").text
    index_run(store, recorded.RUN)
    assert "Indexing" not in client.get("/search").text
    assert "<mark>mismatch</mark>" in client.get("/search?q=mismatch").text
    assert "No results" in client.get("/search?q=zzzznothing").text
    store.execute("update runs set heartbeat_us = 9e15")
    assert "1 of 1 run not fully indexed yet" in client.get("/search?q=mismatch").text
    delete_run(store, recorded.RUN)
    assert "<mark>" not in client.get("/search?q=mismatch").text


def test_torchs_words_have_no_backticks(store: sqlite3.Connection, client: FlaskClient) -> None:
    record_run(store)
    store.execute(
        "update distinct_breaks set gb_id = 'GB0007', reason = 'no `warn` here', source_line = '', "
        "explanation = 'Dynamo does not know how to trace the Python builtin `_warnings.warn`.'"
    )
    index_run(store, recorded.RUN)
    (group,) = client.get("/api/v1/search?q=warn&kind=graph_break").json["data"]["groups"]
    (hit, *_) = group["hits"]
    assert hit["title"] == "_warnings.warn call" and "no warn here" in [
        line["text"] for line in hit["lines"]
    ]
    assert "`" not in client.get("/api/v1/suggestions?q=warn").text


def test_a_kind_or_cursor_that_is_none_is_refused(explored_client: FlaskClient) -> None:
    assert explored_client.get("/search?q=x&kind=nonsense").status_code == 400
    assert explored_client.get("/search?q=x&kind=artifact&cursor=zz").status_code == 400
    assert explored_client.get("/api/v1/search?q=x&cursor=zz").status_code == 400
    assert explored_client.get("/search?q=x&run=nothing").status_code == 404


def test_more_words_than_are_looked_for_are_said() -> None:
    assert not read_terms("a " * 12).is_cut
    assert read_terms("a " * 13).is_cut
    assert read_terms("a" * 301).is_cut


def test_runs_and_models_are_found_by_id_name_commit_and_word(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(store, "01JABCDEFGHJKMNPQRSTVWXYZ0", MLP)
    store.execute("update runs set git_commit = 'abcdef1234', name = 'nightly run'")
    checkpoint(store)
    address = "/runs/01JABCDEFGHJKMNPQRSTVWXYZ0"
    for text in ("01jabc", "nightly", "abcdef1", "latest"):
        answer = client.get(f"/api/v1/suggestions?q={text}").get_json()
        assert answer["ok"], answer
        found = answer["data"]["suggestions"]
        assert found[0]["kind"] == "run" and found[0]["address"] == address, text
        assert f'href="{address}"' in client.get(f"/search?q={text}").text
    (model,) = client.get(f"/api/v1/suggestions?q={MLP.model}").get_json()["data"]["suggestions"]
    assert (model["kind"], model["address"]) == ("model", f"/models/{MLP.model}")
    assert client.get("/api/v1/suggestions?q=").get_json()["data"]["suggestions"] == []
    store.execute("update runs set suite = 'nightly'")
    checkpoint(store)
    found = client.get("/api/v1/suggestions?q=NIGHT").get_json()["data"]["suggestions"]
    (suite,) = [own for own in found if own["kind"] == "suite"]
    assert (suite["address"], suite["detail"]) == ("/?suite=nightly", "1 run")
    assert 'href="/?suite=nightly"' in client.get("/search?q=night").text
    # A suite that only results have, as in imported files.
    found = client.get(f"/api/v1/suggestions?q={MLP.suite}").get_json()["data"]["suggestions"]
    (suite,) = [own for own in found if own["kind"] == "suite"]
    assert (suite["label"], suite["detail"]) == (MLP.suite, "1 run")
    assert "nightly run" in client.get(suite["address"]).text
