"""Commits: descendants after ancestors whatever the clocks say, and none is lost."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.benchmarks.commit_order import Parents, order_commits


def make_chain(
    count: int, times: list[int] | None = None, name: str = "c"
) -> dict[str, tuple[str | None, int]]:
    return {
        f"{name}{n}": (f"{name}{n - 1}" if n else None, times[n] if times else n)
        for n in range(count)
    }


def sort(seen: dict[str, int], parents: Parents) -> list[str]:
    places = order_commits(seen, parents).positions
    return sorted(places, key=places.__getitem__)


@given(data=st.data(), count=st.integers(1, 30))
def test_a_chain_that_was_measured_in_any_order_comes_back_in_its_own(
    data: st.DataObject, count: int
) -> None:
    times = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    measured = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    seen = {f"c{n}": at for at, n in enumerate(data.draw(st.permutations(measured)))}
    order = order_commits(seen, make_chain(count, times))
    assert sorted(order.positions, key=order.positions.__getitem__) == [f"c{n}" for n in measured]
    assert (order.unknown, order.histories) == (frozenset(), 1)


HASHES = st.sampled_from("abcdefgh")


@given(
    seen=st.dictionaries(HASHES, st.integers(0, 9)),
    parents=st.dictionaries(
        HASHES, st.tuples(st.none() | HASHES | st.just("nobody's"), st.integers(0, 9))
    ),
)
def test_no_commit_is_lost_in_broken_chains_and_circles(
    seen: dict[str, int], parents: dict[str, tuple[str | None, int]]
) -> None:
    order = order_commits(seen, parents)
    assert sorted(order.positions.values()) == list(range(len(seen)))
    assert order.unknown == set(seen) - set(parents)
    backwards = order_commits(dict(reversed(seen.items())), dict(reversed(parents.items())))
    assert order == backwards, "the order in which things come does not matter"


@given(seen=st.dictionaries(HASHES, st.integers(0, 9)))
def test_without_any_history_commits_stand_by_when_they_were_first_seen(
    seen: dict[str, int],
) -> None:
    assert sort(seen, {}) == sorted(seen, key=lambda commit: (seen[commit], commit))


def test_a_commit_measured_late_goes_before_its_descendants_and_nothing_else_moves() -> None:
    parents = make_chain(5, [0, 10, 20, 30, 40]) | {"other": (None, 25)}
    assert sort({"c2": 100, "c4": 101, "other": 102, "c0": 103}, parents) == [
        "c0",
        "c2",
        "other",
        "c4",
    ]


def test_branches_of_one_fork_stand_beside_each_other_by_time() -> None:
    parents = make_chain(4, [0, 10, 20, 30]) | {"x": ("c1", 15), "y": ("x", 25)}
    assert sort(dict.fromkeys(("y", "x", "c3", "c2", "c0"), 99), parents) == [
        "c0",
        "x",
        "c2",
        "y",
        "c3",
    ]
    assert order_commits({"y": 0, "c3": 1}, parents).histories == 1


def test_a_gap_between_two_runs_is_counted_and_the_commits_times_bridge_it() -> None:
    parents = make_chain(3, [0, 10, 20], "a") | {"b0": ("never told", 30), "b1": ("b0", 40)}
    order = order_commits({"b1": 1, "a2": 2, "a1": 3, "nobody's": 4}, parents)
    assert (order.histories, order.unknown) == (2, {"nobody's"})
    assert sort({"b1": 1, "a2": 2, "a1": 3}, parents) == ["a1", "a2", "b1"]


def test_where_only_the_beginning_is_cut_off_nothing_is_missing() -> None:
    parents = {f"c{n}": (f"c{n - 1}", n) for n in range(5, 9)}  # c4 was not loaded
    assert order_commits({"c8": 0, "c6": 1}, parents).histories == 1


def test_a_long_chain_shared_by_many_branches_is_walked_once() -> None:
    parents = make_chain(20_000) | {f"x{n}": ("c19999", 20_000) for n in range(2_000)}
    names = [*(f"x{n}" for n in range(2_000)), "c0"]
    random.Random(5).shuffle(names)
    assert sort({name: n for n, name in enumerate(names)}, parents)[0] == "c0"
