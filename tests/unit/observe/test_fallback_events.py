"""The graph breaks that older versions of torch list are read on, and anew after reset()."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
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
    assert {name for name, _ in events} <= {"artifact:dynamo_graph_break_reason"}
    return [payload.split("\n")[1] for _, payload in events]


def breaks(*names: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(reason=name) for name in names]


def test_the_graph_breaks_after_reset_are_read_from_the_first(utils: Any) -> None:
    reader = ListReader((2, 5))
    utils.graph_break_reasons = breaks("a", "b")
    assert read(reader) == ["Reason: a", "Reason: b"]
    utils.graph_break_reasons += breaks("c")
    assert read(reader) == ["Reason: c"] and read(reader) == []
    utils.graph_break_reasons = breaks("a", "b", "d")  # reset() makes the list anew
    assert read(reader) == ["Reason: a", "Reason: b", "Reason: d"]


def test_the_list_is_read_only_where_torch_has_no_event(utils: Any) -> None:
    utils.graph_break_reasons = breaks("a")
    assert [len(read(ListReader(release))) for release in ((2, 5), (2, 6), (2, 13))] == [1, 0, 0]
