"""Find the sources that would have to stay the same for recompiles not to happen.

A recompile would not have happened if one of the earlier cache entries had passed: it is avoided by
a set of sources that contains all failed sources of some entry. A single source often avoids none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from compileboard.collectors.contract.categories import SETTINGS

MAX_EXACT_SIZE = 4
MAX_SETS = 20_000
Failed = frozenset[str]

_SIZE = re.compile(r"\.(?:size|stride|shape|storage_offset)\b.*$")
_PARAMETER = re.compile(r"\._(?:parameters|buffers)\[.*$")
_MODULES = re.compile(r"(?:\._modules\[[^\]]*\])+(?=\._parameters$)")


@dataclass(frozen=True)
class SteadySet:
    sources: tuple[str, ...]
    saved: frozenset[int]  # positions of the recompiles that would not have happened


def find_steady_sets(recompiles: Sequence[Collection[Failed]]) -> list[SteadySet]:
    """Return, for each number of sources, the sets that avoid most recompiles, if they avoid more
    than smaller sets.

    A recompile is given as the failed sources of each of its cache entries. Sets of up to four
    sources are exact; larger ones extend the best of them greedily.
    """
    options = [_keep_smallest(entries) for entries in recompiles]
    sets = _list_unions(options)
    found: list[SteadySet] = []
    most = 0
    for size in range(1, MAX_EXACT_SIZE + 1):
        level = [
            SteadySet(tuple(sorted(s)), _find_avoided(s, options)) for s in sets if len(s) == size
        ]
        best = max((len(steady.saved) for steady in level), default=0)
        if best > most:
            most = best
            found += sorted(
                (steady for steady in level if len(steady.saved) == best),
                key=lambda steady: steady.sources,
            )
    steady: Failed = frozenset(found[-1].sources) if found else frozenset()
    while left := _list_left(options, steady):
        option = min(left, key=lambda option: _rank(option, steady, options))
        steady |= option
        found.append(SteadySet(tuple(sorted(steady)), _find_avoided(steady, options)))
    return found


def add_causes(
    sets: Sequence[SteadySet],
    causes: Iterable[Collection[str]],
    recompiles: Sequence[Collection[Failed]],
) -> list[SteadySet]:
    """Add each cause of several sources that is not one of the sets, after the sets of the same
    size.
    """
    known = {frozenset(steady.sources) for steady in sets}
    more = {frozenset(cause) for cause in causes if len(cause) > 1} - known
    added = (SteadySet(tuple(sorted(cause)), _find_avoided(cause, recompiles)) for cause in more)
    return sorted(
        (*sets, *added),
        key=lambda steady: (len(steady.sources), -len(steady.saved), steady.sources),
    )


def choose_causes(recompiles: Sequence[Collection[Failed]]) -> list[tuple[str, ...]]:
    """Return, for each recompile, the smallest set of sources that would have avoided it.

    Ties go to the set that most cache entries failed on, then to the one that avoids most of these
    recompiles, then to the first by name. Within a set, the source that avoids most alone comes
    first. A recompile without known failures has an empty set.
    """
    options = [_keep_smallest(entries) for entries in recompiles]
    return [_choose_cause(Counter(filter(None, entries)), options) for entries in recompiles]


def _choose_cause(
    entries: Mapping[Failed, int], options: Sequence[Collection[Failed]]
) -> tuple[str, ...]:
    size = min(map(len, entries), default=0)
    smallest = [option for option in entries if len(option) == size]
    most = max((entries[option] for option in smallest), default=0)
    smallest = [option for option in smallest if entries[option] == most]
    if len(smallest) > 1:
        smallest.sort(key=lambda option: (-len(_find_avoided(option, options)), sorted(option)))
    chosen = smallest[0] if smallest else frozenset[str]()
    if len(chosen) == 1:
        return tuple(chosen)
    return tuple(sorted(chosen, key=lambda name: (-count_saved([name], options), name)))


def count_saved(sources: Iterable[str], recompiles: Sequence[Collection[Failed]]) -> int:
    return len(_find_avoided(frozenset(sources), recompiles))


def _list_left(options: Sequence[Collection[Failed]], steady: Failed) -> set[Failed]:
    """Return the sets that would avoid recompiles not avoided yet."""
    saved = _find_avoided(steady, options)
    return {
        option
        for position, entries in enumerate(options)
        if position not in saved
        for option in entries
    }


def _rank(
    option: Failed, steady: Failed, options: Sequence[Collection[Failed]]
) -> tuple[int, int, int, list[str]]:
    """Return a sort key: fewest additional sources first, then most avoided recompiles."""
    saved_count = len(_find_avoided(steady | option, options))
    return len(option - steady), -saved_count, len(option), sorted(option)


def _find_avoided(steady: Failed, options: Sequence[Collection[Failed]]) -> frozenset[int]:
    return frozenset(
        position
        for position, entries in enumerate(options)
        if any(option <= steady for option in entries)
    )


def _keep_smallest(entries: Collection[Failed]) -> list[Failed]:
    """Drop sets that contain another one, since they have more sources than needed."""
    sets = sorted(
        {entry for entry in entries if entry}, key=lambda entry: (len(entry), sorted(entry))
    )
    kept: list[Failed] = []
    for entry in sets:
        if not any(smaller <= entry for smaller in kept):
            kept.append(entry)
    return kept


def _list_unions(options: Sequence[Sequence[Failed]]) -> set[Failed]:
    """Return the unions of options: the smallest set for several recompiles is always a union."""
    parts = sorted(
        {option for entries in options for option in entries if len(option) <= MAX_EXACT_SIZE},
        key=lambda option: (len(option), sorted(option)),
    )
    unions: set[Failed] = set()
    for part in parts:
        joined = {part | union for union in unions if len(part | union) <= MAX_EXACT_SIZE}
        unions |= {part, *joined}
        if len(unions) > MAX_SETS:
            break
    return unions


def list_sources(category: str, source: str | None, reason: str) -> list[str]:
    """Return the sources that must stay the same for a guard to pass.

    A condition on sizes passes if all its tensors keep their sizes; the parameters of a module
    change together.
    """
    if category in SETTINGS:
        return [category]
    if not source:
        return [reason]
    names = source.split(", ") if category == "symbolic_shape" else [source]
    names = [_SIZE.sub("", name) if category == "symbolic_shape" else name for name in names]
    names = [_PARAMETER.sub("._parameters", name) for name in names]
    names = [_MODULES.sub("", name).removesuffix(".__dict__") for name in names]
    return list(dict.fromkeys(names))


def drop_nested_sources(sources: Collection[str]) -> Failed:
    """Drop sources inside another one, because an object that changed explains its attributes."""
    inner = {
        held
        for holder, held in combinations(sorted(sources), 2)
        if held.startswith((f"{holder}.", f"{holder}["))
    }
    return frozenset(sources) - inner
