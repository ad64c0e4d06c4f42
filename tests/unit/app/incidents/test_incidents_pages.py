"""Incidents: the list, one incident, what people do with it, and where else it shows."""

from __future__ import annotations

import html
import re
import sqlite3

import plotly.graph_objects as go
import pytest
from flask.testing import FlaskClient

from compileboard.app.incidents.queries import count_incidents, get_incident, list_series_changes
from compileboard.collectors.store.incident_triage import AUTHOR_LIMIT, save_comment
from tests.unit.app.benched import BREAK_ID, RUNS, bench_suite
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.hostile import BAD
from tests.unit.app.runs.test_overview import _figures
from tests.unit.app.series_changes import EVIDENCE, keep, keep_one_of_each, make_change
from tests.unit.app.server.test_hostile_text import _Seen

pytestmark = on_both_engines

ONE = "f" * 16
RTL = "\u202egnp.exe\u202c"
HOSTILE = {"author": "<script>alert(1)</script>", "text": f"{BAD}\r\n{RTL}\n" + "x" * 10_000}


@pytest.fixture
def stored(store: sqlite3.Connection) -> None:
    bench_suite(store)
    keep_one_of_each(store)


def text_of(client: FlaskClient, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text[:2000]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


@pytest.mark.usefixtures("stored")
def test_the_list_has_title_cause_commit_and_metrics(client: FlaskClient) -> None:
    page = text_of(client, "/incidents")
    phrases = (
        "Breaky: speedup down 11%, graph break at",
        "Speedup 0.65× → 0.578× −11%",
        "Since e5f6a7b",
        "3 metrics changed",
        "GPT2x4: latency down 11%",
        "Unconfirmed",
        "Sleeper: no longer measured",
        "Series last scanned 2026-11-21",
    )
    assert [text for text in phrases if text not in page] == []
    assert "Hungry" not in page and "Bert4" not in page  # withdrawn, an improvement


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=unconfirmed", {"unconfirmed"}),
        ("state=withdrawn", {"withdrawn"}),
        ("state=recovered", {"fails"}),
        ("state=any&direction=better", {"better"}),
        ("state=open&metric=geomean_speedup", {ONE}),
        (f"run={RUNS[2]}&branch=main", {"gone", "runs"}),
        ("model=Breaky&metric=speedup&branch=main&hardware=NVIDIA+H200&suite=bench_models", {ONE}),
        ("until=2026-11-19&model=Mlp", {"drift"}),
        ("since=2026-11-21", set()),
    ],
)
@pytest.mark.usefixtures("stored")
def test_a_filter_is_the_same_on_the_page_and_in_the_api(
    client: FlaskClient, query: str, expected: set[str]
) -> None:
    rows = client.get(f"/api/v1/incidents?{query}").json["data"]  # type: ignore[index]
    assert {row["id"] for row in rows} == expected
    assert (
        set(re.findall(r'href="/incidents/(\w+)"', client.get(f"/incidents?{query}").text))
        == expected
    )


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    "query", ["state=odd", "status=odd", "since=odd", "odd=1", "cursor=odd", "limit=0"]
)
def test_a_filter_that_cannot_be_used_is_refused(client: FlaskClient, query: str) -> None:
    assert [
        client.get(f"{page}?{query}").status_code for page in ("/incidents", "/api/v1/incidents")
    ] == [400, 400]


def test_pages_have_every_incident_once(client: FlaskClient, store: sqlite3.Connection) -> None:
    keep(store, *[make_change(id=f"f{n:02}", suite=f"s{n}", relative=-n / 100) for n in range(30)])
    seen, address = [], "/api/v1/incidents?limit=7"
    while address:
        body = client.get(address).json
        seen += [row["id"] for row in body["data"]]  # type: ignore[index]
        address = f"/api/v1/incidents?limit=7&cursor={body['next']}" if body["next"] else ""  # type: ignore[index]
    assert (len(seen), len(set(seen))) == (30, 30)
    assert "More incidents" in text_of(client, "/incidents")


@pytest.mark.usefixtures("stored")
def test_the_bar_counts_open_incidents(client: FlaskClient, reader: sqlite3.Connection) -> None:
    open_count = count_incidents(reader).open_count
    assert open_count and f'title="{open_count} open incident' in client.get("/incidents").text
    assert "nav__count" not in client.get("/login").text, "what reads no database counts nothing"


@pytest.mark.usefixtures("stored")
def test_counts_and_series_come_from_one_statement_each(reader: sqlite3.Connection) -> None:
    counts = count_incidents(reader)
    assert (counts.incident_count, counts.open_count, counts.unconfirmed_count) == (8, 4, 1)
    assert (counts.recovered_count, counts.improvement_count) == (1, 1)
    changes = list_series_changes(reader, "model", "bench_models", ["Breaky", "Hungry"])
    assert {change.id for change in changes} == {ONE, "changed"}
    assert [change.id for change in list_series_changes(reader, "suite", "bench_models")] == [
        "suite"
    ]


@pytest.mark.usefixtures("stored")
def test_each_incident_has_a_page_with_its_facts(
    client: FlaskClient, reader: sqlite3.Connection
) -> None:
    for (incident_id,) in reader.execute("select id from incidents"):
        text_of(client, f"/incidents/{incident_id}")
    page = text_of(client, f"/incidents/{ONE}")
    phrases = (
        "Speedup 0.578× −11% from 0.65×",
        "First seen in e5f6a7b, the run where speedup changed",
        "torch changed as well",
        "Last good a1b2c3d",
        "First bad e5f6a7b",
        "2 commits in this range",
        "9988776 Rename a file Kim",
        "torch 2.11.0 → 2.12.0",
        "Suite bench_models: geomean speedup",
        "p < 0.0001",
    )
    assert [text for text in phrases if text not in page] == []
    links = client.get(f"/incidents/{ONE}").text
    assert f"/compare?base={RUNS[0]}&amp;new={RUNS[1]}" in links
    assert "/trends?model=Breaky&amp;metric=speedup&amp;branch=main&amp;suite=bench_models" in links
    assert f'href="/graph_breaks/{BREAK_ID}"' in links
    assert client.get("/incidents/odd").status_code == 404
    assert "No cause found" in text_of(client, "/incidents/runs")


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    "address", [f"/incidents/{ONE}", f"/incidents/{ONE}?change=suite", "/incidents/gone"]
)
def test_the_chart_has_the_series_its_levels_and_the_range(
    client: FlaskClient, address: str
) -> None:
    figure = _figures(client.get(address).text)["series"]
    names = [trace.get("name") for trace in figure["data"]]
    assert names[:2] == ["commit range", "before"]
    assert ("after" in names) == ("gone" not in address)
    band = figure["data"][0]
    assert (band["x"], band["yaxis"]) == (
        [0, 0, 1, 1] if "gone" not in address else [1, 1, 2, 2],
        "y2",
    )
    assert len(go.Figure(figure).data) == len(names)


@pytest.mark.usefixtures("stored")
def test_a_change_leads_to_its_incident(client: FlaskClient) -> None:
    answer = client.get("/incidents/suite")
    assert (answer.status_code, answer.location) == (301, f"/incidents/{ONE}#change-suite")
    assert client.get("/incidents/odd").status_code == 404


@pytest.mark.usefixtures("stored")
def test_an_action_keeps_name_and_time_and_leads_back(client: FlaskClient) -> None:
    for action, text in (
        ("acknowledge", ""),
        ("comment", "since the driver"),
        ("ignore", "known"),
        ("reopen", ""),
    ):
        answer = client.post(
            f"/incidents/{ONE}", data={"action": action, "author": " Ada  L. ", "text": text}
        )
        assert (answer.status_code, answer.location) == (303, f"/incidents/{ONE}#activity")
        if action == "ignore":
            assert "Ignored by Ada L." in text_of(client, f"/incidents/{ONE}")
    page = text_of(client, f"/incidents/{ONE}")
    for reported in ("acknowledged", "commented", "ignored", "reopened"):
        assert re.search(rf"20\d\d-\d\d-\d\d \d\d:\d\d Ada L\. {reported}", page), reported
    assert "since the driver" in page


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            {"action": "ignore", "author": "Ada", "text": " "},
            "a reason is required to ignore an incident",
        ),
        ({"action": "comment", "author": "Ada"}, "a comment needs text"),
        ({"action": "acknowledge", "author": " ", "text": "kept"}, "name is required"),
        ({"action": "acknowledge", "author": "A" * (AUTHOR_LIMIT + 1)}, "at most 100 characters"),
        ({"action": "comment", "author": "Ada", "text": "x" * 20_001}, "at most 20000 characters"),
        ({"action": "odd", "author": "Ada", "text": "kept"}, "'odd' is unknown"),
    ],
)
def test_what_cannot_be_saved_comes_back_as_typed(
    client: FlaskClient, typed: dict[str, str], message: str
) -> None:
    answer = client.post(f"/incidents/{ONE}", data=typed)
    page = html.unescape(answer.text)
    assert answer.status_code == 400
    assert f"Not saved: {message}" in page
    assert f'name="author" value="{typed["author"]}"' in page
    if typed["action"] != "odd":
        assert f"\n{typed.get('text', '')}</textarea>" in page


@pytest.mark.usefixtures("stored")
def test_hostile_text_stays_text(client: FlaskClient, store: sqlite3.Connection) -> None:
    commit = {"hash": BAD, "author": BAD, "subject": BAD + RTL, "time_us": 1}
    evidence = EVIDENCE | {
        "commits": {"known": True, "count": 1, "listed": [commit]},
        "environment": [{"word": BAD, "before": BAD, "now": BAD}],
        "causes": [
            {
                "kind": "graph_break",
                "word": "new",
                "label": BAD,
                "before": None,
                "after": 1,
                "break_id": None,
            }
        ],
    }
    names = dict.fromkeys(("suite", "model", "mode", "dtype", "hardware", "backend", "branch"), BAD)
    keep(store, make_change(id="bad", **names, evidence=evidence))
    assert client.post("/incidents/bad", data={"action": "comment", **HOSTILE}).status_code == 303
    for address in (
        "/incidents",
        "/incidents/bad",
        "/",
        f"/runs/{RUNS[1]}",
        "/incidents?model=%3Cscript%3Ealert(1)",
    ):
        page = client.get(address).text
        assert "<script>alert" not in page and "{{7*7}}49" not in page, address
        tags = _Seen(page).tags
        assert [
            name for _, attributes in tags for name in attributes if name.startswith("on")
        ] == [], address
        assert [tag for tag, _ in tags if tag == "img"] == [], address
    comment = client.get("/api/v1/incidents/bad").json["data"]["comments"][0]  # type: ignore[index]
    assert (comment["author"], comment["text"]) == (HOSTILE["author"], HOSTILE["text"].strip())


@pytest.mark.usefixtures("stored")
def test_incidents_show_on_the_overview_their_run_model_and_trend(client: FlaskClient) -> None:
    assert f'href="/incidents/{ONE}"' in client.get("/").text
    assert (
        f'Incident since this run:\n  <a href="/incidents/{ONE}">'
        in client.get(f"/runs/{RUNS[1]}").text
    )
    assert f'href="/incidents/{ONE}?change={ONE}"' in client.get("/models/Breaky?batch_size=8").text
    trend = client.get("/trends?model=Breaky&metric=speedup").text
    (mark,) = [trace for trace in _figures(trend)["trend-0"]["data"] if trace.get("yaxis") == "y2"]
    address = f"/incidents/{ONE}?change={ONE}"
    assert (mark["x"], mark["customdata"], mark["marker"]["symbol"]) == (
        [1],
        [address],
        "triangle-up",
    )
    assert "1 change detected" in trend


def test_an_empty_list_says_what_to_do_or_that_all_is_well(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    assert "compileboard-collect bench --db" in text_of(client, "/incidents")
    bench_suite(store)
    page = text_of(client, "/incidents")
    assert "Not scanned yet" in page and "compileboard incidents update --db" in page
    keep(store)
    assert "No open incidents" in text_of(client, "/incidents")
    assert client.get("/api/v1/overview").json["data"]["verdict"]["incident_id"] is None  # type: ignore[index]
    keep(store, make_change())
    save_comment(store, ONE, "ignore", author="Ada", text="known")
    assert "No open incidents" in text_of(client, "/incidents")
    assert "No incidents match" in text_of(client, "/incidents?model=odd")


def test_another_site_cannot_speak_for_anyone(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    keep(store, make_change())
    data = {"action": "acknowledge", "author": "Eve"}
    answer = client.post(f"/incidents/{ONE}", data=data, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    incident = get_incident(store, ONE)
    assert incident is not None and incident.status == "open"
