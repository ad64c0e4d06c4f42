from __future__ import annotations

import re
import sqlite3

import pytest
from flask.testing import FlaskClient

from compileboard.app.runs.pages import FILLS
from tests.unit.app.recorded import MARKUP, RUN, record_run

TAB_KEYS = list(FILLS)


@pytest.fixture(autouse=True)
def run(store: sqlite3.Connection) -> None:
    record_run(store)


def _get(client: FlaskClient, address: str, status: int = 200) -> str:
    response = client.get(address)
    assert response.status_code == status
    return response.text


@pytest.mark.parametrize("tab", TAB_KEYS)
def test_run_page_writes_other_peoples_text_as_text(client: FlaskClient, tab: str) -> None:
    for more in ("", "&view=each", "&columns=phases"):
        page = _get(client, f"/runs/{RUN}?tab={tab}{more}")
        assert MARKUP not in page
        assert "onclick=x>" not in page


def test_run_page_sums_agree_with_the_totals(client: FlaskClient) -> None:
    page = _get(client, f"/runs/{RUN}")
    tiles = dict(
        re.findall(r"<dt>(.*?)</dt>\s*<dd class=\"tile__value\">(?:<a [^>]*>)?(.*?)<", page)
    )
    assert (tiles["Compiles"], tiles["Recompiles"], tiles["Failures"], tiles["Cache hit rate"]) == (
        "4",
        "2",
        "1",
        "50.0%",
    )
    assert tiles["Compile time"] == "506 ms"
    assert (
        len(re.findall(r"<tr>\s*<td class=\"text\">", _get(client, f"/runs/{RUN}?tab=compiles")))
        == 4
    )


def test_run_page_says_what_to_do_first(client: FlaskClient) -> None:
    page = _get(client, f"/runs/{RUN}")
    titles = re.findall(r"<span class=\"cause__title\">(.*?)</span>", page)
    assert titles[0] == "Compile failed: BackendCompilerFailed"
    assert any("Dimension 0 of x changes" in title for title in titles)
    assert re.search(r'<p class="verdict__sentence">\d+ (fix|cause)', page)
    assert "Runs eagerly" in page and "Source not recorded." in page


def test_breaks_tab_links_the_public_page_of_the_id(client: FlaskClient) -> None:
    page = _get(client, f"/runs/{RUN}?tab=breaks")
    address = "https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html"
    assert f'href="{address}" rel="noopener' in page
    assert "torch's hints" in page


def test_recompiles_tab_shows_the_chain_in_order(client: FlaskClient) -> None:
    page = _get(client, f"/runs/{RUN}?tab=recompiles")
    chain = page[page.index('class="chain"') :]
    assert chain.index(">0/0<") < chain.index(">0/1<") < chain.index(">0/2<")
    assert "Mark dimension 0 of x" in page


def test_processes_tab_says_what_was_lost_and_what_was_not_recorded(client: FlaskClient) -> None:
    page = _get(client, f"/runs/{RUN}?tab=processes")
    assert "2 records: disk full" in page
    assert "no tap" in page
    assert "lost while recording" in _get(client, f"/runs/{RUN}")


def test_environment_tab_shows_what_differs_from_defaults(client: FlaskClient) -> None:
    page = _get(client, f"/runs/{RUN}?tab=environment")
    assert "dynamo.recompile_limit" in page
    assert "has changes that no commit holds" in page
    assert "verbose" in _get(client, f"/runs/{RUN}/configs/a4797441f1dafbf1")
    assert "verbose" not in _get(client, f"/runs/{RUN}/configs/a4797441f1dafbf1?q=limit")


@pytest.mark.parametrize(
    ("address", "status", "sentence"),
    [
        ("/runs/nope", 404, "There is no run nope"),
        (f"/runs/{RUN}?tab=x", 400, "is not one of compiles"),
        (f"/runs/{RUN}?tab=compiles&sort=x", 400, "sort: "),
        (f"/runs/{RUN}?tab=compiles&recompiled=x", 400, "recompiled: expected yes or no"),
        (f"/runs/{RUN}?tab=breaks&distinct=x", 400, "is not an id: expected 16 digits"),
        (f"/runs/{RUN}?tab=breaks&cursor=x", 400, "cursor: "),
        (f"/runs/{RUN}/configs/none", 404, "has no configuration text none"),
    ],
)
def test_run_page_refuses_in_one_sentence(
    client: FlaskClient, address: str, status: int, sentence: str
) -> None:
    assert sentence in _get(client, address, status)


@pytest.mark.parametrize("tab", TAB_KEYS)
def test_empty_run_page_says_so(client: FlaskClient, store: sqlite3.Connection, tab: str) -> None:
    for table in (
        "events",
        "failures",
        "cache_lookups",
        "cudagraph_skips",
        "graph_breaks",
        "recompiles",
        "compiles",
        "processes",
        "run_totals",
        "run_breaks",
        "run_causes",
    ):
        store.execute(f"delete from {table}")
    assert "<h1>train</h1>" in _get(client, f"/runs/{RUN}?tab={tab}")


@pytest.mark.parametrize("key", ["_scheme", "_anchor", "_method", "endpoint", "run_id"])
def test_a_key_of_the_address_stays_a_key(client: FlaskClient, key: str) -> None:
    page = _get(client, f"/runs/{RUN}?tab=compiles&{key}=x")
    assert f"/runs/{RUN}?tab=compiles&amp;{key}=x&amp;sort=time" in page


def test_a_run_without_a_trace_says_where_more_would_come_from(client: FlaskClient) -> None:
    page = client.get(f"/runs/{RUN}").text
    assert "--level full" in page and 'href="/imports"' in page


def test_a_run_without_a_command_says_so_and_shows_no_empty_box(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    store.execute("update runs set command = '', source = 'import'")
    page = _get(client, f"/runs/{RUN}?tab=environment")
    assert re.search(r"Command: <[^>]+>not recorded<", page)
    assert "<code></code>" not in page and "<code>None</code>" not in page
