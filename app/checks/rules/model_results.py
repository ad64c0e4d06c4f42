"""Rules of each model's result: its accuracy, whether it is present, its open incidents.

Sources: pytorch benchmarks/dynamo/check_accuracy.py at 005a514, check_csv.py
"""

from __future__ import annotations

from collections.abc import Iterator

from compileboard.app.checks.model import (
    FAIL,
    IMPROVED,
    NOTE,
    PASS,
    Finding,
    Rule,
    RuleOptions,
    Side,
    is_empty,
    require_columns,
    show,
)
from compileboard.app.incidents.model import describe_incident_range


def _find_accuracies(actual: Side, expected: Side, options: RuleOptions) -> Iterator[Finding]:
    for row in actual.rows:
        ours, theirs = (side.get(row.name, "accuracy") for side in (actual, expected))
        if ours is None:
            word = "MISSING_ACCURACY"
        elif theirs is None:
            word = "MISSING_EXPECTED"
        elif ours == theirs:
            word = "PASS" if theirs == "pass" else "XFAIL"
        elif row.name in options.flaky:
            word = "PASS_BUT_FLAKY" if ours == "pass" else "FAIL_BUT_FLAKY"
        else:
            word = "IMPROVED" if ours == "pass" else "FAIL"
        is_told = word not in ("PASS", "XFAIL")
        yield row.name, word, f"accuracy={show(ours)}, expected={show(theirs)}" if is_told else ""


ACCURACY = Rule(
    name="accuracy",
    about="every model's accuracy is the expected one",
    source="check_accuracy.py",
    words={
        "PASS": PASS,
        "XFAIL": PASS,
        "PASS_BUT_FLAKY": NOTE,
        "FAIL_BUT_FLAKY": NOTE,
        "IMPROVED": IMPROVED,
        "FAIL": FAIL,
        "MISSING_ACCURACY": FAIL,
        "MISSING_EXPECTED": FAIL,
    },
    find=_find_accuracies,
    applies=require_columns("accuracy", both=True),
    is_default=True,
    columns=("accuracy",),
)


def _find_passes(actual: Side, _expected: Side, _options: RuleOptions) -> Iterator[Finding]:
    for row in actual.rows:
        accuracy = row.cells.get("accuracy")
        if is_empty(accuracy):
            yield row.name, "FAIL", "no accuracy recorded"
        else:
            yield row.name, "PASS" if "pass" in str(accuracy) else "FAIL", str(accuracy)


CSV = Rule(
    name="csv",
    about='every accuracy has "pass" in it; needs no baseline',
    source="check_csv.py",
    words={"PASS": PASS, "FAIL": FAIL},
    find=_find_passes,
    applies=require_columns("accuracy"),
    needs_baseline=False,
)


def _find_vanished(actual: Side, expected: Side, _options: RuleOptions) -> Iterator[Finding]:
    cells_by_name = {row.name: row.cells for row in actual.rows}
    ran = {
        row.name for row in expected.rows if row.cells.get("status") not in ("skipped", "not_run")
    }
    for name in dict.fromkeys(row.name for row in expected.rows):
        cells = cells_by_name.get(name)
        if cells is None:
            yield name, "VANISHED", f"in {expected.title}, not in {actual.title}"
        elif name in ran and (status := cells.get("status")) in ("skipped", "not_run"):
            yield name, status.upper(), str(cells.get("reason") or "no reason was recorded")
        else:
            yield name, "PASS"


VANISHED = Rule(
    name="vanished",
    about="every model of the baseline is in the run",
    source="CompileBoard",
    words={"PASS": PASS, "SKIPPED": NOTE, "NOT_RUN": FAIL, "VANISHED": FAIL},
    find=_find_vanished,
    applies=lambda _actual, expected, _options: (
        "" if expected.rows else f"{expected.title} has no results"
    ),
    is_default=True,
)


def _find_unexpected(actual: Side, expected: Side, _options: RuleOptions) -> Iterator[Finding]:
    known = expected.names()
    for name in dict.fromkeys(row.name for row in actual.rows):
        if name in known:
            yield name, "PASS"
        else:
            yield name, "MISSING_BASELINE", f"not in {expected.title}"


MISSING_BASELINE = Rule(
    name="missing-baseline",
    about="every model of the run is in the baseline",
    source="CompileBoard",
    words={"PASS": PASS, "MISSING_BASELINE": FAIL},
    find=_find_unexpected,
    applies=lambda actual, _expected, _options: (
        "" if actual.rows else f"{actual.title} has no results"
    ),
)


def _find_incidents(actual: Side, _expected: Side, _options: RuleOptions) -> Iterator[Finding]:
    names = {row.key: row.name for row in actual.rows}
    concerned = [open_ for open_ in actual.incidents or () if names.keys() >= set(open_.keys)]
    for open_incident in concerned:
        incident = open_incident.incident
        models = {names[key] for key in open_incident.keys}
        name = models.pop() if len(models) == 1 else f"suite {incident.suite}"
        title = incident.title.removeprefix(f"{name}: ")
        word = "OPEN_INCIDENT" if incident.state == "open" else "UNCONFIRMED"
        detail = f"{title}, {describe_incident_range(incident)} (incident {incident.id})"
        yield name, word, detail
    if not concerned:
        yield "the run", "PASS"


INCIDENTS = Rule(
    name="incidents",
    about=(
        "nothing that the run measured has an open incident: confirmed, not recovered, not taken on"
    ),
    source="CompileBoard",
    words={"PASS": PASS, "UNCONFIRMED": NOTE, "OPEN_INCIDENT": FAIL},
    find=_find_incidents,
    applies=lambda actual, _expected, _options: (
        f"no detection has run since {actual.title} was made; `compileboard incidents update` "
        "does it"
        if actual.incidents is None
        else ""
    ),
    needs_baseline=False,
)
