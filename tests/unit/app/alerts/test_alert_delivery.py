"""What is due goes out once: whatever fails, dies, hangs, or runs twice at the same time."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compileboard.app.alerts.alert_delivery import (
    ATTEMPTS,
    CLAIM_LIMIT_US,
    DAY_US,
    MINUTE_US,
    SendReport,
    send_due,
)
from compileboard.app.alerts.queries import count_deliveries, list_deliveries
from compileboard.app.alerts.rules import DAYS
from compileboard.collectors.store.incident_triage import save_comment
from tests.tools.observed import ROOT
from tests.unit.app.alerts.receiver import Hook, receive_http
from tests.unit.app.benched import RUNS
from tests.unit.app.series_changes import keep, make_change

NOW_US = make_change()["confirmed_us"] + 3_600_000_000
HEAD = """
[channels.team]
kind = "webhook"
url_env = "HOOK"
timeout_s = {}
[[rules]]
name = "slower"
channels = ["team"]
"""
LATER: dict[str, Any] = dict.fromkeys(("first_run_id", "low_run_id", "high_run_id"), RUNS[2])
LATER |= {"before_run_id": RUNS[1], "evidence": {"environment": [], "causes": []}}
SEND = """import os, sys; from compileboard.app.alerts.alert_delivery import send_due
send_due(*sys.argv[1:3], os.environ, int(sys.argv[3]))"""


@pytest.fixture
def hook() -> Iterator[Hook]:
    with receive_http() as receiver:
        yield receiver


class Sender:
    """Send over one database and one file of rules."""

    def __init__(self, database: Path, hook: Hook) -> None:
        self.database, self.hook, self.rules = database, hook, database.with_name("alerts.toml")
        self.environ = {"HOOK": hook.url}
        self.write("")

    def write(self, more: str, timeout_s: int = 10) -> None:
        self.rules.write_text(HEAD.format(timeout_s) + more)

    def send(self, now_us: int = NOW_US) -> SendReport:
        return send_due(str(self.database), str(self.rules), self.environ, now_us)

    def start(self) -> subprocess.Popen[bytes]:
        told = [sys.executable, "-c", SEND, str(self.database), str(self.rules), str(NOW_US)]
        return subprocess.Popen(told, env={**os.environ, **self.environ, "PYTHONPATH": str(ROOT)})


@pytest.fixture
def sender(database: Path, hook: Hook) -> Sender:
    return Sender(database, hook)


def list_ids(document: dict[str, Any]) -> list[str]:
    return [incident["id"] for incident in document["incidents"]]


def test_an_incident_is_sent_once(sender: Sender, store: sqlite3.Connection) -> None:
    keep(store, make_change(id="a"))
    assert sender.send().sent_count == 1
    assert sender.send(NOW_US + DAY_US).sent_count == 0
    (document,) = sender.hook.documents
    assert (document["version"], document["rule"], list_ids(document)) == (2, "slower", ["a"])
    assert document["title"].startswith("Breaky: speedup −11% since e5f6a7b, cause: graph break")


def test_many_changes_of_one_commit_are_one_incident(
    sender: Sender, store: sqlite3.Connection
) -> None:
    keep(store, *(make_change(id=f"f{number}", model=f"m{number}") for number in range(43)))
    assert sender.send().sent_count == 1
    (document,) = sender.hook.documents
    assert document["title"].startswith("43 models: speedup −11% since e5f6a7b")
    (incident,) = document["incidents"]
    assert len(incident["changes"]) == incident["change_count"] == 43


def test_only_confirmed_open_and_wanted_incidents_are_sent(
    sender: Sender, store: sqlite3.Connection
) -> None:
    sender.write('model = ["m*"]\nleast_percent = 5\n')
    keep(
        store,
        make_change(id="good", model="m1", suite="a"),
        make_change(
            id="unconfirmed", model="m1", suite="b", state="unconfirmed", confirmed_us=None
        ),
        make_change(id="withdrawn", model="m1", suite="c", state="withdrawn"),
        make_change(id="better", model="m1", suite="d", direction="better"),
        make_change(id="small", model="m1", suite="e", relative=-0.049),
        make_change(id="other", model="resnet", suite="f"),
        make_change(id="fails", model="m1", suite="g", metric="passes", relative=None),
        make_change(id="known", model="m1", suite="h"),
    )
    save_comment(store, "known", "acknowledge", author="Ada")
    sender.send()
    assert sorted(list_ids(sender.hook.documents[0])) == ["fails", "good"]


def test_a_first_start_sends_no_history_unless_it_is_asked_to(
    sender: Sender, store: sqlite3.Connection
) -> None:
    keep(
        store,
        make_change(id="old", suite="old", confirmed_us=NOW_US - 400 * DAY_US),
        make_change(id="new"),
    )
    report = sender.send()
    assert report.notes == [
        "rule slower runs for the first time: it sends only what was confirmed in the last 24 hours"
    ]
    assert list_ids(sender.hook.documents[0]) == ["new"]
    sender.rules.write_text(
        sender.rules.read_text().replace('"slower"', '"all"') + "since = 2000-01-01\n"
    )
    sender.send()
    assert sorted(list_ids(sender.hook.documents[1])) == ["new", "old"]


def test_what_is_confirmed_weeks_after_its_run_is_not_lost(
    sender: Sender, store: sqlite3.Connection
) -> None:
    sender.send()
    late_us = NOW_US + 20 * DAY_US  # nobody scanned meanwhile, but alerts were sent each day
    for day in range(1, 20):
        sender.send(NOW_US + day * DAY_US)
    keep(store, make_change(id="late", confirmed_us=NOW_US + DAY_US), now_us=late_us)
    assert sender.send(late_us + MINUTE_US).sent_count == 1
    assert sender.send(late_us + 2 * DAY_US).sent_count == 0


def test_a_rule_that_fits_more_sends_none_of_the_past(
    sender: Sender, store: sqlite3.Connection
) -> None:
    sender.write('metric = "geomean_speedup"\n')
    keep(store, make_change(id="past"))
    sender.send()
    sender.send(NOW_US + 30 * DAY_US)
    sender.write("")
    assert sender.send(NOW_US + 31 * DAY_US).sent_count == 0


def test_a_server_that_fails_is_tried_again_later_each_time_and_given_up(
    sender: Sender, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    keep(store, make_change(id="a"))
    sender.hook.answer = lambda number: 500
    now_us, moments = NOW_US, []
    for _minute in range(300):
        report = sender.send(now_us)
        moments += (
            [(now_us - NOW_US) // MINUTE_US] if len(sender.hook.bodies) > len(moments) else []
        )
        now_us += MINUTE_US
    assert moments == [0, 1, 6, 36, 156]
    assert len(sender.hook.bodies) == ATTEMPTS
    assert report.failed_count == 0  # said once
    (row,) = list_deliveries(reader).rows
    assert (row.state, row.error) == (
        "failed",
        "127.0.0.1 answered 500 Internal Server Error: what the receiver says",
    )
    assert len({document["id"] for document in sender.hook.documents}) == 1


def test_what_is_new_has_its_own_attempts_and_does_not_change_the_message_that_failed(
    sender: Sender, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    keep(store, make_change(id="old"), make_change(id="older", suite="other"))
    sender.hook.answer = lambda number: 503
    for minute in (0, 1, 6, 36):
        sender.send(NOW_US + minute * MINUTE_US)
    keep(store, make_change(id="new", suite="another"))
    report = sender.send(NOW_US + 156 * MINUTE_US)
    assert (report.failed_count, report.retried_count) == (1, 1)
    assert {
        row.incident_id: (row.state, row.attempt_count) for row in list_deliveries(reader).rows
    } == {
        "old": ("failed", 5),
        "older": ("failed", 5),
        "new": ("waiting", 1),
    }
    told = [
        (document["id"], tuple(sorted(list_ids(document)))) for document in sender.hook.documents
    ]
    assert told == [told[0]] * 5 + [(told[5][0], ("new",))]


def test_what_failed_once_is_sent_once(
    sender: Sender, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    keep(store, make_change(id="a"))
    sender.hook.answer = lambda number: 503 if number == 1 else 200
    assert "will be tried again" in sender.send().problems[0]
    assert sender.send(NOW_US + MINUTE_US).sent_count == 1
    assert sender.send(NOW_US + DAY_US).sent_count == 0
    assert list_deliveries(reader).rows[0].attempt_count == 2


def test_a_server_that_hangs_is_left_and_never_asked_again(
    sender: Sender, store: sqlite3.Connection
) -> None:
    keep(store, make_change(id="a"))
    sender.write("", timeout_s=1)
    sender.hook.answer = lambda number: None
    report = sender.send()
    assert report.unknown_count == 1
    assert "took the request and did not answer within 1 s; may have arrived" in report.problems[0]
    assert sender.send(NOW_US + DAY_US).sent_count == 0
    assert len(sender.hook.bodies) == 1


def test_a_redirect_is_not_followed(sender: Sender, store: sqlite3.Connection) -> None:
    keep(store, make_change(id="a"))
    sender.hook.answer = lambda number: 307
    assert "answered 307, a redirect, which is not followed" in sender.send().problems[0]


def test_an_address_never_shows_in_what_is_said(
    sender: Sender, store: sqlite3.Connection, reader: Any
) -> None:
    keep(store, make_change(id="a"))
    sender.environ["HOOK"] = "http://127.0.0.1:1/hunter2"
    assert "http://127.0.0.1:1 does not answer: Connection refused" in sender.send().problems[0]
    sender.environ["HOOK"] = "hunter2"
    problems = sender.send(NOW_US + MINUTE_US).problems
    assert "the variable holds no address" in problems[0]
    sender.environ["HOOK"] = sender.hook.url
    sender.hook.answer, sender.hook.reply = (
        lambda number: 404,
        "no page at /hook?token=hunter2, hunter2",
    )
    problems = sender.send(NOW_US + DAY_US).problems
    assert "answered 404 Not Found: no page at …, …" in problems[0]
    assert "hunter2" not in str(problems) + str(
        [tuple(row) for row in reader.execute("select * from incident_deliveries")]
    )


def test_a_variable_that_is_not_set_costs_no_attempt(
    sender: Sender, store: sqlite3.Connection
) -> None:
    keep(store, make_change(id="a"))
    url = sender.environ.pop("HOOK")
    for minute in range(ATTEMPTS + 1):
        (problem,) = sender.send(NOW_US + minute * MINUTE_US).problems
        assert problem.endswith("url_env names a variable that is not set; 1 incident wait")
    sender.environ["HOOK"] = url
    assert sender.send(NOW_US + DAY_US).sent_count == 1


def test_two_senders_at_once_send_one_message(
    sender: Sender, store: sqlite3.Connection, reader: Any
) -> None:
    keep(store, *(make_change(id=f"f{number}", suite=f"s{number}") for number in range(50)))
    both = [sender.start(), sender.start()]
    assert [process.wait() for process in both] == [0, 0]
    assert sorted(
        id_ for document in sender.hook.documents for id_ in list_ids(document)
    ) == sorted(f"f{number}" for number in range(50))
    assert count_deliveries(reader) == {("slower", "team", "sent"): 50}


def test_a_sender_killed_in_the_middle_leaves_an_unknown_and_nothing_is_sent_twice(
    sender: Sender, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    keep(store, make_change(id="a"))
    sender.hook.answer = lambda number: None
    process = sender.start()
    assert sender.hook.came.wait(60)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    sender.hook.go_on.set()
    assert sender.send(NOW_US + CLAIM_LIMIT_US).sent_count == 0
    report = sender.send(NOW_US + CLAIM_LIMIT_US + 1)
    assert (report.sent_count, report.unknown_count) == (0, 1)
    assert len(sender.hook.bodies) == 1
    assert list_deliveries(reader).rows[0].state == "unknown"


def test_quiet_hours_hold_everything_back_and_one_message_follows(
    sender: Sender, store: sqlite3.Connection
) -> None:
    keep(store, make_change(id="a"))
    here = NOW_US // MINUTE_US % 1440  # in UTC
    start, end = f"{(here // 60):02d}:00", f"{(here // 60 + 2) % 24:02d}:00"
    sender.write(f'quiet = "{start}-{end}"\n')
    assert (sender.send().sent_count, sender.send().waiting_count) == (0, 1)
    keep(store, make_change(id="b", suite="other"))
    sender.send(NOW_US + 10 * MINUTE_US)
    assert sender.send(NOW_US + 120 * MINUTE_US).sent_count == 1
    assert sorted(list_ids(sender.hook.documents[0])) == ["a", "b"]


def notice(store: sqlite3.Connection, now_us: int, **changes: Any) -> None:
    keep(store, make_change(**changes), now_us=now_us)


def test_a_digest_waits_for_its_hour(sender: Sender, store: sqlite3.Connection) -> None:
    notice(store, NOW_US, id="a")
    weekday = DAYS[(NOW_US // DAY_US + 3 + 1) % 7]  # tomorrow; the epoch began on a Thursday
    sender.write(f'digest = "weekly {weekday} 08:00"\n')
    assert sender.send().sent_count == 0
    tomorrow_us = (NOW_US // DAY_US + 1) * DAY_US
    assert sender.send(tomorrow_us + 479 * MINUTE_US).sent_count == 0
    assert sender.send(tomorrow_us + 480 * MINUTE_US).sent_count == 1


def test_a_pass_a_day_at_the_hour_of_the_digest_sends_what_was_noticed_at_night(
    sender: Sender, store: sqlite3.Connection
) -> None:
    sender.write('digest = "daily 08:00"\n')
    today_us = (
        (NOW_US // DAY_US + 1) * DAY_US + 480 * MINUTE_US + 3_000_000
    )  # 08:00:03, as cron has it
    sender.send(today_us - DAY_US)
    notice(store, today_us - 6 * 60 * MINUTE_US, id="night")
    assert sender.send(today_us).sent_count == 1
    notice(store, today_us + MINUTE_US, id="morning", suite="other")
    assert sender.send(today_us + 2 * MINUTE_US).sent_count == 0
    assert sender.send(today_us + DAY_US).sent_count == 1
    assert [list_ids(document) for document in sender.hook.documents] == [["night"], ["morning"]]


def test_what_somebody_dealt_with_while_it_waited_is_dropped(
    sender: Sender, store: sqlite3.Connection, reader: sqlite3.Connection
) -> None:
    keep(store, make_change(id="a"))
    sender.hook.answer = lambda number: 500
    sender.send()
    save_comment(store, "a", "ignore", author="Ada", text="known")
    assert sender.send(NOW_US + DAY_US).sent_count == 0
    assert list_deliveries(reader).rows[0].error == "ignored before it was due"
    assert len(sender.hook.bodies) == 1


def test_a_recovery_is_sent_once_to_who_was_told(sender: Sender, store: sqlite3.Connection) -> None:
    keep(store, make_change(id="a"), make_change(id="b", metric="abs_latency_ms"))
    sender.send()
    keep(store, make_change(id="a", recovered_run_id=RUNS[2]), now_us=NOW_US + MINUTE_US)
    assert sender.send(NOW_US + 2 * MINUTE_US).sent_count == 0  # its latency is still worse
    back = make_change(id="b", metric="abs_latency_ms", recovered_run_id=RUNS[2])
    keep(store, back, now_us=NOW_US + 3 * MINUTE_US)
    assert [sender.send(NOW_US + minute * MINUTE_US).sent_count for minute in (4, 5, 6)] == [
        1,
        0,
        0,
    ]
    assert [document["incidents"][0]["event"] for document in sender.hook.documents] == [
        "opened",
        "recovered",
    ]
    assert sender.hook.documents[1]["title"].startswith("Recovered")


def test_a_recovery_is_not_sent_where_nobody_was_told_or_it_is_ignored(
    sender: Sender, store: sqlite3.Connection
) -> None:
    sender.send()
    keep(store, make_change(id="a", recovered_run_id=RUNS[2]), make_change(id="b", suite="other"))
    sender.send()
    assert [list_ids(document) for document in sender.hook.documents] == [["b"]]
    save_comment(store, "b", "ignore", author="Ada", text="known")
    keep(
        store, make_change(id="b", suite="other", recovered_run_id=RUNS[2]), now_us=NOW_US + DAY_US
    )
    assert sender.send(NOW_US + 2 * DAY_US).sent_count == 0


def test_incidents_that_merge_are_not_sent_again(sender: Sender, store: sqlite3.Connection) -> None:
    keep(store, make_change(id="a"))
    keep(store, make_change(id="b", metric="graph_breaks", **LATER))
    sender.send()
    assert len(list_ids(sender.hook.documents[0])) == 2
    keep(store, make_change(id="c", metric="recompiles", high_run_id=RUNS[2]))
    assert sender.send(NOW_US + DAY_US).sent_count == 0
