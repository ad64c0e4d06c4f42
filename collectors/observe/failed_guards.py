"""Read every failed guard of every cache entry when a frame recompiles.

torch's own reasons stop at the first failed guard of an entry. Its guards are objects that can be
called with the guarded value, so all of them are asked here, within a time limit. The values are
found by the guards' sources, without running anything of the user's: a source that leads through a
property, or another descriptor of the user's, is left out, and its entry is marked as not read to
the end. Source: torch/_dynamo/guards.py and torch/csrc/dynamo/guards.cpp of 2.5 to 2.13.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from .hook_guard import HookGuard

LIMIT_S = 0.004  # of the thread's CPU time, for one recompile
MOST_ENTRIES = 32
MOST_FAILED = 32  # of one entry
_CLOCK_EVERY = 32  # guarded values: on a virtual machine the clock takes as long as ten of them
LONGEST = 500  # characters of a guard, and of a value
# They compare objects with each other, and keep what they saw: to ask one again changes its answer.
_RELATIONAL = ("NO_TENSOR_ALIASING", "OBJECT_ALIASING", "STORAGE_OVERLAPPING")
_ATTRIBUTE = re.compile(r"\.([A-Za-z_]\w*)$")
_DEFAULT = re.compile(r"\.(__defaults__|__kwdefaults__)(\[.*\])$")
# What torch writes around the source of a value. None of it runs code of the user's.
_OF_TORCH = re.compile(
    r"type\(___value\)|dict\(___value\.__dict__\)|list\(dict\.keys\(___value\)\)\[\d+\]"
    r"|___(?!value)\w+\(___value(?:, [\w ]*)?\)"
)
_METHODS = (types.FunctionType, types.MethodDescriptorType)
_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_UNKNOWN = object()


class FailedGuards:
    def __init__(self, guard: HookGuard) -> None:
        self._guard = guard
        self._recompile = threading.local()

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_and_maybe_log_recompilation_reasons(
            cache_entries: Any, frame: Any, *rest: Any, **named: Any
        ) -> Any:
            self._recompile.at_hand = (cache_entries, frame)
            try:
                return original(cache_entries, frame, *rest, **named)
            finally:
                self._recompile.at_hand = None

        return get_and_maybe_log_recompilation_reasons

    def read(self) -> list[list[Any]] | None:
        """Return [compile id, whether all was read, [[kind, source, text, value seen], …]] of each
        cache entry of the recompile that this thread is about to make.
        """
        at_hand = getattr(self._recompile, "at_hand", None)
        if at_hand is None:
            return None
        with self._guard:
            return list(_read_entries(*at_hand))
        return None


def _read_entries(cache_entries: Any, frame: Any) -> Iterator[list[Any]]:
    until = time.thread_time() + LIMIT_S
    f_locals = frame.f_locals
    values: dict[str, Any] = {}
    for entry in islice(_list_entries(cache_entries), MOST_ENTRIES):
        found: list[list[Any]] = []
        wrapper = getattr(entry, "guard_manager", None) or entry.check_fn  # its name in 2.5
        is_whole = _read_entry(wrapper, f_locals, values, found, until)
        compile_id = getattr(entry, "compile_id", None)
        yield [None if compile_id is None else str(compile_id), is_whole, found]


def _list_entries(cache_entries: Any) -> Iterator[Any]:
    """Until 2.6 an entry has the next one."""
    if isinstance(cache_entries, list):
        yield from cache_entries
    else:
        while cache_entries is not None:
            yield cache_entries
            cache_entries = cache_entries.next


def _read_entry(
    wrapper: Any,
    f_locals: Mapping[str, Any],
    values: dict[str, Any],  # found so far, by source: those of the frame, for all its entries
    found: list[list[Any]],
    until: float,
) -> bool:
    if wrapper.global_scope is None:  # the entry is no longer valid: an object that it held is gone
        return False
    root = wrapper.root
    scope = {"L": f_locals, "G": wrapper.global_scope["G"], **wrapper.closure_vars}
    # What is nearest to the frame comes first: arguments, before a model's parameters and the
    # closures of functions.
    is_whole, waiting, count = True, deque([(root, f_locals)]), 0
    while waiting:
        is_late = count and count % _CLOCK_EVERY == 0 and time.thread_time() > until
        if is_late or len(found) >= MOST_FAILED:
            return False
        count += 1
        manager, value = waiting.popleft()
        source, has_failed = manager.get_source(), False
        for leaf in manager.get_leaf_guards():
            kind = type(leaf).__name__
            if kind not in _RELATIONAL and not leaf(value):
                has_failed = True
                text = " and ".join(leaf.verbose_code_parts())[:LONGEST]
                found.append([kind, source, text, _describe(value)])
        for child, child_value in _list_children(manager, source, value, scope, values):
            if child_value is _UNKNOWN:
                is_whole = is_whole and has_failed
            else:
                waiting.append((child, child_value))
    for shape_guard in getattr(root, "get_epilogue_lambda_guards", list)():
        if not shape_guard(f_locals):
            parts = [part[:LONGEST] for part in shape_guard.verbose_code_parts()]
            failed = [part for part in parts if not _holds(part, wrapper.global_scope, scope)]
            found += [["SHAPE", "", part, None] for part in failed]
    return is_whole


def _holds(part: str, global_scope: Mapping[str, Any], scope: dict[str, Any]) -> bool:
    """Evaluate a condition on sizes as torch does for its reason.

    One that cannot be evaluated, as a value is of another type now, counts as held: that value's
    own guard has failed.
    """
    try:
        return bool(eval(part, dict(global_scope), dict(scope)))  # noqa: S307
    except Exception:
        return True


def _list_children(
    manager: Any, source: str, value: Any, scope: dict[str, Any], values: dict[str, Any]
) -> Iterator[tuple[Any, Any]]:
    pairs: dict[int, Any] = getattr(manager, "get_key_value_managers", dict)()
    if pairs and isinstance(value, dict):
        items = list(dict.items(value))  # no look-up: a key's hash may be the user's
        for index, managers in pairs.items():
            if index < len(items):
                for child, part in zip(managers, items[index]):
                    if child is not None:
                        yield child, part
    for child in manager.get_child_managers():
        child_source = child.get_source()
        if child_source not in values:
            values[child_source] = _find_value(child_source, source, value, scope)
        yield child, values[child_source]


def _find_value(source: str, parent: str, value: Any, scope: dict[str, Any]) -> Any:
    if source in scope:
        return scope[source]
    if source == parent:
        return value
    try:
        if source.startswith(parent):
            return _step(value, source[len(parent) :])
        holder, _, dictionary = parent.rpartition(".")
        if dictionary == "__dict__" and source.startswith(f"{holder}.") and type(value) is dict:
            return value[source.removeprefix(f"{holder}.")]
        if parent and _OF_TORCH.fullmatch(call := source.replace(parent, "___value", 1)):
            return eval(call, {**scope, "___value": value})  # noqa: S307
    except (AttributeError, LookupError, TypeError, ValueError, SyntaxError):
        return _UNKNOWN
    return _UNKNOWN


def _step(value: Any, step: str) -> Any:
    attribute = _ATTRIBUTE.match(step)
    if attribute is not None:
        return _get_attribute(value, attribute[1])
    default = _DEFAULT.match(step)
    if default is not None and isinstance(value, types.FunctionType):
        return _step(getattr(value, default[1]), default[2])
    if not (step.startswith("[") and step.endswith("]")):
        return _UNKNOWN
    key = _read_key(step[1:-1])
    if isinstance(value, dict):
        return dict.__getitem__(value, key)
    if isinstance(value, list):
        return list.__getitem__(value, key)
    if isinstance(value, tuple):
        return tuple.__getitem__(value, key)
    # A frame's locals are a mapping of CPython's or torch's own.
    is_locals = type(value).__module__ in ("builtins", "torch._C._dynamo.eval_frame")
    return value[key] if is_locals else _UNKNOWN


@functools.lru_cache(1000)
def _read_key(text: str) -> Any:
    return ast.literal_eval(text)


def _get_attribute(value: Any, name: str) -> Any:
    if name == "__dict__":
        return object.__getattribute__(value, name)
    if isinstance(type(value).__getattribute__, types.FunctionType):  # the user's: it is not run
        if inspect.getattr_static(type(value), name, _UNKNOWN) is not _UNKNOWN:
            return _UNKNOWN
        return object.__getattribute__(value, "__dict__").get(name, _UNKNOWN)
    found = inspect.getattr_static(value, name)
    if isinstance(found, _SLOTS):
        return found.__get__(value)
    if not hasattr(type(found), "__get__") or name in getattr(value, "__dict__", ()):
        return found
    if isinstance(value, type):
        return found if isinstance(found, types.FunctionType) else _UNKNOWN
    return found.__get__(value) if isinstance(found, _METHODS) else _UNKNOWN


def _describe(value: Any) -> Any:
    """Return a value as JSON, in short: a number or a text itself, of others type and size."""
    name = type(value).__name__
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)[:LONGEST] if type(value).__repr__ in _REPRS else name
    kind = next((kind for kind in _BUILT_IN_LENGTHS if isinstance(value, kind)), None)
    if kind is not None:
        return {"type": name, "length": _BUILT_IN_LENGTHS[kind](value)}
    if hasattr(type(value), "__torch_function__"):
        return _describe_tensor(value)
    return {"type": name}


_REPRS = tuple(kind.__repr__ for kind in (bool, int, float, str, type(None)))
_BUILT_IN_LENGTHS: dict[type, Callable[[Any], int]] = {
    kind: kind.__len__ for kind in (list, tuple, dict, set, frozenset)
}


def _describe_tensor(value: Any) -> dict[str, Any]:
    import torch

    if not isinstance(value, torch.Tensor):
        return {"type": type(value).__name__}
    with torch._C.DisableTorchFunctionSubclass():
        return {
            "type": type(value).__name__,
            "size": [int(size) for size in value.shape],
            "stride": list(value.stride()) if value.layout is torch.strided else None,
            "dtype": str(value.dtype),
            "device": str(value.device),
            "requires_grad": value.requires_grad,
        }
