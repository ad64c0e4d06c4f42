"""How the value of a guard's source is found, without running anything of the user's."""

from __future__ import annotations

import enum
import sys
import weakref
from collections import namedtuple
from typing import Any

import pytest

from compileboard.collectors.observe.failed_guards import _UNKNOWN, _describe, _find_value


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
