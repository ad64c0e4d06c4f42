"""What queries return as plain dicts: the rows of the API and of the JSON report, one shape for both.

Nothing is left out because it is None: what torch did not record is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compileboard.app.analysis.aot.report import GraphReport
from compileboard.app.analysis.artifacts.labels import describe_name, describe_state
from compileboard.app.analysis.shapes import ShapeGuard, ShapesView, ShapeSymbol, describe_reason
from compileboard.app.analysis.stacks import StackTreeNode, build_tree, is_library_name
from compileboard.app.queries.fleet.runs import RunRow
from compileboard.app.queries.run import artifacts, guards
from compileboard.app.queries.run.compiles import Compilation
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.queries.run.shapes import SymbolRecord
from compileboard.app.queries.run.stacks import StackCompile, StackNode
from compileboard.app.queries.run.timeline import NameTotal
from compileboard.collectors.contract.fields import FIELDS
from compileboard.collectors.store.rollups.results import ResultRow
from compileboard.collectors.store.rollups.totals import COMPILER_COUNTS

Row = dict[str, Any]


def plain_row(found: object) -> Row:
    """Return a query's dataclass as a dict of its fields."""
    return dict(vars(found))


def run_row(run: RunRow, tags: Iterable[tuple[str, str]] = ()) -> Row:
    """Return a run with its tags and totals."""
    counts = {name: run.count(name) for name in (*COMPILER_COUNTS, "process_count")}
    more = {"shown_name": run.shown_name, "duration_us": run.duration_us, "tags": dict(tags)}
    return plain_row(run) | counts | more


def run_detail_row(detail: RunDetail) -> Row:
    """Return a run with its tags, its totals and what the collector wrote of its surroundings."""
    more = {name: getattr(detail, name) for name in ("cwd", "keep_source", "facts", "stack_room")}
    return run_row(detail.run, detail.tags) | more


def compilation_row(it: Compilation) -> Row:
    """Return one CompilationMetrics record, every metric under torch's own name at the top level.

    Where a name of ours is one of torch's too, torch's value stands if it has one. Every field that is known is there:
    hooks send what has a value alone.
    """
    row = plain_row(it)
    metrics: Mapping[str, Any] = row.pop("metrics")
    said = {name: value for name, value in metrics.items() if value is not None or name not in row}
    return row | {name: None for name in FIELDS if name not in row} | said


def result_row(it: ResultRow) -> Row:
    """Return one model and metric set of a run; `gpu` is null for what no GPU made."""
    row = plain_row(it) | {"gpu": it.gpu, "experiments": list(it.experiments), "tasks": list(it.tasks)}
    del row["judge"]
    return row


def shapes_row(view: ShapesView) -> dict[str, Any]:
    """Return one compile with its symbols, what fixed or guarded them, and what to do."""
    it = view.compile
    return {
        "compile_key": it.key,
        "compile_id": it.compile_id,
        "rank": it.rank,
        "function": it.function,
        "file": it.file,
        "outcome": it.outcome,
        "record_count": it.record_count,
        "symbols": [_symbol_row(symbol) for symbol in view.symbols],
        "other_guards": [_guard_row(guard) for guard in view.other],
        "fixed": [{"name": one.name, "dim": one.dim, "size": one.size} for one in view.fixed],
    }


def _place_row(record: SymbolRecord | None) -> dict[str, Any]:
    return {
        "file": record.file if record else None,
        "line": record.line if record else None,
        "source_line": record.source_line if record else None,
        "stack": list(record.stack) if record else [],
    }


def _symbol_row(it: ShapeSymbol) -> dict[str, Any]:
    return {
        "symbol": it.name,
        "is_unbacked": it.is_unbacked,
        "source": it.source,
        "value": it.record.value if it.record else None,
        "value_range": it.record.value_range if it.record else None,
        "same": list(it.same),
        "specialized": [
            {"value": one.value, "reason": one.expression, "words": describe_reason(one.expression)} | _place_row(one)
            for one in it.specialized
        ],
        "guards": [_guard_row(guard) for guard in it.guards],
        "advice": list(it.advice),
    } | _place_row(it.record)


def _guard_row(it: ShapeGuard) -> dict[str, Any]:
    said = {"expression": it.record.expression, "words": it.words, "count": it.count}
    return said | {"by_user": bool(it.record.stack)} | _place_row(it.record)


def artifact_row(it: artifacts.ArtifactRow) -> dict[str, Any]:
    """Return one artifact without its text."""
    row = dict(vars(it))
    row.pop("text", None)
    row.pop("unreadable", None)
    return row | {"meaning": describe_name(it.name), "state_meaning": describe_state(it.state).meaning}


def guard_set_row(it: guards.GuardSet) -> dict[str, Any]:
    """Return one set of guards as it was summed up."""
    roots = [{"root": root, "guard_count": count} for root, count in it.roots]
    return dict(vars(it)) | {"kinds": dict(it.kinds), "roots": roots}


def stack_row(it: StackTreeNode, code: str | None) -> dict[str, Any]:
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


def span_name_row(it: NameTotal) -> dict[str, Any]:
    """Return what the phases of one name took."""
    return plain_row(it) | {"open_count": it.open_count}
