"""Confirmed findings as an Atom feed (RFC 4287), for whoever reads feeds: filters as on the Findings page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from urllib.parse import urlencode
from xml.etree import ElementTree

from flask import Blueprint, Response, request, url_for

from app.alerts.message import clean
from app.analysis.finding_words import (
    describe_cause,
    describe_confidence,
    describe_finding,
    describe_range,
    describe_series,
    describe_state,
)
from app.db import get_reader, get_settings
from app.format import format_iso_time
from app.queries.finding_filter import read_finding_filter
from app.queries.findings import Finding, list_findings
from app.queries.page import check_limit

blueprint = Blueprint("feed", __name__)

ATOM = "http://www.w3.org/2005/Atom"
# No one owns a name below .invalid (RFC 2606): an id stays the same wherever the dashboard is served.
TAG = "tag:compileboard.invalid,2026:findings"
TYPE = "application/atom+xml; charset=utf-8"
_TITLE_LIMIT = 300
# What XML 1.0 cannot say at all, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@blueprint.get("/findings.atom")
def findings() -> Response:
    """Send the newest confirmed findings that the filters want."""
    given = {key: value for key, value in request.args.items() if value}
    wanted = read_finding_filter(given | {"state": "confirmed"})
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    rows = list_findings(get_reader(), wanted, None, limit).rows
    changed_us = max((it.changed_us for it in rows), default=0)
    kept = {key: value for key, value in sorted(given.items()) if key != "state"}
    response = Response(_write(rows, kept, changed_us), content_type=TYPE)
    response.last_modified = datetime.fromtimestamp(changed_us // 1_000_000, timezone.utc)
    return response


def _write(rows: Iterable[Finding], given: dict[str, str], changed_us: int) -> bytes:
    query = f"?{urlencode(given)}" if given else ""
    root = ElementTree.Element("feed", {"xmlns": ATOM})
    named = ", ".join(f"{key} {value}" for key, value in given.items())
    _say(root, "title", f"CompileBoard findings{f': {named}' if named else ''}")
    _say(root, "id", TAG + query)
    _say(root, "updated", format_iso_time(changed_us))
    _link(root, "self", url_for("feed.findings", _external=True) + query, TYPE.partition(";")[0])
    _link(root, "alternate", url_for("findings.index", _external=True) + query, "text/html")
    _say(ElementTree.SubElement(root, "author"), "name", "CompileBoard")
    for it in rows:
        _write_entry(root, it)
    body: bytes = ElementTree.tostring(root, encoding="utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + body + b"\n"


def _write_entry(root: ElementTree.Element, it: Finding) -> None:
    entry = ElementTree.SubElement(root, "entry")
    _say(entry, "title", describe_finding(it))
    _say(entry, "id", f"{TAG}/{it.id}")
    _say(entry, "published", format_iso_time(it.confirmed_us if it.confirmed_us is not None else it.found_us))
    _say(entry, "updated", format_iso_time(it.changed_us))
    _link(entry, "alternate", url_for("findings.show", finding_id=it.id, _external=True), "text/html")
    authors = dict.fromkeys(str(commit.get("author") or "") for commit in _list_commits(it))
    for name in [author for author in authors if author.strip()] or ["CompileBoard"]:
        _say(ElementTree.SubElement(entry, "author"), "name", name)
    for term in dict.fromkeys((it.direction, it.kind, it.metric, it.suite)):
        if term:
            ElementTree.SubElement(entry, "category", {"term": _clean(term)})
    content = ElementTree.SubElement(entry, "content", {"type": "text"})
    content.text = "\n".join(clean(_FORBIDDEN.sub("", line), 1000) for line in _list_lines(it))


def _list_lines(it: Finding) -> Iterator[str]:
    yield f"{describe_finding(it)}. {describe_state(it)}."
    yield describe_series(it)
    yield describe_range(it)
    yield describe_confidence(it)
    for change in it.evidence.get("environment") or ():
        yield f"{change.get('word')}: {change.get('before') or 'unknown'} → {change.get('now') or 'unknown'}"
    for commit in _list_commits(it):
        yield f"commit {str(commit.get('hash') or '')[:10]}: {commit.get('subject')} ({commit.get('author')})"
    for cause in it.evidence.get("causes") or ():
        yield f"suspected cause: {describe_cause(cause)}"


def _list_commits(it: Finding) -> list[dict[str, object]]:
    return list((it.evidence.get("commits") or {}).get("listed") or ())


def _say(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, tag).text = _clean(text)


def _link(parent: ElementTree.Element, rel: str, href: str, kind: str) -> None:
    ElementTree.SubElement(parent, "link", {"rel": rel, "href": _clean(href, 4000), "type": kind})


def _clean(text: str, limit: int = _TITLE_LIMIT) -> str:
    return clean(_FORBIDDEN.sub("", text), limit)
