"""How the value of a guard's source is found, without running anything of the user's."""

from __future__ import annotations

import enum
import sys
import weakref
from collections import Counter, namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from compileboard.collectors.observe.failed_guards import (
    _UNKNOWN,
    FailedGuards,
    _describe,
    _find_value,
)
from compileboard.collectors.observe.hook_guard import HookGuard
from compileboard.collectors.observe.runtime_failures import watch_failures


class Holder:
    plain = 1

    @property
    def asked(self) -> int:
        raise AssertionError("a property of the user's was run")

    @staticmethod
    def call() -> None: ...


class CallableReference(weakref.ref):  # type: ignore[type-arg]
    def __call__(self) -> Any:
        raise AssertionError("code of the user's was run")


class Settings:
    def __init__(self) -> None:
        self.power = 2

    def method(self) -> None: ...

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("code of the user's was run")


class Order(enum.IntEnum):
    FIRST = 1
    LAST = 2

    def __repr__(self) -> str:
        raise AssertionError("code of the user's was run")


class Root:
    """The guards of a cache entry, of which none fails."""

    def get_source(self) -> str:
        return "L"

    def get_leaf_guards(self) -> list[Any]:
        return []

    get_child_managers = get_leaf_guards


HOLDER = Holder()
Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("source", "parent", "value", "expected"),
    [
        ("G['r']()", "G", {"r": weakref.ref(HOLDER)}, HOLDER),
        ("G['r']()", "G", {"r": CallableReference(HOLDER)}, _UNKNOWN),
        ("L['x'].plain", "L['x']", HOLDER, 1),
        ("L['x'].asked", "L['x']", HOLDER, _UNKNOWN),
        ("L['x'].call", "L['x']", Holder, Holder.call),
        ("L['x'].right", "L['x']", Pair(1, 2), 2),
        ("L['m'].weight", "L['m']._parameters", {"weight": 3}, 3),
        ("L['x'][(1, 2)]", "L['x']", {(1, 2): 4}, 4),
        ("L['x'][2]", "L['x']", [1, 2], _UNKNOWN),
        ("__import__('sys')", "L", {}, sys),
    ],
)
def test_a_value_is_found_by_its_source(
    source: str, parent: str, value: object, expected: object
) -> None:
    assert _find_value(source, parent, value, {}) is expected


def test_what_is_behind_a_getattribute_of_the_users_is_found_and_it_is_not_run() -> None:
    settings = Settings()
    assert _find_value("object.__getattribute__(L['x'], 'power')", "L['x']", settings, {}) == 2
    method = _find_value("object.__getattribute__(L['x'], 'method')", "L['x']", settings, {})
    assert method.__func__ is Settings.method
    code = _find_value("L['x'].method.__code__", "L['x'].method", method, {})
    assert code is Settings.method.__code__


def test_a_member_of_an_enum_has_its_name_and_that_of_the_guards() -> None:
    guard = f"___check_obj_id(L['order'], {id(Order.FIRST)}), type=<enum 'Order'>"
    seen = {"type": "Order", "seen": "Order.LAST", "held": "Order.FIRST"}
    assert _describe(Order.LAST, guard) == seen
    assert _describe(Order.LAST, "L['order'] == 1") == {**seen, "held": None}


def test_reasons_are_written_with_their_compiles_while_their_guards_are_at_hand() -> None:
    """Torch 2.4 writes no event, and its cache entries do not say which compile made them."""
    graph = watch_failures(print, "forward", ([None, 3, 1, 1, None], 7))

    def disabled(fn: Any) -> Any:
        return lambda: fn

    call = disabled(graph)
    call._torchdynamo_orig_callable = graph
    guards = SimpleNamespace(
        global_scope={"G": {"__compiled_fn_5": call}}, closure_vars={}, root=Root()
    )
    code = SimpleNamespace(co_names=("__compiled_fn_5",))
    failed_guards, seen = FailedGuards(HookGuard(Counter())), []
    name_reasons = failed_guards.wrap(
        lambda entries, frame: ["x == 1"],
        lambda reasons: seen.append((reasons, failed_guards.read())),
    )
    entries = [SimpleNamespace(check_fn=guards, code=code)]
    assert name_reasons(entries, sys._getframe()) == ["x == 1"]
    assert seen == [(["3/1: x == 1"], [["3/1", True, []]])] and failed_guards.read() is None
