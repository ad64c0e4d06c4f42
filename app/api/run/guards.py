"""Guards: sets, sums, one as a tree, two compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.analysis.guards.breakdown import GuardFix, GuardOrigin
from compileboard.app.analysis.text.fields import FieldChange
from compileboard.app.api.answers import PageQuery, operation, refuse
from compileboard.app.db import get_reader, get_run_reader
from compileboard.app.queries.fields import (
    SORT_HELP,
    Count,
    FileName,
    FunctionName,
    LineNumber,
    SourceLine,
)
from compileboard.app.queries.page import Page, read_id
from compileboard.app.queries.parameters import order_by
from compileboard.app.queries.run import guards
from compileboard.app.queries.run.artifacts import ArtifactPairQuery, check_artifact_id
from compileboard.app.queries.run.guards import (
    ORDERS,
    GuardRoot,
    GuardSet,
    GuardTotals,
    Kinds,
    Roots,
)
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.schema import one_of
from compileboard.app.screens.run.guards import (
    GuardSetScreen,
    build_guard_set,
    build_guards,
    compare_guard_sets,
)
from compileboard.collectors.store.payloads import GuardNode, walk

_RUN = "/runs/<run_id>/guards"


@dataclass(frozen=True)
class GuardSort:
    sort: Annotated[str, order_by(ORDERS), SORT_HELP] = "latency"


@dataclass(frozen=True)
class GuardSums(GuardTotals):
    """Totals of a run's guards."""

    kinds: Kinds
    roots: Roots
    other_root_count: Annotated[Count, "Guards about places that were not kept by name."]
    origins: Annotated[Sequence[GuardOrigin], "Guards by what they are about."]
    advice: Annotated[Sequence[GuardFix], "What would make checking cheaper."]


@dataclass(frozen=True)
class GuardNodeJson:
    """One line of a tree of guards."""

    kind: Annotated[str, one_of(("manager", "guard", "text")), "What the line is."]
    guard_type: Annotated[str | None, "torch's name of its kind."]
    source: Annotated[str | None, "Where the value is found."]
    accessor: Annotated[str | None, "How it is reached from the line above."]
    value_type: Annotated[str | None, "The value's type."]
    code: Annotated[str | None, "What is checked."]
    user_line: SourceLine
    file: FileName
    line: LineNumber
    function: FunctionName
    hint: Annotated[str | None, "torch's hint."]
    remark: Annotated[str | None, "torch's remark on the line."]


@dataclass(frozen=True)
class TreeNode(GuardNodeJson):
    """One line of the tree."""

    depth: Annotated[Count, "Lines above it that it hangs on."]


@dataclass(frozen=True)
class GuardTreeJson(GuardSet):
    """The guards of one compile."""

    previous_artifact_id: Annotated[int | None, "`artifact_id` of the cache entry before it."]
    nodes: Annotated[
        list[TreeNode] | None, "The tree's lines in torch's order; null where they are not kept."
    ]


@dataclass(frozen=True)
class GuardChangeJson:
    """One guard with another expected value."""

    before: Annotated[GuardNodeJson, "As it was."]
    after: Annotated[GuardNodeJson, "As it is."]
    fields: Annotated[tuple[FieldChange, ...], "What differs."]


@dataclass(frozen=True)
class GuardDiffJson:
    """The guards of two compiles compared. null where one is not recorded."""

    a: Annotated[GuardSet, "The earlier one."]
    b: Annotated[GuardSet, "The later one."]
    added: Annotated[list[GuardNodeJson] | None, "Guards that only `b` has."] = None
    removed: Annotated[list[GuardNodeJson] | None, "Guards that only `a` has."] = None
    changed: Annotated[
        list[GuardChangeJson] | None,
        "Guards whose place is the same and whose expected value is another.",
    ] = None
    same_count: Annotated[Count | None, "Guards that are the same."] = None
    identity_count: Annotated[
        Count | None, "Of these, the ones that differ in an object's identity alone."
    ] = None


@operation(_RUN)
def list_guard_sets(detail: RunDetail, order: GuardSort, page: PageQuery) -> Page[GuardSet]:
    """List a run's sets of guards, one a compile, the largest latency first."""
    return guards.list_guard_sets(
        get_run_reader(detail.run.id), detail.run.id, order.sort, page.cursor, page.limit
    )


@operation(f"{_RUN}/sums")
def get_sums(detail: RunDetail) -> GuardSums:
    """Return the totals of a run's guards, and their fixes."""
    screen = build_guards(get_run_reader(detail.run.id), detail.run.id, limit=1)
    sums = screen.sums
    return GuardSums(
        **vars(screen.totals),
        kinds=dict(sums.kinds),
        roots=tuple(GuardRoot(*root) for root in sums.roots),
        other_root_count=sums.other_root_count,
        origins=screen.origins,
        advice=screen.advice,
    )


def _make_node(node: GuardNode) -> GuardNodeJson:
    return GuardNodeJson(**_read_node(node))


def _read_node(node: GuardNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in GuardNodeJson.__dataclass_fields__}


def _read(run_id: str | None, artifact_id: int, asked: str) -> GuardSetScreen:
    screen = build_guard_set(
        get_run_reader(run_id) if run_id else get_reader(), run_id, artifact_id
    )
    if screen is None:
        refuse(
            f"{f'Run {run_id[:80]}' if run_id else 'This database'} has no guards with the "
            f"number {asked[:40]}."
        )
    return screen


@operation(f"{_RUN}/<guards_id>")
def get_guards(detail: RunDetail, guards_id: str) -> GuardTreeJson:
    """Return the guards of one compile as a flattened tree."""
    screen = _read(detail.run.id, read_id(guards_id), guards_id)
    previous, tree = screen.previous, screen.tree
    return GuardTreeJson(
        **vars(screen.guard_set),
        previous_artifact_id=previous.artifact_id if previous else None,
        nodes=None
        if tree is None
        else [TreeNode(**_read_node(node), depth=depth) for depth, node in walk(tree)],
    )


@operation(f"{_RUN}/diff")
def get_diff(detail: RunDetail, sides: ArtifactPairQuery) -> GuardDiffJson:
    """Return the guards of two compiles, of this run or of any, compared: `a` is the earlier
    one.
    """
    named = (("a", sides.a), ("b", sides.b))
    before, after = (_read(None, check_artifact_id(name, text), text) for name, text in named)
    screen = compare_guard_sets(before, after)
    a, b, diff = screen.before, screen.after, screen.diff
    if diff is None:
        return GuardDiffJson(a, b)
    return GuardDiffJson(
        a=a,
        b=b,
        added=[_make_node(node) for node in diff.added],
        removed=[_make_node(node) for node in diff.removed],
        changed=[
            GuardChangeJson(_make_node(change.before), _make_node(change.after), change.fields)
            for change in diff.changed
        ],
        same_count=diff.same_count,
        identity_count=len(diff.identities),
    )
