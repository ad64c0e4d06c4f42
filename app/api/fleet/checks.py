"""Schemas of stored baselines and of checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compileboard.app.api.answers import (
    Answer,
    Operation,
    build_page_answer,
    read_cursor,
    read_limit,
    read_number,
    read_word,
    refuse,
)
from compileboard.app.api.parameters import PAGE
from compileboard.app.api.schema import (
    FILE,
    FUNCTION,
    LINE,
    Schema,
    anything,
    array_of,
    count,
    extend,
    flag,
    mapping,
    maybe,
    record,
    ref,
    text,
    time_us,
    whole,
    word,
)
from compileboard.app.checks.decision import compare
from compileboard.app.checks.formats import make_json
from compileboard.app.checks.rules import RULES
from compileboard.app.checks.rules.model import FAIL, IMPROVED, NOTE, PASS, RuleDistinct, RuleOptions, Side
from compileboard.app.checks.sides import choose_both, load_baseline, load_run
from compileboard.app.checks.tables import CannotCompare, list_flaky
from compileboard.app.checks.targets import find_baseline, find_run, is_file
from compileboard.app.db import get_reader
from compileboard.app.queries.fleet.baselines import BaselineRow
from compileboard.app.queries.fleet.baselines import get_baseline as find_stored
from compileboard.app.queries.fleet.baselines import list_baselines as list_stored
from compileboard.app.queries.page import FilterError

ROW = record(
    "A stored baseline.",
    name=text("Its name."),
    run_id=maybe(text("The run that it was last made of; that run may have been deleted.")),
    note=maybe(text("Why it is the baseline.")),
    created_us=time_us("When it was saved."),
    changed_us=time_us("When it was last updated."),
)
SCHEMAS: dict[str, Schema] = {
    "BaselineRow": ROW,
    "Baseline": extend(
        ROW,
        "A stored baseline with what it keeps.",
        environment=mapping({"type": "string"}, "What speeds depend on: the hardware, torch's version."),
        results=array_of(
            record(
                "What is kept of one model.",
                model=text("The model's name."),
                series=mapping(anything("A word or a number."), "Suite, mode, dtype and so on."),
                values=mapping(anything("A number or a word."), "What was measured, by upstream's column names."),
            ),
            "Results.",
        ),
        graph_breaks=maybe(array_of(ref("KeptDistinct"), "Distinct graph breaks; null where none could be recorded.")),
        recompile_causes=maybe(
            array_of(ref("KeptDistinct"), "Causes of recompiles; null where none could be recorded.")
        ),
    ),
    "KeptDistinct": record(
        "A distinct graph break or cause of recompiles, as a baseline keeps it.",
        fingerprint=text("What makes it the same in another run."),
        kind=maybe(text("torch's id of a graph break, the category of a guard.")),
        reason=text("Why, in torch's words."),
        function=FUNCTION,
        file=FILE,
        line=LINE,
        count=count("How often it came."),
        result=maybe(text("The result whose process had it; null where that is not known.")),
    ),
    "Check": record(
        "What a check found.",
        passed=flag("Whether nothing fails and all that the baseline calls for was compared."),
        exit_code=whole(
            "As `compileboard check` exits: 0 pass, 1 fail, 2 where a rule that the baseline calls for could not look."
        ),
        headline=text("What came of it, in a line."),
        run=text("What was checked."),
        baseline=maybe(text("What it was compared with.")),
        warnings=array_of({"type": "string"}, "What makes the comparison doubtful."),
        rules=array_of(
            record(
                "What one rule found.",
                name=word("The rule's name.", [rule.name for rule in RULES]),
                about=text("What it asks for."),
                not_compared=maybe(text("Why it could not look.")),
                counts=mapping(count("How often."), "How often each verdict came."),
                verdicts=array_of(
                    record(
                        "What a rule found of one model.",
                        name=text("The model."),
                        verdict=text("The verdict, in upstream's word where the rule is upstream's."),
                        outcome=word("What kind of verdict that is.", (PASS, NOTE, IMPROVED, FAIL)),
                        fails=flag("Whether it fails the check."),
                        detail=text("What came and what was expected."),
                    ),
                    "Verdicts, those that fail first.",
                ),
            ),
            "Rules, in their order.",
        ),
    ),
}


_CHOICES = ("suite", "mode", "dtype", "device", "backend")
_NUMBERS = ("batch_size", "world_size")
_FLAGS = {"yes": True, "no": False}
_ROW = ("name", "run_id", "note", "created_us", "changed_us")


def list_baselines() -> Answer:
    """List the stored baselines."""
    return build_page_answer(list_stored(get_reader(), read_cursor(), read_limit()), _row)


def get_baseline(baseline_name: str) -> Answer:
    """Return one stored baseline with what it keeps."""
    found = find_stored(get_reader(), baseline_name)
    if found is None:
        refuse(f"There is no baseline {baseline_name[:80]}; /api/v1/baselines lists them.")
    try:
        return Answer(_row(found) | _kept(load_baseline(found.body, found.name)))
    except CannotCompare as error:
        refuse(f"{error}.")


def get_check() -> Answer:
    """Put a run and a baseline under rules."""
    run_word, what = read_word("run") or "latest", read_word("baseline")
    for name, value in (("run", run_word), ("baseline", what)):
        if value and is_file(value):  # a file of the server's is nobody's business
            raise FilterError(f"{name}: {value[:80]!r} is a file; the API compares what is in the database")
    allowed = _read_one_of("environment", ("any",)) == "any"
    names = [word for word in (read_word("rule") or "").split(",") if word]
    try:
        run = find_run(get_reader, run_word)
        expected = find_baseline(get_reader, what, run) if what else None
        model = read_word("model")
        chosen = choose_both(load_run(get_reader(), run), expected, _read_choices(), [model] if model else [])
        options = RuleOptions(flaky=list_flaky())
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


def _distinct(it: RuleDistinct) -> dict[str, Any]:
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
