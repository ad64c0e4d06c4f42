"""Findings by where they came: two hundred models may change with one driver update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.analysis.finding_words import describe_range
from app.format import format_plural
from app.queries.findings import DIRECTIONS, Finding, RangeCount

SHOWN = 12  # rows of a group; the others are folded
_AUTHORS = 5
_ORDER = {direction: place for place, direction in enumerate(DIRECTIONS)}


@dataclass(frozen=True)
class FindingGroup:
    """Hold the findings of one page that came between the same two commits, or runs; the worst come first.

    `counts` are of the whole range, as (direction, count).
    """

    title: str
    authors: Sequence[str]
    commits: Sequence[Mapping[str, Any]]
    environment: Sequence[Mapping[str, Any]]
    counts: Sequence[tuple[str, int]]
    findings: Sequence[Finding]

    @property
    def shown(self) -> Sequence[Finding]:
        """Return the rows that are not folded."""
        return self.findings[:SHOWN]

    @property
    def folded(self) -> Sequence[Finding]:
        """Return the rows that are."""
        return self.findings[SHOWN:]

    @property
    def count(self) -> int:
        """Return how many findings the whole range has."""
        return sum(number for _direction, number in self.counts)

    @property
    def who(self) -> str:
        """Name whom it concerns: the authors of the commits between."""
        more = len(self.authors) - _AUTHORS
        return ", ".join(self.authors[:_AUTHORS]) + (f" and {format_plural(more, 'other')}" if more > 0 else "")


def group_findings(findings: Iterable[Finding], counted: Iterable[RangeCount]) -> list[FindingGroup]:
    """Part findings by the range that they came in, in the order of their first rows."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    keys: dict[tuple[str | None, str], tuple[str, str]] = {}  # of a pair of runs: its range
    for it in findings:
        key = keys.setdefault((it.before_run_id, it.first_run_id), _key(it))
        groups.setdefault(key, []).append(it)
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for row in counted:
        found = keys.get((row.before_run_id, row.first_run_id))
        if found is not None:
            of = counts.setdefault(found, {})
            of[row.direction] = of.get(row.direction, 0) + row.finding_count
    return [_make(members, counts.get(key, {})) for key, members in groups.items()]


def _key(it: Finding) -> tuple[str, str]:
    """Name a range by its commits, or by its runs where those are not known or the same."""
    before, after = ((it.evidence.get(side) or {}).get("commit") for side in ("before", "after"))
    if before and after and before != after:
        return str(before), str(after)
    return it.before_run_id or "", it.first_run_id


def _make(members: list[Finding], counts: Mapping[str, int]) -> FindingGroup:
    first = members[0]
    title = describe_range(first)
    listed = list((first.evidence.get("commits") or {}).get("listed") or ())
    return FindingGroup(
        title[:1].upper() + title[1:],
        list(dict.fromkeys(str(it["author"]) for it in listed if it.get("author"))),
        listed,
        list(first.evidence.get("environment") or ()),
        [(direction, counts[direction]) for direction in DIRECTIONS if counts.get(direction)],
        sorted(
            members, key=lambda it: (_ORDER.get(it.direction, 9), -abs(it.relative or 0), it.model, it.metric, it.id)
        ),
    )
