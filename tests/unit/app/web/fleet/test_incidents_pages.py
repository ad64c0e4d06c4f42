"""Findings: the list, one finding, what people say, and where else they show."""

from __future__ import annotations

import html
import re
import sqlite3

import plotly.graph_objects as go
import pytest
from flask.testing import FlaskClient

from compileboard.app.analysis.incidents.groups import SHOWN, group_incidents, pick_headline_changes
from compileboard.app.queries.dashboard.incidents import (
    IncidentFilter,
    RangeCount,
    count_findings,
    count_ranges,
    get_finding,
    list_finding_words,
    list_findings,
    list_series_findings,
    load_findings,
)
from compileboard.collectors.store.dashboard.series_changes import WHO_LIMIT, save_comment
from tests.unit.app.benched import BREAK_ID, RUNS, bench_suite
from tests.unit.app.hostile import BAD
from tests.unit.app.series_changes import EVIDENCE, keep, keep_one_of_each, make_finding
from tests.unit.app.web.fleet.test_overview import _figures
from tests.unit.app.web.test_hostile_text import _Seen

ONE = "f" * 16
RTL = "\u202egnp.exe\u202c"
HOSTILE = {"who": "<script>alert(1)</script>", "text": f"{BAD}\r\n{RTL}\n" + "x" * 10_000}


@pytest.fixture
def stored_changes(store: sqlite3.Connection) -> None:
    bench_suite(store)
    keep_one_of_each(store)


def text_of(client: FlaskClient, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text[:2000]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


@pytest.mark.usefixtures("stored_changes")
def test_the_list_says_what_changed_between_which_commits_and_whom_it_concerns(client: FlaskClient) -> None:
    page = text_of(client, "/findings")
    phrases = (
        "Between a1b2c3d4 (2026-11-18 11:06) and e5f6a7b8 (2026-11-19 11:06): 2 commits",
        "by Ada, Kim",
        "torch 2.11.0 → 2.12.0",
        "worse Breaky speedup bench_models · inference",
        "0.650× → 0.578× −11.0 % confirmed open",
        "call to print in Breaky.forward (0 → 2)",
        "Sleeper no longer measured",
        "Resnet18 fails",
        "passed → fails",
        "Series were last looked at 2026-11-21",
    )
    assert [text for text in phrases if text not in page] == []
    assert "Hungry" not in page  # withdrawn


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=suspected", {"suspected"}),
        ("state=withdrawn", {"withdrawn"}),
        ("kind=drift", {"drift"}),
        ("kind=vanished", {"gone"}),
        ("direction=better", {"better"}),
        ("subject=suite&recovered=yes", {"suite"}),
        ("subject=runs", {"runs"}),
        ("metric=passes", {"fails"}),
        (f"run={RUNS[2]}&subject=model", {"gone"}),
        ("model=Breaky&metric=speedup&branch=main&hardware=NVIDIA+H200&suite=bench_models", {ONE}),
        ("until=2026-11-19&kind=drift", {"drift"}),
        ("since=2026-11-21", set()),
    ],
)
@pytest.mark.usefixtures("stored_changes")
def test_a_filter_is_the_same_on_the_page_and_in_the_api(client: FlaskClient, query: str, expected: set[str]) -> None:
    rows = client.get(f"/api/v1/findings?{query}").json["data"]  # type: ignore[index]
    assert {row["id"] for row in rows} == expected
    assert set(re.findall(r'href="/findings/(\w+)"', client.get(f"/findings?{query}").text)) == expected


@pytest.mark.usefixtures("stored_changes")
@pytest.mark.parametrize(
    "query", ["state=odd", "kind=odd", "since=odd", "odd=1", "cursor=odd", "recovered=1", "limit=0"]
)
def test_a_filter_that_cannot_be_used_is_refused(client: FlaskClient, query: str) -> None:
    assert [client.get(f"{page}?{query}").status_code for page in ("/findings", "/api/v1/findings")] == [400, 400]


def test_pages_of_a_range_have_every_finding_once_and_the_counts_of_all(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    keep(store, *[make_finding(id=f"f{n:02}", model=f"m{n}", relative=-n / 100) for n in range(30)])
    seen, address = [], "/api/v1/findings?limit=7"
    while address:
        body = client.get(address).json
        seen += [row["id"] for row in body["data"]]  # type: ignore[index]
        address = f"/api/v1/findings?limit=7&cursor={body['next']}" if body["next"] else ""  # type: ignore[index]
    assert (len(seen), len(set(seen))) == (30, 30)
    page = text_of(client, "/findings?limit=20")
    assert "30 worse" in page
    assert "This page has 20 of the 30 findings of this range" in page
    assert f"{20 - SHOWN} more series of this range" in page


def test_what_moved_with_a_finding_stands_beside_it(client: FlaskClient, store: sqlite3.Connection) -> None:
    keep(
        store,
        make_finding(id="memory", metric="dynamo_peak_mem_gb", relative=0.9),
        make_finding(id="lead", metric="speedup", relative=-0.1),
        make_finding(id="taken", metric="graph_breaks"),
        make_finding(id="other", metric="speedup", model="another"),
    )
    save_comment(store, "taken", "acknowledge", author="Ada")
    leads = pick_headline_changes(list_findings(store, IncidentFilter()).rows)
    told = {lead.finding.id: [other.id for other in lead.others] for lead in leads}
    assert told == {"lead": ["memory"], "other": [], "taken": []}
    assert "also peak memory" in text_of(client, "/findings")


def test_one_range_is_one_group_and_the_worst_come_first(store: sqlite3.Connection, reader: sqlite3.Connection) -> None:
    other = {"before_run_id": "EARLIER"}  # another suite's run of the same commit
    keep(
        store,
        make_finding(id="a", direction="better", relative=0.5),
        make_finding(id="b", relative=-0.1),
        make_finding(id="c", relative=-0.4, **other),
    )
    rows = list_findings(reader, IncidentFilter()).rows
    (group,) = group_incidents(rows, count_ranges(reader, IncidentFilter(), [RUNS[1]]))
    assert [finding.id for finding in group.findings] == ["c", "b", "a"]
    assert (list(group.counts), group.count, group.author_names) == ([("worse", 2), ("better", 1)], 3, "Ada, Kim")
    assert group_incidents(rows, [RangeCount("X", "Y", "worse", 9)])[0].counts == []


@pytest.mark.usefixtures("stored_changes")
def test_counts_and_series_come_from_one_statement_each(reader: sqlite3.Connection) -> None:
    counts = count_findings(reader)
    assert (counts.finding_count, counts.worse_count, counts.better_count, counts.changed_count) == (10, 5, 1, 1)
    assert (counts.suspected_count, counts.recovered_count, counts.open_count) == (1, 1, 7)
    series_findings = list_series_findings(reader, "model", "bench_models", ["Breaky", "Hungry"])
    assert {change.id for change in series_findings} == {ONE, "drift", "changed"}
    assert [series_finding.id for series_finding in list_series_findings(reader, "suite", "bench_models")] == ["suite"]


@pytest.mark.usefixtures("stored_changes")
def test_each_finding_has_a_page_with_its_facts(client: FlaskClient, reader: sqlite3.Connection) -> None:
    for (finding_id,) in reader.execute("select id from findings"):
        text_of(client, f"/findings/{finding_id}")
    page = text_of(client, f"/findings/{ONE}")
    phrases = (
        "0.650×, over 12 runs",
        "the noise of 16 runs",
        "e5f6a7b8e5f6 Ada Print the shape",
        "confirmed by a later run",
    )
    assert [text for text in phrases if text not in page] == []
    links = client.get(f"/findings/{ONE}").text
    assert f"/compare?base={RUNS[0]}&amp;new={RUNS[1]}" in links
    assert "/trends?model=Breaky&amp;metric=speedup&amp;branch=main&amp;suite=bench_models" in links
    assert f'href="/graph_breaks/{BREAK_ID}"' in links
    assert client.get("/findings/odd").status_code == 404
    assert "history between these two runs" in text_of(client, "/findings/runs")


@pytest.mark.usefixtures("stored_changes")
@pytest.mark.parametrize("address", [f"/findings/{ONE}", "/findings/suite", "/findings/fails", "/findings/gone"])
def test_the_chart_has_the_series_its_levels_and_the_range(client: FlaskClient, address: str) -> None:
    figure = _figures(client.get(address).text)["finding"]
    names = [trace.get("name") for trace in figure["data"]]
    assert names[:2] == ["where the change came in", "level before"]
    assert ("level after" in names) == ("gone" not in address)
    band = figure["data"][0]
    assert (band["x"], band["yaxis"]) == ([0, 0, 1, 1] if "gone" not in address else [1, 1, 2, 2], "y2")
    assert len(go.Figure(figure).data) == len(names)


@pytest.mark.usefixtures("stored_changes")
def test_what_a_person_does_is_kept_with_name_and_time_and_leads_back(client: FlaskClient) -> None:
    for action, text in (("acknowledge", ""), ("note", "since the driver"), ("ignore", "known"), ("reopen", "")):
        answer = client.post(f"/findings/{ONE}", data={"action": action, "who": " Ada  L. ", "text": text})
        assert (answer.status_code, answer.location) == (303, f"/findings/{ONE}#said")
    page = text_of(client, f"/findings/{ONE}")
    for reported in ("acknowledged it", "noted", "ignores it", "opened it again"):
        assert re.search(rf"Ada L\. {reported} 20\d\d-\d\d-\d\d \d\d:\d\d", page), reported
    assert "since the driver" in page


@pytest.mark.usefixtures("stored_changes")
@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"action": "ignore", "who": "Ada", "text": " "}, "text: to ignore a finding, say why"),
        ({"action": "note", "who": "Ada"}, "text: a note needs some words"),
        ({"action": "acknowledge", "who": " ", "text": "kept"}, "who: nobody is named"),
        ({"action": "acknowledge", "who": "A" * (WHO_LIMIT + 1)}, "who: at most 100 characters"),
        ({"action": "note", "who": "Ada", "text": "x" * 20_001}, "text: at most 20000 characters"),
        ({"action": "odd", "who": "Ada", "text": "kept"}, "'odd' cannot be done"),
    ],
)
def test_what_cannot_be_kept_comes_back_as_it_was_typed(
    client: FlaskClient, typed: dict[str, str], message: str
) -> None:
    answer = client.post(f"/findings/{ONE}", data=typed)
    page = html.unescape(answer.text)
    assert answer.status_code == 400
    assert f"Nothing was kept. {message}" in page
    assert f'name="who" value="{typed["who"]}"' in page
    assert f"\n{typed.get('text', '')}</textarea>" in page
    assert "nobody has answered it yet" in page


@pytest.mark.usefixtures("stored_changes")
def test_hostile_words_stay_words(client: FlaskClient, store: sqlite3.Connection) -> None:
    commit = {"hash": BAD, "author": BAD, "subject": BAD + RTL, "time_us": 1}
    evidence = EVIDENCE | {
        "commits": {"known": True, "count": 1, "listed": [commit]},
        "environment": [{"word": BAD, "before": BAD, "now": BAD}],
        "causes": [{"kind": "graph_break", "word": "new", "label": BAD, "before": None, "after": 1, "break_id": BAD}],
    }
    words = dict.fromkeys(("suite", "model", "mode", "dtype", "hardware", "backend", "branch"), BAD)
    keep(store, make_finding(id="bad", **words, evidence=evidence))
    assert client.post("/findings/bad", data={"action": "note", **HOSTILE}).status_code == 303
    for address in ("/findings", "/findings/bad", "/", f"/runs/{RUNS[1]}", "/findings?model=%3Cscript%3Ealert(1)"):
        page = client.get(address).text
        assert "<script>alert" not in page and "{{7*7}}49" not in page, address
        tags = _Seen(page).tags
        assert [name for _, attributes in tags for name in attributes if name.startswith("on")] == [], address
        assert [tag for tag, _ in tags if tag == "img"] == [], address
    comment = client.get("/api/v1/findings/bad").json["data"]["words"][0]  # type: ignore[index]
    assert (comment["who"], comment["text"]) == (HOSTILE["who"], HOSTILE["text"].strip())


@pytest.mark.usefixtures("stored_changes")
def test_findings_show_on_the_overview_their_run_their_model_and_trend(client: FlaskClient) -> None:
    overview = text_of(client, "/")
    assert "7 lasting changes that nobody answered yet" in overview
    assert "5 worse , 1 better , 1 changed" in overview
    assert "7 findings began with this run : 5 worse, 1 better, 1 changed" in text_of(client, f"/runs/{RUNS[1]}")
    assert f'href="/findings/{ONE}"' in client.get("/models/Breaky?batch_size=8").text
    trend = client.get("/trends?model=Breaky&metric=speedup").text
    (mark,) = [trace for trace in _figures(trend)["trend-0"]["data"] if trace.get("yaxis") == "y2"]
    assert (mark["x"], mark["customdata"], mark["marker"]["symbol"]) == ([1], [f"/findings/{ONE}"], "triangle-up")
    assert "1 finding in these series" in trend


def test_an_empty_list_says_what_to_do_or_that_all_is_well(client: FlaskClient, store: sqlite3.Connection) -> None:
    assert "compileboard-collect bench --db" in text_of(client, "/findings")
    bench_suite(store)
    page = text_of(client, "/findings")
    assert "Nobody has looked yet" in page and "compileboard findings update --db" in page
    keep(store)
    assert "Nothing found Good news" in text_of(client, "/findings")
    assert "No lasting change is open" in text_of(client, "/")
    keep(store, make_finding())
    save_comment(store, ONE, "ignore", author="Ada", text="known")
    assert "Nothing open Good news" in text_of(client, "/findings")
    assert "No finding matches" in text_of(client, "/findings?model=odd")


def test_another_site_cannot_speak_for_anyone(client: FlaskClient, store: sqlite3.Connection) -> None:
    keep(store, make_finding())
    data = {"action": "acknowledge", "who": "Eve"}
    answer = client.post(f"/findings/{ONE}", data=data, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    finding = get_finding(store, ONE)
    assert finding is not None and finding.handling == "open"


def test_one_answer_may_be_for_all_of_a_range(client: FlaskClient, store: sqlite3.Connection) -> None:
    keep(store, make_finding(id="a"), make_finding(id="b", model="m2"), make_finding(id="c", before_run_id=RUNS[2]))
    assert "The same for the other finding of this range" in text_of(client, "/findings/a")
    sent = client.post("/findings/a", data={"action": "acknowledge", "who": "Ada", "range": "yes"})
    assert sent.status_code == 303
    assert [finding.handling for finding in sorted(load_findings(store), key=lambda finding: finding.id)] == [
        "acknowledged"
    ] * 2 + ["open"]
    body = {"who": "Kim", "text": "moved", "range": True}
    assert client.post("/api/v1/findings/b/ignore", json=body).status_code == 200
    assert [finding_word.text for finding_word in list_finding_words(store, "a")] == [None, "moved"]
    assert client.post("/api/v1/findings/b/note", json=body | {"range": "yes"}).status_code == 400
