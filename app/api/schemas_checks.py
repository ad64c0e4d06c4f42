"""Schemas of stored baselines and of checks."""

from __future__ import annotations

from compileboard.app.analysis.gates import RULES
from compileboard.app.analysis.gates.model import FAIL, IMPROVED, NOTE, PASS
from compileboard.app.api.schema import (
    Schema,
    anything,
    count,
    extend,
    flag,
    mapping,
    maybe,
    record,
    ref,
    rows,
    text,
    time_us,
    whole,
    word,
)
from compileboard.app.api.schemas_parts import FILE, FUNCTION, LINE

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
        results=rows(
            record(
                "What is kept of one model.",
                model=text("The model's name."),
                series=mapping(anything("A word or a number."), "Suite, mode, dtype and so on."),
                values=mapping(anything("A number or a word."), "What was measured, by upstream's column names."),
            ),
            "Results.",
        ),
        graph_breaks=maybe(rows(ref("KeptDistinct"), "Distinct graph breaks; null where none could be recorded.")),
        recompile_causes=maybe(rows(ref("KeptDistinct"), "Causes of recompiles; null where none could be recorded.")),
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
        warnings=rows({"type": "string"}, "What makes the comparison doubtful."),
        rules=rows(
            record(
                "What one rule found.",
                name=word("The rule's name.", [rule.name for rule in RULES]),
                about=text("What it asks for."),
                not_compared=maybe(text("Why it could not look.")),
                counts=mapping(count("How often."), "How often each verdict came."),
                verdicts=rows(
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
