"""Lists that older versions of torch keep are read on, and anew after reset()."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from compileboard.collectors.observe.fallbacks import ListReader


@pytest.fixture
def utils(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("torch._dynamo.utils")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def read(reader: ListReader) -> list[Any]:
    events: list[Any] = []
    reader.read(lambda name, metadata, payload, context: events.append((name, payload)), None)
    return [payload for name, payload in events if name == "artifact:recompile_reasons"]


def test_the_guard_failures_after_reset_are_read_from_the_first(utils: Any) -> None:
    reader, code = ListReader((2, 4)), object()
    utils.guard_failures = {code: ["n == 1", "n == 2"]}
    assert read(reader) == [["n == 1", "n == 2"]]
    utils.guard_failures[code].append("n == 3")
    assert read(reader) == [["n == 3"]] and read(reader) == []
    utils.guard_failures = {
        code: ["n == 1", "n == 2", "n == 9", "n == 10"]
    }  # reset() makes the lists anew
    assert read(reader) == [["n == 1", "n == 2", "n == 9", "n == 10"]]


def test_a_list_is_read_only_where_torch_has_no_event(utils: Any) -> None:
    utils.guard_failures = {object(): ["n == 1"]}
    assert [len(read(ListReader(release))) for release in ((2, 4), (2, 5), (2, 13))] == [1, 0, 0]
