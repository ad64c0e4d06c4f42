"""Sets of sources whose steadiness saves recompiles, against brute force."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.fixes.counterfactual import (
    MAX_EXACT_SIZE,
    choose_causes,
    count_saved,
    drop_nested_sources,
    find_steady_sets,
    list_sources,
)

_ENTRY = st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=4)
_RECOMPILES = st.lists(st.lists(_ENTRY, min_size=1, max_size=4), min_size=1, max_size=6)
# A model whose calls count up, whose mode alternates and whose temperature moves in steps.
SERVING = [
    [{"calls", "mode"}],
    [{"calls", "mode", "temperature"}, {"calls", "temperature"}],
    [{"calls", "mode"}, {"calls", "temperature"}, {"calls", "mode", "temperature"}],
    [{"calls"}, {"calls", "mode"}],
]


def _serving() -> list[list[frozenset[str]]]:
    return [[frozenset(entry) for entry in entries] for entries in SERVING]


@given(_RECOMPILES)
def test_the_best_set_of_each_size_is_that_of_brute_force(recompiles):
    found = {len(steady.sources): len(steady.saved) for steady in find_steady_sets(recompiles)}
    names = sorted({name for entries in recompiles for entry in entries for name in entry})
    most = 0
    for size in range(1, MAX_EXACT_SIZE + 1):
        best = max(
            (count_saved(chosen, recompiles) for chosen in combinations(names, size)), default=0
        )
        assert found.get(size, most) == max(best, most)
        most = max(best, most)


@given(_RECOMPILES)
def test_the_last_set_saves_every_recompile(recompiles):
    assert len(find_steady_sets(recompiles)[-1].saved) == len(recompiles)


@given(_RECOMPILES)
def test_no_set_saves_as_much_without_one_of_its_sources(recompiles):
    for steady in find_steady_sets(recompiles):
        if len(steady.sources) <= MAX_EXACT_SIZE:
            for left_out in steady.sources:
                fewer = [name for name in steady.sources if name != left_out]
                assert count_saved(fewer, recompiles) < len(steady.saved)


@given(_RECOMPILES)
def test_a_recompiles_cause_is_the_smallest_set_that_saves_it(recompiles):
    for cause, entries in zip(choose_causes(recompiles), recompiles, strict=True):
        smallest = [entry for entry in entries if len(entry) == min(map(len, entries))]
        most = max(map(smallest.count, smallest))
        often = [entry for entry in smallest if smallest.count(entry) == most]
        assert set(cause) in often
        alone = count_saved(cause, recompiles)
        assert alone == max(count_saved(entry, recompiles) for entry in often)
        saved = [count_saved([name], recompiles) for name in cause]
        assert saved == sorted(saved, reverse=True)


def test_a_source_that_saves_nothing_alone_is_named_with_the_others():
    sets = [(steady.sources, len(steady.saved)) for steady in find_steady_sets(_serving())]
    assert sets[0] == (("calls",), 1)
    assert sets[-1] == (("calls", "mode", "temperature"), 4) or sets[-1][1] == 4
    causes = choose_causes(_serving())
    assert causes == [("calls", "mode"), ("calls", "temperature"), ("calls", "mode"), ("calls",)]


def test_an_entry_whose_guards_are_not_known_saves_nothing():
    assert find_steady_sets([[frozenset()]]) == []
    assert choose_causes([[frozenset()], [frozenset("a")]]) == [(), ("a",)]


def test_what_an_object_holds_is_explained_by_the_object():
    assert drop_nested_sources({"cfg", "cfg.temperature", "cfgs"}) == {"cfg", "cfgs"}
    assert drop_nested_sources({"xs", "xs[0]", "xs[0].y"}) == {"xs"}


def test_sources_are_named_by_what_a_person_keeps_steady():
    assert list_sources("symbolic_shape", "x.size()[0], y.size()[1]", "") == ["x", "y"]
    assert list_sources("grad_mode", None, "GLOBAL_STATE changed: grad_mode") == ["grad_mode"]
    weight = "self._modules['a']._modules['0']._parameters['weight']"
    assert list_sources("tensor_dtype", weight, "") == ["self._parameters"]
    assert list_sources("dict_keys", "self.__dict__", "") == ["self"]
