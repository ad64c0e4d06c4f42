"""What was read of torch's own logs as plain dicts: the rows of the API and of the JSON report, one shape for both."""

from __future__ import annotations

import sqlite3
from typing import Any

from compileboard.app.analysis import rows
from compileboard.app.analysis.aot_report import GraphReport
from compileboard.app.analysis.artifact_words import describe_name, describe_state
from compileboard.app.analysis.rank_report import read_comparison
from compileboard.app.analysis.rank_words import describe_divergence, describe_times, explain_groups
from compileboard.app.analysis.ranks import AlignedRow, Divergence, RankComparison, RankSummary
from compileboard.app.analysis.rows import plain_row
from compileboard.app.analysis.stack_tree import Place, StackTree, build_tree, is_library_name
from compileboard.app.queries import artifacts, guard_sets, stacks
from compileboard.app.queries.compiles import PHASES
from compileboard.app.queries.ranks import list_names
from compileboard.app.queries.run_recompiles import list_compile_recompiles
from compileboard.app.queries.stacks import StackCompile, StackNode
from compileboard.app.queries.timeline import NameTotal

MOST_ALIGNED = 1000
_NO_RANKS: dict[str, Any] = {
    "ranks": [],
    "aspects": {},
    "divergence": None,
    "times": None,
    "columns": [],
    "rows": [],
    "row_count": 0,
}


def artifact_row(it: artifacts.ArtifactRow) -> dict[str, Any]:
    """Return one artifact without its text."""
    row = dict(vars(it))
    row.pop("text", None)
    row.pop("unreadable", None)
    return row | {"meaning": describe_name(it.name), "state_meaning": describe_state(it.state).meaning}


def guard_set_row(it: guard_sets.GuardSet) -> dict[str, Any]:
    """Return one set of guards as it was summed up."""
    roots = [{"root": root, "guard_count": count} for root, count in it.roots]
    return dict(vars(it)) | {"kinds": dict(it.kinds), "roots": roots}


def read_stack_tree(connection: sqlite3.Connection, run_id: str) -> StackTree:
    """Read the tree of a run's stacks with every frame of it, also of records outside any compile."""
    return build_tree(
        stacks.list_nodes(connection, run_id),
        stacks.list_stack_compiles(connection, run_id),
        stacks.list_loose_records(connection, run_id),
        library=True,
    )


def stack_row(it: Place, code: str | None) -> dict[str, Any]:
    """Return one frame of the tree of stacks with what was compiled at it and below."""
    return {
        "id": it.id,
        "parent_id": it.frame.parent_id,
        "file": it.frame.file,
        "line": it.frame.line,
        "name": it.frame.name,
        "code": code,
        "is_library": is_library_name(it.frame.file),
        "compile_count": it.compile_count,
        "total_us": it.total_us or None,
        "endings": dict(it.endings),
        "compile_keys": [one.key for one in it.compiles],
        "records": [
            {"name": one.name, "record_count": one.record_count, "artifact_id": one.artifact_id} for one in it.records
        ],
    }


def no_stack_row(compiles: tuple[StackCompile, ...]) -> dict[str, Any]:
    """Return the compiles without a stack as frame 0, which has no name."""
    nowhere = StackNode(0, None, "", None, "")
    place = build_tree([nowhere], [it._replace(stack_id=0) for it in compiles]).root.children[0]
    return stack_row(place, None)


def graph_row(it: GraphReport) -> dict[str, Any]:
    """Return one graph with its metadata summed up, what its wrappers do and what is not told."""
    row = plain_row(it.graph) | {"summary": dict(it.summary), "trained": it.trained, "wrappers": list(it.wrappers)}
    return row | {"findings": [plain_row(found) for found in it.findings], "unknown": list(it.unknown)}


def ranks_row(connection: sqlite3.Connection, run_id: str, *, every_row: bool = False) -> dict[str, Any]:
    """Return how a run's ranks differ: compile by compile what differs, or with `every_row` all."""
    found = read_comparison(connection, run_id)
    if found is None:
        return dict(_NO_RANKS)
    shown = found.rows if every_row else [it for it in found.rows if it.differs]
    return {
        "ranks": [_rank_row(it) for it in found.ranks],
        "aspects": found.aspects,
        "divergence": _divergence_row(connection, found),
        "times": describe_times(found.ranks),
        "columns": [list(ranks) for ranks in found.columns],
        "rows": [_aligned_row(it) for it in shown[:MOST_ALIGNED]],
        "row_count": len(shown),
    }


def _rank_row(it: RankSummary) -> dict[str, Any]:
    return {
        "rank": it.rank,
        "pids": list(it.pids),
        "compile_count": it.compile_count,
        "recompile_count": it.recompile_count,
        "total_us": it.total_us or None,
        "phases_us": {phase: it.get(phase) for phase in PHASES},
        "slowest_key": it.slowest.key if it.slowest else None,
        "verdicts": it.verdicts,
    }


def _divergence_row(reader: sqlite3.Connection, found: RankComparison) -> dict[str, Any] | None:
    it: Divergence | None = found.divergence
    if it is None:
        return None
    names = list_names(reader, {one.compile.function_id or 0 for one in it.groups if one.compile})
    said = describe_divergence(it, names)
    return {
        "aspect": it.aspect,
        "shared_count": it.shared_count,
        "sentence": said.sentence,
        "groups": [
            {
                "ranks": list(one.ranks),
                "compile_key": one.compile.key if one.compile else None,
                "compile_id": one.compile.place.compile_id if one.compile else None,
                "function": names.get(one.compile.function_id or 0, (None,))[0] if one.compile else None,
                "outcome": one.compile.outcome if one.compile else None,
            }
            for one in it.groups
        ],
        "recompiles": [rows.recompile_row(one) for one in list_compile_recompiles(reader, explain_groups(it)[:100])],
    }


def _aligned_row(it: AlignedRow) -> dict[str, Any]:
    return {
        "process": it.place.process,
        "generation": it.place.generation,
        "compile_id": it.place.compile_id,
        "differs": list(it.differs),
        "rank_count": it.rank_count,
        "least_us": it.least_us,
        "most_us": it.most_us,
        "slowest_rank": it.slowest_rank,
        "compile_keys": [cell.key if cell else None for cell in it.cells],
    }


def span_name_row(it: NameTotal) -> dict[str, Any]:
    """Return what the phases of one name took."""
    return plain_row(it) | {"open_count": it.open_count}
