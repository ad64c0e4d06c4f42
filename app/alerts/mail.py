"""E-mail over SMTP, sent step by step to know what certainly did not arrive."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Mapping
from datetime import datetime, timezone
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from functools import lru_cache

from jinja2 import Environment, FileSystemLoader, select_autoescape

from compileboard.app.alerts.message import AlertMessage, clean
from compileboard.app.alerts.rules import Channel
from compileboard.app.alerts.transport import DeliveryFailed, DeliveryUnknown, hold_deadline
from compileboard.app.core.resources import resource_folder

SUBJECT_LIMIT = 200
_FAILURES = (OSError, smtplib.SMTPException)
_POINT = re.compile(rb"^\.", re.MULTILINE)  # a line that is a point alone would end the mail


def make_mail(message: AlertMessage, channel: Channel) -> EmailMessage:
    mail = EmailMessage(
        policy=SMTP.clone(cte_type="7bit")
    )  # servers without 8BITMIME take it as well
    mail["From"] = channel.sender
    mail["To"] = ", ".join(channel.to)
    mail["Subject"] = clean(message.title, SUBJECT_LIMIT)
    mail["Date"] = format_datetime(
        datetime.fromtimestamp(message.made_us // 1_000_000, timezone.utc)
    )
    domain = parseaddr(channel.sender)[1].rpartition("@")[2]
    mail["Message-ID"] = f"<{message.id}.compileboard@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's absence answers it
    mail.set_content(write_body(message, "mail.txt"))
    mail.add_alternative(write_body(message, "mail.html"), subtype="html")
    return mail


def send_mail(body: bytes, channel: Channel, environ: Mapping[str, str]) -> str:
    """Send an e-mail and return the refused recipients, '' for none.

    Raises DeliveryFailed if it was not accepted, DeliveryUnknown if it may have been.
    """
    server = _connect(channel)
    try:
        with hold_deadline(lambda: server.sock, 4 * channel.timeout_s):
            refused = _prepare(server, channel, environ)
            _hand_over(server, body, channel.host)
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
        raise DeliveryFailed(f"cannot connect to {host} port {port}: {_explain(error)}") from None


def _prepare(server: smtplib.SMTP, channel: Channel, environ: Mapping[str, str]) -> list[str]:
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
        raise DeliveryFailed(f"{channel.host}: {_explain(error)}") from None
    except (UnicodeError, ValueError):  # never the error itself: it may hold the password
        raise DeliveryFailed(
            f"{channel.host}: the user's name or password has letters that SMTP cannot send"
        ) from None
    return refused


def _hand_over(server: smtplib.SMTP, body: bytes, host: str) -> None:
    try:
        code, reply = server.docmd("DATA")
        if code == 354:
            server.send(_POINT.sub(b"..", body).removesuffix(b"\r\n") + b"\r\n.\r\n")
    except (
        _FAILURES
    ) as error:  # the point that ends a mail was not handed over: nobody takes it for whole
        raise DeliveryFailed(
            f"{host} broke off before it had the mail: {_explain(error)}"
        ) from None
    if code != 354:
        raise DeliveryFailed(clean(f"{code} {reply.decode(errors='replace')}", 300))
    try:
        code, reply = server.getreply()
    except _FAILURES as error:
        raise DeliveryUnknown(f"broke off before it took the mail: {_explain(error)}") from None
    if code != 250:
        raise DeliveryFailed(
            clean(f"the mail was refused: {code} {reply.decode(errors='replace')}", 300)
        )


def _explain(error: Exception) -> str:
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
