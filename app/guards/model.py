"""A compile's guards: totals by kind and source, the tree, comparisons, and suggested fixes."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Literal

from compileboard.app.artifacts.run_queries import Artifact, get_artifact
from compileboard.app.artifacts.text import FieldChange, compare_fields, split_arguments
from compileboard.app.core.fields import Count
from compileboard.app.core.format import format_duration, format_percent, format_plural
from compileboard.app.core.page import Page
from compileboard.app.guards import run_queries as guards
from compileboard.app.guards.run_queries import GuardSet, GuardTotals
from compileboard.collectors.contract.shapes import GuardSummary
from compileboard.collectors.store.payloads import (
    GuardNode,
    GuardTree,
    is_check,
    parse_guards,
    walk,
)

# Different in every process, or for every new object: ids, addresses, numbers in made-up names.
_OBJECT_ID = re.compile(r"(___check_(?:obj|type)_id\(.*), (\d+)\)", re.DOTALL)
_NUMBERING = (
    ("0x", re.compile(r"\b0x[0-9a-fA-F]+\b"), "0x…"),
    ("__builtins_dict___", re.compile(r"__builtins_dict___\d+"), "__builtins_dict___N"),
    ("_c", re.compile(r"_\d{6,}_c\d+\b"), "_N_cN"),
)
_TENSOR_NAMES = ("class", "dispatch keys", "dtype")
# A bool or None with another value: torch prints another guard, but for people it is the same
# place.
_FAMILIES = dict.fromkeys(
    ("TRUE_MATCH", "FALSE_MATCH", "NONE_MATCH", "EQUALS_MATCH", "CONSTANT_MATCH"), "value"
)

_Normal = tuple[str, GuardNode]
_ONE_A_PLACE = frozenset(("value", "TENSOR_MATCH", "TYPE_MATCH", "ID_MATCH", "LENGTH_CHECK"))


@dataclass(frozen=True)
class GuardChange:
    """One guard with another expected value."""

    before: Annotated[GuardNode, "The guard in `a`."]
    after: Annotated[GuardNode, "The guard in `b`."]
    fields: Annotated[tuple[FieldChange, ...], "What differs."]


@dataclass(frozen=True)
class GuardDiff:
    """Two sets of guards compared. `identities` are guards that differ only in an object's id; they
    count as the same.
    """

    added: tuple[GuardNode, ...]
    removed: tuple[GuardNode, ...]
    changed: tuple[GuardChange, ...]
    identities: tuple[GuardChange, ...]
    same_count: int


def compare_guards(old: GuardTree, new: GuardTree) -> GuardDiff:
    """Compare two sets of guards by type and source; numbers that differ in every process are
    ignored.
    """
    before, after = _group_guards(old), _group_guards(new)
    added: list[GuardNode] = []
    removed: list[GuardNode] = []
    changed: list[GuardChange] = []
    identities: list[GuardChange] = []
    same_count = 0
    for key in dict.fromkeys((*before, *after)):
        old_guards, new_guards, pairs = _pair_equal_guards(before.get(key, []), after.get(key, []))
        same_count += len(pairs)
        identities.extend(
            GuardChange(was, now, ()) for was, now in pairs if _object_id(was) != _object_id(now)
        )
        for was, now in zip(old_guards, new_guards, strict=False):
            changed.append(GuardChange(was, now, _explain_change(was, now)))
        removed.extend(old_guards[len(new_guards) :])
        added.extend(new_guards[len(old_guards) :])
    return GuardDiff(tuple(added), tuple(removed), tuple(changed), tuple(identities), same_count)


def normalise_guard(text: str) -> str:
    if text.startswith("___check_"):
        text = _OBJECT_ID.sub(r"\1)", text)
    for mark, pattern, placeholder in _NUMBERING:
        if mark in text:
            text = pattern.sub(placeholder, text)
    return text


def _group_guards(tree: GuardTree) -> dict[tuple[str, ...], list[_Normal]]:
    groups: defaultdict[tuple[str, ...], list[_Normal]] = defaultdict(list)
    for _depth, node in walk(tree):
        if is_check(node):
            code, source = normalise_guard(node.code or ""), normalise_guard(node.source or "")
            family = _FAMILIES.get(node.guard_type or "", node.guard_type or "")
            groups[(family, source, _strip_values(code, source, family))].append((code, node))
    return groups


def _strip_values(code: str, source: str, family: str) -> str:
    if family == "GLOBAL_STATE" or (source and family in _ONE_A_PLACE):
        return ""
    code = code.removeprefix("not ")
    left, mark, _right = code.partition(" == ")
    return left if mark else code


def _pair_equal_guards(
    old_guards: Sequence[_Normal], new_guards: Sequence[_Normal]
) -> tuple[list[GuardNode], list[GuardNode], list[tuple[GuardNode, GuardNode]]]:
    waiting: defaultdict[str, list[GuardNode]] = defaultdict(list)
    for code, node in reversed(old_guards):
        waiting[code].append(node)
    left, pairs = [], []
    for code, node in new_guards:
        same = waiting[code]
        if same:
            pairs.append((same.pop(), node))
        else:
            left.append(node)
    unmatched = {id(node) for nodes in waiting.values() for node in nodes}
    return [node for _code, node in old_guards if id(node) in unmatched], left, pairs


def _object_id(node: GuardNode) -> str | None:
    match = _OBJECT_ID.match(node.code or "") if node.guard_type == "ID_MATCH" else None
    return match[2] if match else None


def _explain_change(was: GuardNode, now: GuardNode) -> tuple[FieldChange, ...]:
    old, new = _read_fields(was), _read_fields(now)
    return compare_fields(old, new) or (FieldChange("code", was.code, now.code),)


def _read_fields(node: GuardNode) -> dict[str, str]:
    code = normalise_guard(node.code or "")
    if (
        node.guard_type == "TENSOR_MATCH"
        and code.startswith("check_tensor(")
        and code.endswith(")")
    ):
        parts = split_arguments(code[len("check_tensor(") : -1])[1:]
        named = [part.partition("=") for part in parts[len(_TENSOR_NAMES) :]]
        return dict(zip(_TENSOR_NAMES, parts, strict=False)) | {
            name: value for name, _, value in named
        }
    if node.guard_type == "GLOBAL_STATE":
        try:
            values = json.loads(code[code.find("{") :])
        except (ValueError, RecursionError):
            return {"state": code}
        return (
            {name: json.dumps(value) for name, value in values.items()}
            if isinstance(values, dict)
            else {"state": code}
        )
    for mark in (", type=", " == ", " is "):
        _left, separator, value = code.partition(mark)
        if separator:
            return {"type" if mark == ", type=" else "value": value}
    return {"code": code}


# Source: GuardBuilder in torch/_dynamo/guards.py and torch/csrc/dynamo/guards.cpp (2.5 to 2.13)
_WORDS = {
    "TYPE_MATCH": "an object's type is the same",
    "ID_MATCH": "it is the same object",
    "EQUALS_MATCH": "a value is equal to the one at compile time",
    "CONSTANT_MATCH": "a constant is the same",
    "TRUE_MATCH": "a value is True",
    "FALSE_MATCH": "a value is False",
    "NONE_MATCH": "a value is None",
    "NOT_NONE": "a value is not None",
    "NOT_NONE_MATCH": "a value is not None",
    "BOOL_MATCH": "a truth value is the same",
    "TENSOR_MATCH": "a tensor has the same type, dtype, device, sizes and requires_grad",
    "NO_TENSOR_ALIASING": "no two inputs are the same tensor",
    "OBJECT_ALIASING": "two names are the same object",
    "SYMBOLIC_SHAPE_GUARD": "sizes that are dynamic keep what the graph assumes of them",
    "SHAPE_ENV": "sizes that are dynamic keep what the graph assumes of them",
    "DIMENSION_DYNAMIC_MARKING_GUARD": "no other dimension of a tensor was marked as dynamic",
    "DYNAMIC_INDICES": "no other dimension of a tensor was marked as dynamic",
    "DICT_CONTAINS": "a dict has a key, or lacks it",
    "DICT_NOT_CONTAINS": "a dict lacks a key",
    "DICT_LENGTH": "a dict has the same length",
    "DICT_KEYS_MATCH": "a dict has the same keys",
    "DICT_VERSION": "a dict was not changed at all",
    "SET_CONTAINS": "a set has a value, or lacks it",
    "LENGTH_CHECK": "a list or tuple has the same length",
    "SEQUENCE_LENGTH": "a list or tuple has the same length",
    "TUPLE_ITERATOR_LEN": "an iterator has as many items left",
    "RANGE_ITERATOR_MATCH": "an iterator over a range is at the same position",
    "HASATTR": "an object has an attribute",
    "NO_HASATTR": "an object has no attribute of that name",
    "LAMBDA_GUARD": "a condition checked by a Python function: slower than others",
    "WEAKREF_ALIVE": "an object still exists",
    "GLOBAL_STATE": "gradient mode, autocast, threads and default dtype are unchanged",
    "DEFAULT_DEVICE": "the default device is the same",
    "TORCH_FUNCTION_MODE_STACK": "the same torch function modes are active",
    "TORCH_FUNCTION_STATE": "overriding of torch functions is on or off as before",
    "GRAD_MODE": "gradient mode is the same",
    "DETERMINISTIC_ALGORITHMS": "deterministic algorithms are on or off as before",
    "DISPATCH_KEY_SET_MATCH": "a tensor's dispatch keys are the same",
    "DUPLICATE_INPUT": "the same two inputs are one tensor",
    "MAPPING_KEYS_CHECK": "a mapping has the same keys",
}


def describe_kind(kind: str | None) -> str:
    return _WORDS.get(kind or "", "")


_MODULE = re.compile(r"G\['(?:__import_)?(?P<name>\w+)'\]", re.ASCII)
MUCH = 0.2  # minimum share for a hint
_MOST = 0.5


@dataclass(frozen=True)
class GuardBreakdown:
    """A run's guards by kind and by origin. `other_root_count` counts guards on roots beyond the
    twenty largest, which summaries omit.
    """

    guard_count: int
    kinds: tuple[tuple[str, int], ...]
    roots: tuple[tuple[str, int], ...]
    other_root_count: int


@dataclass(frozen=True)
class GuardOrigin:
    """Guards on values of one origin."""

    key: Annotated[str, "Name of the origin."]
    label: Annotated[str, "The origin in words."]
    meaning: Annotated[str, "What guards of this origin check."]
    guard_count: Annotated[Count, "Guards on values of this origin."]
    share_ratio: Annotated[float, "Their part of all guards."]


@dataclass(frozen=True)
class GuardFix:
    """A suggestion that removes guards or makes them cheaper, with its drawback."""

    title: Annotated[str, "The change to make, in words."]
    seen: Annotated[str, "Why it applies to this run."]
    code: Annotated[str, "What to write."]
    since: Annotated[str, "The first torch that has it."]
    risk: Annotated[str, "Drawback of the suggestion."]


# Key, label and meaning, in the order of the page.
_ORIGINS = (
    (
        "self",
        "the module itself and its parts",
        "L['self']: parameters, submodules and attributes of the module",
    ),
    (
        "local",
        "arguments and local values",
        "L['x']: what the function was called with, or closes over",
    ),
    (
        "torch",
        "torch's own modules",
        "G['__import_torch_…']: functions and settings inside torch that the code uses",
    ),
    (
        "global",
        "other globals",
        "G['name']: imported modules, classes and constants of the program",
    ),
    ("ambient", "torch's global state", "gradient mode, default device, modes: a few in every set"),
    (
        "other",
        "places that were not kept by name",
        "each set keeps its twenty largest places by name",
    ),
)


def sum_guards(summaries: Iterable[GuardSummary]) -> GuardBreakdown:
    kinds, roots = Counter[str](), Counter[str]()
    total = 0
    for summary in summaries:
        total += summary["guard_count"] or 0
        kinds.update(summary["kinds"])
        for root, count in summary["roots"]:
            roots[root] += count
    named = Counter[str]()
    for root, count in roots.items():
        named[normalise_guard(root)] += count
    return GuardBreakdown(
        total, _rank_counts(kinds), _rank_counts(named), max(total - named.total(), 0)
    )


def _rank_counts(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def find_origin(root: str) -> str:
    if root == "L['self']":
        return "self"
    if root.startswith("L["):
        return "local"
    match = _MODULE.match(root)
    if match is None:
        return "global" if root.startswith("G[") else "ambient"
    return (
        "torch" if match["name"] == "torch" or match["name"].startswith("torch_dot_") else "global"
    )


def list_origins(sums: GuardBreakdown) -> list[GuardOrigin]:
    counts = Counter[str](other=sums.other_root_count)
    for root, count in sums.roots:
        counts[find_origin(root)] += count
    total = counts.total()
    return [
        GuardOrigin(key, label, meaning, counts[key], counts[key] / total)
        for key, label, meaning in _ORIGINS
        if counts[key]
    ]


# Filters and their effect were checked with torch 2.13: of a module's 297 guards they left 75, 26
# and 281. Source: torch/compiler/__init__.py, guard_filter_fn in torch/__init__.py,
# torch/_dynamo/config.py (2.13)
_FILTER = 'torch.compile(model, options={{"guard_filter_fn": torch.compiler.{}}})'
_SINCE = "torch 2.8"


def suggest_guard_fixes(origins: Sequence[GuardOrigin], median_us: float | None) -> list[GuardFix]:
    shares = {origin.key: origin.share_ratio for origin in origins}
    fixes = []
    if shares.get("self", 0) >= _MOST:
        fixes.append(_suggest_for_modules(shares["self"]))
    if (globals_share := shares.get("torch", 0) + shares.get("global", 0)) >= MUCH:
        fixes.append(_suggest_for_globals(globals_share))
    if fixes and median_us is not None:
        fixes.append(_suggest_for_warm_programs())
    return fixes


def _suggest_for_modules(share: float) -> GuardFix:
    return GuardFix(
        title="Leave out guards on torch.nn's own modules",
        seen=f"{format_percent(share)} of all guards are about the module itself: torch checks "
        "that no"
        " attribute of it or of its submodules has changed.",
        code=_FILTER.format("skip_guard_on_inbuilt_nn_modules_unsafe"),
        since=_SINCE,
        risk="Attributes of torch.nn's modules that change after the compile go unnoticed. With"
        " skip_guard_on_all_nn_modules_unsafe that holds for your own modules as well. The setting"
        " torch._dynamo.config.inline_inbuilt_nn_modules is no way around these guards: in "
        "torch 2.13 it does nothing.",
    )


def _suggest_for_globals(share: float) -> GuardFix:
    return GuardFix(
        title="Leave out guards on globals",
        seen=(
            f"{format_percent(share)} of all guards are about globals: imported modules, their "
            "functions, constants."
        ),
        code=_FILTER.format("skip_guard_on_globals_unsafe"),
        since=_SINCE,
        risk="A global that changes after the compile goes unnoticed, and the old value is used.",
    )


def _suggest_for_warm_programs() -> GuardFix:
    return GuardFix(
        title="Once warm, check only what differs between compiled versions",
        seen=(
            "All guards of a set are checked at every call of its function, even if they never "
            "fail."
        ),
        code="torch.compiler.set_stance(skip_guard_eval_unsafe=True)",
        since="torch 2.6",
        risk=(
            "Only safe if no later input needs a recompile: one that does gets wrong results, "
            "silently."
        ),
    )


@dataclass(frozen=True)
class ViewNode:
    """One row of the tree: a manager (the last of a chain without branches) or a single guard.

    Units: share_ratio is the subtree's share of all guards by count, since torch times no single
    guard.
    """

    node: GuardNode
    steps: tuple[str, ...]
    guard_count: int
    share_ratio: float
    is_open: bool
    hidden_count: int = 0
    children: tuple[ViewNode, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class GuardView:
    nodes: tuple[ViewNode, ...]
    guard_count: int
    hidden_count: int
    cost: str


@dataclass
class _Row:
    node: GuardNode
    steps: tuple[str, ...]
    depth: int
    children: list[_Row] = field(default_factory=list)
    hidden_count: int = 0


def build_view(
    tree: GuardTree, open_depth: int = 3, limit: int = 2_000, largest_first: bool = False
) -> GuardView:
    counts = _count_subtrees(tree)
    total = sum(counts[id(node)] for node in tree.nodes)
    rows, roots, hidden = _choose_rows(tree, counts, limit, largest_first)
    views: dict[int, ViewNode] = {}
    for row in reversed(rows):  # children come after their parents
        guard_count = counts[id(row.node)]
        views[id(row)] = ViewNode(
            node=row.node,
            steps=row.steps,
            guard_count=guard_count,
            share_ratio=guard_count / total if total else 0.0,
            is_open=row.depth < open_depth and bool(row.children),
            hidden_count=row.hidden_count,
            children=tuple(views.pop(id(child)) for child in row.children),
        )
    return GuardView(
        tuple(views[id(row)] for row in roots), total, hidden, explain_cost(tree.latency_us, total)
    )


def explain_cost(latency_us: float | None, guard_count: int) -> str:
    number = format_plural(guard_count, "guard")
    if latency_us is None:
        return f"{number}; this record has no time for them."
    return (
        f"Checking the set of {number} took {format_duration(latency_us)}, measured once by "
        "torch after the compile. "
        "It times no single guard: shares are by count, an estimate."
    )


def _count_subtrees(tree: GuardTree) -> dict[int, int]:
    order: list[GuardNode] = []
    stack = list(tree.nodes)
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(node.children)
    counts: dict[int, int] = {}
    for node in reversed(order):
        counts[id(node)] = int(is_check(node)) + sum(counts[id(child)] for child in node.children)
    return counts


def _fold_chain(node: GuardNode, depth: int) -> _Row:
    steps = []
    while node.kind == "manager" and len(node.children) == 1 and node.children[0].kind == "manager":
        steps.append(node.source or node.guard_type or "")
        node = node.children[0]
    return _Row(node, tuple(steps), depth)


def _choose_rows(
    tree: GuardTree, counts: dict[int, int], limit: int, largest_first: bool
) -> tuple[list[_Row], list[_Row], int]:
    def in_order(nodes: tuple[GuardNode, ...]) -> list[GuardNode]:
        return sorted(nodes, key=lambda node: -counts[id(node)]) if largest_first else list(nodes)

    taken = in_order(tree.nodes)[:limit]
    left_out = sum(counts[id(node)] for node in in_order(tree.nodes)[limit:])
    roots = [_fold_chain(node, 0) for node in taken]
    rows, waiting = list(roots), deque(roots)
    while waiting:
        row = waiting.popleft()
        for child in in_order(row.node.children):
            if len(rows) >= limit:
                row.hidden_count += counts[id(child)]
                continue
            below = _fold_chain(child, row.depth + 1)
            row.children.append(below)
            rows.append(below)
            waiting.append(below)
        left_out += row.hidden_count
    return rows, roots, left_out


@dataclass(frozen=True)
class TreeRow:
    step: Literal["branch", "leaf", "end"]
    view: ViewNode
    number: int


def filter_tree(tree: GuardTree, text: str) -> GuardTree:
    sought = text.lower()
    levels: list[list[GuardNode]] = [[]]
    for depth, node in reversed(list(walk(tree))):
        while len(levels) <= depth + 1:
            levels.append([])
        children = levels[depth + 1]
        if children or _has_text(node, sought):
            levels[depth].append(replace(node, children=tuple(reversed(children))))
        levels[depth + 1] = []
    return replace(tree, nodes=tuple(reversed(levels[0])))


def _has_text(node: GuardNode, sought: str) -> bool:
    texts = (
        node.guard_type,
        node.source,
        node.code,
        node.user_line,
        node.file,
        node.function,
        node.value_type,
    )
    return any(sought in text.lower() for text in texts if text)


def number_nodes(tree: GuardTree) -> dict[int, int]:
    return {id(node): number for number, (_depth, node) in enumerate(walk(tree))}


def take_subtree(tree: GuardTree, number: int) -> GuardTree | None:
    for position, (_depth, node) in enumerate(walk(tree)):
        if position == number:
            return replace(tree, nodes=(node,))
    return None


def list_rows(view: GuardView, numbers: Mapping[int, int]) -> list[TreeRow]:
    """List a prepared tree as flat rows: a recursive template would exceed the recursion limit."""
    rows: list[TreeRow] = []
    stack: list[tuple[bool, ViewNode]] = [(True, node) for node in reversed(view.nodes)]
    while stack:
        begins, node = stack.pop()
        number = numbers[id(node.node)]
        if not begins:
            rows.append(TreeRow("end", node, number))
        elif node.children or node.hidden_count:
            rows.append(TreeRow("branch", node, number))
            stack.append((False, node))
            stack.extend((True, child) for child in reversed(node.children))
        else:
            rows.append(TreeRow("leaf", node, number))
    return rows


MAX_PLACES = 20  # roots and kinds listed by name


@dataclass(frozen=True)
class RunGuardsScreen:
    totals: GuardTotals
    sums: GuardBreakdown
    sets: Page[GuardSet]

    @cached_property
    def origins(self) -> list[GuardOrigin]:
        return list_origins(self.sums)

    @cached_property
    def advice(self) -> list[GuardFix]:
        return suggest_guard_fixes(self.origins, self.totals.median_us)


def build_guards(
    reader: sqlite3.Connection,
    run_id: str,
    sort: str = "latency",
    cursor: str | None = None,
    limit: int = 50,
) -> RunGuardsScreen:
    return RunGuardsScreen(
        totals=guards.get_totals(reader, run_id),
        sums=sum_guards(guards.list_summaries(reader, run_id)),
        sets=guards.list_guard_sets(reader, run_id, sort, cursor, limit),
    )


@dataclass(frozen=True)
class GuardSetScreen:
    guard_set: GuardSet
    artifact: Artifact | None
    tree: GuardTree | None
    previous: GuardSet | None

    @property
    def cost(self) -> str | None:
        return (
            explain_cost(self.tree.latency_us, self.guard_set.guard_count or 0)
            if self.tree is not None
            else None
        )


def build_guard_set(
    reader: sqlite3.Connection, run_id: str | None, artifact_id: int
) -> GuardSetScreen | None:
    guard_set = guards.get_guard_set(reader, run_id, artifact_id)
    if guard_set is None:
        return None
    artifact = get_artifact(reader, guard_set.run_id, artifact_id)
    tree = (
        parse_guards(artifact.text) if artifact is not None and artifact.text is not None else None
    )
    return GuardSetScreen(
        guard_set, artifact, tree, guards.get_previous_set(reader, guard_set.compile_key)
    )


@dataclass(frozen=True)
class GuardDiffScreen:
    before: GuardSet
    after: GuardSet
    diff: GuardDiff | None


def compare_guard_sets(before: GuardSetScreen, after: GuardSetScreen) -> GuardDiffScreen:
    diff = (
        compare_guards(before.tree, after.tree)
        if before.tree is not None and after.tree is not None
        else None
    )
    return GuardDiffScreen(before.guard_set, after.guard_set, diff)
