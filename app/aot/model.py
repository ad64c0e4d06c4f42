"""A run's AOTAutograd graphs: what their wrappers do, saved tensors, and wrapper errors.

Source: torch/_functorch/_aot_autograd/runtime_wrappers.py of 2.13
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from statistics import median
from types import MappingProxyType
from typing import Annotated, Any

from compileboard.app.aot import run_queries as aot
from compileboard.app.aot.run_queries import AotGraph, read_summary
from compileboard.app.aot.wrappers import PLAIN, WrapperAction, explain_graph, list_unknown
from compileboard.app.artifacts.graph_program import list_types, parse_signature, parse_tensor_type
from compileboard.app.core.fields import CompileId, Count, RowId
from compileboard.app.core.page import Page
from compileboard.app.runs import failures
from compileboard.app.runs.failures import FailureRow
from compileboard.app.shapes import run_queries as shapes
from compileboard.app.steps.model import WrapperTime, find_wrapper_times
from compileboard.app.steps.run_queries import (
    MAX_WINDOWS,
    StepWindow,
    list_compiles,
    list_windows,
)
from compileboard.collectors.store.payloads import DDP_SPLIT, add_wrappers

_FRAME = re.compile(r'^ *File "([^"]+)", line \d+', re.MULTILINE)
_WRAPPERS = re.compile(r"[/\\]_functorch[/\\]_aot_autograd[/\\]")
# Part of torch's message → meaning, how to avoid it.
_KNOWN = (
    (
        "guessed its\nmetadata incorrectly",
        (
            "The backward was compiled for a gradient of another type or subclass than the one "
            "that came."
        ),
        (
            "Torch's message names the remedies: detach the output, or "
            "__coerce_same_metadata_as_tangent__."
        ),
    ),
    (
        "compiled with non-empty donated buffers",
        (
            "The backward ran with retain_graph or create_graph, but writes over tensors that were "
            "saved for it."
        ),
        (
            "Set torch._functorch.config.donated_buffer to False before it is compiled, or keep no "
            "graph."
        ),
    ),
    (
        "is a view and is being modified inplace",
        (
            "The wrapper copies a new value into an input that is one of several views, which "
            "autograd does not allow."
        ),
        "Return the new value instead of writing it.",
    ),
    (
        "would not require grad",
        (
            "An input needs gradients, and the graph was compiled for one that does not "
            "(debug_assert)."
        ),
        "Report it to PyTorch: a guard should have recompiled.",
    ),
)


@dataclass(frozen=True)
class WrapperError:
    failure: FailureRow
    meaning: Annotated[str, "What it means. Empty for a message that is not known."]
    fix: Annotated[str, "How to avoid it. Empty for a message that is not known."]


def explain_errors(failures: list[FailureRow]) -> list[WrapperError]:
    """Explain failures raised by wrappers, which torch's phase or the innermost frame shows."""
    explained = []
    for failure in failures:
        frames = _FRAME.findall(failure.text)
        in_backward = failure.phase == "backward" and frames and _WRAPPERS.search(frames[-1])
        if failure.phase == "wrapper" or in_backward:
            explained.append(_explain_failure(failure))
    return explained


def _explain_failure(failure: FailureRow) -> WrapperError:
    message = " ".join((failure.message or "").split())
    for part, meaning, fix in _KNOWN:
        if " ".join(part.split()) in message:
            return WrapperError(failure, meaning, fix)
    return WrapperError(failure, "", "")


_NOT_SAVED = re.compile(r"tangents_\d+|bwd_rng_state_\d+|bwd_(?:seed|base_offset)_\d+")
_INPUT = re.compile(r"primals_\d+")


@dataclass(frozen=True)
class SavedTensors:
    """Memory that a forward graph keeps until its backward. A view counts as its own size."""

    tensor_count: Annotated[Count, "Tensors that are saved."]
    bytes: Annotated[
        Count | None, "Bytes of all of them. Null where a symbol's size is not recorded."
    ]
    input_bytes: Annotated[
        Count | None, "Of these, inputs of the forward: parameters and arguments. Bytes."
    ]
    donated_bytes: Annotated[
        Count | None, "Of these, buffers that the backward may write over. Bytes."
    ]


def measure_saved(
    text: str, symbols: Mapping[str, int], donated: Sequence[int] | None
) -> SavedTensors | None:
    """Return the size of the tensors that a backward graph receives from its forward, or None if
    the text is not a graph.

    `donated` are indices of the backward graph's parameters, `symbols` the recorded sizes.
    """
    try:
        types = list_types(parse_signature(text))
    except ValueError:
        return None
    tensors = {
        index: (name, tensor)
        for index, (name, written) in enumerate(types.items())
        if not _NOT_SAVED.fullmatch(name) and (tensor := parse_tensor_type(written)) is not None
    }
    try:
        sizes = {index: tensor.count_bytes(symbols) for index, (_name, tensor) in tensors.items()}
    except ValueError:
        return SavedTensors(len(tensors), None, None, None)
    return SavedTensors(
        len(tensors),
        sum(sizes.values()),
        sum(size for index, size in sizes.items() if _INPUT.fullmatch(tensors[index][0])),
        None if donated is None else sum(sizes.get(index, 0) for index in donated),
    )


_EXAMPLES = 5


@dataclass(frozen=True)
class AotGraphRow(AotGraph):
    """One graph that AOTAutograd compiled."""

    trained: Annotated[bool | None, "Whether it has a backward."]
    wrappers: Annotated[tuple[str, ...], "torch's names of the wrappers with an effect."]
    findings: Annotated[tuple[WrapperAction, ...], "Their actions, outermost first."]
    unknown: Annotated[tuple[str, ...], "What torch did not record, a sentence each."]
    saved: Annotated[
        SavedTensors | None,
        "Tensors saved for the backward; null without a recorded backward graph.",
    ]
    time: Annotated[
        WrapperTime | None,
        "What its wrappers take at a call; null where no window of steps traced it, or where its "
        "compile has several graphs.",
    ]


@dataclass(frozen=True)
class GraphName:
    """A graph by ID, with the compile it belongs to."""

    id: RowId
    compile_id: CompileId


@dataclass(frozen=True)
class RunWrapperAction:
    """One wrapper action, over all graphs of the run."""

    title: Annotated[str, "The action, without numbers."]
    example: Annotated[WrapperAction, "One of these actions."]
    graph_count: Annotated[Count, "Graphs that have it."]
    graphs: Annotated[tuple[GraphName, ...], "The first five of them."]
    call_us: Annotated[
        float | None,
        "What all wrappers of such a graph take at a call, forward and backward: median of those "
        "that a window of steps traced, null where none was. Microseconds.",
    ]


@dataclass(frozen=True)
class WrapperReport:
    graph_count: Annotated[Count, "Graphs that AOTAutograd compiled."]
    trained_count: Annotated[Count, "Of these, with a backward."]
    plain_count: Annotated[Count, "Of all graphs, those with only the plain wrapper."]
    findings: Annotated[tuple[RunWrapperAction, ...], "Work of the wrappers, most graphs first."]


def explain_graphs(
    graphs: Sequence[AotGraph],
    wrappers: Mapping[int, frozenset[str]],
    rng_settings: Mapping[int, bool],
    saved: Mapping[int, SavedTensors | None],
    times: Mapping[int, WrapperTime] = MappingProxyType({}),
) -> list[AotGraphRow]:
    """Add to each graph the actions of its wrappers and the tensors saved for its backward.

    `wrappers`, `rng_settings` and `times` are by compile, `saved` by graph.
    """
    return [
        _explain_graph(graph, wrappers, rng_settings, saved.get(graph.id), times)
        for graph in graphs
    ]


def _explain_graph(
    graph: AotGraph,
    wrappers: Mapping[int, frozenset[str]],
    rng_settings: Mapping[int, bool],
    saved: SavedTensors | None,
    times: Mapping[int, WrapperTime],
) -> AotGraphRow:
    key = graph.compile_key
    names = wrappers.get(key, frozenset()) if key is not None else frozenset()
    functionalized = rng_settings.get(key) if key is not None else None
    summary = _complete_summary(graph.summary, names, functionalized, graph.graph_count)
    findings = tuple(explain_graph(summary))
    return AotGraphRow(
        **vars(graph) | {"summary": summary},
        trained=summary.get("trained"),
        wrappers=tuple(dict.fromkeys(finding.wrapper for finding in findings)),
        findings=findings,
        unknown=tuple(list_unknown(summary)),
        saved=saved,
        time=times.get(key) if key is not None and graph.graph_count == 1 else None,
    )


def _complete_summary(
    summary: Mapping[str, Any], names: frozenset[str], functionalized: bool | None, graph_count: int
) -> dict[str, Any]:
    told = add_wrappers(dict(summary), names) if graph_count == 1 else dict(summary)
    # AOTAutograd's metadata lacks it; torch sets it from this setting (schemas.py,
    # ViewAndMutationMeta).
    if told.get("rng_functionalized") is None:
        told["rng_functionalized"] = functionalized
    return told | {"first_call_fakified": True} if DDP_SPLIT in names else told


def sum_up_graphs(
    rows: Sequence[tuple[int, int | None, str | None, str]],
    wrappers: Mapping[int, frozenset[str]],
    rng_settings: Mapping[int, bool],
    times: Mapping[int, WrapperTime] = MappingProxyType({}),
) -> WrapperReport:
    """List the actions of the wrappers of a run's graphs, each once, the most frequent first.

    `rows` are id, compile, compile id and summary (JSON) of each graph.
    """
    counts = Counter(key for _id, key, _compile_id, _text in rows)
    explained: dict[
        tuple[str, frozenset[str], bool | None], tuple[dict[str, Any], list[WrapperAction]]
    ] = {}
    costs: dict[str, list[tuple[int, str | None, WrapperAction]]] = {}
    calls_us = {
        number: times[key].whole_us
        for number, key, _compile_id, _text in rows
        if key is not None and key in times and counts[key] == 1
    }
    trained_count = plain_count = 0
    for number, key, compile_id, text in rows:
        names = wrappers.get(key, frozenset()) if key is not None else frozenset()
        names = names if counts[key] == 1 else names & {DDP_SPLIT}
        functionalized = rng_settings.get(key) if key is not None else None
        kind = (text, names, functionalized)
        if kind not in explained:  # a run has few kinds of graphs, but perhaps thousands of each
            summary = _complete_summary(read_summary(text), names, functionalized, counts[key])
            explained[kind] = (summary, explain_graph(summary))
        summary, findings = explained[kind]
        trained_count += summary.get("trained") is True
        plain_count += PLAIN in findings
        for finding in findings:
            costs.setdefault(finding.title.partition(":")[0], []).append(
                (number, compile_id, finding)
            )
    listed = sorted(
        costs.items(), key=lambda item: (item[1][0][2] == PLAIN, -_count_known(item[1]), item[0])
    )
    return WrapperReport(
        len(rows),
        trained_count,
        plain_count,
        tuple(_sum_up(title, them, calls_us) for title, them in listed),
    )


def _count_known(them: Sequence[tuple[int, str | None, WrapperAction]]) -> int:
    return len({number for number, _compile_id, _finding in them})


def _sum_up(
    title: str, them: Sequence[tuple[int, str | None, WrapperAction]], calls_us: Mapping[int, float]
) -> RunWrapperAction:
    graphs = {number: compile_id for number, compile_id, _finding in them}
    timed = [calls_us[number] for number in graphs if number in calls_us]
    return RunWrapperAction(
        title,
        them[0][2],
        len(graphs),
        tuple(starmap(GraphName, graphs.items()))[:_EXAMPLES],
        median(timed) if timed else None,
    )


_MAX_FAILURES = 100


@dataclass(frozen=True)
class AotScreen:
    report: WrapperReport
    graphs: Sequence[AotGraphRow]
    next: str | None
    errors: Sequence[WrapperError]
    has_window: bool = False
    is_timed: bool = False


def build_aot(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 25
) -> AotScreen:
    wrappers = aot.list_wrappers(reader, run_id)
    rng_settings = aot.list_rng_settings(reader, run_id)
    page = aot.list_aot_graphs(reader, run_id, cursor, limit)
    windows = list_windows(reader, run_id, None, MAX_WINDOWS).rows
    times = _read_times(reader, run_id, windows)
    report = sum_up_graphs(aot.list_summaries(reader, run_id), wrappers, rng_settings, times)
    errors = explain_errors(failures.list_runtime_failures(reader, run_id, limit=_MAX_FAILURES))
    graphs = _explain_rows(reader, page.rows, wrappers, rng_settings, times)
    return AotScreen(report, graphs, page.next, errors, bool(windows), bool(times))


def _read_times(
    reader: sqlite3.Connection, run_id: str, windows: Sequence[StepWindow]
) -> dict[int, WrapperTime]:
    return find_wrapper_times(windows, list_compiles(reader, run_id)) if windows else {}


def list_graph_reports(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 25
) -> Page[AotGraphRow]:
    page = aot.list_aot_graphs(reader, run_id, cursor, limit)
    wrappers, rng_settings = (
        aot.list_wrappers(reader, run_id),
        aot.list_rng_settings(reader, run_id),
    )
    times = _read_times(reader, run_id, list_windows(reader, run_id, None, MAX_WINDOWS).rows)
    return Page(tuple(_explain_rows(reader, page.rows, wrappers, rng_settings, times)), page.next)


def _explain_rows(
    reader: sqlite3.Connection,
    graphs: Sequence[AotGraph],
    wrappers: Mapping[int, frozenset[str]],
    rng_settings: Mapping[int, bool],
    times: Mapping[int, WrapperTime],
) -> list[AotGraphRow]:
    saved = {
        graph.id: _measure_saved_tensors(reader, graph)
        for graph in graphs
        if graph.summary.get("trained")
    }
    return explain_graphs(graphs, wrappers, rng_settings, saved, times)


def _measure_saved_tensors(reader: sqlite3.Connection, graph: AotGraph) -> SavedTensors | None:
    text = aot.read_backward(reader, graph.artifact_id)
    if text is None or graph.compile_key is None:
        return None
    symbols = shapes.list_values(reader, graph.compile_key)
    return measure_saved(text, symbols, graph.summary.get("donated_buffer_indices"))
