"""The order in which steps of a window call compiled graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .shapes import Step

# Numbers of graphs, how many times its call has, and the function where there is no graph.
Order = tuple[tuple[int, ...], int, "str | None"]


def get_order(step: Step) -> Order:
    return tuple(step["graph_numbers"]), len(step["host"]["call_us"]), step.get("function")


def find_usual_order(steps: Iterable[Step]) -> Order | None:
    """Return the most frequent order of steps that compile nothing, None if there are no such
    steps.
    """
    orders = Counter(get_order(step) for step in steps if not step["compiled"])
    return orders.most_common(1)[0][0] if orders else None


def list_called(order: Order) -> tuple[int, ...]:
    """Return the numbers of the graphs run within the call; others run before the next step."""
    numbers, size, _function = order
    return numbers[: size // 2]
