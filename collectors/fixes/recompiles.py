"""What would have saved each recompile of a frame: its cause on a run's pages and over all runs."""

from __future__ import annotations

from collections.abc import Sequence

from compileboard.collectors.contract.events import GuardFailure, Recompiled
from compileboard.collectors.contract.fingerprints import cause_fingerprint
from compileboard.collectors.fixes.counterfactual import Failed, choose_causes, fold, list_sources
from compileboard.collectors.fixes.fix import RecordedGuard, RecordedRecompile

Guards = dict[str, RecordedGuard]  # by source
ARGUMENTS = {"args", "kwargs"}  # as wrappers are written: def wrapper(*args, **kwargs)


def to_recorded(
    event: Recompiled, compile_key: int | None, file: str | None, function: str | None
) -> RecordedRecompile:
    def record(guard: GuardFailure) -> RecordedGuard:
        values = guard.expected, guard.actual
        if guard.category == "grad_mode" and event.has_gradients is not None:
            values = str(not event.has_gradients), str(event.has_gradients)
        return RecordedGuard(
            cause_fingerprint(guard.fingerprint, file, function),
            guard.category,
            guard.source,
            *values,
            guard.reason,
            # Of a function that was inlined, from another file, it is no line of this one.
            guard.line if _is_same(guard.file, file) else None,
            guard.source_line,
            guard.cache_entry,
        )

    return RecordedRecompile(
        compile_key or 0,
        tuple(map(record, event.guards)),
        tuple(map(record, event.failed)),
        tuple(event.unread),
        has_gradients=event.has_gradients,
    )


def _is_same(named: str | None, file: str | None) -> bool:
    """torch cuts a path in a guard's comment, in the middle of a name too."""
    return not named or not file or file.endswith(named.rpartition("/")[2])


def choose_guards(frame: Sequence[RecordedRecompile]) -> list[Guards]:
    """Return the cause of each recompile of a frame: the guards of the smallest set of sources that
    would have saved it, by source.

    Of the cache entries, those of another use of the function are left out beside others: a cache
    that is None at first makes two uses, and what varies in the second is no cause of the first.
    """
    every = [list_entries(recompile) for recompile in frame]
    entries = [[one for one in found if not _has_none(one[1])] or found for found in every]
    causes = choose_causes([[failed for failed, _guards in found] for found in entries])
    chosen = []
    for sources, found in zip(causes, entries, strict=True):
        guards: Guards = next((guards for failed, guards in found if failed == {*sources}), {})
        chosen.append({source: guards[source] for source in sources})
    return chosen


def _has_none(guards: Guards) -> bool:
    return any(
        "None" in (guard.expected, guard.actual) or "NoneType" in guard.reason
        for guard in guards.values()
        if guard.category in ("other_value", "type_change")
    )


def list_entries(recompile: RecordedRecompile) -> list[tuple[Failed, Guards]]:
    """Return what failed of each cache entry, the newest first, and a guard of each source.

    Where not every guard is known, torch's first reason stands for its entry, and entries that
    were not read to the end are left out beside one that was. So are, beside others, those of
    calls with other keywords or more arguments: they are another use of the function.
    """
    by_entry: dict[str | int | None, Guards] = {}
    known = recompile.failed or recompile.guards
    whole = [guard for guard in known if guard.cache_entry not in recompile.unread]
    for position, guard in enumerate(whole or known):
        guards = by_entry.setdefault(guard.cache_entry if recompile.failed else position, {})
        for source in list_sources(guard.category, guard.source, guard.reason):
            guards.setdefault(source, guard)
    entries = []
    for guards in by_entry.values():
        if "autocast" in guards:  # it is among the dispatch keys of every tensor
            guards = {source: g for source, g in guards.items() if g.category != "dispatch_keys"}
        failed = fold(guards)
        entries.append((failed, {source: guards[source] for source in guards if source in failed}))
    return [entry for entry in entries if not ARGUMENTS & entry[0]] or entries
