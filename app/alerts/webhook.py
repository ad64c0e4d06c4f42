"""The generic webhook: one JSON document a message. docs/alerts.md describes it; VERSION rises when a field changes."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from dataclasses import asdict
from typing import Any

from compileboard.app.alerts.message import Message, clean, find_address, find_group_address
from compileboard.app.analysis.finding_groups import FindingGroup
from compileboard.app.analysis.finding_words import describe_confidence, describe_finding, describe_series
from compileboard.app.queries.findings import Finding

VERSION = 1
_LEFT_OUT = ("evidence", "found_us", "noticed_us", "changed_us")


def make_json(message: Message, base_url: str) -> bytes:
    """Return the document of a message."""
    document = {
        "version": VERSION,
        "kind": "test" if message.is_test else "findings",
        "id": message.id,
        "rule": message.rule,
        "made_us": message.made_us,
        "title": message.title,
        "url": message.url or None,
        "finding_count": message.finding_count,
        "groups": [_make_group(it, base_url) for it in message.groups],
    }
    return json.dumps(_finite(document), allow_nan=False, separators=(",", ":")).encode()


def sign(body: bytes, secret: str, now_us: int) -> str:
    """Return the signature header's value: the second of sending, and an HMAC-SHA256 over "second.body"."""
    second = str(now_us // 1_000_000)
    return f"t={second},sha256={hmac.new(secret.encode(), second.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def _make_group(group: FindingGroup, base_url: str) -> dict[str, Any]:
    commits = group.findings[0].evidence.get("commits") or {}
    return {
        "title": clean(group.title),
        "url": find_group_address(group, base_url) or None,
        "authors": list(group.authors),
        "commit_count": commits.get("count") if commits.get("known") else None,
        "commits": list(group.commits),
        "environment": list(group.environment),
        "findings": [_make_finding(it, base_url) for it in group.findings],
    }


def _make_finding(it: Finding, base_url: str) -> dict[str, Any]:
    said = {"title": clean(describe_finding(it)), "series": clean(describe_series(it))}
    said |= {"confidence": describe_confidence(it), "url": find_address(it, base_url) or ""}
    kept = {name: value for name, value in asdict(it).items() if name not in _LEFT_OUT}
    before, after = it.evidence.get("before"), it.evidence.get("after")
    return kept | said | {"before": before, "after": after, "causes": it.evidence.get("causes") or []}


def _finite(value: Any) -> Any:
    """Return a value without what JSON cannot say: infinite numbers and NaN are null."""
    if isinstance(value, dict):
        return {str(key): _finite(it) for key, it in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(it) for it in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
