"""What `repro analyze` and `repro bisect` name of planted failures and of correct graphs.

    python -m benchmarks.repro.analyze [--bisect] [NAME …]

A row a planted failure: what named it, the operation, its error beside eager's, and wall time with
the start of the process. Then a row for the healthy graphs: operations judged, and wrongly called
wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import describe_machine
from compileboard.collectors.repro import findings
from compileboard.collectors.repro.isolation import run_task
from compileboard.collectors.repro.repro import NotRunnable, Repro
from compileboard.collectors.repro.trials import TrialLimits
from tests.integration.repro.planted_repros import make_repros
from tests.programs.planted import PLANTED

LOCATE = "compileboard.collectors.repro.locate"
LIMITS = TrialLimits(300.0)
HEADINGS = ("planted", "named by", "operation", "error", "eager's error", "seconds")


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="Planted failures. Default: all of them."
    )
    parser.add_argument("--bisect", action="store_true", help="Run `repro bisect` too.")
    asked = parser.parse_args()
    names = asked.names or [*PLANTED]
    with tempfile.TemporaryDirectory() as folder:
        repros = make_repros(Path(folder) / "repros", *names)
    rows = [HEADINGS]
    for name in names:
        rows += [
            _analyze(name, repros[name]),
            *([_bisect(name, repros[name])] if asked.bisect else []),
        ]
        print("  ".join(rows[-1]), file=sys.stderr)
    if not asked.names:
        rows.append(_judge_healthy())
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    print(
        "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in rows
        )
    )
    print(describe_machine())
    return 0


def _analyze(name: str, repro: Repro) -> tuple[str, ...]:
    started_s = time.monotonic()
    try:
        body = run_task(
            f"{LOCATE}.analyze_task:analyze", repro, limits=LIMITS, environment=os.environ
        )
    except NotRunnable as error:
        return (name, "analyze", f"could not be run: {error}", "", "", _seconds(started_s))
    analysis = findings.Analysis.load(body)
    row = next((row for row in analysis.rows if row.node == analysis.node), None)
    error = (
        "NaN"
        if row and row.verdict == findings.NOT_FINITE
        else f"{row.error:.2g}"
        if row and row.error
        else "–"
    )
    eager = f"{row.eager_error:.2g}" if row and row.eager_error is not None else "–"
    operation = analysis.operation or analysis.sentence()
    return (
        name,
        f"analyze, {analysis.cause or analysis.status}",
        operation,
        error,
        eager,
        _seconds(started_s),
    )


def _bisect(name: str, repro: Repro) -> tuple[str, ...]:
    started_s = time.monotonic()
    try:
        body = run_task(f"{LOCATE}.bisect:bisect", repro, limits=LIMITS, environment=os.environ)
    except NotRunnable as error:
        return (name, "bisect", f"could not be run: {error}", "", "", _seconds(started_s))
    answer = findings.Bisection.load(body)
    words = f"bisect, {answer.subsystem or answer.status}, {answer.trial_count} trials"
    return (
        name,
        words,
        answer.operation or answer.sentence(),
        "–",
        "–",
        _seconds(started_s),
    )


def _judge_healthy() -> tuple[str, ...]:
    """Analyze graphs in which nothing is wrong, in this process."""
    import torch

    from compileboard.collectors.repro.judging import Judge
    from compileboard.collectors.repro.locate.analyze import analyze_graph
    from tests.integration.repro.healthy_graphs import HEALTHY, trace

    started_s, judged_count, wrong = time.monotonic(), 0, []
    for program, make in HEALTHY.values():
        torch.manual_seed(3)
        analysis = analyze_graph(trace(program, make()), make(), Judge("accuracy", "aot"))
        judged_count += analysis.judged_count
        wrong += [row.operation for row in analysis.rows if row.verdict in findings.WRONG_VERDICTS]
    words = f"{len(wrong)} of {judged_count} operations of {len(HEALTHY)} graphs called wrong"
    return ("nothing", "analyze", ", ".join([words, *wrong]), "–", "–", _seconds(started_s))


def _seconds(started_s: float) -> str:
    return f"{time.monotonic() - started_s:.1f}"


if __name__ == "__main__":
    sys.exit(main())
