"""Messages for Slack-compatible webhooks, and signed JSON for any other.

Limits and escapes as in https://docs.slack.dev/reference/block-kit/blocks and
…/messaging/formatting-message-text.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import orjson

from compileboard.app.alerts.message import (
    AlertMessage,
    IncidentEvent,
    MessagePart,
    clean,
    describe_event,
    find_address,
)
from compileboard.app.core.schema import get_plain
from compileboard.app.incidents.model import SeriesChange

MOST_BLOCKS = 50
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
            _section(text) for text in _write_part(part, is_titled=part.title != message.title)
        ]
    end = f"Rule {escape(message.rule)}"
    end += f" · <{_link(message.url)}|open the dashboard>" if message.url else ""
    foot: dict[str, object] = {"type": "context", "elements": [{"type": "mrkdwn", "text": end}]}
    blocks = [*blocks[: MOST_BLOCKS - 1], foot]
    document = {
        "text": _escape_within(message.title, TEXT_LIMIT),
        "blocks": blocks,
        "unfurl_links": False,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _write_part(part: MessagePart, *, is_titled: bool) -> list[str]:
    title = [f"*{_escape_within(part.title, 500)}*"] if is_titled else []
    lines = [*title, *(_write_line(line, part.url) for line in part.lines)]
    for label, facts in part.facts:
        lines += [f"*{label}*", *(f"• {_escape_within(fact, 600)}" for fact in facts)]
    sections, held = [], ""
    for line in lines:
        if held and len(held) + 1 + len(line) > SECTION_LIMIT:
            sections.append(held)
            held = ""
        held = f"{held}\n{line}" if held else line
    return [*sections, held]


def _write_line(line: str, url: str) -> str:
    text = _escape_within(line, 1000)
    return f"• <{_link(url)}|{text}>" if url and len(url) < 1500 else f"• {text}"


def _escape_within(text: str, limit: int) -> str:
    text = clean(text, limit)
    while len(escape(text)) > limit:
        text = text[: len(text) * 3 // 4].rstrip(_CUT) + _CUT
    return escape(text)


def _link(url: str) -> str:
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
        "url": find_address(event.incident, base_url) or None,
        "changes": [_make_change(change) for change in event.changes],
    }


def _make_change(change: SeriesChange) -> dict[str, Any]:
    texts = {
        "sentence": clean(change.sentence),
        "measured_as": clean(change.measured_as),
    }
    values = {name: value for name, value in vars(change).items() if name not in _LEFT_OUT}
    return values | texts | {"confidence": change.confidence}
