"""An event written as a line reads back as the same event; what is no event is refused in words."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.collectors.contract.events import KINDS, Event, GuardFailure, dump_event, load_event

TEXT = st.text(max_size=20)
NUMBER = st.integers(min_value=-(2**62), max_value=2**62)
JSON = st.recursive(st.none() | st.booleans() | NUMBER | TEXT, lambda x: st.lists(x, max_size=3), max_leaves=5)
BY_HINT: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: NUMBER,
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    bool | None: st.none() | st.booleans(),
    str | None: st.none() | TEXT,
    int | None: st.none() | NUMBER,
    dict[str, str]: st.dictionaries(TEXT, TEXT, max_size=3),
    dict[str, int]: st.dictionaries(TEXT, NUMBER, max_size=3),
    dict[str, float]: st.dictionaries(TEXT, st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    dict[str, list[float]]: st.dictionaries(
        TEXT, st.lists(st.floats(allow_nan=False, allow_infinity=False)), max_size=3
    ),
    list[str]: st.lists(TEXT, max_size=3),
    Any: JSON,
    dict[str, Any]: st.dictionaries(TEXT, JSON, max_size=3),
    dict[str, Any] | None: st.none() | st.dictionaries(TEXT, JSON, max_size=3),
    dict[str, dict[str, Any]]: st.dictionaries(TEXT, st.dictionaries(TEXT, JSON, max_size=2), max_size=2),
    list[list[Any]]: st.lists(st.lists(JSON, max_size=4), max_size=2),
    list[dict[str, Any]]: st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=2),
}


def filled(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field.name: BY_HINT[hints[field.name]] for field in dataclasses.fields(cls)})


BY_HINT[list[GuardFailure]] = st.lists(filled(GuardFailure), max_size=3)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_event_reads_back_as_it_was_written(kind: str) -> None:
    @settings(max_examples=25)
    @given(filled(KINDS[kind]))
    def check(event: Event) -> None:
        line = dump_event(event)
        assert "\n" not in line
        assert load_event(line) == event

    check()


def test_a_field_of_a_later_collector_is_passed_over() -> None:
    line = '{"v":1,"kind":"run_ended","process_id":"p","sequence":1,"time_us":2,"run_id":"R","state":"failed","new":1}'
    assert load_event(line).KIND == "run_ended"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "schema version"),
        ('{"v":2,"kind":"noted"}', "schema version 1"),
        ('{"v":1,"kind":"party"}', "unknown event kind 'party'; known: "),
        ('{"v":1,"kind":"run_ended","process_id":"p"}', "lacks a field"),
        ("half a li", "Expecting value"),
    ],
)
def test_what_is_no_event_is_refused_in_words(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_event(line)
