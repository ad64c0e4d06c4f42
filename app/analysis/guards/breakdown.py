"""Guards of a compile summed by kind and by source, with what each kind checks and costs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.analysis.guards.diff import normalise_guard
from compileboard.app.format import format_percent
from compileboard.app.queries.fields import Count
from compileboard.collectors.contract.shapes import GuardSummary

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
MUCH = 0.2  # what is worth a hint
_MOST = 0.5


@dataclass(frozen=True)
class GuardBreakdown:
    """`other_root_count` counts guards whose root no summary names: each keeps its twenty
    largest.
    """

    guard_count: int
    kinds: tuple[tuple[str, int], ...]
    roots: tuple[tuple[str, int], ...]
    other_root_count: int


@dataclass(frozen=True)
class GuardOrigin:
    """Guards on values of one origin."""

    key: Annotated[str, "Its name."]
    label: Annotated[str, "In words."]
    meaning: Annotated[str, "What that is."]
    guard_count: Annotated[Count, "Guards."]
    share_ratio: Annotated[float, "Their part of all guards."]


@dataclass(frozen=True)
class GuardFix:
    """A suggested fix."""

    title: Annotated[str, "The fix."]
    seen: Annotated[str, "Why it applies to this run."]
    code: Annotated[str, "What to write."]
    since: Annotated[str, "The first torch that has it."]
    risk: Annotated[str, "What it gives up."]


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
    return GuardBreakdown(total, _ranked(kinds), _ranked(named), max(total - named.total(), 0))


def _ranked(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
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


# Filters and their effect were checked with torch 2.13: of a module with 297 guards they left 75,
# 26 and 281. Source: torch/compiler/__init__.py, guard_filter_fn in torch/__init__.py,
# torch/_dynamo/config.py (2.13)
_FILTER = 'torch.compile(model, options={{"guard_filter_fn": torch.compiler.{}}})'
_SINCE = "torch 2.8"


def advise(origins: Sequence[GuardOrigin], median_us: float | None) -> list[GuardFix]:
    shares = {origin.key: origin.share_ratio for origin in origins}
    fixes = []
    if shares.get("self", 0) >= _MOST:
        fixes.append(_about_modules(shares["self"]))
    if (globals_share := shares.get("torch", 0) + shares.get("global", 0)) >= MUCH:
        fixes.append(_about_globals(globals_share))
    if fixes and median_us is not None:
        fixes.append(_about_warm_programs())
    return fixes


def _about_modules(share: float) -> GuardFix:
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


def _about_globals(share: float) -> GuardFix:
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


def _about_warm_programs() -> GuardFix:
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
