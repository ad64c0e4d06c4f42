"""Findings by where they came: two hundred models may change with one driver update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from compileboard.app.analysis.incidents.messages import describe_commit_range
from compileboard.app.format import format_plural
from compileboard.app.queries.dashboard.incidents import DIRECTIONS, RangeCount, SeriesChange
from compileboard.collectors.store.dashboard.series_changes import SERIES

SHOWN = 12  # rows of a group; the others are folded
_AUTHORS = 5
_ORDER = {direction: position for position, direction in enumerate(DIRECTIONS)}
# What says most of what happened, first; the rest mostly follows from it.
_TELLING = (
    "passes",
    "pass_ratio",
    "speedup",
    "geomean_speedup",
    "graph_breaks",
    "graph_breaks_per_model",
    "graph_break_count",
    "recompiles",
    "recompiles_per_model",
    "recompile_count",
    "recompile_limit_count",
    "compilation_latency_s",
    "compile_s",
    "abs_latency_ms",
    "compression_ratio",
    "dynamo_peak_mem_gb",
)


@dataclass(frozen=True)
class HeadlineChange:
    """The most telling change of one series in a range, and its other metrics that moved with it."""

    finding: SeriesChange
    others: Sequence[SeriesChange]


def pick_headline_changes(findings: Iterable[SeriesChange]) -> list[HeadlineChange]:
    """Group findings of one series, range, state and handling, the worst first."""
    together: dict[tuple[Any, ...], list[SeriesChange]] = {}
    for finding in findings:
        key = (
            finding.subject,
            *(getattr(finding, name) for name in SERIES),
            finding.branch,
            finding.before_run_id,
            finding.first_run_id,
        )
        together.setdefault((*key, finding.state, finding.handling, finding.recovered_run_id is None), []).append(
            finding
        )
    groups = [sorted(group, key=_rank) for group in together.values()]
    return [HeadlineChange(group[0], group[1:]) for group in sorted(groups, key=lambda group: _rank(group[0]))]


def _rank(change: SeriesChange) -> tuple[Any, ...]:
    telling = _TELLING.index(change.metric) if change.metric in _TELLING else len(_TELLING)
    return (
        _ORDER.get(change.direction, 9),
        telling,
        -abs(change.relative or 0),
        change.model,
        change.metric,
        change.id,
    )


@dataclass(frozen=True)
class Incident:
    """The findings of one page in one range of commits or runs; the worst come first.

    `counts` are of the whole range, as (direction, count).
    """

    title: str
    authors: Sequence[str]
    commits: Sequence[Mapping[str, Any]]
    environment: Sequence[Mapping[str, Any]]
    counts: Sequence[tuple[str, int]]
    findings: Sequence[SeriesChange]

    @cached_property
    def leads(self) -> Sequence[HeadlineChange]:
        """Return the rows: a series each."""
        return pick_headline_changes(self.findings)

    @property
    def count(self) -> int:
        """Return how many findings the whole range has."""
        return sum(number for _direction, number in self.counts)

    @property
    def author_names(self) -> str:
        """Name whom it concerns: the authors of the commits between."""
        more = len(self.authors) - _AUTHORS
        return ", ".join(self.authors[:_AUTHORS]) + (f" and {format_plural(more, 'other')}" if more > 0 else "")


def group_incidents(findings: Iterable[SeriesChange], counted: Iterable[RangeCount]) -> list[Incident]:
    """Group findings by the range that they came in, in the order of their first rows."""
    groups: dict[tuple[str, str], list[SeriesChange]] = {}
    keys: dict[tuple[str | None, str], tuple[str, str]] = {}  # of a pair of runs: its range
    for finding in findings:
        key = keys.setdefault((finding.before_run_id, finding.first_run_id), _key(finding))
        groups.setdefault(key, []).append(finding)
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for row in counted:
        range_key = keys.get((row.before_run_id, row.first_run_id))
        if range_key is not None:
            of = counts.setdefault(range_key, {})
            of[row.direction] = of.get(row.direction, 0) + row.finding_count
    return [_make(members, counts.get(key, {})) for key, members in groups.items()]


def _key(change: SeriesChange) -> tuple[str, str]:
    """Name a range by its commits, or by its runs where those are not known or the same."""
    before, after = ((change.evidence.get(side) or {}).get("commit") for side in ("before", "after"))
    if before and after and before != after:
        return str(before), str(after)
    return change.before_run_id or "", change.first_run_id


def _make(members: list[SeriesChange], counts: Mapping[str, int]) -> Incident:
    first = members[0]
    title = describe_commit_range(first)
    listed = list((first.evidence.get("commits") or {}).get("listed") or ())
    return Incident(
        title[:1].upper() + title[1:],
        list(dict.fromkeys(str(commit["author"]) for commit in listed if commit.get("author"))),
        listed,
        list(first.evidence.get("environment") or ()),
        [(direction, counts[direction]) for direction in DIRECTIONS if counts.get(direction)],
        sorted(members, key=_rank),
    )
