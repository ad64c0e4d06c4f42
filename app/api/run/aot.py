"""Schemas of AOTAutograd's graphs."""

from __future__ import annotations

from typing import Any

from compileboard.app.analysis.aot.report import RunWrapperCost
from compileboard.app.analysis.rows import graph_row, plain_row
from compileboard.app.api.answers import Answer, Operation, find_run, read_cursor, read_limit
from compileboard.app.api.parameters import PAGE
from compileboard.app.api.schema import (
    COMPILE_ID,
    COMPILE_KEY,
    ID,
    PLACE,
    PROCESS_ID,
    RANK,
    Schema,
    array_of,
    count,
    flag,
    maybe,
    record,
    text,
    whole,
)
from compileboard.app.db import get_reader
from compileboard.app.screens.run.aot import build_aot

_FINDING = record(
    "One thing that a wrapper does.",
    title=text("What, with the inputs or outputs that it concerns."),
    what=text("What that is."),
    cost=text("What it costs a call."),
    avoid=text("How to avoid it."),
    wrapper=text("torch's name of the wrapper."),
)
_GRAPH = record(
    "One graph that AOTAutograd compiled.",
    id=ID,
    artifact_id=whole("`id` of the artifact that holds its metadata."),
    process_id=PROCESS_ID,
    rank=RANK,
    compile_key=COMPILE_KEY,
    compile_id=COMPILE_ID,
    **PLACE,
    place=count("Which of the compile's graphs it is, from 1."),
    graph_count=count("Graphs of its compile: more than one where DDP splits it."),
    trained=maybe(flag("Whether it has a backward.")),
    wrappers=array_of({"type": "string"}, "torch's names of the wrappers that do something."),
    findings=array_of(_FINDING, "What they do, from the outermost to the innermost."),
    unknown=array_of({"type": "string"}, "What torch did not say, a sentence each."),
    summary={
        "type": "object",
        "additionalProperties": True,
        "description": "The metadata summed up: inputs mutated, outputs that alias, counts; null is not said.",
    },
)
SCHEMAS: dict[str, Schema] = {
    "Aot": record(
        "A run's graphs.",
        graph_count=count("Graphs that AOTAutograd compiled."),
        trained_count=count("Of these, with a backward."),
        plain_count=count("Of these, with nothing but the plain wrapper."),
        findings=array_of(
            record(
                "One thing that wrappers of the run do.",
                title=text("What, without numbers."),
                example=_FINDING,
                graph_count=count("Graphs that have it."),
                graphs=array_of(record("A graph.", id=ID, compile_id=COMPILE_ID), "The first five of them."),
            ),
            "Distinct findings, that of the most graphs first.",
        ),
        graphs=array_of(_GRAPH, "One page of graphs, as they were compiled."),
        next=maybe(text("`cursor` of the next page of graphs, null on the last.")),
    ),
}


def get_aot(run_id: str) -> Answer:
    """Return the findings of a run's graphs, and a page of graphs."""
    find_run(run_id)
    screen = build_aot(get_reader(), run_id, read_cursor(), read_limit())
    report = screen.report
    return Answer(
        {
            "graph_count": report.graph_count,
            "trained_count": report.trained_count,
            "plain_count": report.plain_count,
            "findings": [_finding_row(cost) for cost in report.findings],
            "graphs": [graph_row(graph) for graph in screen.graphs],
            "next": screen.next,
        }
    )


def _finding_row(it: RunWrapperCost) -> dict[str, Any]:
    graphs = [{"id": number, "compile_id": compile_id} for number, compile_id in it.examples]
    return {
        "title": it.title,
        "example": plain_row(it.example),
        "graph_count": it.graph_count,
        "graphs": graphs,
    }


OPERATIONS = (
    Operation(
        "/runs/<run_id>/aot",
        get_aot,
        "Aot",
        False,
        "What AOTAutograd found out about a run's graphs, and what its wrappers do at each call.",
        PAGE,
    ),
)
