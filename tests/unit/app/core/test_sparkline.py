"""Sparklines: every value inside the drawing, gaps, values beside the line, the shaded part."""

from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.core.charts import draw_sparkline

NUMBERS = st.none() | st.floats(-1e12, 1e12)


@given(st.lists(NUMBERS, max_size=40))
def test_every_point_lies_in_the_drawing(values: list[float | None]) -> None:
    drawing = draw_sparkline(values, bad_from=len(values) // 2)
    points = {
        tuple(map(float, point.split(","))) for part in drawing.parts for point in part.split()
    }
    points |= set(drawing.dots)
    assert len(points) == sum(value is not None for value in values)
    assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in points)


def test_a_gap_splits_the_line_and_a_hollow_value_stands_beside_it() -> None:
    drawing = draw_sparkline([1.0, 2.0, None, 3.0, 9.0, 2.0], hollow={4})
    assert [len(part.split()) for part in drawing.parts] == [2, 2]
    assert len(drawing.hollow) == 1
    assert [f"{x},{y}" for x, y in drawing.dots] == [drawing.parts[-1].split()[-1]]


def test_one_value_is_a_dot_and_nearly_equal_values_are_a_flat_line_in_the_middle() -> None:
    assert draw_sparkline([5.0]).dots == [(3.0, 15.0)] and not draw_sparkline([5.0]).parts
    alone = draw_sparkline([1.0, 2.0, None, 1.5, None, 1.0, 2.0])
    assert (len(alone.parts), alone.dots[0]) == (2, (48.0, 15.0))
    flat = draw_sparkline([2.0, 2.0000001, 2.0])
    assert {point.split(",")[1] for point in flat.parts[0].split()} == {"15.0"}
    moved = draw_sparkline([2.0, 2.1, 2.0])
    assert {point.split(",")[1] for point in moved.parts[0].split()} == {"27.0", "3.0"}


def test_the_shade_lasts_from_the_first_bad_value_to_the_end_or_to_the_recovery() -> None:
    values = [1.0] * 10
    assert draw_sparkline(values).shade is None
    start, width = draw_sparkline(values, bad_from=5).shade or (0, 0)
    assert start + width == 96 and start > 40
    recovered = draw_sparkline(values, bad_from=5, bad_to=7).shade
    assert recovered is not None and recovered[1] < width
