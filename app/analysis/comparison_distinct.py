"""Distinct graph breaks and causes of recompiles: what is new, resolved, as it was, or came more often."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compileboard.app.analysis.comparison_model import Distinct, DistinctChange, DistinctDiff, Key

WORDS = {
    "new": ("new", "bad"),
    "worse": ("more often", "bad"),
    "resolved": ("resolved", "good"),
    "less": ("less often", "good"),
    "unchanged": ("unchanged", "quiet"),
}
_ORDER = tuple(WORDS)
_Place = tuple["Key | None", str]


def diff_distinct(
    base: Sequence[Distinct] | None,
    new: Sequence[Distinct] | None,
    comparable: Mapping[Key, frozenset[str]],
    name: Callable[[Key], str],
) -> DistinctDiff:
    """Compare per model where both sides' tasks tell the model, else over the whole side.

    `comparable` has the experiments that both sides made of a model, none where a side does not say. What only one side
    measured is neither new nor resolved: it is left out, and counted.
    """
    if base is None or new is None:
        where = "on either side" if base is new else "on base" if base is None else "in new"
        return DistinctDiff((), f"torch was not recorded {where}: there are only numbers")
    tells = [any(it.model is not None for it in side) for side in (base, new)]
    by_model = all(tells) or (any(tells) and not (base and new))
    ours, theirs = ([it for it in side if not by_model or _is_comparable(it, comparable)] for side in (base, new))
    left_out = len(base) + len(new) - len(ours) - len(theirs)
    changes = []
    for place in {**(before := _sum(ours, by_model)), **(after := _sum(theirs, by_model))}:
        model = place[0]
        one, other = before.get(place), after.get(place)
        counts = (one.count if one else 0, other.count if other else 0)
        what = other or one
        assert what is not None  # each place is of one side at least
        changes.append(DistinctChange(what, None if model is None else name(model), *counts, _word(*counts)))
    changes.sort(key=_rank)
    return DistinctDiff(tuple(changes), left_out=left_out)


def _is_comparable(it: Distinct, comparable: Mapping[Key, frozenset[str]]) -> bool:
    if it.model is None:
        return True
    shared = comparable.get(it.model)
    return shared is not None and (not shared or it.experiment is None or it.experiment in shared)


def _sum(side: Sequence[Distinct], by_model: bool) -> dict[_Place, Distinct]:
    found: dict[_Place, Distinct] = {}
    for it in side:
        place = (it.model if by_model else None, it.fingerprint)
        known = found.get(place)
        found[place] = _add(known, it) if known else it
    return found


def _add(one: Distinct, other: Distinct) -> Distinct:
    values = dict(vars(one)) | {"count": one.count + other.count}
    return Distinct(**values)


def _word(base: int, new: int) -> str:
    if not base:
        return "new"
    if not new:
        return "resolved"
    return "unchanged" if base == new else "worse" if new > base else "less"


def _rank(it: DistinctChange) -> tuple[int, str, int, str]:
    return (_ORDER.index(it.word), it.model or "", -max(it.base_count, it.new_count), it.what.fingerprint)
