"""Stored baselines, and what a run is against one of them: the verdicts of `compileboard check`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compileboard.app.analysis.gates.model import Distinct, Options, Side
from compileboard.app.api.answer import Answer, give_page, read_cursor, read_limit, read_number, read_word, refuse
from compileboard.app.api.operation import Operation
from compileboard.app.api.parameters import PAGE
from compileboard.app.checks.decide import compare
from compileboard.app.checks.find import find_baseline, find_run, is_file
from compileboard.app.checks.flaky import list_flaky
from compileboard.app.checks.sides import choose_both, load_run, load_side
from compileboard.app.checks.tables import CannotCompare
from compileboard.app.checks.write_json import make_json
from compileboard.app.db import get_reader
from compileboard.app.queries.baselines import BaselineRow
from compileboard.app.queries.baselines import get_baseline as find_stored
from compileboard.app.queries.baselines import list_baselines as list_stored
from compileboard.app.queries.page import FilterError

_CHOICES = ("suite", "mode", "dtype", "device", "backend")
_NUMBERS = ("batch_size", "world_size")
_FLAGS = {"yes": True, "no": False}
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
    allowed = _read_one_of("environment", ("any",)) == "any"
    names = [word for word in (read_word("rule") or "").split(",") if word]
    try:
        run = find_run(get_reader, run_word)
        expected = find_baseline(get_reader, what, run) if what else None
        model = read_word("model")
        chosen = choose_both(load_run(get_reader(), run), expected, _read_choices(), [model] if model else [])
        options = Options(flaky=list_flaky())
        report = compare(*chosen[:2], names, options, allow_environment_change=allowed, notes=chosen[2])
    except CannotCompare as error:
        raise FilterError(f"could not compare: {error}") from None
    return Answer(make_json(report))


def _read_choices() -> dict[str, Any]:
    wanted: dict[str, Any] = {name: word for name in _CHOICES if (word := read_word(name))}
    if dynamic := _read_one_of("dynamic", _FLAGS):
        wanted["dynamic"] = _FLAGS[dynamic]
    for name in _NUMBERS:
        text = read_word(name)
        if text:
            number = read_number(text)
            if number is None:
                raise FilterError(f"{name}: {text[:40]!r} is no whole number")
            wanted[name] = number
    return wanted


def _read_one_of(name: str, known: Iterable[str]) -> str | None:
    word = read_word(name)
    if word and word not in known:
        raise FilterError(f"{name}: {word[:40]!r} is not {' or '.join(known)}")
    return word


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
    Operation(
        "/baselines/<path:baseline_name>", get_baseline, "Baseline", False, "One stored baseline with what it keeps."
    ),
    Operation(
        "/check",
        get_check,
        "Check",
        False,
        "A run against a baseline, under rules: the verdicts of `compileboard check`. What cannot be compared is 400.",
        (
            "run_check",
            "baseline",
            "rule",
            "environment",
            "suite_model",
            "mode",
            "dtype",
            "device",
            "backend",
            "dynamic",
            "batch_size",
            "world_size",
            "model_check",
        ),
    ),
)
