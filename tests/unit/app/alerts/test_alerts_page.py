"""The alerts page shows rules, channels and deliveries, no secret; the feed is valid Atom."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from xml.etree import ElementTree

import pytest
from flask import Flask
from flask.testing import FlaskClient

from compileboard.app.alerts.alert_delivery import send_due
from compileboard.app.alerts.rules import EXAMPLE
from compileboard.app.cli.alerts import describe_report
from compileboard.app.cli.main import main
from compileboard.app.core.settings import Settings
from compileboard.collectors.store.dashboard import start_rule
from tests.unit.app.alerts.receiver import receive_http
from tests.unit.app.benched import bench_suite
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.hostile import BAD
from tests.unit.app.series_changes import keep, keep_one_of_each, make_change

NOW_US = make_change()["confirmed_us"] + 3_600_000_000
RULES = """
[channels.team]
kind = "webhook"
url_env = "TEAM_HOOK"
secret_env = "TEAM_SECRET"
[[rules]]
name = "slower"
channels = ["team"]
"""
A = "{http://www.w3.org/2005/Atom}"


@pytest.fixture
def rules(database: Path, shared_app: Flask) -> Path:
    path = database.with_name("alerts.toml")
    path.write_text(RULES)
    shared_app.config["COMPILEBOARD"] = Settings(db=str(database), alerts=str(path))
    return path


def test_without_rules_the_page_says_how_to_begin(client: FlaskClient) -> None:
    text = client.get("/alerts").get_data(as_text=True)
    assert "No alerts yet" in text
    assert "compileboard alerts example &gt; alerts.toml" in text


def test_rules_are_shown_without_their_secrets(
    client: FlaskClient, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_HOOK", "https://hooks.example.org/hunter2")
    text = client.get("/alerts").get_data(as_text=True)
    assert "hunter2" not in text
    for phrase in (
        "slower",
        "TEAM_HOOK",
        ">set<",
        "secret_env",
        ">not set<",
        "not run yet; its first pass takes",
    ):
        assert phrase in text


def test_a_password_that_is_given_for_its_variable_is_shown_nowhere(
    client: FlaskClient,
    rules: Path,
    database: Path,
    store: sqlite3.Connection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules.write_text(
        RULES.replace("TEAM_HOOK", "hunter2").replace("TEAM_SECRET", "hunter2")
        + "since = 2000-01-01\n"
    )
    keep(store, make_change())
    both = ("--db", str(database), "--rules", str(rules))
    assert [run("check", *both), run("send", *both), run("test", "slower", *both)] == [1, 1, 1]
    everything = "".join(capsys.readouterr()) + client.get("/alerts").get_data(as_text=True)
    assert (
        "channel team: webhook, JSON, to the address in the variable that url_env names, signed"
        in everything
    )
    assert "hunter2" not in everything


def test_mistakes_of_the_rules_are_shown(client: FlaskClient, rules: Path) -> None:
    rules.write_text(RULES + f"quiet = '''{BAD}'''\n")
    text = client.get("/alerts").get_data(as_text=True)
    assert "The rules cannot be used" in text
    assert "<img src=x" not in text


def test_what_was_sent_and_what_failed_is_shown(
    client: FlaskClient, rules: Path, store: sqlite3.Connection
) -> None:
    keep(store, make_change(model=BAD))
    with receive_http() as hook:
        hook.answer = lambda number: 500
        send_due(
            store.execute("pragma database_list").fetchone()[2],
            str(rules),
            environ(hook.url),
            NOW_US,
        )
    text = client.get("/alerts?state=waiting").get_data(as_text=True)
    assert "answered 500 Internal Server Error" in text
    assert "<img src=x" not in text
    assert "hunter2" not in text
    assert "Nothing is sent." in client.get("/alerts?state=sent").get_data(as_text=True)
    assert client.get("/alerts?state=gone").status_code == 400


def environ(url: str) -> dict[str, str]:
    return {"TEAM_HOOK": url, "TEAM_SECRET": "s3"}


@on_both_engines
def test_the_feed_has_confirmed_incidents_that_are_worse(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    keep_one_of_each(store)
    answer = client.get("/incidents.atom?direction=worse&suite=bench_models")
    assert answer.content_type == "application/atom+xml; charset=utf-8"
    root = ElementTree.fromstring(answer.data)
    assert (
        root.findtext(f"{A}id")
        == "tag:compileboard.invalid,2026:incidents?direction=worse&suite=bench_models"
    )
    ids = [element.findtext(f"{A}id", "").rpartition("/")[2] for element in root.iter(f"{A}entry")]
    assert sorted(ids) == ["drift", "fails", "f" * 16, "gone"]
    (own,) = [element for element in root.findall(f"{A}link") if element.get("rel") == "self"]
    assert own.get("href") == "http://localhost/incidents.atom?direction=worse&suite=bench_models"
    for entry in root.iter(f"{A}entry"):
        for name in ("title", "id", "updated", "published", "content"):
            assert entry.findtext(f"{A}{name}")
        assert [element.findtext(f"{A}name") for element in entry.iter(f"{A}author")] == [
            "Ada",
            "Kim",
        ]


def list_entries(client: FlaskClient, address: str) -> tuple[list[str], str | None]:
    root = ElementTree.fromstring(client.get(address).data)
    assert root.findtext(f"{A}id") == "tag:compileboard.invalid,2026:incidents"
    pages = {element.get("rel"): element.get("href") for element in root.findall(f"{A}link")}
    assert pages["self"] == f"http://localhost{address}"
    return [
        element.findtext(f"{A}id", "").rpartition("/")[2] for element in root.iter(f"{A}entry")
    ], pages.get("next")


def test_the_feed_begins_with_what_was_confirmed_last_and_leads_to_the_rest(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    day_us = 86_400_000_000
    for number, name in enumerate(
        ("first", "second", "third")
    ):  # of the three the first is of the newest run
        change = make_change(id=name, suite=name, first_us=NOW_US - number * day_us)
        keep(store, change, now_us=NOW_US + number * day_us)
    ids, following = list_entries(client, "/incidents.atom?limit=2")
    assert ids == ["third", "second"]
    assert following is not None
    assert list_entries(client, following.removeprefix("http://localhost")) == (["first"], None)


def test_the_feed_says_that_it_has_no_other_states(client: FlaskClient) -> None:
    assert client.get("/incidents.atom?state=recovered").status_code == 200
    answer = client.get("/incidents.atom?state=unconfirmed")
    assert answer.status_code == 400
    assert "the feed has confirmed incidents alone" in answer.get_data(as_text=True)
    assert client.get("/incidents.atom?cursor=x").status_code == 400


@on_both_engines
def test_the_feed_answers_304_to_who_has_it(client: FlaskClient, store: sqlite3.Connection) -> None:
    keep(store, make_change())
    first = client.get("/incidents.atom")
    for name, validator in (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified")):
        assert (
            client.get("/incidents.atom", headers={name: first.headers[validator]}).status_code
            == 304
        )


def test_hostile_text_is_text_in_the_feed(client: FlaskClient, store: sqlite3.Connection) -> None:
    bad = f"{BAD}\x00\x08]]>"
    keep(
        store,
        make_change(
            model=bad, suite=bad, evidence={"causes": [{"kind": bad, "word": bad, "label": bad}]}
        ),
    )
    body = client.get("/incidents.atom").data
    assert b"<img" not in body
    assert "<img src=x onerror=alert(1)>" in ElementTree.fromstring(body).findtext(
        f"{A}entry/{A}title", ""
    )


@on_both_engines
def test_the_incidents_page_leads_to_feed_and_alerts(client: FlaskClient) -> None:
    text = client.get("/incidents").get_data(as_text=True)
    assert (
        '<link rel="alternate" type="application/atom+xml" title="Incidents" '
        'href="/incidents.atom">'
    ) in text
    assert 'href="/alerts"' in text


def run(*arguments: str) -> int:
    return main(["alerts", *arguments])


def test_the_command_checks_sends_and_lists(
    database: Path,
    rules: Path,
    store: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules.write_text(RULES + "since = 2000-01-01\n")
    keep(store, make_change())
    both = ("--db", str(database), "--rules", str(rules))
    assert run("check", *both) == 1
    output = capsys.readouterr().out
    assert "channel team: url_env, secret_env name variables that are not set here" in output
    assert "slower → team, now: Breaky: speedup −11%" in output
    with receive_http() as hook:
        for name, value in environ(hook.url).items():
            monkeypatch.setenv(name, value)
        assert [run("check", *both), run("send", "--dry-run", *both), len(hook.bodies)] == [0, 0, 0]
        assert [run("test", "slower", *both), run("send", *both), run("send", *both)] == [0, 0, 0]
        assert [document["kind"] for document in hook.documents] == ["test", "incidents"]
    assert run("list", "--db", str(database)) == 0
    assert "sent slower → team ffff" in capsys.readouterr().out


def test_the_command_says_what_is_wrong(
    database: Path, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ("--db", str(database), "--rules", str(rules))
    assert run("test", "faster", *both) == 2
    assert "there is no rule 'faster'; expected one of slower" in capsys.readouterr().err
    assert run("test", "slower", *both) == 1
    assert (
        "team: not sent: url_env, secret_env name variables that are not set"
        in capsys.readouterr().out
    )
    rules.write_text("rules = [")
    assert run("send", *both) == 2
    assert "invalid TOML" in capsys.readouterr().err
    assert run("check", "--db", str(database)) == 2
    assert "no rules: give --rules FILE or COMPILEBOARD_ALERTS" in capsys.readouterr().err


def test_the_list_refuses_what_it_cannot_list(
    database: Path, rules: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ("list", "--db", str(database))
    for limit in ("0", "-5", "10001"):
        assert run(*here, "--limit", limit) == 2
        assert f"--limit is {limit}; expected 1 to 10000" in capsys.readouterr().err
    assert run(*here, "--rule", "nosuch") == 2
    assert "there is no rule 'nosuch'; no rule ever ran here" in capsys.readouterr().err
    start_rule(store, "gone", 0, 0)
    assert run(*here, "--rule", "nosuch", "--rules", str(rules)) == 2
    assert "there is no rule 'nosuch'; expected one of slower, gone" in capsys.readouterr().err
    assert (
        run(*here, "--rule", "slower", "--rules", str(rules)) == run(*here, "--rule", "gone") == 0
    )
    assert "nothing of rule slower was sent, and nothing waits" in capsys.readouterr().out


def test_a_pattern_that_fits_no_series_is_noted(
    database: Path, rules: Path, store: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    bench_suite(store)
    rules.write_text(
        RULES + 'suite = ["bench_modles", "bench_*"]\nmodel = "Mlp*"\nbranch = "mian"\n'
    )
    run("check", "--db", str(database), "--rules", str(rules))
    notes = [
        line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  note: ")
    ]
    assert notes[0] == "note: suite bench_modles matches nothing here; known: bench_models"
    assert [note.split(" matches nothing here; ")[0] for note in notes[1:]] == [
        "note: model Mlp*",
        "note: branch mian",
    ]


def test_the_example_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("example") == 0
    assert capsys.readouterr().out == EXAMPLE
    from compileboard.app.alerts.alert_delivery import SendReport

    assert describe_report(SendReport()) == ["messages: nothing was due"]
