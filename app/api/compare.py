"""Two sides compared: the numbers of the Compare page."""

from __future__ import annotations

from flask import request

from compileboard.app.analysis.comparison_rows import comparison_row
from compileboard.app.analysis.comparison_sides import read_comparison
from compileboard.app.api.answer import Answer, read_word, refuse
from compileboard.app.api.operation import Operation
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.sides import find_default


def get_comparison() -> Answer:
    """Compare two sides; what is not given is the newest benchmark and the one before it."""
    anyway = request.args.get("anyway", "")
    if anyway not in ("", "1"):
        raise FilterError(f"anyway: {anyway[:40]!r} is not 1, the one value that it has")
    reader = get_reader()
    both = find_default(reader, read_word("base"), read_word("new"))
    if both is None:
        refuse("There is nothing to compare with: name both sides, base and new.")
    return Answer(comparison_row(read_comparison(reader, *both, anyway=anyway == "1", suite=read_word("suite"))))


OPERATIONS = (
    Operation(
        "/compare",
        get_comparison,
        "Compare",
        False,
        "What changed from base to new: every metric of every model with its verdict, graph breaks, recompiles.",
        ("base", "new", "anyway", "suite_model"),
    ),
)
