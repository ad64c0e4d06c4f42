"""Messages for Slack's incoming webhooks, and for whatever takes the same: Mattermost, Rocket.Chat, Discord's /slack.

Limits and escapes as in https://docs.slack.dev/reference/block-kit/blocks and …/messaging/formatting-message-text:
50 blocks, a header of 150 characters, a section of 3000; `&`, `<` and `>` are the only characters to escape.
"""

from __future__ import annotations

import json

from compileboard.app.alerts.message import Line, Message, Part, clean

MOST_BLOCKS = 50
HEADER_LIMIT = 150
SECTION_LIMIT = 3000
TEXT_LIMIT = 3000
_CUT = "…"


def make_slack(message: Message) -> bytes:
    """Return the document of a message."""
    blocks: list[dict[str, object]] = [
        {"type": "header", "text": {"type": "plain_text", "text": clean(message.title, HEADER_LIMIT), "emoji": False}}
    ]
    for part in message.parts:
        blocks += [_section(it) for it in _write_part(part, is_titled=part.title != message.title)]
    end = f"Rule {escape(message.rule)}"
    end += f" · <{_link(message.url)}|open the dashboard>" if message.url else ""
    foot: dict[str, object] = {"type": "context", "elements": [{"type": "mrkdwn", "text": end}]}
    blocks = [*blocks[: MOST_BLOCKS - 1], foot]
    document = {"text": _escape_within(message.title, TEXT_LIMIT), "blocks": blocks, "unfurl_links": False}
    return json.dumps(document, separators=(",", ":")).encode()


def escape(text: str) -> str:
    """Write text as text: no link, no mention, no channel's name."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _write_part(part: Part, *, is_titled: bool) -> list[str]:
    """Write a part as sections; a line is never cut in the middle of an escape."""
    title = [f"*{_escape_within(part.title, 500)}*"] if is_titled else []
    lines = [*title, *(_write_line(it) for it in part.lines)]
    for label, said in part.facts:
        lines += [f"*{label}*", *(f"• {_escape_within(it, 600)}" for it in said)]
    sections, held = [], ""
    for line in lines:
        if held and len(held) + 1 + len(line) > SECTION_LIMIT:
            sections.append(held)
            held = ""
        held = f"{held}\n{line}" if held else line
    return [*sections, held]


def _write_line(line: Line) -> str:
    text = _escape_within(line.text, 1000)
    return f"• <{_link(line.url)}|{text}>" if line.url and len(line.url) < 1500 else f"• {text}"


def _escape_within(text: str, limit: int) -> str:
    text = clean(text, limit)
    while len(escape(text)) > limit:
        text = text[: len(text) * 3 // 4].rstrip(_CUT) + _CUT
    return escape(text)


def _link(url: str) -> str:
    return escape(url).replace("|", "%7C")
