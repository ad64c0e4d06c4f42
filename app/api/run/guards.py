"""Schemas of guards: sets, sums, one as a tree, two compared."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis.guards.diff import GuardChange
from compileboard.app.analysis.rows import guard_set_row
from compileboard.app.api.answers import (
    Answer,
    Operation,
    build_page_answer,
    find_run,
    read_cursor,
    read_limit,
    read_number,
    refuse,
)
from compileboard.app.api.parameters import PAGE
from compileboard.app.api.schema import (
    COMPILE_ID,
    COMPILE_KEY,
    ID,
    PLACE,
    PROCESS_ID,
    RANK,
    SOURCE_LINE,
    Schema,
    array_of,
    count,
    decimal,
    extend,
    mapping,
    maybe,
    record,
    ref,
    text,
    whole,
    word,
)
from compileboard.app.db import get_reader
from compileboard.app.queries.run import guards
from compileboard.app.queries.run.artifacts import check_artifact_id
from compileboard.app.screens.run.guards import GuardSetScreen, build_guard_set, build_guards, compare_guard_sets
from compileboard.collectors.store.payloads import GuardNode, walk

_KINDS = mapping({"type": "integer"}, "Guards by torch's name of their kind, the most frequent first.")
_ROOTS = array_of(
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
        origins=array_of(
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
        advice=array_of(
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
            array_of(
                record("One line of the tree.", depth=count("Lines above it that it hangs on."), **_NODE),
                "The tree's lines in torch's order; null where they are not kept.",
            )
        ),
    ),
    "GuardDiff": record(
        "The guards of two compiles compared; null where one of them is not kept.",
        a=ref("GuardSet"),
        b=ref("GuardSet"),
        added=maybe(array_of(_GUARD, "Guards that only `b` has.")),
        removed=maybe(array_of(_GUARD, "Guards that only `a` has.")),
        changed=maybe(
            array_of(
                record(
                    "One place, another expected value.",
                    before=_GUARD,
                    after=_GUARD,
                    fields=array_of(_FIELD, "What differs."),
                ),
                "Guards whose place is the same and whose expected value is another.",
            )
        ),
        same_count=maybe(count("Guards that are the same.")),
        identity_count=maybe(count("Of these, the ones that differ in an object's identity alone.")),
    ),
}


_RUN = "/runs/<run_id>/guards"
NODE_FIELDS = (
    "kind",
    "guard_type",
    "source",
    "accessor",
    "value_type",
    "code",
    "user_line",
    "file",
    "line",
    "function",
    "hint",
    "remark",
)


def list_guard_sets(run_id: str) -> Answer:
    """List sets of guards."""
    find_run(run_id)
    sort = request.args.get("sort") or "latency"
    page = guards.list_guard_sets(get_reader(), run_id, sort, read_cursor(), read_limit())
    return build_page_answer(page, guard_set_row)


def get_sums(run_id: str) -> Answer:
    """Return what a run's guards come to."""
    find_run(run_id)
    screen = build_guards(get_reader(), run_id, limit=1)
    sums = screen.sums
    return Answer(
        dict(vars(screen.totals))
        | {
            "kinds": dict(sums.kinds),
            "roots": [{"root": root, "guard_count": count} for root, count in sums.roots],
            "other_root_count": sums.other_root_count,
            "origins": [dict(vars(origin)) for origin in screen.origins],
            "advice": [dict(vars(fix)) for fix in screen.advice],
        }
    )


def _node_row(node: GuardNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in NODE_FIELDS}


def _read(run_id: str | None, number: int | None, given: str) -> GuardSetScreen:
    screen = None if number is None else build_guard_set(get_reader(), run_id, number)
    if screen is None:
        refuse(f"{f'Run {run_id[:80]}' if run_id else 'This database'} has no guards with the number {given[:40]}.")
    return screen


def get_guards(run_id: str, guards_id: str) -> Answer:
    """Return the guards of one compile."""
    find_run(run_id)
    screen = _read(run_id, read_number(guards_id), guards_id)
    previous, tree = screen.previous, screen.tree
    nodes = None if tree is None else [{"depth": depth} | _node_row(node) for depth, node in walk(tree)]
    more = {"previous_artifact_id": previous.artifact_id if previous else None, "nodes": nodes}
    return Answer(guard_set_row(screen.guard_set) | more)


def get_diff(run_id: str) -> Answer:
    """Compare the guards of two compiles."""
    find_run(run_id)
    sides = []
    for name in ("a", "b"):
        given = request.args.get(name, "")
        sides.append(_read(None, check_artifact_id(name, given), given))
    screen = compare_guard_sets(*sides)
    both: dict[str, Any] = {"a": guard_set_row(screen.before), "b": guard_set_row(screen.after)}
    diff = screen.diff
    if diff is None:
        return Answer(both | dict.fromkeys(("added", "removed", "changed", "same_count", "identity_count")))
    return Answer(
        both
        | {
            "added": [_node_row(node) for node in diff.added],
            "removed": [_node_row(node) for node in diff.removed],
            "changed": [_change_row(change) for change in diff.changed],
            "same_count": diff.same_count,
            "identity_count": len(diff.identities),
        }
    )


def _change_row(it: GuardChange) -> dict[str, Any]:
    return {
        "before": _node_row(it.before),
        "after": _node_row(it.after),
        "fields": [dict(vars(field)) for field in it.fields],
    }


OPERATIONS = (
    Operation(
        _RUN,
        list_guard_sets,
        "GuardSet",
        True,
        "A run's sets of guards, one a compile, the largest latency first.",
        ("sort_guards", *PAGE),
    ),
    Operation(f"{_RUN}/sums", get_sums, "GuardSums", False, "What a run's guards come to, and what to do about them."),
    Operation(f"{_RUN}/<guards_id>", get_guards, "GuardTree", False, "The guards of one compile: a tree, laid flat."),
    Operation(
        f"{_RUN}/diff",
        get_diff,
        "GuardDiff",
        False,
        "The guards of two compiles, of this run or of any, compared: `a` is the earlier one.",
        ("a", "b"),
    ),
)
