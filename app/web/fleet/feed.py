"""Confirmed findings as an Atom feed (RFC 4287), for whoever reads feeds: filters as on the Findings page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from urllib.parse import urlencode
from xml.etree import ElementTree

from flask import Blueprint, Response, request, url_for

from compileboard.app.alerts.message import clean
from compileboard.app.analysis.incidents.messages import (
    describe_cause,
    describe_commit_range,
    describe_finding,
    describe_series,
    describe_state,
    format_confidence,
)
from compileboard.app.db import get_reader, get_settings
from compileboard.app.format import format_iso_time
from compileboard.app.queries.dashboard.incidents import SeriesChange, read_finding_filter
from compileboard.app.queries.page import FilterError, check_limit
from compileboard.app.screens.fleet.incidents import SeriesChangeList, build_change_list

blueprint = Blueprint("feed", __name__)

ATOM = "http://www.w3.org/2005/Atom"
# No one owns a name below .invalid (RFC 2606): an id stays the same wherever the dashboard is served.
TAG = "tag:compileboard.invalid,2026:findings"
STATE = "confirmed"
TYPE = "application/atom+xml; charset=utf-8"
_TITLE_LIMIT = 300
# What XML 1.0 cannot say at all, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@blueprint.get("/findings.atom")
def findings() -> Response:
    """Send the confirmed findings that the filters want, those first that were confirmed here last.

    Not those of the newest runs: whoever looks now and then would never see what was confirmed late.
    """
    given = {key: value for key, value in request.args.items() if value}
    state = given.pop("state", STATE)
    if state != STATE:
        raise FilterError(f"state: {state[:40]!r} is not in the feed, which has confirmed findings alone; leave it out")
    selection = read_finding_filter(given | {"state": STATE})
    limit = check_limit(given.get("limit"), get_settings().page_size)
    listed = build_change_list(get_reader(), selection, given.get("cursor"), limit, "noticed_us")
    changed_us = max((change.changed_us for change in listed.changes), default=0)
    response = Response(_write(listed, given, changed_us), content_type=TYPE)
    response.last_modified = datetime.fromtimestamp(changed_us // 1_000_000, timezone.utc)
    return response


def _write(listed: SeriesChangeList, given: dict[str, str], changed_us: int) -> bytes:
    filters = {key: value for key, value in given.items() if key not in ("cursor", "limit")}
    root = ElementTree.Element("feed", {"xmlns": ATOM})
    named = ", ".join(f"{key} {value}" for key, value in filters.items())
    _write_text(root, "title", f"CompileBoard findings{f': {named}' if named else ''}")
    _write_text(root, "id", TAG + _ask(filters))  # of all pages the same (RFC 5005)
    _write_text(root, "updated", format_iso_time(changed_us))
    here, kind = url_for("feed.findings", _external=True), TYPE.partition(";")[0]
    _link(root, "self", here + _ask(given), kind)
    if listed.next_cursor:
        _link(root, "next", here + _ask(given | {"cursor": listed.next_cursor}), kind)
    _link(root, "alternate", url_for("findings.index", _external=True) + _ask(filters), "text/html")
    _write_text(ElementTree.SubElement(root, "author"), "name", "CompileBoard")
    for change in listed.changes:
        _write_entry(root, change)
    body: bytes = ElementTree.tostring(root, encoding="utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + body + b"\n"


def _ask(query: dict[str, str]) -> str:
    return f"?{urlencode(sorted(query.items()))}" if query else ""


def _write_entry(root: ElementTree.Element, change: SeriesChange) -> None:
    entry = ElementTree.SubElement(root, "entry")
    _write_text(entry, "title", describe_finding(change))
    _write_text(entry, "id", f"{TAG}/{change.id}")
    _write_text(
        entry, "published", format_iso_time(change.found_us if change.noticed_us is None else change.noticed_us)
    )
    _write_text(entry, "updated", format_iso_time(change.changed_us))
    _link(entry, "alternate", url_for("findings.show", finding_id=change.id, _external=True), "text/html")
    authors = dict.fromkeys(str(commit.get("author") or "") for commit in _list_commits(change))
    for name in [author for author in authors if author.strip()] or ["CompileBoard"]:
        _write_text(ElementTree.SubElement(entry, "author"), "name", name)
    for term in dict.fromkeys((change.direction, change.kind, change.metric, change.suite)):
        if term:
            ElementTree.SubElement(entry, "category", {"term": _clean(term)})
    content = ElementTree.SubElement(entry, "content", {"type": "text"})
    content.text = "\n".join(clean(_FORBIDDEN.sub("", line), 1000) for line in _list_lines(change))


def _list_lines(change: SeriesChange) -> Iterator[str]:
    yield f"{describe_finding(change)}. {describe_state(change)}."
    yield describe_series(change)
    yield describe_commit_range(change)
    yield format_confidence(change)
    for part in change.evidence.get("environment") or ():
        yield f"{part.get('word')}: {part.get('before') or 'unknown'} → {part.get('now') or 'unknown'}"
    for commit in _list_commits(change):
        yield f"commit {str(commit.get('hash') or '')[:10]}: {commit.get('subject')} ({commit.get('author')})"
    for cause in change.evidence.get("causes") or ():
        yield f"suspected cause: {describe_cause(cause)}"


def _list_commits(change: SeriesChange) -> list[dict[str, object]]:
    return list((change.evidence.get("commits") or {}).get("listed") or ())


def _write_text(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, tag).text = _clean(text)


def _link(parent: ElementTree.Element, rel: str, href: str, kind: str) -> None:
    ElementTree.SubElement(parent, "link", {"rel": rel, "href": _clean(href, 4000), "type": kind})


def _clean(text: str, limit: int = _TITLE_LIMIT) -> str:
    return clean(_FORBIDDEN.sub("", text), limit)
