"""Schemas of guards: sets, sums, one as a tree, two compared."""

from __future__ import annotations

from compileboard.app.api.schema import (
    Schema,
    count,
    decimal,
    extend,
    mapping,
    maybe,
    record,
    ref,
    rows,
    text,
    whole,
    word,
)
from compileboard.app.api.schemas_parts import COMPILE_ID, COMPILE_KEY, ID, PLACE, PROCESS_ID, RANK, SOURCE_LINE

_KINDS = mapping({"type": "integer"}, "Guards by torch's name of their kind, the most frequent first.")
_ROOTS = rows(
    record("One place.", root=text("Input or global: `L['x']`."), guard_count=count("Guards about it.")),
    "Places that guards are about, the most guards first; a set keeps twenty.",
)
_LATENCY = "Time that checking a whole set takes, measured by torch once. Microseconds."
_SET = record(
    "The guards of one compile, summed up.",
    id=ID,
    run_id=text("The run's id."),
    artifact_id=whole("`id` of the artifact that holds them, as in `/runs/<run_id>/guards/<guards_id>`."),
    process_id=PROCESS_ID,
    rank=RANK,
    compile_key=COMPILE_KEY,
    compile_id=COMPILE_ID,
    **PLACE,
    guard_count=maybe(count("Guards: conditions as torch prints them.")),
    latency_us=maybe(decimal(_LATENCY)),
    kinds=_KINDS,
    roots=_ROOTS,
    root_count=maybe(count("Places in all.")),
)
_NODE = {
    "kind": word("What the line is.", ("manager", "guard", "text")),
    "guard_type": maybe(text("torch's name of its kind.")),
    "source": maybe(text("Where the value is found.")),
    "accessor": maybe(text("How it is reached from the line above.")),
    "value_type": maybe(text("The value's type.")),
    "code": maybe(text("What is checked.")),
    "user_line": SOURCE_LINE,
    **{name: PLACE[name] for name in ("file", "line", "function")},
    "hint": maybe(text("What torch says to do.")),
    "remark": maybe(text("What else torch says beside the line.")),
}
_GUARD = record("One line of a tree of guards.", **_NODE)
_FIELD = record(
    "A field that differs.",
    name=text("Its name."),
    before=maybe(text("Value before; null where it was not there.")),
    after=maybe(text("Value after; null where it is not there.")),
)
SCHEMAS: dict[str, Schema] = {
    "GuardSet": _SET,
    "GuardSums": record(
        "What a run's guards come to.",
        set_count=count("Sets."),
        guard_count=maybe(count("Guards of all sets.")),
        timed_count=count("Sets that torch timed."),
        median_us=maybe(decimal(f"Median. {_LATENCY}")),
        highest_us=maybe(decimal(f"Largest. {_LATENCY}")),
        kinds=_KINDS,
        roots=_ROOTS,
        other_root_count=count("Guards about places that were not kept by name."),
        origins=rows(
            record(
                "Guards about one sort of place.",
                key=text("Its name."),
                label=text("In words."),
                meaning=text("What that is."),
                guard_count=count("Guards."),
                share_ratio=decimal("Their part of all guards."),
            ),
            "Guards by what they are about.",
        ),
        advice=rows(
            record(
                "One thing to do.",
                title=text("What to do."),
                seen=text("Why it is said of this run."),
                code=text("What to write."),
                since=text("The first torch that has it."),
                risk=text("What it gives up."),
            ),
            "What would make checking cheaper.",
        ),
    ),
    "GuardTree": extend(
        _SET,
        "The guards of one compile.",
        previous_artifact_id=maybe(whole("`artifact_id` of the cache entry before it.")),
        nodes=maybe(
            rows(
                record("One line of the tree.", depth=count("Lines above it that it hangs on."), **_NODE),
                "The tree's lines in torch's order; null where they are not kept.",
            )
        ),
    ),
    "GuardDiff": record(
        "The guards of two compiles compared; null where one of them is not kept.",
        a=ref("GuardSet"),
        b=ref("GuardSet"),
        added=maybe(rows(_GUARD, "Guards that only `b` has.")),
        removed=maybe(rows(_GUARD, "Guards that only `a` has.")),
        changed=maybe(
            rows(
                record(
                    "One place, another expected value.",
                    before=_GUARD,
                    after=_GUARD,
                    fields=rows(_FIELD, "What differs."),
                ),
                "Guards whose place is the same and whose expected value is another.",
            )
        ),
        same_count=maybe(count("Guards that are the same.")),
        identity_count=maybe(count("Of these, the ones that differ in an object's identity alone.")),
    ),
}
