"""Summarise the answers of `repro analyze` and `repro bisect`. No torch."""

from __future__ import annotations

from collections import Counter

from compileboard.collectors.repro.failure import PASSED, Failure
from compileboard.collectors.repro.locate import findings
from compileboard.collectors.repro.locate.findings import Analysis, Bisection, JudgedNode

PASSES = Failure(PASSED).describe()


def summarize_analysis(analysis: Analysis) -> str:
    if analysis.status == findings.NOT_REPRODUCED:
        if analysis.failure in (None, PASSES):
            return "Not reproduced: the graph passes here, and every operation is right"
        return f"Not reproduced: it fails here in another way: {analysis.failure}"
    if analysis.status == findings.ONLY_FUSED:
        return f"Wrong only when fused: {' → '.join(analysis.operations)}"
    if analysis.status == findings.UNEXPLAINED:
        return f"No operation is named, though the graph fails: {analysis.failure}"
    row = next((row for row in analysis.rows if row.node == analysis.node), None)
    if row is None:
        return f"{analysis.operation} fails: {analysis.failure}"
    repeated = Counter(
        entry.operation for entry in analysis.rows if entry.verdict in findings.WRONG_VERDICTS
    )
    times = f" ({repeated[row.operation]} of them)" if repeated[row.operation] > 1 else ""
    cause = (
        "its decomposition is wrong"
        if analysis.cause == findings.DECOMPOSITION
        else _describe_row(row)
    )
    return f"{row.operation}{times}: {cause}"


def _describe_row(row: JudgedNode) -> str:
    if row.verdict == findings.NOT_FINITE:
        return (
            f"NaN or infinity in {row.not_finite_count:,} of {row.element_count:,} elements "
            "where eager has none"
        )
    if row.error is None:
        return row.reason or "wrong"
    beside = f", eager {row.eager_error:.2g}" if row.eager_error is not None else ""
    return f"error {row.error:.2g}{beside}"


def summarize_bisection(bisection: Bisection) -> str:
    if bisection.status == findings.NOT_REPRODUCED:
        if bisection.failure in (None, PASSES):
            return "Not reproduced: the graph passes here"
        return f"Not reproduced: it fails here in another way: {bisection.failure}"
    if bisection.status == findings.UNEXPLAINED:
        return f"No step is named: {bisection.failure}"
    if bisection.subsystem == "setting":
        return f"It passes with {bisection.application}"
    subject = bisection.operation or bisection.application
    number = f", application {bisection.number}" if bisection.number is not None else ""
    return f"{bisection.backend}, {bisection.subsystem}{number}{f': {subject}' if subject else ''}"
