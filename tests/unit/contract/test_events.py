"""An event written as a line reads back as the same event; what is no event is refused in words."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.collectors.contract.events import KINDS, Event, dump_event, load_event

TEXT = st.text(max_size=20)
NUMBER = st.integers(min_value=-(2**62), max_value=2**62)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT, lambda x: st.lists(x, max_size=3), max_leaves=5
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: NUMBER,
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    Any: JSON,
    type(None): st.none(),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Make values of a declared type, as JSON reads them back: a tuple is a list."""
    arguments = typing.get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if typing.is_typeddict(hint):
        return st.fixed_dictionaries(
            {name: values_of(part) for name, part in typing.get_type_hints(hint).items()}
        )
    if dataclasses.is_dataclass(hint):
        return filled(hint)  # type: ignore[arg-type]
    if typing.get_origin(hint) is list:
        return st.lists(values_of(arguments[0]), max_size=3)
    if typing.get_origin(hint) is dict:
        return st.dictionaries(TEXT, values_of(arguments[1]), max_size=3)
    if typing.get_origin(hint) is tuple:
        return st.tuples(*map(values_of, arguments)).map(list)
    return st.one_of(*map(values_of, arguments))


def filled(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(
        cls, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(cls)}
    )


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
    line = (
        '{"v":1,"kind":"run_ended","process_id":"p","sequence":1,"time_us":2,"run_id":"R",'
        '"state":"failed","new":1}'
    )
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
