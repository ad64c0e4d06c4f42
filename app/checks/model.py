"""Data types of a check: the sides that rules compare, and their verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from compileboard.app.comparison.model import ModelResult
from compileboard.app.comparison.queries import DistinctItem
from compileboard.app.core.page import FilterError
from compileboard.app.core.schema import PRIVATE, one_of
from compileboard.app.incidents.model import Incident
from compileboard.collectors.contract.result_columns import STORE_NAMES
from compileboard.collectors.contract.verdicts import THRESHOLD, SideValues, is_wrong_answer

# Outcomes of one item under one rule. An improvement fails as it does upstream, because the
# baseline no longer holds.
PASS, NOTE, IMPROVED, FAIL = "pass", "note", "improved", "fail"


class CannotCompare(FilterError):
    def __init__(self, message: str, *, flags: str = "") -> None:
        super().__init__(message)
        self.flags = flags


@dataclass(frozen=True)
class RuleInput:
    """One row of a result file or run, as the rules compare it.

    A missing column is absent from `cells` and an empty one is NaN, since upstream's checkers treat
    them differently.
    """

    name: str
    cells: Mapping[str, Any]
    series: Mapping[str, Any] = field(
        default_factory=dict
    )  # suite, mode, dtype, …: empty if only a name is known
    key: str = ""  # the `model` of its graph breaks and causes, before sides are paired
    # Of our own runs, as Compare reads them. Upstream's files have none.
    repeats: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @cached_property
    def side(self) -> SideValues:
        """Return the row's numbers for a comparison; a speedup of 0 is upstream's padding and is
        left out.
        """
        numbers = {
            STORE_NAMES.get(name, name): read_number(cell) for name, cell in self.cells.items()
        }
        values = {name: value for name, value in numbers.items() if value is not None}
        low, high, wrong = (
            values.get("speedup_low"),
            values.get("speedup_high"),
            is_wrong_answer(self.cells.get("accuracy")),
        )
        return SideValues(
            values, None if low is None or high is None else (low, high), self.repeats, wrong
        )


@dataclass(frozen=True)
class OpenIncident:
    keys: tuple[str, ...]
    incident: Incident


@dataclass(frozen=True)
class Side:
    """One side of a check. None means not recorded, not absent."""

    title: str
    rows: tuple[RuleInput, ...]
    breaks: tuple[DistinctItem, ...] | None = None
    causes: tuple[DistinctItem, ...] | None = None
    rerecordings: tuple[DistinctItem, ...] | None = None  # reasons for CUDA graph re-recording
    environment: Mapping[str, str] = field(default_factory=dict)
    # Of each row, as in Compare; none for a bare CSV.
    results: tuple[ModelResult, ...] = field(default=(), compare=False)
    incidents: tuple[OpenIncident, ...] | None = None
    # Of a run, for people: its name, its commit's short hash, and how its program failed.
    name: str = field(default="", compare=False)
    commit: str = field(default="", compare=False)
    failure: str = field(default="", compare=False)

    def names(self) -> set[str]:
        return {row.name for row in self.rows}

    def get(self, name: str, column: str) -> Any | None:
        """Return a cell, or None unless exactly one row has the name and the row has the column."""
        rows = self._by_name.get(name, ())
        return rows[0].cells.get(column) if len(rows) == 1 else None

    @cached_property
    def _by_name(self) -> dict[str, list[RuleInput]]:
        rows: dict[str, list[RuleInput]] = {}
        for row in self.rows:
            rows.setdefault(row.name, []).append(row)
        return rows

    def has(self, column: str) -> bool:
        return any(column in row.cells for row in self.rows)


@dataclass(frozen=True)
class RuleOptions:
    flaky: frozenset[str] = frozenset()
    threshold: float | None = None
    threshold_scale: float = 1.0
    metric: str = "speedup"
    fail_on_improvement: bool = False
    # For pr-time, if the baseline has none: upstream's value for most benchmarks.
    noise_margin: float = 0.015
    tolerance: float = THRESHOLD  # Smaller changes of the speedup do not count.
    allow_improvement: bool = False


@dataclass(frozen=True)
class Verdict:
    """The result of a rule for one model."""

    name: Annotated[str, "Name of the model."]
    verdict: Annotated[str, "The verdict, in upstream's word where the rule is upstream's."]
    outcome: Annotated[
        str,
        one_of((PASS, NOTE, IMPROVED, FAIL)),
        "What it means: `improved` fails too, because the baseline no longer holds; `note` fails "
        "nothing.",
    ]
    fails: Annotated[bool, "Whether it fails the check."]
    detail: Annotated[str, "Expected and actual values."]
    rule: str = field(metadata=PRIVATE)
    # The graph break or cause that is not in the baseline.
    new: DistinctItem | None = field(metadata=PRIVATE)


# A model's name, one of the rule's verdicts; then, if any, the detail and the graph break or cause
# that is not in the baseline.
Finding = tuple[str, str] | tuple[str, str, str] | tuple[str, str, str, DistinctItem]


@dataclass(frozen=True)
class Rule:
    name: str
    about: str
    source: str  # upstream's checker, or ours
    words: Mapping[str, str]  # verdict -> outcome
    find: Callable[[Side, Side, RuleOptions], Iterator[Finding]]
    applies: Callable[[Side, Side, RuleOptions], str]
    is_default: bool = False
    is_performance: bool = False  # only meaningful on the same kind of machine
    # A default rule that is not mentioned if neither side has what it compares
    is_optional: bool = False
    needs_baseline: bool = True
    # A model of our own runs is left out if neither side has any of these.
    columns: tuple[str, ...] = ()

    def check(self, actual: Side, expected: Side, options: RuleOptions) -> list[Verdict]:
        failing = (FAIL,) if options.allow_improvement else (FAIL, IMPROVED)
        return [
            self._make_verdict(failing, *finding)
            for finding in self.find(actual, expected, options)
        ]

    def _make_verdict(
        self,
        failing: Sequence[str],
        name: str,
        word: str,
        detail: str = "",
        new: DistinctItem | None = None,
    ) -> Verdict:
        outcome = self.words[word]
        if outcome in (FAIL, IMPROVED) and self.source.endswith(".py"):
            detail = "; ".join(filter(None, (detail, f"as {self.source} decides")))
        return Verdict(name, word, outcome, outcome in failing, detail, self.name, new)


def is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def read_number(cell: Any) -> float | None:
    if isinstance(cell, bool):
        return None
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def read_counter(cell: Any) -> int | None:
    value = read_number(cell)
    return int(value) if value is not None and value >= 0 and value.is_integer() else None


def show(cell: Any) -> str:
    if is_empty(cell):
        return "None" if cell is None else "nan"
    value = read_number(cell)
    return str(int(value)) if value is not None and value.is_integer() else str(cell)


def describe_missing_columns(side: Side, columns: Sequence[str]) -> str:
    names = " or ".join(columns)
    if side.rows:
        return f"the results of {side.title} have no {names}"
    breaks = (
        sum(graph_break.count for graph_break in side.breaks or ())
        if "graph_breaks" in columns
        else 0
    )
    recorded = f"; new-breaks compares its recorded graph breaks ({breaks})" if breaks else ""
    return f"{side.title} has no benchmark results{recorded}"


def require_columns(*columns: str, both: bool = False) -> Callable[[Side, Side, RuleOptions], str]:
    """Return a test of whether a rule applies: some row of the run, or of each side, has one of
    these columns.
    """

    def applies(actual: Side, expected: Side, _options: RuleOptions) -> str:
        for side, asked in ((actual, True), (expected, both)):
            if asked and not any(side.has(column) for column in columns):
                return describe_missing_columns(side, columns)
        return ""

    return applies
