"""Shapes of the JSON in events and columns; `values.py` makes it fit them.

A key of a shape that is not `total` may be missing. Unknown keys are kept, because torch adds some.
"""

from __future__ import annotations

from typing import Any, TypedDict


class Frame(TypedDict):
    """A frame of a stack."""

    file: str | None
    line: int | None
    name: str | None
    code: str | None


class MovedInput(TypedDict):
    """An input of a CUDA graph at another address than when the graph was recorded."""

    name: str  # in the graph
    dtype: str | None
    shape: list[int] | None
    stack: list[Frame]  # where it is used; torch keeps none for parameters


class GraphMismatch(TypedDict):
    """Why a CUDA graph did not fit, so that another was recorded."""

    graph: int
    status: str
    inputs: list[MovedInput]
    input_count: int


class Git(TypedDict, total=False):
    """The repository that a run was started in."""

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


class CiJob(TypedDict, total=False):
    """The CI job that a run was started by."""

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
    """The guards of a compile, counted."""

    guard_count: int | None
    manager_count: int | None
    latency_us: float | None
    depth: int | None
    kinds: dict[str, int]
    roots: list[tuple[str, int]]  # the largest first
    root_count: int | None


class InputMutation(TypedDict):
    """An input that a graph writes to."""

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
    """Facts of a graph from AOTAutograd's metadata; None if its torch does not write them."""

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
    """A compiled graph that the steps of a window called."""

    number: int
    phase: str  # forward | backward
    compile_id: str | None
    input_bytes: int  # of its inputs that the previous graph of the step returned
    shared_bytes: int  # of its inputs that the previous graph takes too


class StepSpans(TypedDict):
    """The times between the marks of a step: gap, graph, gap, … gap."""

    call_us: list[float]
    after_us: list[float] | None  # from there to the next step; None for the last one


class Step(TypedDict):
    """A call of the outermost compiled function, until the next one."""

    compiled: bool  # it compiled or recorded something, so it is not typical
    graph_numbers: list[int]  # of the window's graphs, in call order
    function: str | None  # that a step without graphs calls
    host: StepSpans
    device: StepSpans | None  # on the GPU's own timeline


class KernelTime(TypedDict):
    """A kernel, and its time per call of its graph or gap."""

    name: str
    count: float
    us: float


class HostTime(TypedDict):
    """How the program's thread spends a traced step."""

    kind: str  # guards | wrapper | graph | eager | wait | python
    self_us: float
    call_count: int


class TracedGraph(TypedDict):
    """A compiled graph in a trace, medians per call."""

    number: int
    call_us: float
    wrapper_us: float | None
    entry_us: float | None  # before its first operation, and after its last
    guard_us: float | None
    kernels: list[KernelTime]
    first_kernel: str | None
    last_kernel: str | None


class TracedGap(TypedDict):
    """Work between two compiled graphs of a traced step."""

    position: int  # number of graphs of the step before it
    host_us: float  # all host time there
    kernel_count: int  # operations that start a kernel
    # Those for which a library is called even when compiled:
    library_count: int
    library_host_us: float  # including its callers
    library_us: float  # on the device
    # Kernels that the others would be fused to, in order:
    group_count: int
    fused_us: float  # on the device, of the longest operation of each


class TracedFrame(TypedDict):
    """A frame that Dynamo skipped, in a traced step."""

    compile_id: str | None
    call_count: int
    gaps_us: list[list[float]]  # [number of graphs of the step before it, time on the host]


class TracedSpan(TypedDict):
    """A drawn span of the step."""

    name: str
    kind: str
    lane: str
    depth: int
    begin_us: float
    duration_us: float


class TracedSteps(TypedDict):
    """A few steps as seen by torch's profiler, which slows them."""

    step_count: int
    step_us: float
    host: list[HostTime]
    graphs: list[TracedGraph]
    gaps: list[TracedGap]
    frames: list[TracedFrame]
    eager_kernels: list[KernelTime]
    spans: list[TracedSpan]


class WindowCosts(TypedDict):
    """Savings of a window's usual step without each of its gaps."""

    step_us: float
    usual_count: int  # similar steps
    other_count: int  # that called other graphs, or compiled something
    graph_count: int  # called by it
    compile_ids: list[str | None]  # of these
    # Before each of them, and after the last: [gap, entry, memory]
    gaps_us: list[list[float]]
    backward_us: list[list[float]]  # [gap, …]: also saved between the two backward graphs
    frames: list[TracedFrame]  # skipped ones, with the savings per gap: [gap, …]
