"""Shapes of the JSON that events and columns hold: `values.py` makes it fit them.

A key of a shape that is not `total` may be missing. A key that no shape has is kept: torch adds
some.
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
    """An input of a CUDA graph that was at another address than when the graph was recorded."""

    name: str  # in the graph
    dtype: str | None
    shape: list[int] | None
    stack: list[Frame]  # where it is used; torch keeps none of parameters


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
    """What AOTAutograd's metadata says of a graph; None is what its torch does not write."""

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
    """What was recorded of a run's beginning."""

    argv: list[str]
    git: Git
    host: Host
    gpus: list[Gpu]
    environment: dict[str, str]
