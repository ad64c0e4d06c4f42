"""What queries return as plain dicts: the rows of the API and of the JSON report, one shape for both.

Nothing is left out because it is None: what torch did not record is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compileboard.app.queries.run.compiles import Compilation
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.queries.run_rows import RunRow
from compileboard.collectors.contract.fields import FIELDS
from compileboard.collectors.store.rollups.results import ResultRow
from compileboard.collectors.store.rollups.totals import COMPILER_COUNTS

Row = dict[str, Any]


def plain_row(record: object) -> Row:
    """Return a query's dataclass as a dict of its fields."""
    return dict(vars(record))


def run_row(run: RunRow, tags: Iterable[tuple[str, str]] = ()) -> Row:
    """Return a run with its tags and totals."""
    row = vars(run) | {"shown_name": run.shown_name, "duration_us": run.duration_us, "tags": dict(tags)}
    return row if run.is_observed else row | {name: run.count(name) for name in (*COMPILER_COUNTS, "process_count")}


def run_detail_row(detail: RunDetail) -> Row:
    """Return a run with its tags, its totals and what the collector wrote of its surroundings."""
    more = {name: getattr(detail, name) for name in ("cwd", "keep_source", "facts", "stack_room")}
    return run_row(detail.run, detail.tags) | more


def compilation_row(record: Compilation) -> Row:
    """Return one CompilationMetrics record, every metric under torch's own name at the top level.

    Where a name of ours is one of torch's too, torch's value stands if it has one. Every field that is known is there:
    hooks send what has a value alone.
    """
    row = plain_row(record)
    metrics: Mapping[str, Any] = row.pop("metrics")
    recorded = {name: value for name, value in metrics.items() if value is not None or name not in row}
    return row | {name: None for name in FIELDS if name not in row} | recorded


def result_row(compiled: ResultRow) -> Row:
    """Return one model and metric set of a run; `gpu` is null for what no GPU made."""
    row = plain_row(compiled) | {
        "gpu": compiled.gpu,
        "experiments": list(compiled.experiments),
        "tasks": list(compiled.tasks),
    }
    del row["judge"]
    return row
