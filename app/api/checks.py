"""Stored baselines, and what a run is against one of them: the verdicts of `compileboard check`."""

from __future__ import annotations

from typing import Any

from flask import request

from app.analysis.gates.model import Distinct, Options, Side
from app.api.answer import Answer, give_page, read_cursor, read_limit, read_word, refuse
from app.api.operation import Operation
from app.api.parameters import PAGE
from app.checks.decide import compare
from app.checks.find import find_baseline, find_run, is_file
from app.checks.flaky import list_flaky
from app.checks.sides import load_run, load_side
from app.checks.tables import CannotCompare
from app.checks.write_json import make_json
from app.db import get_reader
from app.queries.baselines import BaselineRow
from app.queries.baselines import get_baseline as find_stored
from app.queries.baselines import list_baselines as list_stored
from app.queries.page import FilterError

_ROW = ("name", "run_id", "note", "created_us", "changed_us")


def list_baselines() -> Answer:
    """List the stored baselines."""
    return give_page(list_stored(get_reader(), read_cursor(), read_limit()), _row)


def get_baseline(baseline_name: str) -> Answer:
    """Return one stored baseline with what it keeps."""
    found = find_stored(get_reader(), baseline_name)
    if found is None:
        refuse(f"There is no baseline {baseline_name[:80]}; /api/v1/baselines lists them.")
    try:
        return Answer(_row(found) | _kept(load_side(found.body, found.name)))
    except CannotCompare as error:
        refuse(f"{error}.")


def get_check() -> Answer:
    """Put a run and a baseline under rules."""
    run_word, what = read_word("run") or "latest", read_word("baseline")
    for name, text in (("run", run_word), ("baseline", what)):
        if text and is_file(text):  # a file of the server's is nobody's business
            raise FilterError(f"{name}: {text[:80]!r} is a file; the API compares what is in the database")
    names = [word for word in (read_word("rule") or "").split(",") if word]
    try:
        run = find_run(get_reader, run_word)
        expected = find_baseline(get_reader, what, run) if what else None
        options = Options(flaky=list_flaky())
        allowed = request.args.get("environment") == "any"
        report = compare(load_run(get_reader(), run), expected, names, options, allow_environment_change=allowed)
    except CannotCompare as error:
        raise FilterError(f"could not compare: {error}") from None
    return Answer(make_json(report))


def _row(it: BaselineRow) -> dict[str, Any]:
    return {name: getattr(it, name) for name in _ROW}


def _kept(side: Side) -> dict[str, Any]:
    return {
        "environment": dict(side.environment),
        "results": [{"model": row.name, "series": dict(row.series), "values": dict(row.cells)} for row in side.rows],
        "graph_breaks": None if side.breaks is None else [_distinct(it) for it in side.breaks],
        "recompile_causes": None if side.causes is None else [_distinct(it) for it in side.causes],
    }


def _distinct(it: Distinct) -> dict[str, Any]:
    names = ("fingerprint", "kind", "reason", "function", "file", "line", "count")
    return {name: getattr(it, name) for name in names} | {"result": it.model}


OPERATIONS = (
    Operation("/baselines", list_baselines, "BaselineRow", True, "What people keep to compare with, by name.", PAGE),
    Operation("/baselines/<baseline_name>", get_baseline, "Baseline", False, "One stored baseline with what it keeps."),
    Operation(
        "/check",
        get_check,
        "Check",
        False,
        "A run against a baseline, under rules: the verdicts of `compileboard check`. What cannot be compared is 400.",
        ("run_check", "baseline", "rule", "environment"),
    ),
)
