"""Schemas of AOTAutograd's graphs."""

from __future__ import annotations

from compileboard.app.api.schema import Schema, count, flag, maybe, record, rows, text, whole
from compileboard.app.api.schemas_parts import COMPILE_ID, COMPILE_KEY, ID, PLACE, PROCESS_ID, RANK

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
    wrappers=rows({"type": "string"}, "torch's names of the wrappers that do something."),
    findings=rows(_FINDING, "What they do, from the outermost to the innermost."),
    unknown=rows({"type": "string"}, "What torch did not say, a sentence each."),
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
        findings=rows(
            record(
                "One thing that wrappers of the run do.",
                title=text("What, without numbers."),
                example=_FINDING,
                graph_count=count("Graphs that have it."),
                graphs=rows(record("A graph.", id=ID, compile_id=COMPILE_ID), "The first five of them."),
            ),
            "Distinct findings, that of the most graphs first.",
        ),
        graphs=rows(_GRAPH, "One page of graphs, as they were compiled."),
        next=maybe(text("`cursor` of the next page of graphs, null on the last.")),
    ),
}
