"""Answers of `repro analyze`, `repro bisect` and `repro minify`, in their stored form. Needs no
torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

from compileboard.collectors.repro.repro import PASSED, Failure

A = TypeVar("A", bound="Answer")
PASSES = Failure(PASSED).describe()

# The statuses of an answer.
NAMED = "named"  # an operation, a pass or a setting is named
# `operations` are wrong together, and right once their values are returned.
ONLY_FUSED = "only_fused"
UNEXPLAINED = "unexplained"  # it fails, and no trial shows where
NOT_REPRODUCED = "not_reproduced"  # the graph passes here, or fails in another way
STATUSES = (NAMED, ONLY_FUSED, UNEXPLAINED, NOT_REPRODUCED)  # The statuses of analyze and bisect.
MINIFIED = "minified"
NOT_FINISHED = "not_finished"  # ended before it was smallest: `why`
OTHER_FAILURE = "other_failure"  # it fails differently here than when captured

# The verdicts on a node.
RIGHT, WRONG, NOT_FINITE = "right", "wrong", "not_finite"
UNSTABLE = "unstable"  # differs in a second run with the same inputs, beyond the limit
RANDOM, NOT_JUDGED = "random", "not_judged"
WRONG_VERDICTS = (WRONG, NOT_FINITE, UNSTABLE)

# The origin of the fault.
COMPILER = "compiler"  # inductor computes the operation wrongly
DECOMPOSITION = "decomposition"  # right without decompositions, wrong with them
BACKEND = "backend"  # a compile or a run fails from this operation on
MAX_ROWS = 200


@dataclass(frozen=True)
class Answer:
    """The result of a command. `repro_results.detail` stores the value of `dump`."""

    PARTS: ClassVar[Mapping[str, type]] = {}  # The record types of fields that are tuples.
    status: str  # NAMED, MINIFIED and so on

    @classmethod
    def load(cls: type[A], body: Mapping[str, Any]) -> A:
        values = _keep_known_fields(cls, body)
        for name, kind in cls.PARTS.items():
            values[name] = tuple(
                kind(**_keep_known_fields(kind, part)) for part in body.get(name, ())
            )
        return cls(**values)

    def dump(self) -> dict[str, Any]:
        body = _drop_defaults(self)
        body |= {
            name: [_drop_defaults(part) for part in getattr(self, name)] for name in self.PARTS
        }
        return body


@dataclass(frozen=True)
class JudgedNode:
    """An operation of the graph, compared on the compiled values of its inputs.

    Errors are rms(value − float64) / rms(float64); for integers and booleans, the share that
    differs.
    """

    node: str  # its name in the graph
    operation: str  # "aten.atan.default"
    level: str = "aot"  # aot | dynamo
    verdict: str = RIGHT
    error: float | None = None  # The error of the compiled value.
    eager_error: float | None = None  # Eager's error on the same inputs.
    limit: float | None = None  # largest accepted error
    not_finite_count: int = 0  # NaN or infinite elements where eager has none
    element_count: int = 0
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    is_deterministic: bool | None = None  # the same value in a second run
    explains: bool | None = None  # the outputs pass once eager computes this node
    reason: str | None = None  # why it was not judged
    source: str | None = None  # the user's line that it comes from


@dataclass(frozen=True)
class Analysis(Answer):
    PARTS: ClassVar[Mapping[str, type]] = {"rows": JudgedNode}
    operation: str | None = None
    node: str | None = None
    level: str = "aot"  # The level of the graph in which it was found.
    cause: str | None = None  # compiler | decomposition | backend
    explains: bool | None = None
    is_deterministic: bool | None = None
    operations: tuple[str, ...] = ()  # of `only_fused`, in the graph's order
    nodes: tuple[str, ...] = ()
    failure: str | None = None  # how the graph fails, in words
    rows: tuple[JudgedNode, ...] = ()
    judged_count: int = 0
    random_count: int = 0
    not_judged_count: int = 0
    compile_count: int = 0
    notes: tuple[str, ...] = ()

    def dump(self) -> dict[str, Any]:
        rows = sort_rows(self.rows)
        body = replace(self, rows=tuple(rows[:MAX_ROWS]))
        left_out = {"left_out_count": len(rows) - MAX_ROWS} if len(rows) > MAX_ROWS else {}
        return {**super(Analysis, body).dump(), **left_out}

    def sentence(self) -> str:
        if self.status == NOT_REPRODUCED:
            if self.failure in (None, PASSES):
                return "Not reproduced: the graph passes here, and every operation is right"
            return f"Not reproduced: it fails here in another way: {self.failure}"
        if self.status == ONLY_FUSED:
            return f"Wrong only when fused: {' → '.join(self.operations)}"
        if self.status == UNEXPLAINED:
            return f"No operation is named, though the graph fails: {self.failure}"
        row = next((row for row in self.rows if row.node == self.node), None)
        if row is None:
            return f"{self.operation} fails: {self.failure}"
        repeated = Counter(
            entry.operation for entry in self.rows if entry.verdict in WRONG_VERDICTS
        )
        times = f" ({repeated[row.operation]} of them)" if repeated[row.operation] > 1 else ""
        cause = "its decomposition is wrong" if self.cause == DECOMPOSITION else _describe_row(row)
        also = f"; {' and '.join(self.also_wrong)} too" if self.also_wrong else ""
        return f"{row.operation}{times}: {cause}{also}"

    @property
    def also_wrong(self) -> list[str]:
        wrong = (row.operation for row in self.rows if row.verdict in WRONG_VERDICTS)
        return [name for name in dict.fromkeys(wrong) if name != self.operation]


@dataclass(frozen=True)
class TriedSetting:
    setting: str  # "epilogue_fusion"
    value: str  # as Python writes it
    passes: bool | None  # None: could not be tried
    failure: str | None = None  # how it fails otherwise, if differently
    seconds: float = 0.0


@dataclass(frozen=True)
class Bisection(Answer):
    PARTS: ClassVar[Mapping[str, type]] = {"settings": TriedSetting}
    backend: str | None = None  # the first of torch's backends that fails: "inductor"
    subsystem: str | None = None  # "lowerings"
    number: int | None = None  # index among its applications
    operation: str | None = None
    node: str | None = None
    application: str | None = None  # the name of the pass, or the node as torch writes it
    settings: tuple[TriedSetting, ...] = ()
    failure: str | None = None
    trial_count: int = 0
    notes: tuple[str, ...] = ()

    def sentence(self) -> str:
        if self.status == NOT_REPRODUCED:
            if self.failure in (None, PASSES):
                return "Not reproduced: the graph passes here"
            return f"Not reproduced: it fails here in another way: {self.failure}"
        if self.status == UNEXPLAINED:
            named = f"; the error itself names {self.operation}" if self.operation else ""
            return f"No step is named: {self.failure}{named}"
        if self.subsystem == "setting":
            return f"It passes with {self.application}"
        subject = self.operation or self.application
        number = f", application {self.number}" if self.number is not None else ""
        return f"{self.backend}, {self.subsystem}{number}{f': {subject}' if subject else ''}"


@dataclass(frozen=True)
class Reduction:
    seconds: float  # since the start of this search
    node_count: int
    query: int


@dataclass(frozen=True)
class Minification(Answer):
    PARTS: ClassVar[Mapping[str, type]] = {"history": Reduction}
    nodes_before: int = 0  # call nodes
    nodes_after: int = 0
    operations: tuple[str, ...] = ()  # In the smallest graph's order: "aten.atan.default".
    level: str = "aot"  # The level of the minified graph; dynamo if only that graph fails.
    failure: str | None = None  # how it fails, in words
    why: str | None = None  # it was not finished, or not reproduced
    fails_in_eager: bool = False  # it also fails without a compiler
    is_together: bool = False  # none of its operations fails alone
    is_fusion: bool = False  # and together they pass if nothing is fused
    is_confirmed: bool = False  # the smallest graph failed again in a second trial
    # Its values do not matter: the program alone shows the failure.
    fails_with_random_inputs: bool | None = None
    tried_count: int = 0  # trials in separate processes
    # Questions answered before, in this search or an earlier one.
    remembered_count: int = 0
    limited_count: int = 0  # trials that reached a time or memory limit: taken as passing
    seconds: float = 0.0
    history: tuple[Reduction, ...] = ()

    @property
    def answers(self) -> bool:
        return self.status in (MINIFIED, NOT_FINISHED)

    def sentence(self) -> str:
        if not self.answers:
            return f"{self.why}."
        names = ", ".join(self.operations[:5]) + (", …" if len(self.operations) > 5 else "")
        sizes = f"{self.nodes_before} → {self.nodes_after} operations: {names}."
        if self.status == NOT_FINISHED:
            return f"{sizes} Not finished: {self.why}; the same command goes on from here."
        if self.is_fusion:
            return f"{sizes} They fail only when fused: alone, or not fused, each is right."
        if self.is_together:
            return f"{sizes} They fail only together: alone each is right."
        return f"{sizes} It fails without a compiler as well." if self.fails_in_eager else sizes

    def dump(self) -> dict[str, Any]:
        return asdict(self)


def sort_rows(rows: Iterable[JudgedNode]) -> list[JudgedNode]:
    return sorted(
        rows,
        key=lambda row: (
            row.verdict not in WRONG_VERDICTS,
            row.explains is not True,
            -_error_ratio(row),
        ),
    )


def _error_ratio(row: JudgedNode) -> float:
    if row.not_finite_count:
        return math.inf
    return (row.error or 0.0) / row.limit if row.limit else row.error or 0.0


def _keep_known_fields(kind: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    values = {entry.name: body[entry.name] for entry in fields(kind) if entry.name in body}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }


def _drop_defaults(value: Any) -> dict[str, Any]:
    parts = [(entry, getattr(value, entry.name)) for entry in fields(value)]
    return {
        entry.name: list(part) if isinstance(part, tuple) else part
        for entry, part in parts
        if part != entry.default and not (isinstance(part, float) and not math.isfinite(part))
    }


def _describe_row(row: JudgedNode) -> str:
    if row.verdict == NOT_FINITE:
        return (
            f"NaN or infinity in {row.not_finite_count:,} of {row.element_count:,} elements "
            "where eager has none"
        )
    if row.error is None:
        return row.reason or "wrong"
    beside = f", eager {row.eager_error:.2g}" if row.eager_error is not None else ""
    return f"error {row.error:.2g}{beside}"
