"""Write what a check found as JSON: the API's data and the file of --json."""

from __future__ import annotations

from typing import Any

from compileboard.app.checks.decide import Report


def make_json(report: Report) -> dict[str, Any]:
    """Return what a check found as plain values."""
    return {
        "passed": report.exit_code == 0,
        "exit_code": report.exit_code,
        "headline": report.headline,
        "run": report.run,
        "baseline": report.baseline,
        "warnings": list(report.warnings),
        "rules": [
            {
                "name": it.rule.name,
                "about": it.rule.said,
                "not_compared": it.lacks or None,
                "counts": it.counts,
                "verdicts": [
                    {
                        "name": verdict.name,
                        "verdict": verdict.word,
                        "outcome": verdict.outcome,
                        "fails": report.fails(verdict),
                        "detail": verdict.detail,
                    }
                    for verdict in it.verdicts
                ],
            }
            for it in report.rules
        ],
    }
