"""Functions and distinct items across runs, for a comparison or a check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fields import Count, DurationUs
from compileboard.app.schema import PRIVATE
from compileboard.collectors.contract.fingerprints import format_id

FUNCTIONS_SQL = """
select
  f.file, f.name, sum(n.compile_count) as compile_count,
  sum(n.graph_break_count) as graph_break_count,
  sum(n.recompile_count) as recompile_count, nullif(sum(n.compile_us), 0) as compile_us
from $each(:run_ids) as wanted
join $rows(run_functions, :run_ids) as n on n.run_id = wanted.value
join functions as f on f.id = n.function_id
group by f.id, f.file, f.name
order by compile_us desc, f.id
limit :limit
"""
DISTINCT_IDS_SQL = """
select id, fingerprint
from {table}
where fingerprint $in(:fingerprints)
order by id
limit :limit
"""


@dataclass(frozen=True)
class FunctionCost:
    """One side's cost of a function."""

    file: str = field(metadata=PRIVATE)
    name: str = field(metadata=PRIVATE)
    compile_count: Annotated[Count, "Compiles."]
    graph_break_count: Annotated[Count, "Graph breaks."]
    recompile_count: Annotated[Count, "Recompiles."]
    compile_us: Annotated[DurationUs | None, "Compile time."]


def list_function_sums(
    engine: Engine, run_ids: Sequence[str], limit: int = 1000
) -> list[FunctionCost]:
    return [
        FunctionCost(**dict(row))
        for row in engine.rows(FUNCTIONS_SQL, {"run_ids": list(run_ids), "limit": limit})
    ]


def find_distinct_ids(engine: Engine, table: str, fingerprints: Sequence[str]) -> dict[str, str]:
    sql = DISTINCT_IDS_SQL.format(
        table={"breaks": "distinct_breaks", "causes": "recompile_causes"}[table]
    )
    values = {"fingerprints": list(fingerprints), "limit": 100_000}
    return {row["fingerprint"]: format_id(row["id"]) for row in engine.rows(sql, values)}
