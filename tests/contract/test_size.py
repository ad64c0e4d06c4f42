"""No room grows without a reason: see tests/contract/sizes.toml."""

import pytest

from tests.tools.size import count_nodes, count_rooms, read_recorded


@pytest.fixture(scope="module")
def counted() -> dict[str, int]:
    return count_rooms()


def test_no_room_has_grown_without_a_reason(counted):
    allowed = read_recorded()
    grown = {
        room: nodes - allowed.get(room, 0)
        for room, nodes in counted.items()
        if nodes > allowed.get(room, 0)
    }
    assert grown == {}, (
        "take something away, or add a [[rise]] with its reason to tests/contract/sizes.toml"
    )


def test_a_room_that_fell_is_recorded_as_smaller(counted):
    loose = {
        room: nodes
        for room, nodes in read_recorded().items()
        if counted.get(room, 0) < nodes - max(400, nodes // 50)
    }
    assert loose == {}, "python -m tests.tools.size --lower"


def test_docstrings_comments_and_long_lines_do_not_count():
    short = "def add(a, b):\n    return a + b\n"
    long = (
        '"""Sums."""\n\ndef add(\n    a,\n    b,\n):\n    """Add."""\n'
        "    # two numbers\n    return a + b\n"
    )
    assert count_nodes(short) == count_nodes(long)
