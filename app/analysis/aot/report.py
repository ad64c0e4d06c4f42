"""A run's AOT graphs for the page and the API: each explained, and the distinct findings of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Annotated, Any

from compileboard.app.analysis.aot.labels import PLAIN, WrapperCost
from compileboard.app.analysis.aot.saved import SavedTensors
from compileboard.app.analysis.aot.wrappers import explain_graph, list_unknown
from compileboard.app.queries.fields import CompileId, Count, RowId
from compileboard.app.queries.run.aot import AotGraph, read_summary
from compileboard.collectors.store.payloads import DDP_SPLIT, add_wrappers

_EXAMPLES = 5


@dataclass(frozen=True)
class AotGraphRow(AotGraph):
    """One graph that AOTAutograd compiled."""

    trained: Annotated[bool | None, "Whether it has a backward."]
    wrappers: Annotated[tuple[str, ...], "torch's names of the wrappers that do something."]
    findings: Annotated[
        tuple[WrapperCost, ...], "What they do, from the outermost to the innermost."
    ]
    unknown: Annotated[tuple[str, ...], "What torch did not record, a sentence each."]
    saved: Annotated[
        SavedTensors | None,
        "Tensors saved for the backward; null without a recorded backward graph.",
    ]


@dataclass(frozen=True)
class GraphName:
    """A graph."""

    id: RowId
    compile_id: CompileId


@dataclass(frozen=True)
class RunWrapperCost:
    """One wrapper action, over all graphs of the run."""

    title: Annotated[str, "What, without numbers."]
    example: Annotated[WrapperCost, "One of them."]
    graph_count: Annotated[Count, "Graphs that have it."]
    graphs: Annotated[tuple[GraphName, ...], "The first five of them."]


@dataclass(frozen=True)
class RunReport:
    graph_count: Annotated[Count, "Graphs that AOTAutograd compiled."]
    trained_count: Annotated[Count, "Of these, with a backward."]
    plain_count: Annotated[Count, "Of these, with nothing but the plain wrapper."]
    findings: Annotated[tuple[RunWrapperCost, ...], "Work of the wrappers, most graphs first."]


def explain_graphs(
    graphs: Sequence[AotGraph],
    wrappers: Mapping[int, frozenset[str]],
    rng_settings: Mapping[int, bool],
    saved: Mapping[int, SavedTensors | None],
) -> list[AotGraphRow]:
    """`wrappers` and `rng_settings` are by compile, `saved` by graph."""
    return [_explain(graph, wrappers, rng_settings, saved.get(graph.id)) for graph in graphs]


def _explain(
    graph: AotGraph,
    wrappers: Mapping[int, frozenset[str]],
    rng_settings: Mapping[int, bool],
    saved: SavedTensors | None,
) -> AotGraphRow:
    key = graph.compile_key
    names = wrappers.get(key, frozenset()) if key is not None else frozenset()
    functionalized = rng_settings.get(key) if key is not None else None
    summary = _complete(graph.summary, names, functionalized, graph.graph_count)
    findings = tuple(explain_graph(summary))
    return AotGraphRow(
        **vars(graph) | {"summary": summary},
        trained=summary.get("trained"),
        wrappers=tuple(dict.fromkeys(finding.wrapper for finding in findings)),
        findings=findings,
        unknown=tuple(list_unknown(summary)),
        saved=saved,
    )


def _complete(
    summary: Mapping[str, Any], names: frozenset[str], functionalized: bool | None, graph_count: int
) -> dict[str, Any]:
    told = add_wrappers(dict(summary), names) if graph_count == 1 else dict(summary)
    # AOTAutograd's metadata has no field for it; torch sets it from this setting (schemas.py,
    # ViewAndMutationMeta).
    if told.get("rng_functionalized") is None:
        told["rng_functionalized"] = functionalized
    return told | {"first_call_fakified": True} if DDP_SPLIT in names else told


def sum_up_graphs(
    rows: Sequence[tuple[int, int | None, str | None, str]],
    wrappers: Mapping[int, frozenset[str]],
    rng_settings: Mapping[int, bool],
) -> RunReport:
    """List what the wrappers of a run's graphs do, each thing once, the most frequent first.

    `rows` are id, compile, compile id and summary (JSON) of each graph.
    """
    counts = Counter(key for _id, key, _compile_id, _text in rows)
    explained: dict[
        tuple[str, frozenset[str], bool | None], tuple[dict[str, Any], list[WrapperCost]]
    ] = {}
    costs: dict[str, list[tuple[int, str | None, WrapperCost]]] = {}
    trained_count = plain_count = 0
    for number, key, compile_id, text in rows:
        names = wrappers.get(key, frozenset()) if key is not None else frozenset()
        names = names if counts[key] == 1 else names & {DDP_SPLIT}
        functionalized = rng_settings.get(key) if key is not None else None
        kind = (text, names, functionalized)
        if kind not in explained:  # a run has few kinds of graphs and may have thousands of them
            summary = _complete(read_summary(text), names, functionalized, counts[key])
            explained[kind] = (summary, explain_graph(summary))
        summary, findings = explained[kind]
        trained_count += summary.get("trained") is True
        plain_count += PLAIN in findings
        for finding in findings:
            costs.setdefault(finding.title.partition(":")[0], []).append(
                (number, compile_id, finding)
            )
    listed = sorted(
        costs.items(), key=lambda item: (item[1][0][2] == PLAIN, -_count(item[1]), item[0])
    )
    return RunReport(
        len(rows), trained_count, plain_count, tuple(_sum_up(title, them) for title, them in listed)
    )


def _count(them: Sequence[tuple[int, str | None, WrapperCost]]) -> int:
    return len({number for number, _compile_id, _finding in them})


def _sum_up(title: str, them: Sequence[tuple[int, str | None, WrapperCost]]) -> RunWrapperCost:
    graphs = {number: compile_id for number, compile_id, _finding in them}
    return RunWrapperCost(
        title, them[0][2], len(graphs), tuple(starmap(GraphName, graphs.items()))[:_EXAMPLES]
    )
