"""Every address of the API: what answers it, which parameters it takes, what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from app.api import across, run_lists, runs
from app.api.answer import Answer
from app.api.parameters import BREAKS, CAUSES, PAGE, RUNS


class Operation(NamedTuple):
    """Describe one address. `schema` names the schema of its data, or of one row where it is a list."""

    path: str
    view: Callable[..., Answer]
    schema: str
    is_list: bool
    summary: str
    parameters: tuple[str, ...] = ()


_RUN = "/runs/<run_id>"

OPERATIONS = (
    Operation(
        "/overview",
        across.get_overview,
        "Overview",
        False,
        "What is in this database, as the overview page shows it.",
        ("suite", "name"),
    ),
    Operation("/runs", runs.list_runs, "Run", True, "Runs, newest first.", RUNS),
    Operation(_RUN, runs.get_run, "RunDetail", False, "One run with its surroundings and sums."),
    Operation(
        f"{_RUN}/compiles",
        run_lists.list_compiles,
        "Compile",
        True,
        "A run's compiles: one row an attempt to compile a frame.",
        ("q", "outcome", "recompiled", "sort_compiles", *PAGE),
    ),
    Operation(
        f"{_RUN}/compiles/<key>",
        runs.get_compile,
        "CompileDetail",
        False,
        "One compile with its records, graph breaks, recompiles, failures and stack.",
    ),
    Operation(
        f"{_RUN}/compilations",
        run_lists.list_compilations,
        "Compilation",
        True,
        "A run's CompilationMetrics records by start, each with every metric under torch's own name.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/graph_breaks",
        run_lists.list_graph_breaks,
        "GraphBreak",
        True,
        "A run's graph breaks as they came.",
        ("distinct", *PAGE),
    ),
    Operation(
        f"{_RUN}/distinct_graph_breaks",
        run_lists.list_distinct_breaks,
        "RunDistinctBreak",
        True,
        "A run's distinct graph breaks, the most compile time first.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/recompiles",
        run_lists.list_recompiles,
        "Recompile",
        True,
        "A run's recompiles as they came, each with the failed guards of every cache entry.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/recompile_chains",
        run_lists.list_chains,
        "Chain",
        True,
        "The frames that a run compiled more than once, the most compile time first.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/recompile_causes",
        run_lists.list_causes,
        "RunCause",
        True,
        "What a run's recompiles were for, the most compile time first.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/recompile_limits",
        run_lists.list_limit_hits,
        "LimitHit",
        True,
        "The compiles that hit the recompile limit: their frames run eagerly from then on.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/failures",
        run_lists.list_failures,
        "Failure",
        True,
        "The exceptions that a run's compiles raised.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/cache_lookups",
        run_lists.list_cache_lookups,
        "CacheLookup",
        True,
        "A run's look-ups in the FX graph cache and AOTAutograd's cache.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/cudagraph_skips",
        run_lists.list_cudagraph_skips,
        "CudagraphSkip",
        True,
        "The CUDA graphs that inductor could not use, and why.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/processes",
        run_lists.list_processes,
        "Process",
        True,
        "A run's processes with their capabilities, counters and losses.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/notes",
        run_lists.list_notes,
        "Note",
        True,
        "Records of torch's that this version has no decoder for, as they came.",
        PAGE,
    ),
    Operation(
        f"{_RUN}/configs/<config_hash>",
        runs.get_config,
        "ConfigText",
        False,
        "One configuration text: what a `config_hash` stands for.",
    ),
    Operation(
        "/graph_breaks",
        across.list_graph_breaks,
        "DistinctBreak",
        True,
        "Distinct graph breaks across runs, the most frequent first.",
        (*BREAKS, "sort_breaks", *PAGE),
    ),
    Operation(
        "/graph_breaks/trends",
        across.get_graph_break_trends,
        "BreakTrends",
        False,
        "Distinct graph breaks summed, and how they went from run to run.",
        BREAKS,
    ),
    Operation(
        "/graph_breaks/<distinct_id>",
        across.get_graph_break,
        "DistinctBreakDetail",
        False,
        "One distinct graph break with its newest events and its history.",
    ),
    Operation(
        "/graph_breaks/<distinct_id>/runs",
        across.list_graph_break_runs,
        "AffectedRun",
        True,
        "The runs that have one distinct graph break, newest first.",
        PAGE,
    ),
    Operation(
        "/recompiles",
        across.list_recompiles,
        "Cause",
        True,
        "Causes of recompiles across runs, the most recompiles first.",
        (*CAUSES, "sort_causes", *PAGE),
    ),
    Operation(
        "/recompiles/trends",
        across.get_recompile_trends,
        "CauseTrends",
        False,
        "Causes of recompiles summed, and how they went from run to run.",
        CAUSES,
    ),
    Operation(
        "/recompiles/<cause_id>",
        across.get_recompile,
        "CauseDetail",
        False,
        "One cause of recompiles with the values that came, its newest guard failures and its history.",
    ),
    Operation(
        "/recompiles/<cause_id>/runs",
        across.list_recompile_runs,
        "AffectedRun",
        True,
        "The runs that have one cause of recompiles, newest first.",
        PAGE,
    ),
)
