"""The guards of a whole run: which kinds, about what, and what can be done about many of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compileboard.app.analysis.guard_diff import normalise_guard
from compileboard.app.format import format_percent

_MODULE = re.compile(r"G\['(?:__import_)?(?P<name>\w+)'\]", re.ASCII)
MUCH = 0.2  # what is worth a hint
_MOST = 0.5


@dataclass(frozen=True)
class GuardSums:
    """Hold a run's guards counted by kind and by root, the largest first.

    `other_root_count` are guards about roots that no summary names: each keeps its twenty largest.
    """

    guard_count: int
    kinds: tuple[tuple[str, int], ...]
    roots: tuple[tuple[str, int], ...]
    other_root_count: int


@dataclass(frozen=True)
class Origin:
    """Hold how many guards are about one sort of place: `label` in words, `meaning` what that is."""

    key: str
    label: str
    meaning: str
    guard_count: int
    share_ratio: float


@dataclass(frozen=True)
class Advice:
    """Hold one thing to do about guards: what was seen, what to write, since which torch, and what it risks."""

    title: str
    seen: str
    code: str
    since: str
    risk: str


# Key, label and meaning, in the order of the page.
_ORIGINS = (
    ("self", "the module itself and its parts", "L['self']: parameters, submodules and attributes of the module"),
    ("local", "arguments and local values", "L['x']: what the function was called with, or closes over"),
    ("torch", "torch's own modules", "G['__import_torch_…']: functions and settings inside torch that the code uses"),
    ("global", "other globals", "G['name']: imported modules, classes and constants of the program"),
    ("ambient", "torch's global state", "gradient mode, default device, modes: a few in every set"),
    ("other", "places that were not kept by name", "each set keeps its twenty largest places by name"),
)


def sum_guards(summaries: Iterable[Mapping[str, Any]]) -> GuardSums:
    """Add up what was counted of each set; names that torch numbers anew in every process are one."""
    kinds, roots = Counter[str](), Counter[str]()
    total = 0
    for summary in summaries:
        total += summary.get("guard_count") or 0
        for kind, count in (summary.get("kinds") or {}).items():
            kinds[kind] += count
        for root, count in summary.get("roots") or ():
            roots[root] += count
    named = Counter[str]()
    for root, count in roots.items():
        named[normalise_guard(root)] += count
    return GuardSums(total, _ranked(kinds), _ranked(named), max(total - named.total(), 0))


def _ranked(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda it: (-it[1], it[0])))


def find_origin(root: str) -> str:
    """Say which of the page's sorts of places a root is."""
    if root == "L['self']":
        return "self"
    if root.startswith("L["):
        return "local"
    found = _MODULE.match(root)
    if found is None:
        return "global" if root.startswith("G[") else "ambient"
    return "torch" if found["name"] == "torch" or found["name"].startswith("torch_dot_") else "global"


def list_origins(sums: GuardSums) -> list[Origin]:
    """Split a run's guards by what they are about; sorts without guards are left out."""
    counts = Counter[str](other=sums.other_root_count)
    for root, count in sums.roots:
        counts[find_origin(root)] += count
    total = counts.total()
    return [
        Origin(key, label, meaning, counts[key], counts[key] / total) for key, label, meaning in _ORIGINS if counts[key]
    ]


# Filters and their effect were checked with torch 2.13: of a module with 297 guards they left 75, 26 and 281.
# Source: torch/compiler/__init__.py, guard_filter_fn in torch/__init__.py, torch/_dynamo/config.py (2.13)
_FILTER = 'torch.compile(model, options={{"guard_filter_fn": torch.compiler.{}}})'
_SINCE = "torch 2.8"


def advise(origins: Sequence[Origin], median_us: float | None) -> list[Advice]:
    """List what would make checking cheaper, where a run's guards are mostly of one sort."""
    shares = {it.key: it.share_ratio for it in origins}
    found = []
    if shares.get("self", 0) >= _MOST:
        found.append(_about_modules(shares["self"]))
    if (globals_share := shares.get("torch", 0) + shares.get("global", 0)) >= MUCH:
        found.append(_about_globals(globals_share))
    if found and median_us is not None:
        found.append(_about_warm_programs())
    return found


def _about_modules(share: float) -> Advice:
    return Advice(
        title="Leave out guards on torch.nn's own modules",
        seen=f"{format_percent(share)} of all guards are about the module itself: torch checks that no"
        " attribute of it or of its submodules has changed.",
        code=_FILTER.format("skip_guard_on_inbuilt_nn_modules_unsafe"),
        since=_SINCE,
        risk="Attributes of torch.nn's modules that change after the compile go unnoticed. With"
        " skip_guard_on_all_nn_modules_unsafe that holds for your own modules as well. The setting"
        " torch._dynamo.config.inline_inbuilt_nn_modules is no way around these guards: in torch 2.13 it does nothing.",
    )


def _about_globals(share: float) -> Advice:
    return Advice(
        title="Leave out guards on globals",
        seen=f"{format_percent(share)} of all guards are about globals: imported modules, their functions, constants.",
        code=_FILTER.format("skip_guard_on_globals_unsafe"),
        since=_SINCE,
        risk="A global that changes after the compile goes unnoticed, and the old value is used.",
    )


def _about_warm_programs() -> Advice:
    return Advice(
        title="Check only what tells compiled versions apart, once the program is warm",
        seen="All guards of a set are checked at every call of its function, even if they never fail.",
        code="torch.compiler.set_stance(skip_guard_eval_unsafe=True)",
        since="torch 2.6",
        risk="Right only when no input will need a recompile any more: one that does gets wrong results, silently.",
    )
