from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.repro.locate.graph_trial import find_hidden, find_shortest_failing


@given(st.integers(1, 500), st.data())
def test_the_shortest_failing_graph_takes_few_tries(count, data):
    culprit = data.draw(st.integers(1, count))
    asked = []

    def fails(length):
        asked.append(length)
        return length >= culprit

    assert find_shortest_failing(count, fails) == culprit
    assert len(asked) <= 1 + count.bit_length()


@given(st.sets(st.integers(1, 40), min_size=1))
def test_where_failing_comes_and_goes_one_call_fewer_passes_all_the_same(failing):
    count = max(failing)
    shortest = find_shortest_failing(count, failing.__contains__)
    assert shortest in failing and shortest - 1 not in failing


def test_no_graph_is_named_where_all_calls_together_pass():
    assert find_shortest_failing(9, lambda length: False) is None


@given(st.integers(1, 60), st.data())
def test_the_nodes_that_must_be_hidden_are_those_that_must(count, data):
    names = [f"n{number}" for number in range(count)]
    hidden = data.draw(st.sets(st.sampled_from(names), max_size=3))
    asked = []

    def fails(exposed):
        asked.append(exposed)
        return not hidden & set(exposed)

    assert find_hidden(names, fails) == [name for name in names if name in hidden]
    assert len(asked) <= (2 * len(hidden) + 1) * (1 + count.bit_length())
