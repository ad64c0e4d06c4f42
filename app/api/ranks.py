"""How the ranks of a run differ."""

from __future__ import annotations

from flask import request

from compileboard.app.analysis.explored_rows import ranks_row
from compileboard.app.api.answer import Answer, find_run
from compileboard.app.api.operation import Operation
from compileboard.app.db import get_reader
from compileboard.app.queries.page import FilterError


def get_ranks(run_id: str) -> Answer:
    """Compare the ranks of a run."""
    find_run(run_id)
    given = request.args.get("rows", "")
    if given not in ("", "all"):
        raise FilterError(f"rows: {given[:40]!r} is not all")
    return Answer(ranks_row(get_reader(), run_id, every_row=given == "all"))


OPERATIONS = (
    Operation(
        "/runs/<run_id>/ranks",
        get_ranks,
        "Ranks",
        False,
        "Where a run's ranks differ, and the first compile at which they part; nothing where there are no ranks.",
        ("rows",),
    ),
)
