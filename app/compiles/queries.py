"""The runs that compiled a function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.core.engine import Engine
from compileboard.app.core.fields import Count, RunId, StartTime, Title
from compileboard.app.core.rows import make_row

FUNCTION_RUNS_SQL = """
select r.id, r.name, $a.title, r.started_us, r.torch_version, b.compile_count
from runs as r
join $stored(run_functions) as b on $of(b, r)
$words
where b.function_id = :function_id
  and b.compile_count > 0
order by r.started_us desc, r.id desc
limit :limit
"""


@dataclass(frozen=True)
class FunctionRun:
    """A run that compiled a function."""

    tables = ("runs", "run_annotations")

    id: RunId
    name: str
    title: Title
    started_us: StartTime
    torch_version: str | None
    compile_count: Annotated[Count, "Compiles of the function."]

    @property
    def shown_name(self) -> str:
        return self.title or self.name


def list_function_runs(engine: Engine, function_id: int, limit: int = 20) -> list[FunctionRun]:
    values = {"function_id": function_id, "limit": limit}
    return [make_row(FunctionRun, row) for row in engine.rows(FUNCTION_RUNS_SQL, values)]
