"""What queries return as plain dicts: the rows of the API and of the JSON report, one shape for both.

Nothing is left out because it is None: what torch did not record is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compileboard.app.analysis.chains import label_category
from compileboard.app.analysis.words import gb_url
from compileboard.app.queries.compiles import PHASES, Compilation, CompileRow, Phases
from compileboard.app.queries.graph_breaks import DistinctBreak
from compileboard.app.queries.recompiles import RecompileCause
from compileboard.app.queries.result_rows import ResultRow
from compileboard.app.queries.run_breaks import DistinctBreak as RunBreak
from compileboard.app.queries.run_breaks import GraphBreakRow
from compileboard.app.queries.run_detail import ProcessRow, RunDetail
from compileboard.app.queries.run_events import CacheLookup, CudagraphSkip, FailureRow
from compileboard.app.queries.run_recompiles import Guard, LimitHit, RecompileRow, RunCause
from compileboard.app.queries.runs import COUNTED, RunRow
from compileboard.collectors.fields import FIELDS

Row = dict[str, Any]


def plain_row(found: object) -> Row:
    """Return a query's dataclass as a dict of its fields."""
    return dict(vars(found))


def run_row(run: RunRow, tags: Iterable[tuple[str, str]] = ()) -> Row:
    """Return a run with its tags and totals."""
    counts = {name: run.count(name) for name in (*COUNTED, "process_count")}
    more = {"shown_name": run.shown_name, "duration_us": run.duration_us, "tags": dict(tags)}
    return plain_row(run) | counts | more


def run_detail_row(detail: RunDetail) -> Row:
    """Return a run with its tags, its totals and what the collector wrote of its surroundings."""
    more = {name: getattr(detail, name) for name in ("cwd", "keep_source", "facts", "stack_room")}
    return run_row(detail.run, detail.tags) | more


def phases_row(phases: Phases) -> dict[str, int | None]:
    """Return the time of each phase.

    Units: microseconds.
    """
    return {phase: phases.get(phase) for phase in PHASES}


def compile_row(it: CompileRow) -> Row:
    """Return one compile with its phases."""
    row = plain_row(it)
    row["phases_us"] = phases_row(row.pop("phases"))
    return row


def compilation_row(it: Compilation) -> Row:
    """Return one CompilationMetrics record, every metric under torch's own name at the top level.

    Where a name of ours is one of torch's too, torch's value stands if it has one. Every field that is known is there:
    hooks send what has a value alone.
    """
    row = plain_row(it)
    metrics: Mapping[str, Any] = row.pop("metrics")
    said = {name: value for name, value in metrics.items() if value is not None or name not in row}
    return row | {name: None for name in FIELDS if name not in row} | said


def graph_break_row(it: GraphBreakRow) -> Row:
    """Return one graph break with the public page of its id."""
    return plain_row(it) | {"page_url": gb_url(it.gb_id)}


def distinct_break_row(it: DistinctBreak | RunBreak) -> Row:
    """Return one distinct graph break, of one run or across runs, with the public page of its id."""
    return plain_row(it) | {"page_url": gb_url(it.gb_id)}


def guard_row(it: Guard) -> Row:
    """Return one failed guard of one cache entry with its category in words."""
    return plain_row(it) | {"label": label_category(it.category).label}


def recompile_row(it: RecompileRow) -> Row:
    """Return one recompile; its guards begin with the newest cache entry."""
    return plain_row(it) | {"guards": [guard_row(guard) for guard in it.guards]}


def cause_row(it: RecompileCause | RunCause) -> Row:
    """Return one cause of recompiles, of one run or across runs, with its category in words."""
    category = label_category(it.category)
    return plain_row(it) | {"label": category.label, "meaning": category.meaning}


def limit_hit_row(it: LimitHit) -> Row:
    """Return one compile that dynamo gave up on."""
    return plain_row(it)


def failure_row(it: FailureRow) -> Row:
    """Return one exception that a compile raised."""
    return plain_row(it)


def cache_lookup_row(it: CacheLookup) -> Row:
    """Return one look-up in a cache."""
    return plain_row(it)


def cudagraph_skip_row(it: CudagraphSkip) -> Row:
    """Return one CUDA graph that was not used."""
    return plain_row(it)


def process_row(it: ProcessRow) -> Row:
    """Return one process with its capabilities, counters and losses."""
    return plain_row(it) | {"label": it.label}


def result_row(it: ResultRow) -> Row:
    """Return one model and metric set of a run; `gpu` is null for what no GPU made."""
    row = plain_row(it) | {"gpu": it.gpu, "experiments": list(it.experiments), "tasks": list(it.tasks)}
    del row["judge"]
    return row
