"""The guards of a run: its sets, what they come to, one as a tree laid flat, two compared."""

from __future__ import annotations

from typing import Any

from flask import request

from compileboard.app.analysis.explored_rows import guard_set_row
from compileboard.app.analysis.guard_diff import GuardChange, compare_guards
from compileboard.app.analysis.guard_sums import advise, list_origins, sum_guards
from compileboard.app.api.answer import Answer, find_run, give_page, read_cursor, read_limit, read_number, refuse
from compileboard.app.api.operation import Operation
from compileboard.app.api.parameters import PAGE
from compileboard.app.db import get_reader
from compileboard.app.queries import guard_sets
from compileboard.app.queries.artifacts import check_artifact_id, get_artifact
from compileboard.collectors.payloads import GuardNode, GuardTree, parse_guards, walk

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
    page = guard_sets.list_guard_sets(get_reader(), run_id, sort, read_cursor(), read_limit())
    return give_page(page, guard_set_row)


def get_sums(run_id: str) -> Answer:
    """Return what a run's guards come to."""
    find_run(run_id)
    totals = guard_sets.get_totals(get_reader(), run_id)
    sums = sum_guards(guard_sets.list_summaries(get_reader(), run_id))
    origins = list_origins(sums)
    return Answer(
        dict(vars(totals))
        | {
            "kinds": dict(sums.kinds),
            "roots": [{"root": root, "guard_count": count} for root, count in sums.roots],
            "other_root_count": sums.other_root_count,
            "origins": [dict(vars(it)) for it in origins],
            "advice": [dict(vars(it)) for it in advise(origins, totals.median_us)],
        }
    )


def _node_row(node: GuardNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in NODE_FIELDS}


def _read(run_id: str | None, number: int | None, said: str) -> tuple[guard_sets.GuardSet, GuardTree | None]:
    it = None if number is None else guard_sets.get_guard_set(get_reader(), run_id, number)
    if it is None:
        refuse(f"{f'Run {run_id[:80]}' if run_id else 'This database'} has no guards with the number {said[:40]}.")
    artifact = get_artifact(get_reader(), it.run_id, it.artifact_id)
    return it, parse_guards(artifact.text) if artifact is not None and artifact.text is not None else None


def get_guards(run_id: str, guards_id: str) -> Answer:
    """Return the guards of one compile."""
    find_run(run_id)
    it, tree = _read(run_id, read_number(guards_id), guards_id)
    previous = guard_sets.get_previous_set(get_reader(), it.compile_key)
    nodes = None if tree is None else [{"depth": depth} | _node_row(node) for depth, node in walk(tree)]
    more = {"previous_artifact_id": previous.artifact_id if previous else None, "nodes": nodes}
    return Answer(guard_set_row(it) | more)


def get_diff(run_id: str) -> Answer:
    """Compare the guards of two compiles."""
    find_run(run_id)
    sides = []
    for name in ("a", "b"):
        given = request.args.get(name, "")
        sides.append(_read(None, check_artifact_id(name, given), given))
    (before, old), (after, new) = sides
    found: dict[str, Any] = {"a": guard_set_row(before), "b": guard_set_row(after)}
    if old is None or new is None:
        return Answer(found | dict.fromkeys(("added", "removed", "changed", "same_count", "identity_count")))
    diff = compare_guards(old, new)
    return Answer(
        found
        | {
            "added": [_node_row(it) for it in diff.added],
            "removed": [_node_row(it) for it in diff.removed],
            "changed": [_change_row(it) for it in diff.changed],
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
