"""Sparklines: every value inside the drawing, gaps, values beside the line, the shaded part."""

from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.charts.sparkline import draw_sparkline

NUMBERS = st.none() | st.floats(-1e12, 1e12)


@given(st.lists(NUMBERS, max_size=40))
def test_every_point_lies_in_the_drawing(values: list[float | None]) -> None:
    drawing = draw_sparkline(values, bad_from=len(values) // 2)
    points = [point.split(",") for part in drawing.parts for point in part.split()]
    assert len(points) == sum(value is not None for value in values)
    assert all(0 <= float(x) <= drawing.width and 0 <= float(y) <= drawing.height for x, y in points)


def test_a_gap_splits_the_line_and_a_hollow_value_stands_beside_it() -> None:
    drawing = draw_sparkline([1.0, 2.0, None, 3.0, 9.0, 2.0], hollow={4})
    assert [len(part.split()) for part in drawing.parts] == [2, 2]
    assert len(drawing.hollow) == 1 and drawing.newest is not None
    assert f"{drawing.newest[0]},{drawing.newest[1]}" == drawing.parts[-1].split()[-1]


def test_the_shade_lasts_from_the_first_bad_value_to_the_end_or_to_the_recovery() -> None:
    values = [1.0] * 10
    assert draw_sparkline(values).shade is None
    start, width = draw_sparkline(values, bad_from=5).shade or (0, 0)
    assert start + width == 96 and start > 40
    recovered = draw_sparkline(values, bad_from=5, bad_to=7).shade
    assert recovered is not None and recovered[1] < width
