"""Find the guards that caused each recompile of a frame. A run's causes and those across runs use
the same rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from compileboard.collectors.contract.events import GuardFailure, Recompiled
from compileboard.collectors.contract.fingerprints import cause_fingerprint
from compileboard.collectors.fixes.counterfactual import (
    Failed,
    choose_causes,
    drop_nested_sources,
    list_sources,
)
from compileboard.collectors.fixes.fix import RecordedGuard, RecordedRecompile

Guards = dict[str, RecordedGuard]  # by source
_KEY = re.compile(r"(?P<name>.+) (?P<is>absent|present)", re.DOTALL)
_OPPOSITE = {"absent": "present", "present": "absent"}
_TYPE = re.compile(r"<(?:class|enum|flag) '(?:[\w<>]+\.)*(?P<name>\w+)'>")
_MEMBER = re.compile(r"type=<(?:(?:enum|flag) '|[\w.|]+: )")  # torch 2.11 writes the member itself
_NAME = re.compile(r"[A-Za-z_]\w*\.\w+")
ARGUMENTS = {"args", "kwargs"}  # as wrappers are written: def wrapper(*args, **kwargs)


def to_recorded(
    event: Recompiled, compile_key: int | None, file: str | None, function: str | None
) -> RecordedRecompile:
    def record(guard: GuardFailure) -> RecordedGuard:
        values, is_own = _name_values(guard), _is_same(guard.file, file)
        if guard.category == "grad_mode" and event.has_gradients is not None:
            values = str(not event.has_gradients), str(event.has_gradients)
        return RecordedGuard(
            cause_fingerprint(guard.fingerprint, file, function),
            guard.category,
            guard.source,
            *values,
            guard.reason,
            # Of a function that was inlined, from another file, it is no line of this one.
            guard.line if is_own else None,
            guard.source_line,
            guard.cache_entry,
            None if is_own else guard.file,
            None if is_own else guard.line,
        )

    return RecordedRecompile(
        compile_key or 0,
        tuple(map(record, event.guards)),
        tuple(map(record, event.failed)),
        tuple(event.unread),
        has_gradients=event.has_gradients,
    )


def _name_values(guard: GuardFailure) -> tuple[str | None, str | None]:
    """Return the expected and the actual value in the user's terms.

    Dispatch keys are left out. For a dictionary's key or an attribute, the actual value is whether
    it is present, since torch only has the dictionary's type.
    """
    expected, actual = guard.expected, guard.actual
    if guard.category == "dispatch_keys":
        return None, None
    if guard.category == "dict_keys" and expected and (key := _KEY.fullmatch(expected)):
        return expected, f"{key['name']} {'present' if key['is'] == 'absent' else 'absent'}"
    if guard.category == "module_attribute" and expected in _OPPOSITE:
        return expected, _OPPOSITE[expected]
    return _name_type(expected), _name_type(actual)


def _name_type(value: str | None) -> str | None:
    return value and _TYPE.sub(r"\g<name>", value).replace("NoneType", "None")


def _is_same(named: str | None, file: str | None) -> bool:
    """Compare file names. torch shortens the path in a guard's comment, even within a name."""
    return not named or not file or file.endswith(named.rpartition("/")[2])


def choose_guards(frame: Sequence[RecordedRecompile]) -> list[Guards]:
    """Return the cause of each recompile of a frame: the guards, by source, of the smallest set of
    sources that would have avoided it.

    Cache entries for another use of the function are ignored if there are others. For example, a
    cache that is None at first, or two members of an Enum, are two uses, and changes in one do not
    cause recompiles of the other.
    """
    every = [list_entries(recompile) for recompile in frame]
    entries = [[one for one in found if not _is_other_use(one[1])] or found for found in every]
    causes = choose_causes([[failed for failed, _guards in found] for found in entries])
    chosen = []
    for sources, found in zip(causes, entries, strict=True):
        guards: Guards = next((guards for failed, guards in found if failed == {*sources}), {})
        chosen.append({source: guards[source] for source in sources})
    return chosen


def _is_other_use(guards: Guards) -> bool:
    return any(
        "None" in (guard.expected, guard.actual)
        if guard.category in ("other_value", "type_change")
        else guard.category == "string_value"
        or is_of_enum(guard.reason, guard.source_line or "", guard.expected, guard.actual)
        for guard in guards.values()
    )


def is_of_enum(reason: str, code: str, *values: str | None) -> bool:
    """Return whether a guard checks the identity of a member of an Enum, by its type, values or
    code.
    """
    if _MEMBER.search(reason):
        return True
    _, has_type, written = reason.partition("type=")
    if not has_type and "___check_obj_id(" in reason:  # of an older torch
        # Only of members of an Enum does the hook know what the guard holds.
        return len([value for value in values if value and _NAME.fullmatch(value)]) == 2
    named = _TYPE.search(written)
    text = " ".join((code, *filter(None, values)))
    return bool(named and re.search(rf"\b{named['name']}\.[A-Za-z]\w*", text))


def _checks_dict_keys(guard: RecordedGuard) -> bool:
    is_keys = guard.category == "dict_keys" or guard.reason.startswith("len(")
    return is_keys and " == " not in guard.reason and guard.source not in ARGUMENTS


def list_entries(recompile: RecordedRecompile) -> list[tuple[Failed, Guards]]:
    """Return the failed sources of each cache entry, the newest first, with a guard of each source.

    If not all guards are known, torch's first reason represents its entry, and incomplete entries
    are ignored if a complete one exists. Entries for calls with other keywords or more arguments
    are ignored too if there are others: they are another use of the function.
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
        # Other keys do not explain the sizes of a dictionary's tensors.
        held = drop_nested_sources(
            [source for source, guard in guards.items() if not _checks_dict_keys(guard)]
        )
        sizes = {source for source in held if guards[source].category == "tensor_size"}
        failed = drop_nested_sources(guards) | sizes
        entries.append((failed, {source: guards[source] for source in guards if source in failed}))
    return [entry for entry in entries if not ARGUMENTS & entry[0]] or entries
