"""Deliver alert messages: JSON or Slack blocks over HTTP, e-mail over SMTP.

A delivery is retried only if the message certainly did not arrive, so the SMTP dialogue is run
command by command. Slack's limits and escaping: https://docs.slack.dev/reference/block-kit/blocks
and https://docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timezone
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from functools import lru_cache
from http.client import responses
from typing import Any
from urllib.parse import SplitResult, urlsplit

import orjson
from jinja2 import Environment, FileSystemLoader, select_autoescape

from compileboard.app.alerts.message import (
    AlertMessage,
    IncidentEvent,
    MessagePart,
    clean,
    describe_event,
    incident_url,
)
from compileboard.app.alerts.rules import Channel
from compileboard.app.core.resources import resource_folder
from compileboard.app.core.schema import get_plain
from compileboard.app.incidents.model import SeriesChange
from compileboard.collectors.wire.http import Connection, ServerUnavailable


class DeliveryFailed(Exception):
    """The message did not arrive; it may be retried."""


class DeliveryUnknown(Exception):
    """The message may have arrived; it must not be retried."""


def send_message(
    make: Callable[[], AlertMessage], channel: Channel, base_url: str, environ: Mapping[str, str]
) -> str:
    """Build and send a message; return the refused recipients, '' for none.

    Raises DeliveryFailed if it did not arrive, DeliveryUnknown if it may have, and nothing else.
    """
    try:
        send = _prepare_delivery(make(), channel, base_url, environ)
    except Exception as error:  # nothing was sent yet
        raise DeliveryFailed(
            f"the message cannot be written: {type(error).__name__}: {str(error)[:200]}"
        ) from error
    try:
        return send() or ""
    except (DeliveryFailed, DeliveryUnknown):
        raise
    except Exception as error:  # the error's text may contain a secret
        raise DeliveryUnknown(f"sending ended with {type(error).__name__}") from error


def _prepare_delivery(
    message: AlertMessage, channel: Channel, base_url: str, environ: Mapping[str, str]
) -> Callable[[], str | None]:
    if channel.kind == "email":
        mail = make_mail(message, channel).as_bytes()
        return lambda: send_mail(mail, channel, environ)
    body = make_slack(message) if channel.kind == "slack" else make_json(message, base_url)
    headers = {"CompileBoard-Delivery": message.id} if channel.kind == "webhook" else {}
    if channel.secret_env:
        headers["CompileBoard-Signature"] = sign(body, environ[channel.secret_env], message.made_us)
    url = environ[channel.url_env]
    return lambda: post_json(url, body, headers, channel.timeout_s, environ)


@contextmanager
def enforce_deadline(
    find_socket: Callable[[], socket.socket | None], seconds: float
) -> Iterator[None]:
    """Shut the socket down after `seconds`; its own timeout limits only one operation."""

    def cut() -> None:
        connection = find_socket()
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


MAX_ANSWER_BYTES = 300
MIN_SECRET = 6  # shorter parts of an address are not secret, and occur in words


def post_json(
    url: str, body: bytes, headers: Mapping[str, str], timeout_s: float, environ: Mapping[str, str]
) -> None:
    """POST a body. Raises DeliveryFailed if it was not accepted, DeliveryUnknown if it may have
    been.

    Neither error names the URL, which is a secret.
    """
    parts = _parse_url(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json; charset=utf-8", "Connection": "close", **headers}
    try:
        with (
            closing(Connection(url.strip(), environ, timeout_s)) as connection,
            enforce_deadline(lambda: connection.sock, 2 * timeout_s),
        ):
            answer = connection.request("POST", path, body, headers, MAX_ANSWER_BYTES)
    except ServerUnavailable as error:
        raise (DeliveryUnknown if error.may_have_arrived else DeliveryFailed)(
            _redact(str(error), parts)
        ) from None
    if 200 <= answer.status < 300:
        return
    if 300 <= answer.status < 400:
        raise DeliveryFailed(
            f"{parts.hostname} answered {answer.status}, a redirect, which is not followed; "
            "give its target"
        )
    text = _redact(" ".join(answer.content.decode(errors="replace").split()), parts)
    reason = f"{answer.status} {responses.get(answer.status, '')}"
    raise DeliveryFailed(f"{parts.hostname} answered {reason}: {text}".rstrip(": "))


def _redact(text: str, parts: SplitResult) -> str:
    whole = f"{parts.path}?{parts.query}"
    pieces = {whole, *re.split("[/?&=]", whole), parts.path, parts.query, parts.password or ""}
    for piece in sorted(
        (piece for piece in pieces if len(piece) >= MIN_SECRET), key=len, reverse=True
    ):
        text = text.replace(piece, "…")
    return text


def _parse_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        good = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and (parts.port or 1)
            and url.isascii()
        )
    except ValueError:
        good = False
    if not good or any(character.isspace() or character < " " for character in url.strip()):
        raise DeliveryFailed("the variable holds no address; expected https://… or http://…")
    return parts


MAX_BLOCKS = 50
HEADER_LIMIT = 150
SECTION_LIMIT = 3000
TEXT_LIMIT = 3000
_CUT = "…"


def make_slack(message: AlertMessage) -> bytes:
    blocks: list[dict[str, object]] = [
        {
            "type": "header",
            "text": {
                "type": "plain_text",
                "text": clean(message.title, HEADER_LIMIT),
                "emoji": False,
            },
        }
    ]
    for part in message.parts:
        blocks += [
            _make_section(text)
            for text in _format_part(part, is_titled=part.title != message.title)
        ]
    end = f"Rule {escape(message.rule)}"
    end += f" · <{_make_slack_link(message.url)}|open the dashboard>" if message.url else ""
    foot: dict[str, object] = {"type": "context", "elements": [{"type": "mrkdwn", "text": end}]}
    blocks = [*blocks[: MAX_BLOCKS - 1], foot]
    document = {
        "text": _escape_within(message.title, TEXT_LIMIT),
        "blocks": blocks,
        "unfurl_links": False,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _make_section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _format_part(part: MessagePart, *, is_titled: bool) -> list[str]:
    title = [f"*{_escape_within(part.title, 500)}*"] if is_titled else []
    lines = [*title, *(_format_line(line, part.url) for line in part.lines)]
    for label, facts in part.facts:
        lines += [f"*{label}*", *(f"• {_escape_within(fact, 600)}" for fact in facts)]
    sections, held = [], ""
    for line in lines:
        if held and len(held) + 1 + len(line) > SECTION_LIMIT:
            sections.append(held)
            held = ""
        held = f"{held}\n{line}" if held else line
    return [*sections, held]


def _format_line(line: str, url: str) -> str:
    text = _escape_within(line, 1000)
    return f"• <{_make_slack_link(url)}|{text}>" if url and len(url) < 1500 else f"• {text}"


def _escape_within(text: str, limit: int) -> str:
    text = clean(text, limit)
    while len(escape(text)) > limit:
        text = text[: len(text) * 3 // 4].rstrip(_CUT) + _CUT
    return escape(text)


def _make_slack_link(url: str) -> str:
    return escape(url).replace("|", "%7C")


VERSION = 2
_LEFT_OUT = ("evidence", "found_us", "noticed_us", "changed_us", "incident_id")


def make_json(message: AlertMessage, base_url: str) -> bytes:
    document = {
        "version": VERSION,
        "kind": "test" if message.is_test else "incidents",
        "id": message.id,
        "rule": message.rule,
        "made_us": message.made_us,
        "title": message.title,
        "url": message.url or None,
        "incidents": [_make_incident(event, base_url) for event in message.events],
    }
    return orjson.dumps(document)


def sign(body: bytes, secret: str, now_us: int) -> str:
    """Return the signature header: the time in seconds, and an HMAC-SHA256 of `second.body`."""
    second = str(now_us // 1_000_000)
    signed = hmac.new(secret.encode(), second.encode() + b"." + body, hashlib.sha256)
    return f"t={second},sha256={signed.hexdigest()}"


def _make_incident(event: IncidentEvent, base_url: str) -> dict[str, Any]:
    return {
        "event": event.key.event,
        "text": clean(describe_event(event)),
        **get_plain(event.incident),
        "url": incident_url(event.incident, base_url) or None,
        "changes": [_make_change(change) for change in event.changes],
    }


def _make_change(change: SeriesChange) -> dict[str, Any]:
    texts = {
        "sentence": clean(change.sentence),
        "measured_as": clean(change.measured_as),
    }
    values = {name: value for name, value in vars(change).items() if name not in _LEFT_OUT}
    return values | texts | {"confidence": change.confidence}


SUBJECT_LIMIT = 200
_FAILURES = (OSError, smtplib.SMTPException)
# SMTP ends a mail at a line with a single dot, so leading dots are doubled (RFC 5321, 4.5.2).
_POINT = re.compile(rb"^\.", re.MULTILINE)


def make_mail(message: AlertMessage, channel: Channel) -> EmailMessage:
    mail = EmailMessage(
        policy=SMTP.clone(cte_type="7bit")
    )  # servers without 8BITMIME accept it too
    mail["From"] = channel.sender
    mail["To"] = ", ".join(channel.to)
    mail["Subject"] = clean(message.title, SUBJECT_LIMIT)
    mail["Date"] = format_datetime(
        datetime.fromtimestamp(message.made_us // 1_000_000, timezone.utc)
    )
    domain = parseaddr(channel.sender)[1].rpartition("@")[2]
    mail["Message-ID"] = f"<{message.id}.compileboard@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office replies
    mail.set_content(write_body(message, "mail.txt"))
    mail.add_alternative(write_body(message, "mail.html"), subtype="html")
    return mail


def send_mail(body: bytes, channel: Channel, environ: Mapping[str, str]) -> str:
    """Send an e-mail and return the refused recipients, '' for none.

    Raises DeliveryFailed if it was not accepted, DeliveryUnknown if it may have been.
    """
    server = _connect(channel)
    try:
        with enforce_deadline(lambda: server.sock, 4 * channel.timeout_s):
            refused = _begin_mail(server, channel, environ)
            _send_body(server, body, channel.host)
    finally:
        server.close()
    return f"refused by {channel.host}: {', '.join(refused)}" if refused else ""


def _connect(channel: Channel) -> smtplib.SMTP:
    host, port, timeout_s = channel.host, channel.port, channel.timeout_s
    try:
        if channel.security == "tls":
            return smtplib.SMTP_SSL(
                host, port, timeout=timeout_s, context=ssl.create_default_context()
            )
        return smtplib.SMTP(host, port, timeout=timeout_s)
    except _FAILURES as error:
        raise DeliveryFailed(
            f"cannot connect to {host} port {port}: {_explain_smtp_error(error)}"
        ) from None


def _begin_mail(server: smtplib.SMTP, channel: Channel, environ: Mapping[str, str]) -> list[str]:
    refused: list[str] = []
    try:
        server.ehlo_or_helo_if_needed()
        if channel.security == "starttls":
            server.starttls(context=ssl.create_default_context())
            server.ehlo()
        if channel.username_env:
            server.login(environ[channel.username_env], environ[channel.password_env])
        code, reply = server.mail(parseaddr(channel.sender)[1])
        if code != 250:
            raise smtplib.SMTPResponseException(
                code, f"the sender: {reply.decode(errors='replace')}"
            )
        for address in (parseaddr(recipient)[1] for recipient in channel.to):
            code, reply = server.rcpt(address)
            if code not in (250, 251):
                refused.append(f"{address} ({code} {reply.decode(errors='replace')[:100]})")
        if len(refused) == len(channel.to):
            raise DeliveryFailed(
                clean(f"{channel.host} refused every address: {', '.join(refused)}")
            )
    except _FAILURES as error:
        raise DeliveryFailed(f"{channel.host}: {_explain_smtp_error(error)}") from None
    except (UnicodeError, ValueError):  # not the error's text, which may contain the password
        raise DeliveryFailed(
            f"{channel.host}: the user's name or password has letters that SMTP cannot send"
        ) from None
    return refused


def _send_body(server: smtplib.SMTP, body: bytes, host: str) -> None:
    try:
        code, reply = server.docmd("DATA")
        if code == 354:
            server.send(_POINT.sub(b"..", body).removesuffix(b"\r\n") + b"\r\n.\r\n")
    # The final dot was not sent, so no server has accepted the mail.
    except _FAILURES as error:
        raise DeliveryFailed(
            f"{host} broke off before it had the mail: {_explain_smtp_error(error)}"
        ) from None
    if code != 354:
        raise DeliveryFailed(clean(f"{code} {reply.decode(errors='replace')}", 300))
    try:
        code, reply = server.getreply()
    except _FAILURES as error:
        raise DeliveryUnknown(
            f"broke off before it took the mail: {_explain_smtp_error(error)}"
        ) from None
    if code != 250:
        raise DeliveryFailed(
            clean(f"the mail was refused: {code} {reply.decode(errors='replace')}", 300)
        )


def _explain_smtp_error(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"the user's name or password was refused ({error.smtp_code})"
    if isinstance(error, smtplib.SMTPResponseException):
        reply = error.smtp_error
        words = reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)
        return clean(f"{error.smtp_code} {words}", 300)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate cannot be trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return clean(str(error), 300) or type(error).__name__


@lru_cache(maxsize=1)
def _make_environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(str(resource_folder("templates"))),
        autoescape=select_autoescape(),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def write_body(message: AlertMessage, name: str) -> str:
    """Render `mail.txt` or `mail.html`."""
    template = _make_environment().get_template(f"alerts/{name}")
    return template.render(message=message, title=clean(message.title))
