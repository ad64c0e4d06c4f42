"""What a table of a report is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from compileboard.app.queries.page import Page

Row = dict[str, Any]
List = Callable[..., Page[Any]]


class Table(NamedTuple):
    """Hold a table's name, what lists a page of it, and what makes a plain row."""

    name: str
    list: List
    to_row: Callable[[Any], Row]
