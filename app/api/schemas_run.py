"""Schemas of runs, processes and configuration texts."""

from __future__ import annotations

from app.api.schema import (
    Schema,
    anything,
    count,
    duration_us,
    extend,
    flag,
    mapping,
    maybe,
    record,
    rows,
    text,
    time_us,
    whole,
    word,
)
from app.api.schemas_parts import JSON, PHASES, PROCESS_ID
from app.queries.runs import STATES

_TEXTS = mapping({"type": "string"}, "Text by name.")

RUN = record(
    "One run: a job with all its processes.",
    id=text("The run's id."),
    name=text("The name it was recorded under."),
    title=maybe(text("What a person called it.")),
    shown_name=text("`title`, else `name`."),
    note=maybe(text("What a person noted.")),
    pinned=flag("Whether a person pinned it."),
    tags=mapping({"type": "string"}, "Value by key."),
    suite=maybe(text("The suite it belongs to.")),
    source=word("How it came in.", ("live", "import")),
    state=word("How it stands.", STATES),
    shown_state=text("`state`, or `interrupted?` for a running one whose recorder fell silent."),
    level=text("How much was recorded: light or full."),
    command=text("The command, without secrets."),
    started_us=time_us("Start."),
    ended_us=maybe(time_us("End.")),
    heartbeat_us=time_us("Last sign of life from its recorder."),
    duration_us=duration_us("From start to end, or to the last sign of life."),
    exit_code=maybe(whole("Exit code.")),
    signal=maybe(text("The signal that ended it.")),
    host=maybe(text("Machine.")),
    gpu_name=maybe(text("GPU.")),
    gpu_count=count("GPUs."),
    torch_version=maybe(text("Version of torch.")),
    cuda_version=maybe(text("Version of CUDA.")),
    python_version=maybe(text("Version of Python.")),
    git_commit=maybe(text("Commit of the program's repository.")),
    git_branch=maybe(text("Its branch.")),
    git_subject=maybe(text("Its subject.")),
    git_dirty=maybe(flag("Whether there were changes that no commit holds.")),
    compile_count=count("Attempts to compile a frame."),
    record_count=count("CompilationMetrics records."),
    graph_break_count=count("Graph breaks."),
    recompile_count=count("Recompiles."),
    recompile_limit_count=count("Compiles that hit the recompile limit."),
    failure_count=count("Failed compiles."),
    restart_count=count("Restarts of an analysis."),
    cache_hit_count=count("Cache hits."),
    cache_miss_count=count("Cache misses."),
    cache_bypass_count=count("Graphs that cannot be cached."),
    cudagraph_skip_count=count("CUDA graphs not used."),
    process_count=count("Processes."),
    loss_count=count("Records lost while recording."),
    compile_us=duration_us("Sum of the records' durations, forward and backward."),
    recompile_us=duration_us("The part of it spent on recompiles."),
)
CACHE_RESULT = record(
    "How often a cache answered so, for one reason.",
    cache=text("fx_graph or aot_autograd."),
    result=text("hit, miss or bypass."),
    reason=maybe(text("Why.")),
    lookup_count=count("Look-ups."),
    time_taken_us=maybe(duration_us("Time they took.")),
    time_saved_us=maybe(duration_us("Time that torch says they saved.")),
)
CONFIG_USE = record(
    "One configuration text and how many of the run's processes had it.",
    kind=text("dynamo, inductor, functorch, compiler, or changed: what differs from torch's defaults."),
    config_hash=text("Hash, as in `/runs/<run_id>/configs/<config_hash>`."),
    process_count=count("Processes."),
)
CHANGED_SETTING = record(
    "One setting that differs from torch's default.",
    module=text("dynamo, inductor or functorch."),
    name=text("Setting."),
    value=text("Value."),
    default=text("torch's default."),
    process_count=count("Processes that had it so."),
)
RUN_DETAIL = extend(
    RUN,
    "One run with its surroundings and sums.",
    cwd=maybe(text("Working directory.")),
    keep_source=flag("Whether lines of the user's code were kept."),
    facts=mapping(JSON, "argv, git, host, gpus and environment as the collector wrote them."),
    phases_us=PHASES,
    outcomes=mapping(count("Compiles."), "Compiles by outcome."),
    distinct_break_count=count("Distinct graph breaks."),
    cache_results=rows(CACHE_RESULT, "Cache look-ups by cache, result and reason: at most 200."),
    configs=rows(CONFIG_USE, "Configuration texts: at most 200."),
    changed_settings=rows(CHANGED_SETTING, "Settings that differ from torch's defaults."),
    trace_files=rows(
        record("torch's own trace log.", name=text("File."), size_bytes=count("Size.")), "Kept trace logs."
    ),
)
PROCESS = record(
    "One process of a run.",
    id=PROCESS_ID,
    label=text("Its rank, else its pid."),
    parent_id=maybe(text("The process that forked it.")),
    pid=maybe(whole("Process number of the operating system.")),
    rank=maybe(whole("Rank.")),
    local_rank=maybe(whole("Rank on its machine.")),
    world_size=maybe(whole("Ranks of the job.")),
    level=maybe(text("light or full.")),
    command=maybe(text("Its command, without secrets.")),
    started_us=time_us("Start."),
    last_seen_us=time_us("Its last event."),
    python_version=maybe(text("Version of Python.")),
    torch_version=maybe(text("Version of torch.")),
    torch_git=maybe(text("Commit of torch.")),
    cuda_version=maybe(text("Version of CUDA.")),
    cudnn_version=maybe(text("Version of cuDNN.")),
    triton_version=maybe(text("Version of triton.")),
    capabilities=mapping({"type": "string"}, "`ok`, or why not, by capability."),
    environment=_TEXTS,
    counters=maybe(mapping(JSON, "torch's counters as last seen.")),
    compile_times=maybe(mapping(JSON, "Seconds by torch's own names of phases.")),
    losses=maybe(mapping(count("Records."), "Lost records by reason.")),
    snapshot_final=flag("Whether counters and losses are of the process's end."),
)
CONFIG_TEXT = record(
    "One configuration text.",
    config_hash=text("Its hash."),
    kind=text("dynamo, inductor, functorch, compiler or changed."),
    body=text("The text."),
    values=mapping(JSON, "The settings by name; empty where the text is no JSON object."),
)
NOTE = record(
    "One record that this version has no decoder for.",
    id=whole("Number of the row in this database."),
    process_id=PROCESS_ID,
    time_us=time_us("When."),
    compile_id=maybe(text("Compile id as torch prints it.")),
    name=text("torch's own name of the record."),
    body=anything("The record."),
)

SCHEMAS: dict[str, Schema] = {
    "Run": RUN,
    "RunDetail": RUN_DETAIL,
    "Process": PROCESS,
    "ConfigText": CONFIG_TEXT,
    "Note": NOTE,
}
