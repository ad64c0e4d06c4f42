"""What a message says, before any channel's own form: findings grouped by the range that they came in."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from compileboard.app.analysis.incidents.groups import Incident, group_incidents
from compileboard.app.analysis.incidents.messages import (
    describe_cause,
    describe_finding,
    describe_series,
    describe_state,
    find_metric_of,
    format_confidence,
)
from compileboard.app.format import format_plural
from compileboard.app.queries.dashboard.incidents import DIRECTIONS, SeriesChange

MOST_LISTED = 20  # findings of one group that are named; a link leads to all
MOST_COMMITS = 5
MOST_CAUSES = 5
MOST_GROUPS = 12
LINE_LIMIT = 400
_VERBS = {"worse": "got worse", "better": "got better", "changed": "changed"}
_SUBJECTS = {"model": "model", "suite": "suite", "runs": "name of runs"}
# What breaks a line, a header or a terminal, and halves of characters, which no UTF-8 can say.
_UNSAID = re.compile("[\x00-\x20\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+")


@dataclass(frozen=True)
class MessageLine:
    """One line, with the address that it leads to, or ''."""

    text: str
    url: str = ""


@dataclass(frozen=True)
class MessagePart:
    """One commit range: its findings, and what lies in it, as (label, lines)."""

    title: str
    lines: Sequence[MessageLine]
    facts: Sequence[tuple[str, Sequence[str]]] = ()


@dataclass(frozen=True)
class AlertMessage:
    """One message of one rule; `id` is the same whenever it is tried again."""

    id: str
    rule: str
    title: str
    url: str
    made_us: int
    groups: Sequence[Incident]
    parts: Sequence[MessagePart]
    is_test: bool = False

    @property
    def finding_count(self) -> int:
        """Return how many findings it has."""
        return sum(len(group.findings) for group in self.groups)


def name_message(rule: str, channel: str, finding_ids: Iterable[str]) -> str:
    """Return the id of a message: of the same findings the same."""
    told = "\x1f".join((rule, channel, *sorted(finding_ids)))
    return hashlib.sha256(told.encode(errors="replace")).hexdigest()[:32]


def make_message(
    message_id: str, rule: str, findings: Sequence[SeriesChange], base_url: str, now_us: int
) -> AlertMessage:
    """Make one message of findings."""
    groups = group_incidents(findings, ())
    parts = [_make_part(group, base_url) for group in groups[:MOST_GROUPS]]
    if len(groups) > MOST_GROUPS:
        rest = groups[MOST_GROUPS:]
        count = format_plural(sum(len(incident.findings) for incident in rest), "finding")
        line = MessageLine(f"and {count} between other runs", _address(base_url, "/findings"))
        parts.append(MessagePart(f"{format_plural(len(rest), 'more range')}", [line]))
    url = find_address(findings[0], base_url) if len(findings) == 1 else _address(base_url, "/findings")
    return AlertMessage(message_id, rule, make_title(groups), url, now_us, groups, parts)


def make_test_message(rule: str, base_url: str, now_us: int) -> AlertMessage:
    """Make a message that says that it is a test."""
    line = MessageLine("Findings of this rule will come here. Nothing was found now.", _address(base_url, "/alerts"))
    part = MessagePart(f"A test of the rule {rule}", [line])
    message_id = name_message(rule, "test", [str(now_us)])
    title = f"Test of the rule {rule}"
    return AlertMessage(message_id, rule, title, _address(base_url, "/alerts"), now_us, (), [part], is_test=True)


def make_title(groups: Sequence[Incident]) -> str:
    """Return in one line what happened: one finding, one range, or several."""
    findings = [finding for group in groups for finding in group.findings]
    if len(findings) == 1:
        return clean(describe_finding(findings[0]))
    summary = summarize(findings)
    return clean(f"{summary} {_lower(groups[0].title)}" if len(groups) == 1 else f"{summary}, in {len(groups)} ranges")


def summarize(findings: Sequence[SeriesChange]) -> str:
    """Describe how many got worse or better: 43 models got worse (speedup)."""
    subjects = {finding.subject for finding in findings}
    named = {(finding.subject, finding.suite, finding.model) for finding in findings}
    what = _SUBJECTS[findings[0].subject] if len(subjects) == 1 else "series"
    counted = format_plural(len(named), what, "series" if what == "series" else "")
    if what == "name of runs":
        counted = format_plural(len(named), what, "names of runs")
    counts = Counter(finding.direction for finding in findings)
    metrics = list(dict.fromkeys(find_metric_of(finding).label.lower() for finding in findings))
    if len(counts) == 1:
        return f"{counted} {_VERBS[findings[0].direction]} ({_list(metrics, 3)})"
    parts = ", ".join(f"{counts[direction]} {direction}" for direction in DIRECTIONS if counts[direction])
    return f"{len(findings)} changes of {counted} ({parts})"


def find_address(change: SeriesChange, base_url: str) -> str:
    """Return the address of a finding's page, or '' where the dashboard's is not known."""
    return _address(base_url, f"/findings/{quote(change.id, safe='')}")


def find_group_address(group: Incident, base_url: str) -> str:
    """Return the address of the findings that began with the same run."""
    return _address(base_url, f"/findings?run={quote(group.findings[0].first_run_id, safe='')}")


def clean(text: str, limit: int = LINE_LIMIT) -> str:
    """Make one line of other people's text, and cut it where it is too long."""
    line = _UNSAID.sub(" ", text).strip()  # not split(): it parts numbers at their narrow spaces
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _make_part(group: Incident, base_url: str) -> MessagePart:
    is_single = len(group.findings) == 1
    lines = [_describe(finding, base_url, in_full=is_single) for finding in group.findings[:MOST_LISTED]]
    more = len(group.findings) - MOST_LISTED
    if more > 0:
        lines.append(MessageLine(f"and {format_plural(more, 'other')}", find_group_address(group, base_url)))
    title = group.title if is_single else f"{summarize(group.findings)} {_lower(group.title)}"
    facts = [("Environment", _list_environment(group)), ("Commits", _list_commits(group)), *_list_causes(group)]
    return MessagePart(clean(title), lines, [(label, texts) for label, texts in facts if texts])


def _describe(change: SeriesChange, base_url: str, *, in_full: bool) -> MessageLine:
    parts = [describe_finding(change), describe_series(change), *([format_confidence(change)] if in_full else [])]
    parts += [describe_state(change)] if change.recovered_run_id else []
    return MessageLine(clean(" · ".join(part for part in parts if part)), find_address(change, base_url))


def _list_environment(group: Incident) -> list[str]:
    lines = (
        f"{change.get('word')} {change.get('before') or 'unknown'} → {change.get('now') or 'unknown'}"
        for change in group.environment
    )
    return [clean(text) for text in lines]


def _list_commits(group: Incident) -> list[str]:
    if not group.commits:
        return []
    known = group.findings[0].evidence.get("commits") or {}
    count = max(int(known.get("count") or 0), len(group.commits))
    by = f" by {_list(group.authors, MOST_COMMITS)}" if group.authors else ""
    lines = [clean(f"{format_plural(count, 'commit')}{by}")]
    for commit in group.commits[:MOST_COMMITS]:
        lines.append(
            clean(
                f"{str(commit.get('hash') or '')[:10]} {commit.get('subject') or ''}"
                f" ({commit.get('author') or 'unknown'})"
            )
        )
    return lines + ([f"and {format_plural(count - MOST_COMMITS, 'other')}"] if count > MOST_COMMITS else [])


def _list_causes(group: Incident) -> list[tuple[str, list[str]]]:
    causes = (
        clean(describe_cause(cause)) for member in group.findings for cause in member.evidence.get("causes") or ()
    )
    counts = Counter(causes)
    lines = [line if counts[line] == 1 else f"{line}, in {counts[line]} of them" for line in list(counts)[:MOST_CAUSES]]
    more = len(counts) - MOST_CAUSES
    return [("Suspected causes", lines + ([f"and {format_plural(more, 'other')}"] if more > 0 else []))]


def _list(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {format_plural(more, 'other')}" if more > 0 else "")


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:]


def _address(base_url: str, path: str) -> str:
    return f"{base_url}{path}" if base_url else ""
