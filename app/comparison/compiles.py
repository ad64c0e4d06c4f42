"""Two compiles side by side, of one run or of two: their runs, facts, phases and artifacts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from compileboard.app.activity.queries import describe_absence
from compileboard.app.artifacts.artifact_labels import GUARDS
from compileboard.app.artifacts.model import ArtifactKindComparison, compare_compile_artifacts
from compileboard.app.artifacts.run_queries import list_named
from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.queries import FunctionRun, list_function_runs
from compileboard.app.compiles.run_queries import CompileRow
from compileboard.app.core.labels import CACHES, PHASES, describe_outcome
from compileboard.app.core.page import FilterError, read_id
from compileboard.app.core.rows import list_rows
from compileboard.app.core.schema import one_of, published
from compileboard.app.core.store import Store
from compileboard.app.guards.run_queries import get_guard_set
from compileboard.app.runs.failures import COMPILE_LOOKUPS_SQL, CacheLookup
from compileboard.app.runs.rows import RunRow
from compileboard.app.runs.run_queries import get_run
from compileboard.collectors.contract.fingerprints import (
    ID_TEXT,
    format_id,
    normalize_run_id,
    parse_id,
)

FORM = "RUN:NUMBER or the address of a compile's page"
_COMPILE = re.compile(
    r"(?:.*/runs/)?([^\s/:?#]{1,80})(?:/compiles/|[:/])([0-9a-f]{1,18})(?:[/?#].*)?"
)
_MAX_LOOKUPS = 100

# Key, label and unit of what is compared, in the order of the page.
RUN_FACTS = (
    ("torch_version", "torch", "text"),
    ("python_version", "Python", "text"),
    ("device", "Device", "text"),
    ("host", "Host", "text"),
    ("git_commit", "Commit", "commit"),
)
COMPILE_FACTS = (
    ("function", "Function", "text"),
    ("place", "Line", "text"),
    ("outcome", "Outcome", "text"),
    ("role", "Compiled as", "text"),
    ("cache", "Cache", "text"),
    ("total_us", "Compile time", "us"),
    ("attempt_count", "Attempts", "count"),
    ("graph_break_count", "Graph breaks", "count"),
    ("graph_op_count", "Operations in the graph", "count"),
    ("graph_node_count", "Nodes in the graph", "count"),
    ("guard_count", "Guards", "count"),
    ("guard_check_us", "Check of the guards", "us"),
)
# Times of different ones compare the machines.
_MACHINE = ("device", "host", "torch_version")


class NoSuchCompile(LookupError):
    """The text matches no compile of this database; the message is a sentence."""


@dataclass(frozen=True)
class ComparedFact:
    """A value of both compiles, their runs or their phases."""

    group: Annotated[str, one_of(("run", "compile", "phase")), "What the value belongs to."]
    name: Annotated[str, "Key of the value: `guard_count`."]
    label: Annotated[str, "Name of the value on the page."]
    unit: Annotated[
        str, one_of(("text", "commit", "count", "us")), "Unit of `a` and `b`; `us` is microseconds."
    ]
    a: Annotated[Any, "Of `a`: a text or a number; null if not recorded."]
    b: Annotated[Any, "Of `b`: a text or a number; null if not recorded."]

    @property
    @published
    def word(self) -> Annotated[str, one_of(("same", "differs", "one side", "not recorded"))]:
        """Return whether both values are equal, or `one side` if only one of them was recorded."""
        if self.a is None or self.b is None:
            return "not recorded" if self.a is self.b else "one side"
        return "same" if self.a == self.b else "differs"

    @property
    @published
    def change(self) -> float | None:
        """Return b ÷ a − 1 for numbers; null unless `a` is above 0."""
        if self.unit not in ("count", "us") or not self.a or self.b is None:
            return None
        return float(self.b / self.a - 1)


@dataclass(frozen=True)
class ComparedCompile:
    run: RunRow
    compile: CompileRow
    function_id: int | None
    facts: dict[str, Any]

    @property
    def address(self) -> str:
        return f"{self.run.id}:{self.compile.id}"


@dataclass(frozen=True)
class CompileComparison:
    a: ComparedCompile
    b: ComparedCompile
    sections: Sequence[ArtifactKindComparison]

    @property
    def is_same_compile(self) -> bool:
        return self.a.address == self.b.address

    @cached_property
    def facts(self) -> list[ComparedFact]:
        phases = [(phase.name, phase.label, "us") for phase in PHASES]
        groups = (("run", RUN_FACTS), ("compile", COMPILE_FACTS), ("phase", phases))
        return [
            ComparedFact(group, *fact, self.a.facts.get(fact[0]), self.b.facts.get(fact[0]))
            for group, facts in groups
            for fact in facts
        ]

    @property
    def machine_differences(self) -> list[str]:
        """List the facts that make the times incomparable: device, host or torch differs."""
        return [
            fact.label for fact in self.facts if fact.name in _MACHINE and fact.word == "differs"
        ]


@dataclass(frozen=True)
class CompileChoices:
    """Compiles to compare with: those of the same function in these runs, and the newest other
    runs.
    """

    own: Sequence[CompileRow]
    other: Sequence[CompileRow]
    runs: Sequence[FunctionRun]


def find_compile(store: Store, name: str, text: str) -> ComparedCompile:
    """Find a compile by `RUN:NUMBER` or the address of its page. `RUN:FUNCTION`, with the id of a
    function, is that run's first compile of it.

    Raises FilterError for a text of another form, NoSuchCompile if there is none. `name` is the
    parameter that errors name.
    """
    match = _COMPILE.fullmatch(text.strip())
    if match is None:
        raise FilterError(f"{name}: {text[:80]!r} is not {FORM}")
    run_id, key = normalize_run_id(match[1]), match[2]
    detail = get_run(store.board, run_id)
    if detail is None:
        raise NoSuchCompile(f"{name}: {describe_absence(store.board, run_id)}")
    reader = store.open_run(run_id)
    if ID_TEXT.fullmatch(key):
        listed = compiles.list_function_compiles(reader, run_id, parse_id(key), limit=1)
        row = next(iter(listed), None)
    else:
        row = compiles.get_compile(reader, run_id, read_id(key))
    if row is None:
        word = "of the function" if ID_TEXT.fullmatch(key) else "number"
        raise NoSuchCompile(
            f"{name}: Run {detail.run.shown_name[:80]} has no compile {word} {key}."
        )
    function_id = compiles.get_function_id(reader, row.id)
    return ComparedCompile(detail.run, row, function_id, _load_facts(store, detail.run, row))


def _load_facts(store: Store, run: RunRow, row: CompileRow) -> dict[str, Any]:
    reader = store.open_run(run.id)
    records = compiles.list_records(reader, key=row.id)
    metrics = next((record.metrics for record in records if record.kind == "forward"), {})
    lookups = list_rows(CacheLookup, COMPILE_LOOKUPS_SQL, reader, key=row.id, limit=_MAX_LOOKUPS)
    results = [f"{CACHES.get(lookup.cache, lookup.cache)}: {lookup.result}" for lookup in lookups]
    sets = [
        artifact
        for name in GUARDS
        for artifact in list_named(reader, compile_key=row.id, name=name)
    ]
    guard_set = get_guard_set(reader, run.id, sets[-1].id) if sets else None
    values = (
        vars(run)
        | vars(row)
        | {
            "device": run.device,
            "function": row.code,
            "place": row.location or None,
            "role": row.role,
            "outcome": describe_outcome(row.outcome, run.state == "running").word,
            "cache": ", ".join(dict.fromkeys(results)) or None,
            "guard_check_us": guard_set and guard_set.latency_us,
        }
    )
    values |= {
        name: value
        for name in ("graph_op_count", "graph_node_count", "guard_count")
        if isinstance(value := metrics.get(name), int)
    }
    names = [name for name, _label, _unit in (*RUN_FACTS, *COMPILE_FACTS)]
    return {name: values.get(name) for name in names} | row.phases.times


def compare_compiles(store: Store, a: ComparedCompile, b: ComparedCompile) -> CompileComparison:
    sources = [(store.open_run(side.run.id), side.compile.id) for side in (a, b)]
    return CompileComparison(a, b, compare_compile_artifacts(*sources))


def list_choices(store: Store, a: ComparedCompile, b: ComparedCompile | None) -> CompileChoices:
    sides = [a] if b is None or b.run.id == a.run.id else [a, b]
    listed = [
        []
        if side.function_id is None
        else compiles.list_function_compiles(
            store.open_run(side.run.id), side.run.id, side.function_id
        )
        for side in sides
    ]
    known = {side.run.id for side in sides}
    runs = [] if a.function_id is None else list_function_runs(store.engine, a.function_id)
    return CompileChoices(
        own=listed[0],
        other=listed[1] if len(listed) > 1 else [],
        runs=[run for run in runs if run.id not in known],
    )


def name_function_side(run_id: str, function_id: int) -> str:
    return f"{run_id}:{format_id(function_id)}"
