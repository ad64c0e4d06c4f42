"""The findings that concern a run: of the series that it measured, on its branch, begun with it or before."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from compileboard.app.analysis.gates.model import OpenFinding, Row
from compileboard.app.analysis.gates.pairing import FIELDS, TIE_BREAKERS
from compileboard.app.queries.findings import NOT_WITHDRAWN, Finding, FindingFilter, get_detection, list_findings
from compileboard.app.queries.runs import RunRow

MOST = 1000  # of one suite


def load_findings(reader: sqlite3.Connection, run: RunRow, rows: Sequence[Row]) -> tuple[OpenFinding, ...] | None:
    """List what is open, worse and not recovered of a run's series; None where nobody has looked since it ended."""
    detection = get_detection(reader)
    if detection is None or detection.finished_us < (run.ended_us or run.started_us):
        return None
    found: list[OpenFinding] = []
    for suite in sorted({str(row.series.get("suite") or "") for row in rows}):
        wanted = FindingFilter(state=NOT_WITHDRAWN, handling="open", direction="worse", recovered=False, suite=suite)
        for it in list_findings(reader, wanted, limit=MOST).rows:
            keys = _find_keys(it, run, rows)
            if keys:
                found.append(OpenFinding(keys, it))
    return tuple(found)


def _find_keys(it: Finding, run: RunRow, rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the keys of the results that a finding is about; of a suite, or a model that is gone, all like it."""
    if it.first_us > run.started_us or (it.branch and run.git_branch and it.branch != run.git_branch):
        return ()
    alike = [row for row in rows if all(_fits(row, name, it) for name in FIELDS)]
    if it.subject == "model" and it.kind != "vanished":
        alike = [row for row in alike if row.name == it.model and all(_fits(row, name, it) for name in TIE_BREAKERS)]
    return tuple(row.key for row in alike)


def _fits(row: Row, name: str, it: Finding) -> bool:
    """Tell whether a field is the same; what one of both does not say fits everything."""
    ours, theirs = row.series.get(name) or None, getattr(it, name) or None
    return ours is None or theirs is None or ours == theirs
