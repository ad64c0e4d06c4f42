"""How a compile ended: the names, and the SQL that decides."""

from __future__ import annotations

from typing import Annotated

from compileboard.app.core.schema import one_of

OUTCOMES = (
    "compiled",
    "restarted",
    "broke",
    "loaded",
    "empty",
    "skipped",
    "failed",
    "recompile_limit",
    "started",
    "announced",
)
# The outcome of the compile `c`. The column has what torch recorded of the last attempt; a graph
# break or a restart before it is known from the counts.
OUTCOME_SQL = """case
    when c.outcome in ('compiled', 'empty') and c.graph_break_count > 0 then 'broke'
    when c.outcome = 'compiled' and c.attempt_count > 1 then 'restarted'
    else c.outcome
  end"""

Outcome = Annotated[str, one_of(OUTCOMES), "What became of the compile."]
RecordOutcome = Annotated[
    str,
    one_of(("compiled", "empty", "skipped", "failed", "recompile_limit")),
    "What torch recorded; graph breaks and restarts before it are in the compile's outcome.",
]
