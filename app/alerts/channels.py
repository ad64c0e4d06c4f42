"""Send a message to a channel: the one place that reads the environment's secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compileboard.app.alerts.mail import make_mail, send_mail
from compileboard.app.alerts.message import Message
from compileboard.app.alerts.outcome import NotSent, Unknown
from compileboard.app.alerts.post import post_json
from compileboard.app.alerts.rules import Channel
from compileboard.app.alerts.slack import make_slack
from compileboard.app.alerts.webhook import make_json, sign


def send_message(make: Callable[[], Message], channel: Channel, base_url: str, environ: Mapping[str, str]) -> str:
    """Make and send a message; return what of it was refused, '' for nothing.

    Raises: NotSent if it surely did not arrive, Unknown if it may have; nothing else, or a claim would stay for ever.
    """
    try:
        send = _prepare(make(), channel, base_url, environ)
    except Exception as error:
        raise NotSent(f"the message cannot be written: {type(error).__name__}: {str(error)[:200]}") from error
    try:
        return send() or ""
    except (NotSent, Unknown):
        raise
    except Exception as error:  # the error's own words may hold a secret
        raise Unknown(f"sending ended with {type(error).__name__}") from error


def _prepare(message: Message, channel: Channel, base_url: str, environ: Mapping[str, str]) -> Callable[[], str | None]:
    if channel.kind == "email":
        mail = make_mail(message, channel).as_bytes()
        return lambda: send_mail(mail, channel, environ)
    body = make_slack(message) if channel.kind == "slack" else make_json(message, base_url)
    headers = {"CompileBoard-Delivery": message.id} if channel.kind == "webhook" else {}
    if channel.secret_env:
        headers["CompileBoard-Signature"] = sign(body, environ[channel.secret_env], message.made_us)
    url = environ[channel.url_env]
    return lambda: post_json(url, body, headers, channel.timeout_s, environ)
