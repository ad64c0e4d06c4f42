"""The guards of a run, one set as a tree, and a diff of two sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from flask import Blueprint, abort, request

from compileboard.app.artifacts.run_queries import ArtifactPairQuery, check_artifact_id
from compileboard.app.core.api import PageQuery, operation, refuse
from compileboard.app.core.db import get_reader, get_run_reader, get_settings
from compileboard.app.core.fields import SORT_HELP, Count
from compileboard.app.core.page import FilterError, Page, check_limit, read_id
from compileboard.app.core.parameters import order_by
from compileboard.app.core.schema import get_row
from compileboard.app.guards import run_queries as guards
from compileboard.app.guards.charts import chart_kinds
from compileboard.app.guards.model import (
    MAX_PLACES,
    GuardChange,
    GuardFix,
    GuardOrigin,
    GuardSetScreen,
    build_guard_set,
    build_guards,
    build_view,
    compare_guard_sets,
    filter_tree,
    list_rows,
    number_nodes,
    take_subtree,
)
from compileboard.app.guards.run_queries import (
    ORDERS,
    GuardRoot,
    GuardSet,
    GuardTotals,
    Kinds,
    Roots,
)
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.shell import find_run, render_run
from compileboard.collectors.contract.fingerprints import normalize_run_id
from compileboard.collectors.store.payloads import GuardNode, walk

blueprint = Blueprint("guards", __name__)

ROWS = 600  # Each subtree has a page of its own.
DIFF_ROWS = 200


@blueprint.get("/runs/<run_id>/guards")
def show(run_id: str) -> str:
    detail, sort = find_run(run_id), request.args.get("sort") or "latency"
    limit = check_limit(request.args.get("limit"), get_settings().page_size)
    screen = build_guards(get_run_reader(run_id), run_id, sort, request.args.get("cursor"), limit)
    sums = screen.sums
    return render_run(
        detail,
        "guards/index.html",
        tab="guards",
        has_charts=bool(sums.kinds),
        screen=screen,
        sort=sort,
        roots=sums.roots[:MAX_PLACES],
        chart=chart_kinds(sums.kinds, sums.guard_count) if sums.kinds else None,
    )


def find_set(run_id: str, artifact_id: int, *, of_any: bool = False) -> GuardSetScreen:
    screen = build_guard_set(get_run_reader(run_id), run_id, artifact_id)
    if screen is None and of_any:
        screen = build_guard_set(get_reader(), None, artifact_id)
    if screen is None or screen.artifact is None:
        abort(404, "There are no guards with this number here.")
    return screen


@blueprint.get("/runs/<run_id>/guards/<artifact_id>")
def show_one(run_id: str, artifact_id: str) -> str:
    detail = find_run(run_id)
    screen = find_set(run_id, read_id(artifact_id))
    query, at = request.args.get("q", "").strip()[:200], request.args.get("at", "")
    if at and not (at.isascii() and at.isdigit() and len(at) < 10):
        raise FilterError(f"at: {at[:40]!r} is not the number of a line of this tree")
    matching = filter_tree(screen.tree, query) if screen.tree is not None and query else screen.tree
    part = take_subtree(matching, int(at)) if matching is not None and at else matching
    if at and matching is not None and part is None:
        abort(404, f"These guards have no line number {at}.")
    largest_first = request.args.get("order") == "largest"
    view = (
        build_view(part, 5 if query or at else 3, ROWS, largest_first) if part is not None else None
    )
    return render_run(
        detail,
        "guards/one.html",
        tab="guards",
        screen=screen,
        view=view,
        rows=list_rows(view, number_nodes(matching))
        if view is not None and matching is not None
        else [],
        query=query,
        part=part.nodes[0] if at and part is not None else None,
        largest_first=largest_first,
    )


@blueprint.get("/runs/<run_id>/guards/diff")
def show_diff(run_id: str) -> str:
    """Compare the guards of two compiles: `a` is the earlier artifact, `b` the later one."""
    detail = find_run(run_id)
    b_run = normalize_run_id(request.args.get("b_run") or run_id)
    before, after = (
        find_set(own_id, check_artifact_id(name, request.args.get(name, "")), of_any=True)
        for name, own_id in (("a", run_id), ("b", b_run))
    )
    screen = compare_guard_sets(before, after)
    return render_run(detail, "guards/diff.html", tab="guards", screen=screen, most=DIFF_ROWS)


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
    advice: Annotated[Sequence[GuardFix], "Fixes that reduce the cost of checking."]


@dataclass(frozen=True)
class TreeNode(GuardNode):
    """One line of the tree."""

    depth: Annotated[Count, "Depth in the tree."] = 0


@dataclass(frozen=True)
class GuardTreeJson(GuardSet):
    """The guards of one compile."""

    previous_artifact_id: Annotated[int | None, "`artifact_id` of the cache entry before it."]
    nodes: Annotated[
        list[TreeNode] | None, "The tree's lines in torch's order; null where they are not kept."
    ]


@dataclass(frozen=True)
class GuardDiffJson:
    """The guards of two compiles compared. A value that was not recorded is null."""

    a: Annotated[GuardSet, "The set of guards that `a` names."]
    b: Annotated[GuardSet, "The set of guards that `b` names."]
    added: Annotated[Sequence[GuardNode] | None, "Guards only in `b`."] = None
    removed: Annotated[Sequence[GuardNode] | None, "Guards only in `a`."] = None
    changed: Annotated[
        Sequence[GuardChange] | None,
        "Guards on the same source with another expected value.",
    ] = None
    same_count: Annotated[Count | None, "Guards that are the same."] = None
    identity_count: Annotated[
        Count | None, "Of these, those that differ only in an object's identity."
    ] = None


@operation(_RUN)
def list_guard_sets(detail: RunDetail, order: GuardSort, page: PageQuery) -> Page[GuardSet]:
    """List a run's sets of guards, one per compile, the largest latency first."""
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


def _read_guard_set(run_id: str, asked: str, *, of_any: bool = False) -> GuardSetScreen:
    number = read_id(asked)
    screen = build_guard_set(get_run_reader(run_id), run_id, number)
    if screen is None and of_any:
        screen = build_guard_set(get_reader(), None, number)
    if screen is None:
        refuse(
            f"{'This database' if of_any else f'Run {run_id[:80]}'} has no guards with the "
            f"number {asked[:40]}."
        )
    return screen


@operation(f"{_RUN}/<guards_id>")
def get_guards(detail: RunDetail, guards_id: str) -> GuardTreeJson:
    """Return the guards of one compile as a flattened tree."""
    screen = _read_guard_set(detail.run.id, guards_id)
    previous, tree = screen.previous, screen.tree
    return GuardTreeJson(
        **vars(screen.guard_set),
        previous_artifact_id=previous.artifact_id if previous else None,
        nodes=None
        if tree is None
        else [TreeNode(**get_row(node), depth=depth) for depth, node in walk(tree)],
    )


@operation(f"{_RUN}/diff")
def get_diff(detail: RunDetail, sides: ArtifactPairQuery) -> GuardDiffJson:
    """Return the guards of two compiles, of this run or of any, compared: `a` is the earlier
    one.
    """
    b_run = normalize_run_id(sides.b_run or detail.run.id)
    before, after = (
        _read_guard_set(run_id, str(check_artifact_id(name, text)), of_any=True)
        for name, text, run_id in (("a", sides.a, detail.run.id), ("b", sides.b, b_run))
    )
    screen = compare_guard_sets(before, after)
    a, b, diff = screen.before, screen.after, screen.diff
    if diff is None:
        return GuardDiffJson(a, b)
    return GuardDiffJson(
        a=a,
        b=b,
        added=diff.added,
        removed=diff.removed,
        changed=diff.changed,
        same_count=diff.same_count,
        identity_count=len(diff.identities),
    )
