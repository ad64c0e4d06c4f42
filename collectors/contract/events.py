"""The events that collectors send to a store.

An event is identified by (process_id, sequence); recording it twice has no effect. `kind` on the
wire is the class's `KIND`. Times are microseconds since the epoch,
durations microseconds. Values that torch did not report are None, never 0 or "".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from .shapes import (
    AotSummary,
    CiJob,
    Frame,
    Git,
    Gpu,
    GraphMismatch,
    GuardSummary,
    Host,
    Step,
    StepGraph,
    TracedSteps,
)

SCHEMA_VERSION = 1
Json = Any
KINDS: dict[str, type[Event]] = {}  # each event's class, by its kind on the wire


@dataclass(frozen=True)
class Event:
    KIND: ClassVar[str] = ""
    process_id: str
    sequence: int
    time_us: int

    def __init_subclass__(cls) -> None:
        if cls.KIND:
            KINDS[cls.KIND] = cls


@dataclass(frozen=True)
class RunStarted(Event):
    KIND = "run_started"
    run_id: str
    name: str
    suite: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    source: str = "live"  # live | import | bench | trial
    level: str = "light"
    keep_source: bool = True
    argv: list[str] = field(default_factory=list)
    cwd: str | None = None
    git: Git = field(default_factory=Git)
    ci: CiJob = field(default_factory=CiJob)
    host: Host = field(default_factory=Host)
    gpus: list[Gpu] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    # With `run --stack-room`; None if the collector did not start the program.
    stack_room: bool | None = None


@dataclass(frozen=True)
class RunEnded(Event):
    """A run ended as finished, failed, killed, interrupted or, for a log, imported."""

    KIND = "run_ended"
    run_id: str
    state: str
    exit_code: int | None = None
    signal: str | None = None


@dataclass(frozen=True)
class CommitsSeen(Event):
    KIND = "commits_seen"
    # hash, time_us, author and subject of each, the newest first
    commits: list[tuple[str, int, str | None, str | None]] = field(default_factory=list)
    parent_hash: str | None = None  # The parent of the last commit.


@dataclass(frozen=True)
class ProcessStarted(Event):
    KIND = "process_started"
    run_id: str
    pid: int
    parent_process_id: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    task: str | None = (
        # The benchmark task it works on; its graph breaks and recompiles belong to that result
        None
    )
    argv: list[str] = field(default_factory=list)
    level: str = "light"
    python_version: str | None = None
    torch_version: str | None = None
    torch_git: str | None = None
    cuda_version: str | None = None
    cudnn_version: str | None = None
    triton_version: str | None = None
    capabilities: dict[str, str] = field(default_factory=dict)  # capability -> ok, or the reason
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ConfigSeen(Event):
    KIND = "config_seen"
    config_hash: str
    # dynamo | inductor | functorch | compiler | changed (differences from torch's defaults)
    config_kind: str
    body: str


@dataclass(frozen=True)
class FrameContext(Event):
    """The compile that an event belongs to; all None if torch had none in progress."""

    compile_id: str | None = None  # as torch prints it: "0/1", "!0/1/0"
    frame_id: int | None = None
    frame_compile_id: int | None = None
    attempt: int | None = None
    rank: int | None = None
    # Further parts of a log's record: subgraph_name, unknown keys, the stack of one outside a
    # compile.
    envelope: dict[str, Json] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class CompileStarted(FrameContext):
    KIND = "compile_started"
    function: str | None = None  # qualified name, or torch's name of the code object
    file: str | None = None  # repository-relative or module path; never absolute
    line: int | None = None
    resumed_at: int | None = None  # line, for a function that continues after a graph break
    stack: list[Frame] = field(default_factory=list)  # outermost first


@dataclass(frozen=True)
class Compiled(FrameContext):
    KIND = "compiled"
    record_kind: str = "forward"  # forward | backward | runtime
    function: str | None = None
    file: str | None = None
    line: int | None = None
    resumed_at: int | None = None
    outcome: str = "compiled"  # compiled | empty | failed | skipped | recompile_limit
    start_us: int | None = None
    end_us: int | None = None
    duration_us: int | None = None
    duration_source: str | None = None  # torch's fields that the duration is computed from
    phases_us: dict[str, int] = field(default_factory=dict)  # exclusive times
    metrics: dict[str, Json] = field(
        default_factory=dict
    )  # torch's own names; config texts as {"config_hash": …}
    # Made dynamic by torch because it differed: "L['x']:0,L['n']".
    dynamic_sources: str | None = None


@dataclass(frozen=True)
class GraphBroke(FrameContext):
    KIND = "graph_broke"
    gb_id: str | None = None
    gb_type: str | None = None
    reason: str = ""
    explanation: str | None = None
    hints: list[str] = field(default_factory=list)
    debug_context: str | None = None
    function: str | None = None
    file: str | None = None
    line: int | None = None
    resumed_at: int | None = None
    source_line: str | None = None
    source_hash: str | None = None
    # resumed | skipped | unknown; the store settles unknown from the compile's own record
    outcome: str = "unknown"
    fingerprint: str = ""
    stack: list[Frame] = field(default_factory=list)
    text: str = ""  # all that torch wrote


@dataclass(frozen=True)
class GuardFailure:
    cache_entry: str | None  # compile id of the entry: "0/0"
    reason: str
    category: str
    source: str | None = None  # the guard's source expression: L['x'], self.step
    expected: str | None = None
    actual: str | None = None
    file: str | None = None
    line: int | None = None
    source_line: str | None = None
    fingerprint: str = ""


@dataclass(frozen=True)
class Recompiled(FrameContext):
    KIND = "recompiled"
    recompiled_from: str | None = None  # newest cache entry
    guards: list[GuardFailure] = field(default_factory=list)
    # Every failed guard of every cache entry, if a hook could evaluate them all; for entries in
    # `unread`, it could not.
    failed: list[GuardFailure] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    has_gradients: bool | None = None  # whether it was called with gradients enabled
    text: str = ""


@dataclass(frozen=True)
class CompileFailed(FrameContext):
    KIND = "compile_failed"
    error_type: str | None = None
    message: str | None = None
    text: str = ""


@dataclass(frozen=True)
class RuntimeFailed(FrameContext):
    """An exception that compiled code raised, or that ended the program.

    `position` numbers a process's failures. The first event of a failure has all fields; later
    events update its count and whether it ended the program. Phase compile means only that an
    exception from a compile ended the program.
    """

    KIND = "runtime_failed"
    position: int = 0
    phase: str = "forward"  # forward | backward | wrapper | program | compile
    error_type: str | None = None
    message: str | None = None
    text: str = ""  # the traceback, from the program's outermost frame
    function: str | None = None  # the innermost frame of the user's code
    file: str | None = None
    line: int | None = None
    occurrence_count: int = 1
    ended_program: bool = False
    # Start of its compile: compile ids repeat after reset().
    compiled_us: int | None = None


@dataclass(frozen=True)
class ReproCaptured(FrameContext):
    """A failed or wrong graph that can be run again; contract/repros.py describes the manifest.

    A second event with the same position updates the first; texts that it lacks are kept.
    """

    KIND = "repro_captured"
    position: int = 0  # among the repros of its process
    manifest: dict[str, Json] = field(default_factory=dict)
    program: str = ""  # the graph as Python's source
    # Dynamo's graph, if `program` is AOTAutograd's version of it.
    dynamo_program: str | None = None
    failure_position: int | None = None  # The position of its RuntimeFailed.


@dataclass(frozen=True)
class ReproValues(Event):
    KIND = "repro_values"
    position: int = 0  # The position of its repro.
    digest: str = ""  # SHA-256
    body: str = ""  # base64 of the zlib-compressed bytes


@dataclass(frozen=True)
class ReproAnswered(Event):
    """The result of a `repro` command, which began at `sequence` and ended at `time_us`. It belongs
    to no process of the run.
    """

    KIND = "repro_answered"
    repro: str = ""  # 16 hexadecimal digits
    command: str = ""  # run | minify | analyze | check | bisect
    status: str = ""
    seconds: float = 0.0
    operation: str | None = None
    node_count: int | None = None
    torch_version: str | None = None
    device: str | None = None
    detail: dict[str, Json] = field(default_factory=dict)
    program: str | None = None  # the minimal graph as Python's source


@dataclass(frozen=True)
class CacheLookedUp(FrameContext):
    KIND = "cache_looked_up"
    cache: str = "fx_graph"  # fx_graph | aot_autograd
    result: str = "miss"  # hit | miss | bypass
    key: str | None = None
    reason: str | None = None
    time_taken_us: int | None = None
    time_saved_us: int | None = None
    detail: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class CudagraphSkipped(FrameContext):
    KIND = "cudagraph_skipped"
    reason: str = ""
    stack: list[Frame] = field(default_factory=list)


@dataclass(frozen=True)
class CudagraphMade(FrameContext):
    """A CUDA graph was recorded, or a function had its warm-up run.

    Graphs and functions are numbered within their tree; a process has one tree per device and
    thread.
    """

    KIND = "cudagraph_made"
    stage: str = "recording"  # warm_up | recording
    tree: int = 0
    device: int | None = None
    graph_function: int = 0
    mode: str | None = None  # forward | backward | inference
    graph: int | None = None
    parent_graph: int | None = None  # the one before it in its path
    depth: int = 0  # graphs before it in its path
    duration_us: int | None = None
    reserved_before_bytes: int | None = None
    reserved_after_bytes: int | None = None
    call_count: int | None = None
    # Why it was re-recorded: what did not match the function's graphs at that position.
    status: str | None = None  # torch's reason for the newest
    reasons: list[GraphMismatch] = field(default_factory=list)


@dataclass(frozen=True)
class StepsTimed(Event):
    """The timed steps of a process, during a window of time."""

    KIND = "steps_timed"
    wanted_count: int = 0
    earlier_count: int = 0  # steps before the window
    device: str | None = None  # the GPU on whose timeline graphs and gaps were timed
    peak_bytes_per_s: int | None = None  # memory bandwidth of the GPU, in bytes per second
    graphs: list[StepGraph] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    traced: TracedSteps | None = None


@dataclass(frozen=True)
class SnapshotTaken(Event):
    KIND = "snapshot_taken"
    final: bool = False
    counters: dict[str, dict[str, Json]] = field(default_factory=dict)
    compile_times: dict[str, float] = field(
        default_factory=dict
    )  # seconds, torch's own phase names
    losses: dict[str, int] = field(default_factory=dict)
    gpus: list[Gpu] = field(default_factory=list)
    cudnn_version: str | None = None
    disabling: list[str] = field(default_factory=list)  # what turns torch.compile off, at the end


@dataclass(frozen=True)
class RecordsLost(Event):
    """Records of a process that were lost, by reason, as counted by the spool's reader. Later
    events have larger counts and replace the earlier ones.

    Its sequence number is below zero, because the process's own start at 0.
    """

    KIND = "records_lost"
    run_id: str
    losses: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PageFaultsCounted(Event):
    """Minor page faults of a process while it compiled nothing, counted from outside; a later event
    replaces it.

    Its sequence number is below zero, because the process does not send it.
    """

    KIND = "page_faults_counted"
    calm_us: int  # observed time without a compile
    cpu_us: int
    fault_count: int
    is_on_cliff: (
        bool  # one small range of memory was mapped and unmapped continuously: docs/stack-cliff.md
    )


@dataclass(frozen=True)
class ArtifactSeen(FrameContext):
    """A record without an event of its own: a graph, generated code, guards, or an unknown name.

    `state` describes its text: kept, none (it has none), left_out, withheld, damaged (wrong md5;
    kept) or too_large.
    """

    KIND = "artifact_seen"
    name: str = ""
    title: str | None = None
    encoding: str = "string"
    metadata: dict[str, Json] = field(default_factory=dict)
    state: str = "none"
    size_bytes: int | None = None
    md5: str | None = None
    text: str | None = None
    guards: GuardSummary | None = None  # Counts of guards, if the artifact has any.
    aot: AotSummary | None = None  # of AOTAutograd's metadata


@dataclass(frozen=True)
class SpanSeen(FrameContext):
    KIND = "span_seen"
    name: str = ""
    phase: str = "i"
    at_us: int = 0
    thread: int = 0
    args: dict[str, Json] = field(default_factory=dict)  # without long texts
    text: str | None = None  # torch's text, if args are long and left out


@dataclass(frozen=True)
class SymbolSeen(FrameContext):
    KIND = "symbol_seen"
    symbol_kind: str = "other"  # created | unbacked | specialized | guarded | other
    symbol: str | None = None
    expression: str | None = None
    value: str | None = None
    value_range: str | None = None
    source: str | None = None
    file: str | None = None
    line: int | None = None
    source_line: str | None = None
    detail: dict[str, Json] = field(
        default_factory=dict
    )  # torch's own fields, stacks with their paths shortened


@dataclass(frozen=True)
class BenchMeasured(Event):
    """One experiment's result for one model. Missing values are None; a failure is a status, never
    0.

    `values` holds every number by upstream's column name and in its unit (speedup, abs_latency in
    ms, compilation_latency in s, eager_peak_mem in GB, graph_breaks), including unknown columns.
    """

    KIND = "bench_measured"
    suite: str
    model: str
    experiment: str  # performance | accuracy | tolerance | coverage | overhead | ...
    mode: str | None = None  # inference | training
    dtype: str | None = None  # float32 | float16 | bfloat16 | amp
    device: str | None = None  # cpu | cuda
    hardware: str | None = None  # the GPU's model, or the processor's
    backend: str | None = None  # with its config label: inductor, inductor_no_cudagraphs
    dynamic: bool = False
    batch_size: int | None = None
    world_size: int = 1
    status: str = "measured"  # measured | failed | skipped | not_run
    # For failed: upstream's word (OOM, timeout, fail_to_run); for others, the reason.
    reason: str | None = None
    accuracy: str | None = None  # upstream's verdict
    values: dict[str, float] = field(default_factory=dict)
    repeats: dict[str, list[float]] = field(
        default_factory=dict
    )  # eager, compiled, shape=…/eager: ms, in their order
    facts: dict[str, Json] = field(
        default_factory=dict
    )  # settings, noise, texts of unknown columns
    message: str | None = None  # the exception's last line
    traceback: str | None = None
    task: str | None = None
    started_us: int | None = None
    duration_us: int | None = None
    command: str | None = None  # repeats the measurement
    origin: str | None = None  # file and line, of an imported one


@dataclass(frozen=True)
class UnknownRecordSeen(FrameContext):
    KIND = "noted"
    name: str = ""
    body: Json = None


_ENCODER = json.JSONEncoder(separators=(",", ":"))  # json.dumps creates one per call


def dump_event(event: Event) -> str:
    body: dict[str, Json] = {"v": SCHEMA_VERSION, "kind": event.KIND, **event.__dict__}
    if isinstance(event, Recompiled):
        body["guards"] = [guard.__dict__ for guard in event.guards]
        body["failed"] = [
            {
                name: value
                for name, value in guard.__dict__.items()
                if value is not None or name == "cache_entry"
            }
            for guard in event.failed
        ]
    if not body.get("envelope", True):
        del body["envelope"]
    return _ENCODER.encode(body)


def load_event(line: str) -> Event:
    """Read an event from a line. Raises ValueError if it is not an event of this schema version."""
    body = json.loads(line)
    if not isinstance(body, dict) or body.get("v") != SCHEMA_VERSION:
        raise ValueError(
            f"expected an event of schema version {SCHEMA_VERSION}, got {str(line)[:80]!r}"
        )
    return build_event(body)


def build_event(body: Mapping[str, Json]) -> Event:
    cls = KINDS.get(body.get("kind", ""))
    if cls is None:
        raise ValueError(
            f"unknown event kind {body.get('kind')!r}; known: {', '.join(sorted(KINDS))}"
        )
    try:
        values = _select_fields(cls, body)
        if cls is Recompiled:
            for name in ("guards", "failed"):
                values[name] = [
                    GuardFailure(**_select_fields(GuardFailure, guard))
                    for guard in values.get(name, [])
                ]
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"a {cls.KIND} event lacks a field: {error}") from None


_FIELDS: dict[type[Any], tuple[str, ...]] = {}


def _select_fields(cls: type[Any], body: Mapping[str, Json]) -> dict[str, Json]:
    if cls not in _FIELDS:
        _FIELDS[cls] = tuple(of_cls.name for of_cls in fields(cls))
    return {name: body[name] for name in _FIELDS[cls] if name in body}
