"""Confirmed incidents as an Atom feed (RFC 4287), with the filters of the Incidents page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from urllib.parse import urlencode
from xml.etree import ElementTree

from flask import Blueprint, Response, request, url_for

from compileboard.app.alerts.message import clean
from compileboard.app.core.db import get_reader, get_settings
from compileboard.app.core.format import format_iso_time
from compileboard.app.core.page import FilterError, Page, check_limit
from compileboard.app.incidents.model import INCIDENT_LABELS, Incident
from compileboard.app.incidents.queries import list_incidents, read_incident_filter

blueprint = Blueprint("feed", __name__)

ATOM = "http://www.w3.org/2005/Atom"
# No one owns a name below .invalid (RFC 2606): an id stays the same wherever the dashboard is
# served.
TAG = "tag:compileboard.invalid,2026:incidents"
TYPE = "application/atom+xml; charset=utf-8"
_TITLE_LIMIT = 300
# What XML 1.0 cannot say at all, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@blueprint.get("/incidents.atom")
def incidents() -> Response:
    """Send the confirmed incidents of a filter, most recently confirmed first.

    Ordering by newest run would hide late confirmations from occasional readers.
    """
    given = {key: value for key, value in request.args.items() if value}
    if given.get("state") == "unconfirmed":
        raise FilterError("state: the feed has confirmed incidents alone; leave it out")
    selection = read_incident_filter({"state": "confirmed", "direction": "worse"} | given)
    limit = check_limit(given.get("limit"), get_settings().page_size)
    page = list_incidents(get_reader(), selection, given.get("cursor"), limit, "noticed_us")
    changed_us = max((incident.changed_us for incident in page.rows), default=0)
    response = Response(_write(page, given, changed_us), content_type=TYPE)
    response.last_modified = datetime.fromtimestamp(changed_us // 1_000_000, timezone.utc)
    return response


def _write(page: Page[Incident], given: dict[str, str], changed_us: int) -> bytes:
    filters = {key: value for key, value in given.items() if key not in ("cursor", "limit")}
    root = ElementTree.Element("feed", {"xmlns": ATOM})
    named = ", ".join(f"{key} {value}" for key, value in filters.items())
    _write_text(root, "title", f"CompileBoard incidents{f': {named}' if named else ''}")
    _write_text(root, "id", TAG + _ask(filters))  # of all pages the same (RFC 5005)
    _write_text(root, "updated", format_iso_time(changed_us))
    here, kind = url_for("feed.incidents", _external=True), TYPE.partition(";")[0]
    _link(root, "self", here + _ask(given), kind)
    if page.next:
        _link(root, "next", here + _ask(given | {"cursor": page.next}), kind)
    _link(
        root, "alternate", url_for("incidents.index", _external=True) + _ask(filters), "text/html"
    )
    _write_text(ElementTree.SubElement(root, "author"), "name", "CompileBoard")
    for incident in page.rows:
        _write_entry(root, incident)
    body: bytes = ElementTree.tostring(root, encoding="utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + body + b"\n"


def _ask(query: dict[str, str]) -> str:
    return f"?{urlencode(sorted(query.items()))}" if query else ""


def _write_entry(root: ElementTree.Element, incident: Incident) -> None:
    entry = ElementTree.SubElement(root, "entry")
    _write_text(entry, "title", incident.title)
    _write_text(entry, "id", f"{TAG}/{incident.id}")
    _write_text(entry, "published", format_iso_time(incident.noticed_us or incident.found_us))
    _write_text(entry, "updated", format_iso_time(incident.changed_us))
    address = url_for("incidents.show", incident_id=incident.id, _external=True)
    _link(entry, "alternate", address, "text/html")
    authors = dict.fromkeys(str(commit.get("author") or "") for commit in _list_commits(incident))
    for name in [author for author in authors if author.strip()] or ["CompileBoard"]:
        _write_text(ElementTree.SubElement(entry, "author"), "name", name)
    for term in dict.fromkeys((incident.direction, incident.state, incident.suite)):
        if term:
            ElementTree.SubElement(entry, "category", {"term": _clean(term)})
    content = ElementTree.SubElement(entry, "content", {"type": "text"})
    content.text = "\n".join(
        clean(_FORBIDDEN.sub("", line), 1000) for line in _list_lines(incident)
    )


def _list_lines(incident: Incident) -> Iterator[str]:
    yield f"{INCIDENT_LABELS[incident.state][0]}: {incident.title}"
    yield incident.measured_as
    yield f"first bad {incident.first_bad.label}" + (
        f", last good {incident.last_good.label}" if incident.last_good else ""
    )
    for metric in incident.headlines:
        yield f"{metric.label}: {metric.values}{f' ({metric.size})' if metric.size else ''}"
    for part in incident.environment:
        yield (
            f"{part.get('word')}: {part.get('before') or 'unknown'} → "
            f"{part.get('now') or 'unknown'}"
        )
    for commit in _list_commits(incident):
        yield (
            f"commit {str(commit.get('hash') or '')[:7]}: {commit.get('subject')} "
            f"({commit.get('author')})"
        )
    for cause in incident.causes:
        yield f"likely cause: {cause.text}{f' ({cause.reason})' if cause.reason else ''}"


def _list_commits(incident: Incident) -> list[dict[str, object]]:
    return list((incident.commits or {}).get("listed") or ())


def _write_text(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, tag).text = _clean(text)


def _link(parent: ElementTree.Element, rel: str, href: str, kind: str) -> None:
    ElementTree.SubElement(parent, "link", {"rel": rel, "href": _clean(href, 4000), "type": kind})


def _clean(text: str, limit: int = _TITLE_LIMIT) -> str:
    return clean(_FORBIDDEN.sub("", text), limit)
