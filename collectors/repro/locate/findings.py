"""The answers of `repro analyze` and `repro bisect` as stored in `repro_results`. No torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from compileboard.collectors.repro.repro import PASSED, Failure

# The statuses of an answer.
NAMED = "named"  # an operation, a pass or a setting is named
# `operations` are wrong together, and right as soon as their values are returned.
ONLY_FUSED = "only_fused"
UNEXPLAINED = "unexplained"  # it fails, and nothing that was tried tells where
NOT_REPRODUCED = "not_reproduced"
STATUSES = (NAMED, ONLY_FUSED, UNEXPLAINED, NOT_REPRODUCED)

# The verdicts on a node.
RIGHT, WRONG, NOT_FINITE = "right", "wrong", "not_finite"
UNSTABLE = "unstable"  # the same inputs gave another value in a second run, beyond the limit
RANDOM, NOT_JUDGED = "random", "not_judged"
WRONG_VERDICTS = (WRONG, NOT_FINITE, UNSTABLE)

# Where the fault comes in.
COMPILER = "compiler"  # inductor computes the operation wrongly
DECOMPOSITION = "decomposition"  # right without decompositions, wrong with them
BACKEND = "backend"  # a compile or a run fails from this operation on
MOST_ROWS = 200


@dataclass(frozen=True)
class JudgedNode:
    """An operation of the graph, judged on the compiled values of its inputs.

    Errors are rms(value − float64) / rms(float64); for integers and booleans, the share that
    differs.
    """

    node: str  # its name in the graph
    operation: str  # "aten.atan.default"
    level: str = "aot"  # aot | dynamo: whose graph
    verdict: str = RIGHT
    error: float | None = None  # of the compiled value
    eager_error: float | None = None  # of eager's, on the same inputs
    limit: float | None = None  # what the error may be
    not_finite_count: int = 0  # NaN or infinite elements where eager has none
    element_count: int = 0
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    is_deterministic: bool | None = None  # the same value in a second run
    explains: bool | None = None  # the outputs pass once eager computes this node
    reason: str | None = None  # why it was not judged
    source: str | None = None  # the line of the program that it comes from


@dataclass(frozen=True)
class Analysis:
    status: str  # one of STATUSES
    operation: str | None = None
    node: str | None = None
    level: str = "aot"  # of the graph that names it
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


@dataclass(frozen=True)
class TriedSetting:
    setting: str  # "epilogue_fusion"
    value: str  # as Python writes it
    passes: bool | None  # None: it could not be tried
    failure: str | None = None  # how it fails otherwise, where that is another failure
    seconds: float = 0.0


@dataclass(frozen=True)
class Bisection:
    status: str  # one of STATUSES
    backend: str | None = None  # the first of torch's backends that fails: "inductor"
    subsystem: str | None = None  # "lowerings"
    number: int | None = None  # which of its applications
    operation: str | None = None
    node: str | None = None
    application: str | None = None  # the name of the pass, or the node as torch writes it
    settings: tuple[TriedSetting, ...] = ()
    failure: str | None = None
    trial_count: int = 0
    notes: tuple[str, ...] = ()


def dump_analysis(analysis: Analysis) -> dict[str, Any]:
    rows = sort_rows(analysis.rows)
    body = _sparse(analysis)
    body["rows"] = [_sparse(row) for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        body["left_out_count"] = len(rows) - MOST_ROWS
    return body


def dump_bisection(bisection: Bisection) -> dict[str, Any]:
    body = _sparse(bisection)
    body["settings"] = [_sparse(entry) for entry in bisection.settings]
    return body


def load_analysis(body: Mapping[str, Any]) -> Analysis:
    values = _known(Analysis, body)
    values["rows"] = tuple(JudgedNode(**_known(JudgedNode, row)) for row in body.get("rows", ()))
    return Analysis(**values)


def load_bisection(body: Mapping[str, Any]) -> Bisection:
    values = _known(Bisection, body)
    values["settings"] = tuple(
        TriedSetting(**_known(TriedSetting, entry)) for entry in body.get("settings", ())
    )
    return Bisection(**values)


def sort_rows(rows: Iterable[JudgedNode]) -> list[JudgedNode]:
    return sorted(
        rows,
        key=lambda row: (
            row.verdict not in WRONG_VERDICTS,
            row.explains is not True,
            -_excess(row),
        ),
    )


def _excess(row: JudgedNode) -> float:
    if row.not_finite_count:
        return math.inf
    return (row.error or 0.0) / row.limit if row.limit else row.error or 0.0


def _known(kind: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    values = {entry.name: body[entry.name] for entry in fields(kind) if entry.name in body}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }


def _sparse(value: Any) -> dict[str, Any]:
    defaults = {
        entry.name: None if entry.default is MISSING else entry.default for entry in fields(value)
    }
    required = {entry.name for entry in fields(value) if entry.default is MISSING}
    return {
        name: list(part) if isinstance(part, tuple) else part
        for name, part in asdict(value).items()
        if (name in required or part != defaults[name])
        and not (isinstance(part, float) and not math.isfinite(part))
    }


PASSES = Failure(PASSED).describe()


def summarize_analysis(analysis: Analysis) -> str:
    if analysis.status == NOT_REPRODUCED:
        if analysis.failure in (None, PASSES):
            return "Not reproduced: the graph passes here, and every operation is right"
        return f"Not reproduced: it fails here in another way: {analysis.failure}"
    if analysis.status == ONLY_FUSED:
        return f"Wrong only when fused: {' → '.join(analysis.operations)}"
    if analysis.status == UNEXPLAINED:
        return f"No operation is named, though the graph fails: {analysis.failure}"
    row = next((row for row in analysis.rows if row.node == analysis.node), None)
    if row is None:
        return f"{analysis.operation} fails: {analysis.failure}"
    repeated = Counter(
        entry.operation for entry in analysis.rows if entry.verdict in WRONG_VERDICTS
    )
    times = f" ({repeated[row.operation]} of them)" if repeated[row.operation] > 1 else ""
    cause = "its decomposition is wrong" if analysis.cause == DECOMPOSITION else _describe_row(row)
    return f"{row.operation}{times}: {cause}"


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


def summarize_bisection(bisection: Bisection) -> str:
    if bisection.status == NOT_REPRODUCED:
        if bisection.failure in (None, PASSES):
            return "Not reproduced: the graph passes here"
        return f"Not reproduced: it fails here in another way: {bisection.failure}"
    if bisection.status == UNEXPLAINED:
        return f"No step is named: {bisection.failure}"
    if bisection.subsystem == "setting":
        return f"It passes with {bisection.application}"
    subject = bisection.operation or bisection.application
    number = f", application {bisection.number}" if bisection.number is not None else ""
    return f"{bisection.backend}, {bisection.subsystem}{number}{f': {subject}' if subject else ''}"
