"""What each channel sends: signed JSON, Slack's form within its limits, and mail that no text can
break out of.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import json
import re
import socket
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.alerts.alert_delivery import load_event
from compileboard.app.alerts.channels import (
    MAX_BLOCKS,
    SECTION_LIMIT,
    DeliveryFailed,
    DeliveryUnknown,
    make_json,
    make_mail,
    make_slack,
    post_json,
    send_mail,
    send_message,
    write_body,
)
from compileboard.app.alerts.message import AlertMessage, make_message, make_test_message
from compileboard.app.alerts.rules import Channel
from compileboard.app.incidents.queries import load_incidents
from compileboard.collectors.store.dashboard import AlertKey
from tests.unit.app.alerts.receiver import Mailbox, receive_http, receive_mail
from tests.unit.app.hostile import BAD
from tests.unit.app.series_changes import EVIDENCE, keep, keep_one_of_each, make_change

URL = "https://board.example.org/<x>"
BREAKING = f"{BAD}\r\nBcc: evil@example.org\r\n\r\n<!channel> \u202e\ud800\x00*_~"
MAIL = Channel(
    "mail",
    "email",
    host="127.0.0.1",
    security="none",
    sender="Board <board@example.org>",
    to=("a@x.org",),
)


def read(store: sqlite3.Connection, event: str = "opened") -> AlertMessage:
    loaded = (load_event(store, AlertKey(incident.id, event)) for incident in load_incidents(store))
    events = [event for event in loaded if event is not None]
    return make_message("id1", "slower", events, URL, 1_790_000_000_000_000)


def make_hostile(store: sqlite3.Connection) -> AlertMessage:
    bad = BREAKING.replace("\ud800", "")  # no database takes half a character
    listed = [{"hash": bad, "author": bad, "subject": bad, "time_us": 0}] * 9
    causes = [
        {"kind": "graph_break", "word": "new", "label": bad + str(index), "before": 0, "after": 2}
        for index in range(9)
    ]
    evidence: dict[str, Any] = {
        "commits": {"known": True, "count": 9, "listed": listed},
        "causes": causes,
    }
    evidence |= {
        "environment": [{"word": bad, "before": bad, "now": bad}],
        "before": EVIDENCE["before"] | {"commit": bad},
    }
    names = {"mode": bad, "branch": bad, "hardware": bad}
    keep(
        store,
        *(
            make_change(
                id=f"{bad}{index}", suite=f"{bad}{index}", model=bad, evidence=evidence, **names
            )
            for index in range(60)
        ),
    )
    return read(store)


def list_texts(document: Any) -> list[str]:
    return [
        block["text"]["text"]
        for block in document["blocks"]
        if block["type"] in ("header", "section")
    ]


def test_a_message_names_what_changed_and_what_may_have_caused_it(
    store: sqlite3.Connection,
) -> None:
    keep(store, make_change())
    body = make_mail(read(store), MAIL).get_body(("plain",))
    assert body is not None
    text = body.get_content().replace("\r\n", "\n")
    for phrase in (
        "Breaky: speedup −11% since e5f6a7b, cause: graph break",
        "Breaky: speedup 0.65× → 0.578× (−11%)",
        "  bench_models · inference · float32",
        "  torch 2.11.0 → 2.12.0\n",
        "  e5f6a7b Print the shape (Ada)\n",
        "  ✓ First seen in e5f6a7b, the run where speedup changed\n",
        f"  {URL}/incidents/{'f' * 16}\n",
    ):
        assert phrase in text


def test_incidents_of_every_kind_can_be_sent_in_every_channel(store: sqlite3.Connection) -> None:
    keep_one_of_each(store)
    assert read(store, "recovered").title.startswith("8 recovered: Recovered")
    message = read(store)
    assert message.title.startswith("8 incidents: ")
    assert len(json.loads(make_json(message, URL))["incidents"]) == len(message.events)
    assert list_texts(json.loads(make_slack(message)))
    assert make_mail(message, MAIL).as_bytes()


def test_slack_gets_no_mention_no_link_and_nothing_longer_than_it_takes(
    store: sqlite3.Connection,
) -> None:
    body = make_slack(make_hostile(store))
    document = json.loads(body)
    assert len(document["blocks"]) <= MAX_BLOCKS
    assert max(map(len, list_texts(document))) <= SECTION_LIMIT
    assert len(document["blocks"][0]["text"]["text"]) <= 150
    told = "\n".join([document["text"], *list_texts(document)[1:]])
    assert set(re.findall(r"<[^|>]*", told)) <= {
        match for match in re.findall(r"<[^|>]*", told) if match.startswith("<https://board")
    }
    assert "<!channel>" not in told


def test_json_keeps_other_peoples_words_as_they_are(store: sqlite3.Connection) -> None:
    document = json.loads(make_json(make_hostile(store), URL))
    incident = document["incidents"][0]
    assert incident["branch"] == BREAKING.replace("\ud800", "")
    assert "\n" not in incident["text"] + document["title"]


def test_mail_has_the_headers_that_we_gave_it_alone(store: sqlite3.Connection) -> None:
    message = make_hostile(store)
    mail = make_mail(message, MAIL)
    assert sorted(mail.keys()) == sorted(
        [
            "From",
            "To",
            "Subject",
            "Date",
            "Message-ID",
            "Auto-Submitted",
            "MIME-Version",
            "Content-Type",
        ]
    )
    assert b"\r\nBcc:" not in mail.as_bytes().partition(b"\r\n\r\n")[0]
    assert (
        mail["Message-ID"]
        == "<id1.compileboard@example.org>"
        == make_mail(message, MAIL)["Message-ID"]
    )
    text = write_body(message, "mail.html")
    assert set(re.findall(r"<(\w+)", text)) <= {
        "html",
        "head",
        "meta",
        "title",
        "body",
        "h2",
        "h3",
        "ul",
        "li",
        "a",
        "p",
    }
    assert html.escape(URL) in text


@given(st.text(), st.text())
def test_no_text_breaks_a_header_or_slacks_form(rule: str, url: str) -> None:
    message = make_test_message(rule, url, 1_790_000_000_000_000)
    assert make_mail(message, MAIL).as_bytes().count(b"\r\nSubject:") <= 1
    assert list_texts(json.loads(make_slack(message)))
    assert json.loads(make_json(message, url))["kind"] == "test"


def send(channel: Channel, environ: dict[str, str]) -> str:
    return send_message(
        lambda: make_test_message("slower", URL, 1_790_000_000_000_000), channel, URL, environ
    )


def test_a_webhook_is_signed_over_its_second_and_body() -> None:
    with receive_http() as hook:
        send(
            Channel("bot", "webhook", url_env="URL", secret_env="SECRET"),
            {"URL": hook.url, "SECRET": "s3"},
        )
    headers, body = hook.headers[0], hook.bodies[0]
    second, digest = re.fullmatch(
        r"t=(\d+),sha256=(\w+)", headers["CompileBoard-Signature"]
    ).groups()  # type: ignore[union-attr]
    assert hmac.new(b"s3", second.encode() + b"." + body, hashlib.sha256).hexdigest() == digest
    assert headers["CompileBoard-Delivery"] == hook.documents[0]["id"]
    assert headers["Content-Type"] == "application/json; charset=utf-8"


def test_an_answer_that_trickles_does_not_hold_the_sender() -> None:
    def trickle(listener: socket.socket) -> None:
        with listener.accept()[0] as connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1")
            while not over.wait(0.1):
                connection.sendall(b" ")

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(DeliveryUnknown, match="broke off before it answered"):
            send(Channel("bot", "webhook", url_env="URL", timeout_s=1), {"URL": url})
        over.set()
        thread.join()


def post_to_who_breaks_off(seen: bytes, body: bytes) -> None:
    """Post to a receiver that reads until it has seen something, and breaks off."""

    def break_off(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            got = b""
            while seen not in got:
                got += connection.recv(1000)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=break_off, args=(listener,))
        thread.start()
        try:
            post_json(f"http://127.0.0.1:{listener.getsockname()[1]}/", body, {}, 10, {})
        finally:
            thread.join()


def test_a_connection_that_breaks_before_all_was_handed_over_is_tried_again() -> None:
    with pytest.raises(DeliveryFailed, match="broke off before it had the request: "):
        post_to_who_breaks_off(
            b"POST", b"x" * 50_000_000
        )  # more than the system keeps for a receiver
    with pytest.raises(DeliveryUnknown, match="broke off before it answered"):
        post_to_who_breaks_off(b"the end", b"the end")


def test_a_proxy_that_wants_a_login_gets_it_and_never_the_address() -> None:
    def read_head(listener: socket.socket) -> None:
        with listener.accept()[0] as connection, connection.makefile("rb") as lines:
            heads.append(b"".join(iter(lines.readline, b"\r\n")).decode())

    heads: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=read_head, args=(listener,))
        thread.start()
        environ = {"HTTPS_PROXY": f"http://ann:word@127.0.0.1:{listener.getsockname()[1]}"}
        with pytest.raises(DeliveryFailed):
            post_json("https://hooks.example.com/hunter2", b"{}", {}, 10, environ)
        thread.join()
    assert heads[0].startswith("CONNECT hooks.example.com:443 ") and "hunter2" not in heads[0]
    assert "Proxy-Authorization: Basic YW5uOndvcmQ=" in heads[0]


@pytest.fixture
def box() -> Iterator[Mailbox]:
    with receive_mail() as mailbox:
        yield mailbox


def reach(box: Mailbox, to: Sequence[str] = ("a@x.org",)) -> Channel:
    return Channel(
        "mail",
        "email",
        host="127.0.0.1",
        port=box.port,
        security="none",
        sender=MAIL.sender,
        to=tuple(to),
    )


def test_mail_goes_through_a_real_conversation(box: Mailbox) -> None:
    assert send(reach(box, ["Ann <a@x.org>", "b@x.org"]), {}) == ""
    (mail,) = box.mails
    assert (mail["Subject"], mail["To"]) == ("Test of rule slower", "Ann <a@x.org>, b@x.org")
    assert [command for command in box.commands if command.startswith(("mail", "rcpt"))] == [
        "mail FROM:<board@example.org>",
        "rcpt TO:<a@x.org>",
        "rcpt TO:<b@x.org>",
    ]
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]


@pytest.mark.parametrize(
    ("command", "answer", "error", "sentence"),
    [
        ("EHLO", "", DeliveryFailed, "Connection unexpectedly closed"),
        ("MAIL", "550 no", DeliveryFailed, "550 the sender: no"),
        (
            "RCPT",
            "550 who is that",
            DeliveryFailed,
            "refused every address: a@x.org (550 who is that)",
        ),
        ("DATA", "451 later", DeliveryFailed, "451 later"),
        (
            "DATA",
            "",
            DeliveryFailed,
            "127.0.0.1 broke off before it had the mail: Connection unexpectedly closed",
        ),
        ("END", "554 spam", DeliveryFailed, "the mail was refused: 554 spam"),
        ("END", "", DeliveryUnknown, "broke off before it took the mail"),
    ],
)
def test_what_surely_did_not_arrive_is_told_from_what_may_have(
    box: Mailbox, command: str, answer: str, error: type[Exception], sentence: str
) -> None:
    box.say[command] = answer
    with pytest.raises(error, match=re.escape(sentence)):
        send(reach(box), {})
    assert box.mails == []


def test_a_line_that_is_a_point_does_not_end_a_mail(box: Mailbox) -> None:
    send_mail(b".\r\n..a\r\nb", reach(box), {})
    assert box.bodies == [b"..\r\n...a\r\nb\r\n"]


def test_one_refused_address_does_not_keep_the_others_from_their_mail(box: Mailbox) -> None:
    box.say["RCPT TO:<B@X.ORG>"] = "550 gone"
    assert (
        send(reach(box, ["a@x.org", "b@x.org"]), {}) == "refused by 127.0.0.1: b@x.org (550 gone)"
    )
    assert len(box.mails) == 1


def test_no_password_is_given_to_a_server_without_tls(box: Mailbox) -> None:
    channel = Channel(
        "mail", "email", host="127.0.0.1", port=box.port, sender=MAIL.sender, to=MAIL.to,
        username_env="U", password_env="P",
    )  # fmt: skip
    with pytest.raises(DeliveryFailed, match="STARTTLS"):
        send(channel, {"U": "me", "P": "hunter2"})
    assert "hunter2" not in " ".join(box.commands)
