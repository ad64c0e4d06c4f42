"""One value that is far from all others does not flatten a chart."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.core.charts import find_outliers, split_outliers


def test_a_lone_value_far_away_is_an_arrow_at_the_edge() -> None:
    trace = {
        "x": [1, 2, 3, 4, 5, 6, 7],
        "y": [1.0, 1.1, 5.0, 50.0, 1.0, None, 1.2],
        "customdata": list("abcdefg"),
        "error_y": {"array": [0.1] * 7, "arrayminus": [0.1] * 7},
        "hovertemplate": "%{y:.5~g} s",
    }
    line, arrow = split_outliers(trace)
    assert line["x"] == [1, 2, 3, 5, 6, 7] and line["customdata"] == list("abcefg")
    assert len(line["error_y"]["array"]) == 6 and "error_y" not in arrow
    assert (arrow["x"], arrow["y"], arrow["customdata"]) == ([4], [5.0], ["d"])
    assert arrow["hovertemplate"] == "50 s" and arrow["marker"]["symbol"] == "triangle-up"


def test_a_new_level_the_newest_value_and_usual_scatter_are_no_outliers() -> None:
    assert find_outliers([1.0] * 6 + [9.0, 9.0] + [1.0] * 3) == []
    assert find_outliers([1.0] * 8 + [9.0]) == []
    assert find_outliers([1.0, 1.3, 0.8, 1.1, 1.6, 0.9, 1.2]) == []
    assert find_outliers([1.0, 1.0, 9.0, 1.0, 1.0]) == []  # too few
    assert find_outliers([0.0] * 5 + [3.0] + [0.0] * 5) == []  # nothing to compare with
    assert find_outliers([1.0] * 4 + [1.5] + [1.0] * 4, from_zero=True) == []


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), max_size=40), st.booleans())
def test_outliers_are_few_and_apart(values: list[float | None], from_zero: bool) -> None:
    outliers = find_outliers(values, from_zero=from_zero)
    known = [position for position, value in enumerate(values) if value is not None]
    places = [known.index(position) for position in outliers]
    assert all(later - earlier > 1 for earlier, later in pairwise(places))
    assert 2 * len(outliers) <= len(known)
    assert not outliers or outliers[-1] != known[-1]
