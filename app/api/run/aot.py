"""AOTAutograd's graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.analysis.aot.labels import WrapperCost
from compileboard.app.analysis.aot.report import RunWrapperCost
from compileboard.app.analysis.rows import graph_row
from compileboard.app.api.answers import PageQuery, operation
from compileboard.app.db import get_reader
from compileboard.app.queries.fields import CompileId, Count, RowId
from compileboard.app.queries.run.aot import AotGraph
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.screens.run.aot import build_aot


@dataclass(frozen=True)
class AotGraphJson(AotGraph):
    """One graph that AOTAutograd compiled."""

    trained: Annotated[bool | None, "Whether it has a backward."]
    wrappers: Annotated[list[str], "torch's names of the wrappers that do something."]
    findings: Annotated[list[WrapperCost], "What they do, from the outermost to the innermost."]
    unknown: Annotated[list[str], "What torch did not say, a sentence each."]


@dataclass(frozen=True)
class GraphName:
    """A graph."""

    id: RowId
    compile_id: CompileId


@dataclass(frozen=True)
class RunWrapperCostJson:
    """One thing that wrappers of the run do."""

    title: Annotated[str, "What, without numbers."]
    example: Annotated[WrapperCost, "One of them."]
    graph_count: Annotated[Count, "Graphs that have it."]
    graphs: Annotated[list[GraphName], "The first five of them."]


@dataclass(frozen=True)
class AotReport:
    """A run's graphs."""

    graph_count: Annotated[Count, "Graphs that AOTAutograd compiled."]
    trained_count: Annotated[Count, "Of these, with a backward."]
    plain_count: Annotated[Count, "Of these, with nothing but the plain wrapper."]
    findings: Annotated[list[RunWrapperCostJson], "Distinct findings, that of the most graphs first."]
    graphs: Annotated[list[AotGraphJson], "One page of graphs, as they were compiled."]
    next: Annotated[str | None, "`cursor` of the next page of graphs, null on the last."]


@operation("/runs/<run_id>/aot")
def get_aot(detail: RunDetail, page: PageQuery) -> AotReport:
    """Return what AOTAutograd found out about a run's graphs, and what its wrappers do at each call."""
    screen = build_aot(get_reader(), detail.run.id, page.cursor, page.limit)
    report = screen.report
    return AotReport(
        graph_count=report.graph_count,
        trained_count=report.trained_count,
        plain_count=report.plain_count,
        findings=[_make_cost(cost) for cost in report.findings],
        graphs=[AotGraphJson(**graph_row(graph)) for graph in screen.graphs],
        next=screen.next,
    )


def _make_cost(cost: RunWrapperCost) -> RunWrapperCostJson:
    graphs = [GraphName(number, compile_id) for number, compile_id in cost.examples]
    return RunWrapperCostJson(cost.title, cost.example, cost.graph_count, graphs)
