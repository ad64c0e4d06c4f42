"""Read every failed guard of every cache entry when a frame recompiles.

torch's own reasons stop at the first failed guard of an entry. Its guards are objects that can be
called with the guarded value, so all of them are evaluated here, within a time limit. Values are
looked up by the guards' sources without running user code: a source that passes through a property
or another descriptor of the user is left out, and its entry is marked as incomplete. Source:
torch/_dynamo/guards.py and torch/csrc/dynamo/guards.cpp of 2.4 to 2.13.
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import re
import sys
import threading
import time
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from .hook_guard import HookGuard
from .runtime_failures import find_code_origin

LIMIT_S = 0.004  # CPU time of the thread for one recompile.
MAX_ENTRIES = 32
MAX_FAILED = 32  # Failed guards of one entry.
LONGEST = 500  # characters of a guard, and of a value
# They compare objects with each other, and keep what they saw: to ask one again changes its answer.
_RELATIONAL = ("NO_TENSOR_ALIASING", "OBJECT_ALIASING", "STORAGE_OVERLAPPING")
_ATTRIBUTE = re.compile(r"\.([A-Za-z_]\w*)$")
_STEP = re.compile(r"[.\[]")
_PLAIN_KEY = re.compile(r"'\w+'")
_DEFAULT = re.compile(r"\.(__defaults__|__kwdefaults__)(\[.*\])$")
# What torch writes around the source of a value. None of it runs code of the user's.
_OF_TORCH = re.compile(
    r"type\(___value\)|dict\(___value\.__dict__\)|list\(dict\.keys\(___value\)\)\[\d+\]"
    r"|___(?!value)\w+\(___value(?:, [\w ]*)?\)"
)
# Where a class has a `__getattribute__` of its own, in 2.7 to 2.9.
_GENERIC = re.compile(r"object\.__getattribute__\(___value, '(\w+)'\)")
_METHODS = (types.FunctionType, types.MethodDescriptorType)
# Of C: an attribute of a class's objects, and a field of a named tuple.
_SLOTS: tuple[type[Any], ...] = (
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    type(inspect.ArgInfo.args),
)
_DICTIONARIES = ("__dict__", "_parameters", "_buffers", "_modules")
_IDENTITY = re.compile(r"^___check_obj_id\(.+, (\d+)\)")
_OF_TORCH_VALUES = {("torch", kind) for kind in ("dtype", "device", "layout", "memory_format")}
_IMPORT = re.compile(r"__import__\('([\w.]+)'\)")
_UNKNOWN = object()
_Step = Callable[[Any, Mapping[str, Any]], Any]


class FailedGuards:
    def __init__(self, guard: HookGuard) -> None:
        self._guard = guard
        self._recompile = threading.local()

    def wrap(
        self, original: Callable[..., Any], emit: Callable[[list[str]], None] | None = None
    ) -> Callable[..., Any]:
        """Keep the cache entries available while torch collects its reasons.

        `emit` receives the reasons in torch 2.4, which writes no event for them.
        """

        def get_and_maybe_log_recompilation_reasons(
            cache_entries: Any, frame: Any, *rest: Any, **named: Any
        ) -> Any:
            self._recompile.at_hand = (cache_entries, frame)
            try:
                reasons = original(cache_entries, frame, *rest, **named)
                if emit is not None:
                    with self._guard:
                        emit(_add_compiles(reasons, cache_entries))
                return reasons
            finally:
                self._recompile.at_hand = None

        return get_and_maybe_log_recompilation_reasons

    def read(self) -> list[list[Any]] | None:
        """Return [compile id, whether all guards were read, [[kind, source, text, value seen], …]]
        for each cache entry of this thread's current recompile.
        """
        at_hand = getattr(self._recompile, "at_hand", None)
        if at_hand is None:
            return None
        with self._guard:
            cache_entries, frame = at_hand
            return list(_Reading(frame.f_locals).read(cache_entries))
        return None


def _list_entries(cache_entries: Any) -> Iterator[Any]:
    """Yield cache entries, which are a linked list in torch before 2.6."""
    if isinstance(cache_entries, list):
        yield from cache_entries
    else:
        while cache_entries is not None:
            yield cache_entries
            cache_entries = cache_entries.next


def _guards_of(entry: Any) -> Any:
    return getattr(entry, "guard_manager", None) or entry.check_fn  # its name until 2.5


def _name_compile(entry: Any) -> str | None:
    """Return the compile that made a cache entry. torch 2.4 stores it with the entry's graphs."""
    if hasattr(entry, "compile_id"):
        return str(entry.compile_id)
    scope = _guards_of(entry).global_scope
    origin = find_code_origin(entry.code, scope["G"]) if scope else None
    context = origin[0] if origin else None
    return f"{context[1]}/{context[2]}" if context else None


def _add_compiles(reasons: list[str], cache_entries: Any) -> list[str]:
    """Prefix each reason with the compile of its cache entry, as torch does since 2.5."""
    names = [_name_compile(entry) for entry in _list_entries(cache_entries)]
    if len(names) != len(reasons):  # an entry without a reason has none in the list
        return reasons
    return [f"{name}: {text}" if name else text for name, text in zip(names, reasons)]


class _Reading:
    """Evaluates the guards of a frame's cache entries for one recompile."""

    def __init__(self, f_locals: Mapping[str, Any]) -> None:
        self._f_locals = f_locals
        self._until = time.thread_time() + LIMIT_S
        self._ask_at = time.perf_counter() + LIMIT_S
        # By source, for all entries:
        self._values: dict[str, Any] = {}
        self._failed: set[str] = set()  # and what leads there

    def read(self, cache_entries: Any) -> Iterator[list[Any]]:
        for entry in islice(_list_entries(cache_entries), MAX_ENTRIES):
            found: list[list[Any]] = []
            wrapper = _guards_of(entry)
            # An entry that is no longer valid has no scope: an object that it held is gone.
            is_whole = wrapper.global_scope is not None and self._read_entry(wrapper, found)
            for _kind, source, _text, _value in found:
                self._failed |= {source, *(source[: m.start()] for m in _STEP.finditer(source))}
            yield [_name_compile(entry), is_whole, found]

    def _is_late(self) -> bool:
        if time.perf_counter() < self._ask_at:
            return False
        # A system call, which may take 0.9 ms on a busy virtual machine: rarely, since the thread's
        # time is never ahead of the clock's.
        left_s = self._until - time.thread_time()
        self._ask_at = time.perf_counter() + left_s
        return left_s < 0

    def _read_entry(self, wrapper: Any, found: list[list[Any]]) -> bool:
        scope = {"L": self._f_locals, "G": wrapper.global_scope["G"], **wrapper.closure_vars}
        # What failed in an entry before comes first, then what is nearest to the frame: arguments,
        # before a model's parameters and the closures of functions.
        root = wrapper.root
        is_whole, waiting = True, deque([(root, root.get_source(), self._f_locals)])
        while waiting:
            if self._is_late() or len(found) >= MAX_FAILED:
                return False
            manager, source, value = waiting.popleft()
            has_failed = False
            for leaf in manager.get_leaf_guards():
                kind = type(leaf).__name__
                if kind not in _RELATIONAL and not leaf(value):
                    has_failed = True
                    text = " and ".join(leaf.verbose_code_parts())[:LONGEST]
                    found.append([kind, source, text, _describe(value, text)])
            if hasattr(manager, "get_key_value_managers"):
                pairs = manager.get_key_value_managers()
                if _has_other_length(pairs, value):
                    has_failed = True
                    text = f"len({source}) != {len(pairs)}"
                    found.append(["DICT_LENGTH", source, text, _describe(value)])
                waiting += _list_items(pairs, value)
            for child in manager.get_child_managers():
                child_source = child.get_source()
                child_value = self._values.get(child_source, self)
                if child_value is self:  # not looked for yet
                    child_value = _find_value(child_source, source, value, scope)
                    self._values[child_source] = child_value
                if child_value is _UNKNOWN:
                    is_whole = is_whole and has_failed
                elif child_source in self._failed:
                    waiting.appendleft((child, child_source, child_value))
                else:
                    waiting.append((child, child_source, child_value))
        found += self._read_shapes(wrapper, scope)
        return is_whole

    def _read_shapes(self, wrapper: Any, scope: Mapping[str, Any]) -> Iterator[list[Any]]:
        for guard in getattr(wrapper.root, "get_epilogue_lambda_guards", list)():
            if not guard(self._f_locals):
                names = {**wrapper.global_scope, **scope}
                for part in guard.verbose_code_parts():
                    if not _holds(part[:LONGEST], names):
                        yield ["SHAPE", "", part[:LONGEST], None]


def _has_other_length(pairs: dict[int, Any], value: Any) -> bool:
    """Return whether a dictionary's length differs from the one guarded with all its keys.

    torch compares it outside its leaf guards. A guard on some of the keys has no length.
    """
    keys = [key for key, _value in pairs.values() if key is not None]
    is_whole = len(keys) == len(pairs) == max(pairs, default=-1) + 1
    is_other = isinstance(value, dict) and is_whole and dict.__len__(value) != len(pairs)
    # Until 2.6 their text is padded for a line that is not there.
    return is_other and any(
        "#" in part or part.endswith(" ") for key in keys[:1] for part in _list_parts(key)
    )


def _list_parts(manager: Any) -> Iterator[str]:
    """Yield the verbose code parts of a guard manager's leaf guards.

    Among key guards, only those on all keys of a dictionary include a source line.
    """
    for leaf in manager.get_leaf_guards():
        yield from leaf.verbose_code_parts()


def _list_items(pairs: dict[int, Any], value: Any) -> Iterator[tuple[Any, str, Any]]:
    items = list(dict.items(value)) if isinstance(value, dict) else []  # a hash may be the user's
    for index, managers in pairs.items():
        if index < len(items):
            for child, part in zip(managers, items[index]):
                if child is not None:
                    yield child, child.get_source(), part


def _holds(part: str, names: dict[str, Any]) -> bool:
    """Evaluate a condition on sizes as torch does for its reason.

    A condition that cannot be evaluated counts as true: the value has another type now, and the
    guard on that type has failed.
    """
    try:
        return bool(eval(part, names))  # noqa: S307
    except Exception:
        return True


def _find_value(source: str, parent: str, value: Any, scope: dict[str, Any]) -> Any:
    if source in scope:
        return scope[source]
    try:
        return _find_step(source, parent)(value, scope)
    except (AttributeError, LookupError, TypeError, ValueError, SyntaxError):
        return _UNKNOWN


@functools.lru_cache(5000)
def _find_step(source: str, parent: str) -> _Step:
    """Return a function that reads a source's value, given the value of its parent.

    Cached, because the entries of a frame have mostly the same sources.
    """
    if source == parent:
        return lambda value, scope: value
    if source.startswith(parent):
        return _read_step(source[len(parent) :])
    holder, _, dictionary = parent.rpartition(".")
    if dictionary in _DICTIONARIES and source.startswith(f"{holder}."):
        name = source.removeprefix(f"{holder}.")
        return lambda value, scope: dict.__getitem__(value, name)
    imported = _IMPORT.fullmatch(source)
    if imported is not None:
        return lambda value, scope: sys.modules[imported[1]]
    call = source.replace(parent, "___value", 1) if parent else ""
    generic = _GENERIC.fullmatch(call)
    if generic is not None:
        return lambda value, scope: _get_attribute_statically(value, generic[1])
    if _OF_TORCH.fullmatch(call):
        code = compile(call, "<guard>", "eval")
        return lambda value, scope: eval(code, {**scope, "___value": value})  # noqa: S307
    return lambda value, scope: _UNKNOWN


def _read_step(step: str) -> _Step:
    attribute = _ATTRIBUTE.match(step)
    if attribute is not None:
        name = attribute[1]
        return lambda value, scope: _get_attribute(value, name)
    default = _DEFAULT.match(step)
    if default is not None:
        default_name, inner = default[1], _read_step(default[2])
        return lambda value, scope: (
            inner(getattr(value, default_name), scope)
            if isinstance(value, types.FunctionType)
            else _UNKNOWN
        )
    if step.endswith("()"):
        reference = _read_step(step.removesuffix("()")) if step != "()" else None
        return lambda value, scope: _dereference(reference(value, scope) if reference else value)
    if step.startswith("[") and step.endswith("]"):
        text = step[1:-1]
        key = text[1:-1] if _PLAIN_KEY.fullmatch(text) else _read_key(text)
        return lambda value, scope: _get_item(value, key)
    return lambda value, scope: _UNKNOWN


@functools.lru_cache(1000)
def _read_key(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return _UNKNOWN  # no key of a dictionary's, and no index


def _dereference(reference: Any) -> Any:
    return reference() if type(reference) is weakref.ref else _UNKNOWN


def _get_item(value: Any, key: Any) -> Any:
    if isinstance(value, dict):
        return dict.__getitem__(value, key)
    if isinstance(value, list):
        return list.__getitem__(value, key)
    if isinstance(value, tuple):
        return tuple.__getitem__(value, key)
    # A frame's locals are a mapping of CPython's or torch's own.
    is_locals = type(value).__module__ in ("builtins", "torch._C._dynamo.eval_frame")
    return value[key] if is_locals else _UNKNOWN


def _get_attribute(value: Any, name: str) -> Any:
    if name == "__dict__":
        return object.__getattribute__(value, name)
    if type(value) is types.ModuleType:
        return object.__getattribute__(value, "__dict__").get(name, _UNKNOWN)
    if type(value).__module__ == "torch._VF":  # a module whose functions a `__getattr__` finds
        return getattr(value, name)
    getter = type(value).__getattribute__
    if isinstance(getter, types.FunctionType):  # the user's: it is not run
        if name == "__getattribute__":
            return getter.__get__(value)
        if inspect.getattr_static(type(value), name, _UNKNOWN) is not _UNKNOWN:
            return _UNKNOWN
        return object.__getattribute__(value, "__dict__").get(name, _UNKNOWN)
    if type(value) is types.MethodType and not hasattr(types.MethodType, name):
        value = value.__func__
    return _get_attribute_statically(value, name)


def _get_attribute_statically(value: Any, name: str) -> Any:
    found = inspect.getattr_static(value, name)
    if type(found) is staticmethod:
        return found.__func__
    if isinstance(found, _SLOTS):
        return found.__get__(value)
    if not hasattr(type(found), "__get__") or name in _read_dict(value):
        return found
    if issubclass(type(value), type):  # `isinstance` asks the value for its class
        return found if isinstance(found, types.FunctionType) else _UNKNOWN
    return found.__get__(value) if isinstance(found, _METHODS) else _UNKNOWN


def _read_dict(value: Any) -> Any:
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return ()


def _describe(value: Any, guard: str = "") -> Any:
    """Return a short JSON form of a value: numbers and strings unchanged, otherwise type and size.

    A member of an Enum also has the guard's value, which contains the member's number.
    """
    name = type(value).__name__
    if issubclass(type(value), enum.Enum):
        held = _IDENTITY.search(guard)
        members = enum.EnumMeta.__iter__(type(value)) if held else ()
        expected = (_name_member(one) for one in members if held and id(one) == int(held[1]))
        return {"type": name, "seen": _name_member(value), "held": next(expected, None)}
    if (type(value).__module__, name) in _OF_TORCH_VALUES:
        return repr(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)[:LONGEST] if type(value).__repr__ in _REPRS else name
    kind = next((kind for kind in _BUILT_IN_LENGTHS if isinstance(value, kind)), None)
    if kind is not None:
        return {"type": name, "length": _BUILT_IN_LENGTHS[kind](value)}
    if hasattr(type(value), "__torch_function__"):
        return _describe_tensor(value)
    return {"type": name}


def _name_member(member: enum.Enum) -> str:
    return f"{type(member).__name__}.{_read_dict(member).get('_name_')}"[:LONGEST]


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
