"""Join the source lines, graph nodes and kernels of generated code.

All of it is read from texts that torch wrote: the mapping and the stack traces of
INDUCTOR_PROVENANCE, the `# File:` comments of its graphs and the comments of its generated code.
Without a mapping, a fused kernel's definition still names its nodes, and each call names where they
come from. Source: torch/_inductor/debug.py and get_kernel_metadata in utils.py, torch 2.6 to 2.13.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

SOURCE, PRE_GRAD, POST_GRAD, CODE = PANES = ("source", "pre", "post", "code")
# Measured µs by whether a kernel is in a backward graph, and its name in the generated code.
KernelTimes = Mapping[tuple[bool, str], float]
Links = dict[str, dict[int, dict[str, list[int]]]]  # pane: line: other pane: its lines

_FILE_COMMENT = re.compile(r"File: (.+?):(\d+) in (.+?), code: (.*)")
_NODE = re.compile(r'^(\s+)([^\W\d]\w*)(?:: "[^"]*")? = ')
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$')
_HANDLE = re.compile(r"^\s*(?:#|//) \[Provenance debug handles\] (.+):(\d+)\s*$")
_ORIGINS = re.compile(r"^\s*(?:#|//) (?:Topologically Sorted|Unsorted) Source Nodes: \[(.*?)\],")
_DEFINITION = re.compile(r"^(\w+) = async_compile\.\w+\(")
_FRAGMENT_NODE = re.compile(r"^#\s+%(\w+) :.* = (?!PlaceHolder)\w+\[")
_CALL = re.compile(
    r"^\s+(?:[\w, ()]+ = )?(?:((?:extern_kernels|torch\.ops)\.[\w.]+|\w+)|(\w+)\.run)\("
)
_AOT_ID = re.compile(r"# AOT ID: \['(\d+)_(\w+)'\]")
_CALL_DISTANCE = 40  # lines from a handle to its call, with stream and buffers in between


@dataclass(frozen=True)
class Frame:
    file: str
    line: int
    function: str
    code: str

    @property
    def place(self) -> tuple[str, int]:
        return self.file, self.line


@dataclass
class Graph:
    """Nodes of a printed graph with their lines, and the program's line that each came from."""

    nodes: dict[str, int] = field(default_factory=dict)
    frames: dict[str, Frame] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernel:
    """A kernel's call. `sources` are innermost frames, `callers` those around them.

    `nodes_from` is "mapping", "comments", or "" if torch named no nodes.
    """

    name: str
    handle: int | None
    line: int
    definition: int | None
    post_nodes: tuple[str, ...]
    pre_nodes: tuple[str, ...]
    sources: tuple[Frame, ...]
    callers: tuple[Frame, ...]
    nodes_from: str
    measured_us: float | None = None


@dataclass(frozen=True)
class ProvenanceTexts:
    """The texts that torch wrote for one piece of generated code, empty if missing."""

    code: str
    post_grad: str = ""
    pre_grad: str = ""
    mapping: str = ""
    stack_traces: str = ""


@dataclass(frozen=True)
class Provenance:
    kernels: tuple[Kernel, ...]
    pre_grad: Graph
    post_grad: Graph
    sources: tuple[Frame, ...]  # each once, by file
    links: Links
    is_backward: bool
    is_mapped: bool  # torch wrote which nodes the kernels come from
    malformed_count: int  # entries of torch's mapping with an unknown form

    @cached_property
    def source_lines(self) -> dict[tuple[str, int], int]:
        """Line numbers in the list of sources, from 1, by file and line."""
        return {frame.place: number for number, frame in enumerate(self.sources, 1)}


def split_lines(text: str) -> list[str]:
    return re.sub(r"\r\n?", "\n", text).split("\n")


def describe_code(code: str) -> tuple[str, str]:
    """Return the graph number of generated code and its kind: forward, backward, inference."""
    found = _AOT_ID.search(code[:4_000])
    return (found[1], found[2]) if found else ("", "")


def read_graph(text: str) -> Graph:
    """Read a printed graph. If nodes share a name, the outermost graph's node is used."""
    graph, depths, frame = Graph(), dict[str, int](), None
    for number, line in enumerate(split_lines(text), 1):
        stripped = line.lstrip()
        if stripped.startswith("#"):
            found = _FILE_COMMENT.search(stripped)
            frame = Frame(found[1], int(found[2]), found[3], found[4]) if found else None
        elif (node := _NODE.match(line)) and len(node[1]) < depths.get(node[2], 1_000):
            depths[node[2]] = len(node[1])
            graph.nodes[node[2]] = number
            graph.frames.pop(node[2], None)
            if frame is not None:
                graph.frames[node[2]] = frame
    return graph


def read_stack(text: str) -> list[Frame]:
    """Return the frames of a stack trace, outermost first. Other lines are skipped."""
    frames, lines = [], text.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        found = _FRAME.match(line)
        if found:
            code = "" if _FRAME.match(following) else following.strip()
            frames.append(Frame(found[1], int(found[2]), found[3], code))
    return frames


def read_lists(value: object) -> tuple[dict[str, tuple[str, ...]], int]:
    """Return the lists of names in a JSON object, and how many of its entries are malformed."""
    if value is None:
        return {}, 0
    if not isinstance(value, dict):
        return {}, 1
    lists = {
        name: tuple(dict.fromkeys(item for item in items if isinstance(item, str)))
        for name, items in value.items()
        if isinstance(items, list)
    }
    odd = [item for name in lists for item in value[name] if not isinstance(item, str)]
    return lists, len(value) - len(lists) + len(odd)


def _read_json(text: str) -> tuple[dict[str, object], int]:
    try:
        value = json.loads(text) if text.strip() else None
    except (ValueError, RecursionError):
        return {}, 1
    # Null in code from a cache that was filled without tracking.
    return (value, 0) if isinstance(value, dict) else ({}, int(value is not None))


@dataclass
class _Definition:
    line: int
    nodes: tuple[str, ...]  # post-grad nodes of the first call
    origins: dict[str, set[str]]  # post-grad node: nodes of the graph before


@dataclass
class _Call:
    name: str
    handle: int | None
    line: int
    origins: tuple[str, ...]  # nodes named by its comment
    is_first: bool


@dataclass
class _Code:
    definitions: dict[str, _Definition] = field(default_factory=dict)
    calls: list[_Call] = field(default_factory=list)


def _read_code(text: str) -> _Code:
    code, lines = _Code(), split_lines(text)
    block: list[str] = []
    origins: tuple[str, ...] = ()
    is_quoted = False
    taken: set[int] = set()
    named: set[str] = set()

    def add_call(name: str, handle: int | None, line: int) -> None:
        nonlocal origins
        code.calls.append(_Call(name, handle, line, origins, name not in named))
        named.add(name)
        taken.add(line)
        origins = ()

    for number, line in enumerate(lines, 1):
        if found := _ORIGINS.match(line):
            origins = tuple(name for name in found[1].split(", ") if name)
        if found := _HANDLE.match(line):
            at = _find_call(lines, number, found[1])
            add_call(found[1], int(found[2]), number if at is None else at)
        elif not is_quoted and (found := _DEFINITION.match(line)):
            code.definitions[found[1]] = _read_definition(number, block)
            origins = ()  # the comment was about the definition
        elif not is_quoted and number not in taken and (found := _CALL.match(line)):
            name = found[1] or found[2]
            if "." in name or name in code.definitions:
                add_call(name, None, number)
        is_quoted ^= line.count("'''") % 2 == 1
        block = [*block, line] if line.startswith("#") else []
    return code


def _find_call(lines: Sequence[str], handle_line: int, name: str) -> int | None:
    for number in range(handle_line + 1, min(handle_line + _CALL_DISTANCE, len(lines)) + 1):
        line = lines[number - 1]
        if name in line and not line.lstrip().startswith(("#", "//")):
            return number
    return None


def _read_definition(line: int, block: Sequence[str]) -> _Definition:
    nodes = [found[1] for text in block if (found := _FRAGMENT_NODE.match(text))]
    origins: dict[str, set[str]] = defaultdict(set)
    for text in block:
        before, arrow, after = text[1:].partition("=>")
        if arrow and "%" not in text:
            for node in after.split(","):
                origins[node.strip()].update(name.strip() for name in before.split(",") if name)
    return _Definition(line, tuple(dict.fromkeys(nodes)), origins)


@dataclass
class _Mapping:
    kernels: dict[str, tuple[str, ...]]
    post_to_pre: dict[str, tuple[str, ...]]
    stacks: dict[str, tuple[str, ...]]
    malformed_count: int


def _read_mapping(texts: ProvenanceTexts) -> _Mapping:
    mapping, odd = _read_json(texts.mapping)
    traces, odd_traces = _read_json(texts.stack_traces)
    kernels, odd_kernels = read_lists(mapping.get("cppCodeToPost"))
    post_to_pre, odd_nodes = read_lists(mapping.get("postToPre"))
    stacks, odd_stacks = read_lists(traces)
    count = odd + odd_traces + odd_kernels + odd_nodes + odd_stacks
    return _Mapping(kernels, post_to_pre, stacks, count)


def trace_provenance(texts: ProvenanceTexts, measured_us: KernelTimes | None = None) -> Provenance:
    """Join the kernels of generated code to nodes and source lines.

    `measured_us` has the measured time of kernels.
    """
    post_grad, pre_grad = read_graph(texts.post_grad), read_graph(texts.pre_grad)
    code, mapping = _read_code(texts.code), _read_mapping(texts)
    kind = describe_code(texts.code)[1]
    kernels = tuple(
        _trace_kernel(call, code, mapping, pre_grad, post_grad, kind, measured_us or {})
        for call in code.calls
    )
    if kind == "backward":
        pre_grad = Graph()  # the graph is the forward's; torch joins no backward kernel to it
    sources = _list_sources(kernels, (pre_grad, post_grad))
    links = _link_panes(
        kernels, pre_grad, post_grad, _map_post_to_pre_grad(kernels, code, mapping, kind), sources
    )
    return Provenance(
        kernels,
        pre_grad,
        post_grad,
        sources,
        links,
        is_backward=kind == "backward",
        is_mapped=bool(mapping.kernels),
        malformed_count=mapping.malformed_count,
    )


def _trace_kernel(
    call: _Call,
    code: _Code,
    mapping: _Mapping,
    pre_grad: Graph,
    post_grad: Graph,
    kind: str,
    measured_us: KernelTimes,
) -> Kernel:
    definition = code.definitions.get(call.name)
    nodes = _find_call_values(mapping.kernels, call)
    nodes_from = "mapping" if nodes else ""
    if not nodes:
        nodes = _guess_nodes(call, definition, pre_grad, post_grad, kind)
        nodes_from = "comments" if nodes else ""
    nodes = tuple(sorted(nodes, key=lambda name: post_grad.nodes.get(name, 0)))
    pre_nodes = [name for node in nodes for name in mapping.post_to_pre.get(node, ())]
    if not mapping.kernels and kind != "backward":
        pre_nodes = [name for name in call.origins if name in pre_grad.nodes]
        nodes_from = nodes_from or ("comments" if pre_nodes else "")
    traces = _find_call_values(mapping.stacks, call)
    stacks = [stack for text in traces if (stack := read_stack(text))]
    sources = {stack[-1].place: stack[-1] for stack in stacks}
    callers = {frame.place: frame for stack in stacks for frame in stack[:-1]}
    if not stacks:
        near = [(post_grad, name) for name in nodes] + [(pre_grad, name) for name in pre_nodes]
        frames = [graph.frames[name] for graph, name in near if name in graph.frames]
        sources = {frame.place: frame for frame in frames}
    return Kernel(
        name=call.name,
        handle=call.handle,
        line=call.line,
        definition=definition.line if definition else None,
        post_nodes=nodes,
        pre_nodes=tuple(dict.fromkeys(pre_nodes)),
        sources=tuple(sources.values()),
        callers=tuple(frame for place, frame in callers.items() if place not in sources),
        nodes_from=nodes_from,
        measured_us=measured_us.get((kind == "backward", call.name)),
    )


def _find_call_values(values: Mapping[str, tuple[str, ...]], call: _Call) -> tuple[str, ...]:
    """Return the values of a call by its handle, else the values of all calls with its name."""
    if call.handle is not None:
        return values.get(f"{call.name}:{call.handle}", ())
    found = [items for key, items in values.items() if key.partition(":")[0] == call.name]
    return tuple(dict.fromkeys(item for items in found for item in items))


def _guess_nodes(
    call: _Call, definition: _Definition | None, pre_grad: Graph, post_grad: Graph, kind: str
) -> tuple[str, ...]:
    if definition and definition.nodes and call.is_first:
        return definition.nodes
    if kind != "backward":
        return ()
    # A backward node has its own name; a name in both graphs is ambiguous.
    return tuple(
        name for name in call.origins if name in post_grad.nodes and name not in pre_grad.nodes
    )


def _map_post_to_pre_grad(
    kernels: Sequence[Kernel], code: _Code, mapping: _Mapping, kind: str
) -> Mapping[str, Iterable[str]]:
    if mapping.post_to_pre or kind == "backward":
        return mapping.post_to_pre
    pairs: dict[str, set[str]] = defaultdict(set)
    for definition in code.definitions.values():
        for node, names in definition.origins.items():
            # In a graph with a backward, nodes that passes create have their own names.
            pairs[node] |= names if kind == "inference" else names - {node}
    return pairs


def _list_sources(kernels: Sequence[Kernel], graphs: Iterable[Graph]) -> tuple[Frame, ...]:
    frames: dict[tuple[str, int], Frame] = {}
    for graph in graphs:
        for frame in graph.frames.values():
            frames.setdefault(frame.place, frame)
    for kernel in kernels:
        for frame in (*kernel.sources, *kernel.callers):
            frames.setdefault(frame.place, frame)
    return tuple(frames[place] for place in sorted(frames))


def _link_panes(
    kernels: Sequence[Kernel],
    pre_grad: Graph,
    post_grad: Graph,
    post_to_pre: Mapping[str, Iterable[str]],
    sources: Sequence[Frame],
) -> Links:
    places = {frame.place: number for number, frame in enumerate(sources, 1)}
    links: dict[str, dict[int, dict[str, dict[int, None]]]] = {pane: {} for pane in PANES}

    def join(one: tuple[str, int], other: tuple[str, int]) -> None:
        for (pane, line), (to, target) in ((one, other), (other, one)):
            links[pane].setdefault(line, {}).setdefault(to, {})[target] = None

    def ends(kernel: Kernel) -> Iterator[tuple[str, int]]:
        for pane, graph, names in (
            (POST_GRAD, post_grad, kernel.post_nodes),
            (PRE_GRAD, pre_grad, kernel.pre_nodes),
        ):
            yield from ((pane, graph.nodes[name]) for name in names if name in graph.nodes)
        yield from ((SOURCE, places[frame.place]) for frame in (*kernel.sources, *kernel.callers))

    for kernel in kernels:
        for line in (kernel.line, *([kernel.definition] if kernel.definition else [])):
            for end in ends(kernel):
                join((CODE, line), end)
    for node, names in post_to_pre.items():
        for name in names:
            if node in post_grad.nodes and name in pre_grad.nodes:
                join((POST_GRAD, post_grad.nodes[node]), (PRE_GRAD, pre_grad.nodes[name]))
    for pane, graph in ((PRE_GRAD, pre_grad), (POST_GRAD, post_grad)):
        for node, frame in graph.frames.items():
            join((pane, graph.nodes[node]), (SOURCE, places[frame.place]))
    return {
        pane: {
            line: {to: list(targets) for to, targets in by_pane.items()}
            for line, by_pane in sorted(by_line.items())
        }
        for pane, by_line in links.items()
    }
