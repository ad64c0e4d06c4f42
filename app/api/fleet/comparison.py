"""Schemas of comparisons."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis.comparison.differences import WORDS
from compileboard.app.analysis.comparison.rows import comparison_row
from compileboard.app.analysis.comparison.sides import read_comparison
from compileboard.app.api.answers import Answer, Operation, read_word, refuse
from compileboard.app.api.fleet.models import SERIES
from compileboard.app.api.schema import (
    FILE,
    FUNCTION,
    LINE,
    Schema,
    array_of,
    count,
    decimal,
    duration_us,
    flag,
    mapping,
    maybe,
    record,
    ref,
    text,
    time_us,
    word,
)
from compileboard.app.db import get_reader
from compileboard.app.queries.fleet.sides import find_default
from compileboard.app.queries.page import FilterError
from compileboard.collectors.contract.verdicts import LABELS, METHODS

_TEXTS: Schema = {"type": "string"}
_RUNS = {
    "base_run_id": maybe(text("The run that base's result is of; null for a stored baseline's.")),
    "new_run_id": maybe(text("The run that new's result is of; null for a stored baseline's.")),
}
_MODEL = SERIES | {"model": text("The model's name.")}
_CHANGE = {
    "base": maybe(decimal("Base, in the metric's unit.")),
    "new": maybe(decimal("New, in the metric's unit.")),
    "change": maybe(decimal("New ÷ base − 1; null where base is not above 0.")),
}


def _run(said: str) -> Schema:
    return record(
        said,
        id=text("Its id."),
        name=text("What it is called."),
        started_us=time_us("When it started."),
        state=text("Its state."),
        commit=maybe(text("Its commit.")),
        branch=maybe(text("Its branch.")),
        subject=maybe(text("The commit's subject.")),
    )


def _side(said: str) -> Schema:
    return record(
        said,
        asked=text("What names it."),
        title=text("What it is called."),
        runs=array_of(_run("A run of it."), "Its runs, the newest first; none of a stored baseline."),
    )


def _spent(said: str) -> Schema:
    spent = {name: count(f"{name} of it.") for name in ("compile_count", "graph_break_count", "recompile_count")}
    return maybe(record(said, **spent, compile_us=maybe(duration_us("Compile time."))))


def _of_side(said: str) -> Schema:
    return record(
        said,
        **_MODEL,
        run_id=maybe(text("The run that its result is of.")),
        status=text("What became of it."),
        reason=maybe(text("Why it failed or was not run.")),
    )


_CHANGES: dict[str, Any] = {
    "fingerprint": text("What makes it the same in another run."),
    "kind": maybe(text("torch's id of a graph break, the category of a guard.")),
    "reason": text("Why, in torch's words."),
    "function": FUNCTION,
    "file": FILE,
    "line": LINE,
    "model": maybe(text("The model that had it, null where only the whole side tells.")),
    "word": word("What became of it.", WORDS),
    "base_count": count("How often on base."),
    "new_count": count("How often in new."),
}
SCHEMAS: dict[str, Schema] = {
    "Compare": record(
        "What changed from base to new, over what both sides have.",
        base=_side("What was."),
        new=_side("What is judged."),
        anyway=flag("Whether numbers across machines are compared as well."),
        refused=array_of(_TEXTS, "What makes the numbers lie, so that they are not compared."),
        warnings=array_of(_TEXTS, "What makes the numbers doubtful."),
        common_count=count("Models that both sides measured."),
        metrics=array_of(
            record(
                "One metric over the models that have it on both sides.",
                metric=text("Its name."),
                label=text("Its label."),
                unit=text("Its unit, empty for counts."),
                direction=word("Which way is better.", ("up_is_good", "down_is_good", "neutral")),
                mean=word("What base and new are.", ("sum", "geometric mean")),
                count=count("Models in it; a wrong answer counts in no mean."),
                **_CHANGE,
                verdict=maybe(word("What the change over all models means; null where there is no mean.", LABELS)),
                basis=maybe(text("What that rests on.")),
                verdicts=mapping(count("Models."), "Models by verdict."),
                methods=mapping(count("Models."), "Models by what the verdict rests on."),
            ),
            "Every metric.",
        ),
        models=array_of(
            record(
                "A model that both sides measured.",
                **_MODEL,
                **_RUNS,
                base_accuracy=maybe(text("Upstream's verdict on base.")),
                new_accuracy=maybe(text("Upstream's verdict in new.")),
                accuracy_change=maybe(word("Whether its answers became wrong or right.", ("broke", "fixed"))),
                warning=maybe(text("What makes its numbers doubtful.")),
                metrics=mapping(ref("CompareDelta"), "Its metrics by name."),
            ),
            "By name.",
        ),
        only_base=array_of(_of_side("A model."), "Models that only base has."),
        only_new=array_of(_of_side("A model."), "Models that only new has."),
        excluded=array_of(
            record("A model.", **_MODEL, **_RUNS, reason=text("Why it is not compared.")),
            "Models that both sides know and that are not compared.",
        ),
        graph_breaks=ref("CompareDistinct"),
        recompile_causes=ref("CompareDistinct"),
        totals=mapping(ref("CompareDelta"), "Whole runs; empty where the sides have other runs or models."),
        functions=array_of(
            record(
                "One function.",
                file=text("Its file."),
                function=text("Its name."),
                base=_spent("What base spent on it, null where base has none."),
                new=_spent("What new spent on it, null where new has none."),
            ),
            "Functions, the largest change of compile time first.",
        ),
        environment=array_of(
            record(
                "One thing of the surroundings.",
                name=text("What it is."),
                base=array_of(_TEXTS, "Base's values."),
                new=array_of(_TEXTS, "New's values."),
                weight=word("What that means.", ("refuses", "warns", "intended", "differs", "same")),
            ),
            "Surroundings.",
        ),
        settings=array_of(
            record(
                "A setting that differs from torch's default on a side.",
                module=text("Its module."),
                name=text("Its name."),
                default=text("torch's default."),
                base=maybe(text("Base's value, null for the default.")),
                new=maybe(text("New's value, null for the default.")),
                differs=flag("Whether the sides differ."),
            ),
            "Configuration, what differs first.",
        ),
    ),
    "CompareDelta": record(
        "One metric on both sides.",
        **_CHANGE,
        verdict=word("What it means.", LABELS),
        method=word("What the verdict rests on.", METHODS),
        detail=text("How that came out."),
        basis=text("What the verdict rests on: the samples a side, and how far they scatter."),
        p_value=maybe(decimal("Of the Mann–Whitney U test.")),
        ratio_low=maybe(decimal("Where the interval of new ÷ base begins.")),
        ratio_high=maybe(decimal("Where it ends.")),
    ),
    "CompareDistinct": record(
        "Distinct graph breaks or causes of recompiles.",
        not_compared=maybe(text("Why they are not compared.")),
        left_out_count=count("Those of models or experiments that only one side has."),
        changes=array_of(record("One of them.", **_CHANGES), "What is new comes first."),
    ),
}


def get_comparison() -> Answer:
    """Compare two sides; what is not given is the newest benchmark and the one before it."""
    anyway = request.args.get("anyway", "")
    if anyway not in ("", "1"):
        raise FilterError(f"anyway: {anyway[:40]!r} is not 1, the one value that it has")
    reader = get_reader()
    both = find_default(reader, read_word("base"), read_word("new"))
    if both is None:
        refuse("There is nothing to compare with: name both sides, base and new.")
    return Answer(comparison_row(read_comparison(reader, *both, anyway=anyway == "1", suite=read_word("suite"))))


OPERATIONS = (
    Operation(
        "/compare",
        get_comparison,
        "Compare",
        False,
        "What changed from base to new: every metric of every model with its verdict, graph breaks, recompiles.",
        ("base", "new", "anyway", "suite_model"),
    ),
)
