"""Differences between the guards of two compiles of one function."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from compileboard.app.analysis.text.fields import FieldChange, compare_fields, split_arguments
from compileboard.collectors.store.payloads import GuardNode, GuardTree, is_check, walk

# What is another number in every process, or for every new object: ids, addresses, numbering of
# made-up names.
_OBJECT_ID = re.compile(r"(___check_(?:obj|type)_id\(.*), (\d+)\)", re.DOTALL)
_NUMBERING = (
    ("0x", re.compile(r"\b0x[0-9a-fA-F]+\b"), "0x…"),
    ("__builtins_dict___", re.compile(r"__builtins_dict___\d+"), "__builtins_dict___N"),
    ("_c", re.compile(r"_\d{6,}_c\d+\b"), "_N_cN"),
)
_TENSOR_NAMES = ("class", "dispatch keys", "dtype")
# A bool or None that became another: torch prints another guard, for people it is another value of
# the same place.
_FAMILIES = dict.fromkeys(
    ("TRUE_MATCH", "FALSE_MATCH", "NONE_MATCH", "EQUALS_MATCH", "CONSTANT_MATCH"), "value"
)

_Normal = tuple[str, GuardNode]
_ONE_A_PLACE = frozenset(("value", "TENSOR_MATCH", "TYPE_MATCH", "ID_MATCH", "LENGTH_CHECK"))


@dataclass(frozen=True)
class GuardChange:
    before: GuardNode
    after: GuardNode
    fields: tuple[FieldChange, ...]


@dataclass(frozen=True)
class GuardDiff:
    """`identities` are guards that differ only in an object's id; they count as the same."""

    added: tuple[GuardNode, ...]
    removed: tuple[GuardNode, ...]
    changed: tuple[GuardChange, ...]
    identities: tuple[GuardChange, ...]
    same_count: int


def compare_guards(old: GuardTree, new: GuardTree) -> GuardDiff:
    """Compare two sets of guards by type and source; numbers that differ in every process are
    ignored.
    """
    before, after = _group(old), _group(new)
    added: list[GuardNode] = []
    removed: list[GuardNode] = []
    changed: list[GuardChange] = []
    identities: list[GuardChange] = []
    same_count = 0
    for key in dict.fromkeys((*before, *after)):
        old_guards, new_guards, pairs = _take_equal(before.get(key, []), after.get(key, []))
        same_count += len(pairs)
        identities.extend(
            GuardChange(was, now, ()) for was, now in pairs if _object_id(was) != _object_id(now)
        )
        for was, now in zip(old_guards, new_guards, strict=False):
            changed.append(GuardChange(was, now, _explain(was, now)))
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


def _group(tree: GuardTree) -> dict[tuple[str, ...], list[_Normal]]:
    groups: defaultdict[tuple[str, ...], list[_Normal]] = defaultdict(list)
    for _depth, node in walk(tree):
        if is_check(node):
            code, source = normalise_guard(node.code or ""), normalise_guard(node.source or "")
            family = _FAMILIES.get(node.guard_type or "", node.guard_type or "")
            groups[(family, source, _stem(code, source, family))].append((code, node))
    return groups


def _stem(code: str, source: str, family: str) -> str:
    if family == "GLOBAL_STATE" or (source and family in _ONE_A_PLACE):
        return ""
    code = code.removeprefix("not ")
    left, mark, _right = code.partition(" == ")
    return left if mark else code


def _take_equal(
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


def _explain(was: GuardNode, now: GuardNode) -> tuple[FieldChange, ...]:
    old, new = _fields(was), _fields(now)
    return compare_fields(old, new) or (FieldChange("code", was.code, now.code),)


def _fields(node: GuardNode) -> dict[str, str]:
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
