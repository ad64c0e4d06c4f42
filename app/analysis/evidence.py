"""What a diagnosis looks at, read for one run: the same for its page and for the API."""

from __future__ import annotations

import sqlite3

from compileboard.app.analysis.diagnosis import Evidence
from compileboard.app.queries import compiles, run_breaks, run_detail, run_events, run_recompiles
from compileboard.app.queries.runs import RunRow
from compileboard.app.queries.unfinished import list_unfinished


def read_evidence(connection: sqlite3.Connection, run: RunRow) -> Evidence:
    """Read what a run's diagnosis is made from; what its totals say there is none of is not asked for."""
    phases = compiles.get_phases(connection, run.id)
    below = [value for name in ("inductor", "codegen", "triton") if (value := phases.get(name)) is not None]
    return Evidence(
        compile_us=run.compile_us,
        unfinished=list_unfinished(connection, run),
        failures=run_events.count_failed(connection, run.id) if run.failure_count else (),
        raised=run_events.list_runtime_failures(connection, run.id) if run.runtime_failure_count else (),
        limit_hits=run_recompiles.list_limit_hits(connection, run.id) if run.recompile_limit_count else (),
        causes=run_recompiles.list_causes(connection, run.id, limit=500),
        breaks=run_breaks.list_distinct_breaks(connection, run.id, limit=500).rows,
        caches=run_events.count_cache_results(connection, run.id) if run.cache_bypass_count else (),
        skips=run_events.list_cudagraph_skips(connection, run.id, limit=200).rows if run.cudagraph_skip_count else (),
        changed=[settings for _process, settings in run_detail.list_changed_configs(connection, run.id)],
        cliffs=run_detail.list_stack_cliffs(connection, run.id),
        cacheable_us=sum(below) if below else None,
    )
