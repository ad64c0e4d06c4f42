"""Types of the JSON in events and columns, which `values.py` checks.

A key of a type that is not `total` may be missing. Unknown keys are kept, because torch adds some.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypedDict


class Frame(TypedDict):
    """A frame of a stack."""

    file: str | None
    line: int | None
    name: str | None
    code: str | None


class MovedInput(TypedDict):
    """An input of a CUDA graph whose address differs from that at the recording."""

    name: str  # in the graph
    dtype: str | None
    shape: list[int] | None
    stack: list[Frame]  # where it is used; torch keeps none for parameters


class GraphMismatch(TypedDict):
    """A reason why a CUDA graph could not be replayed, so that another was recorded."""

    graph: int
    status: str
    inputs: list[MovedInput]
    input_count: int


class Git(TypedDict, total=False):
    """The git repository in which a run was started."""

    commit: str | None
    branch: str | None
    subject: str | None
    dirty: bool | None
    remote: str | None
    root: str | None
    # What the commit has at the top of the repository (""), and of the working directory in it: the
    # folders that names of files may start from.
    tracked: dict[str, list[str]]
    code_owners: str | None  # the text of its CODEOWNERS, without comments


CI_JOB_URL = re.compile(r"https?://[\w.-]+(?::\d{1,5})?/[\w!#$%&()*+,./:;=?@~-]{1,1000}", re.ASCII)


class CiJob(TypedDict, total=False):
    """The CI job that started a run."""

    service: str | None
    url: str | None
    name: str | None


class Host(TypedDict, total=False):
    """The machine of a run."""

    name: str | None
    os: str | None
    kernel: str | None
    machine: str | None
    cpu: str | None
    cpu_count: int | None
    memory_bytes: int | None


class Gpu(TypedDict, total=False):
    """A GPU of a run."""

    index: str | None
    uuid: str | None
    name: str | None
    memory_bytes: int | None
    compute_capability: str | None
    driver_version: str | None


class GuardSummary(TypedDict):
    """Counts of the guards of a compile."""

    guard_count: int | None
    manager_count: int | None
    latency_us: float | None
    depth: int | None
    kinds: dict[str, int]
    roots: list[tuple[str, int]]  # the largest first
    root_count: int | None


class InputMutation(TypedDict):
    """An input that a graph modifies."""

    index: int
    data: bool | None
    metadata: bool | None
    storage: bool | None
    storage_resized: bool | None
    hidden_from_autograd: bool | None
    under_no_grad: bool | None
    keep_input_mutations: bool | None
    requires_grad: bool | None
    is_leaf: bool | None
    applied_in: str | None  # graph | epilogue


class SpecialOutput(TypedDict):
    """An output of a graph that aliases something."""

    index: int
    output_type: str | None
    base_index: int | None
    requires_grad: bool | None
    views: Any


class AotSummary(TypedDict):
    """Facts of a graph from AOTAutograd's metadata. A fact that its torch does not write is
    None.
    """

    input_count: int | None
    user_output_count: int | None
    output_count: int | None
    trained: bool | None
    inputs_mutated: list[InputMutation] | None
    outputs: list[SpecialOutput] | None
    intermediate_base_count: int | None
    arguments_merged: bool | None
    synthetic_base: bool | None
    deduplicated: bool | None
    subclass_input_count: int | None
    subclass_output_count: int | None
    async_collective_input_count: int | None
    rng_functionalized: bool | None
    graphsafe_rng_state_count: int | None
    effect_token_count: int | None
    backward_effect_token_count: int | None
    traced_tangent_count: int | None
    static_input_count: int | None
    keep_input_mutations: bool | None
    grad_enabled_after: bool | None
    deterministic: bool | None
    dynamic_output_indices: list[int] | None
    saved_symint_count: int | None
    saved_unchecked_tensor_count: int | None
    saved_opaque_count: int | None
    donated_buffer_count: int | None
    donated_buffer_indices: list[int] | None
    backward_mutation_count: int | None


class RunFacts(TypedDict, total=False):
    """Facts recorded at a run's start."""

    argv: list[str]
    git: Git
    ci: CiJob
    host: Host
    gpus: list[Gpu]
    environment: dict[str, str]


class StepGraph(TypedDict):
    """A compiled graph called in the steps of a window."""

    number: Annotated[int, "Number of the graph in the window."]
    phase: Annotated[str, "`forward` or `backward`."]
    compile_id: Annotated[str | None, "Compile id as torch prints it."]
    input_bytes: Annotated[
        int, "Size of its inputs that the previous graph of the step returned. Bytes."
    ]
    shared_bytes: Annotated[int, "Size of its inputs that the previous graph takes too. Bytes."]


class StepSpans(TypedDict):
    """Durations between the marks of a step: gap, graph, gap, … gap."""

    call_us: Annotated[list[float], "Gap, graph, gap, …, gap. Microseconds."]
    after_us: Annotated[
        list[float] | None, "Times from there to the next step; null of the last one. Microseconds."
    ]


class Step(TypedDict):
    """A call of the outermost compiled function, up to the next call."""

    compiled: Annotated[
        bool, "Whether it compiled or recorded something, so that it is not typical."
    ]
    graph_numbers: Annotated[list[int], "Graphs of the window by `number`, in call order."]
    function: Annotated[str | None, "Function that a step without graphs calls."]
    host: Annotated[StepSpans, "Times on the host."]
    device: Annotated[StepSpans | None, "Times on the GPU's own timeline; null where not measured."]


class KernelTime(TypedDict):
    """A kernel, and its time per call of the graph or gap in which it runs."""

    name: Annotated[str, "Name of the kernel."]
    count: Annotated[float, "Mean count per call, of eager kernels per step."]
    us: Annotated[float, "Mean time per call, of eager kernels per step. Microseconds."]


class HostTime(TypedDict):
    """Time that the program's thread spends on each kind of work in a traced step."""

    kind: Annotated[str, "`guards`, `wrapper`, `graph`, `eager`, `wait` or `python`."]
    self_us: Annotated[float, "Median time of the kind in a step. Microseconds."]
    call_count: Annotated[int, "Mean count in a step."]


class TracedGraph(TypedDict):
    """A compiled graph in a trace, with medians per call."""

    number: Annotated[int, "Number of the window's graph."]
    call_us: Annotated[float, "Median time of a call. Microseconds."]
    wrapper_us: Annotated[
        float | None, "Median time in AOTAutograd's wrappers; null if not seen. Microseconds."
    ]
    entry_us: Annotated[
        float | None, "Median time before its first operation and after its last. Microseconds."
    ]
    guard_us: Annotated[float | None, "Median time of its guards; null if not seen. Microseconds."]
    kernels: Annotated[list[KernelTime], "Its kernels, longest first."]
    first_kernel: Annotated[str | None, "Name of its first kernel."]
    last_kernel: Annotated[str | None, "Name of its last kernel."]


class TracedGap(TypedDict):
    """Work outside compiled graphs in a traced step: before, between or after them."""

    position: Annotated[int, "Graphs of the step before it."]
    host_us: Annotated[float, "All time on the host there. Microseconds."]
    kernel_count: Annotated[int, "Operations that start a kernel; 0 on a CPU."]
    library_count: Annotated[int, "Those that call a library even when compiled."]
    library_host_us: Annotated[
        float, "Time of these on the host, with their callers; on a CPU, of all. Microseconds."
    ]
    library_us: Annotated[float, "Time of these on the device. Microseconds."]
    group_count: Annotated[int, "Kernels that the others would be fused to."]
    fused_us: Annotated[float, "Time on the device of the longest operation of each. Microseconds."]


class TracedFrame(TypedDict):
    """A frame that Dynamo skipped, in a traced step."""

    compile_id: Annotated[str | None, "Compile id as torch prints it."]
    call_count: Annotated[int, "Number of calls of the frame."]
    gaps_us: Annotated[
        list[list[float]], "Pairs: graphs of the step before it, time on the host in microseconds."
    ]


class TracedSpan(TypedDict):
    """A span of the traced step that the page draws."""

    name: Annotated[str, "Name of the span."]
    kind: Annotated[str, "Kind of `host`, or `device`."]
    lane: Annotated[str, "Its thread of the host, or its stream of the GPU."]
    depth: Annotated[int, "How many spans it lies in."]
    begin_us: Annotated[float, "When it began, since the step did. Microseconds."]
    duration_us: Annotated[float, "How long it took. Microseconds."]


class TracedSteps(TypedDict):
    """A few steps recorded with torch's profiler, which slows them down."""

    step_count: Annotated[int, "Steps that are summed up."]
    step_us: Annotated[float, "Median time of a step. Microseconds."]
    host: Annotated[list[HostTime], "Time on the host by kind, longest first."]
    graphs: Annotated[list[TracedGraph], "Compiled graphs, in order of `number`."]
    gaps: Annotated[list[TracedGap], "Work between graphs in the middle step."]
    frames: Annotated[list[TracedFrame], "Skipped frames of the first step."]
    eager_kernels: Annotated[
        list[KernelTime], "Kernels that the steps start outside graphs, longest first."
    ]
    spans: Annotated[list[TracedSpan], "The longest spans of the middle step, in order."]


class WindowCosts(TypedDict):
    """Time that the usual step of a window would save without each of its gaps."""

    step_us: float
    usual_count: int  # similar steps
    other_count: int  # Steps that called other graphs, or compiled something.
    graph_count: int  # called by it
    compile_ids: list[str | None]  # The compiles of these graphs.
    # Before each of them, and after the last: [gap, entry, memory]
    gaps_us: list[list[float]]
    backward_us: list[list[float]]  # [gap, …]: also saved between the two backward graphs
    frames: list[TracedFrame]  # skipped ones, with the savings per gap: [gap, …]
