"""What queries return as plain dicts: the rows of the API and of the JSON report, one shape for both.

Nothing is left out because it is None: what torch did not record is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compileboard.app.analysis.aot.report import GraphReport
from compileboard.app.analysis.artifacts.labels import describe_name, describe_state
from compileboard.app.analysis.stacks import StackTreeNode, build_tree, is_library_name
from compileboard.app.queries.run import artifacts
from compileboard.app.queries.run.compiles import Compilation
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.queries.run.stacks import StackCompile, StackNode
from compileboard.app.queries.run.timeline import NameTotal
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


def artifact_row(compiled: artifacts.ArtifactRow) -> dict[str, Any]:
    """Return one artifact without its text."""
    row = dict(vars(compiled))
    row.pop("text", None)
    row.pop("unreadable", None)
    return row | {"meaning": describe_name(compiled.name), "state_meaning": describe_state(compiled.state).meaning}


def stack_row(node: StackTreeNode, code: str | None) -> dict[str, Any]:
    """Return one frame of the tree of stacks with what was compiled at it and below."""
    return {
        "id": node.id,
        "parent_id": node.frame.parent_id,
        "file": node.frame.file,
        "line": node.frame.line,
        "name": node.frame.name,
        "code": code,
        "is_library": is_library_name(node.frame.file),
        "compile_count": node.compile_count,
        "total_us": node.total_us or None,
        "endings": dict(node.endings),
        "compile_keys": [stack_compile.key for stack_compile in node.compiles],
        "records": [
            {"name": record.name, "record_count": record.record_count, "artifact_id": record.artifact_id}
            for record in node.records
        ],
    }


def no_stack_row(compiles: tuple[StackCompile, ...]) -> dict[str, Any]:
    """Return the compiles without a stack as frame 0, which has no name."""
    nowhere = StackNode(0, None, "", None, "")
    node = build_tree([nowhere], [stack_compile._replace(stack_id=0) for stack_compile in compiles]).root.children[0]
    return stack_row(node, None)


def graph_row(report: GraphReport) -> dict[str, Any]:
    """Return one graph with its metadata summed up, what its wrappers do and what is not told."""
    row = plain_row(report.graph) | {
        "summary": dict(report.summary),
        "trained": report.trained,
        "wrappers": list(report.wrappers),
    }
    return row | {"findings": [plain_row(finding) for finding in report.findings], "unknown": list(report.unknown)}


def span_name_row(compiled: NameTotal) -> dict[str, Any]:
    """Return what the phases of one name took."""
    return plain_row(compiled) | {"open_count": compiled.open_count}
