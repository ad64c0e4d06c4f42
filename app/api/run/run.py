"""Schemas of runs, processes and configuration texts."""

from __future__ import annotations

import time

from flask import request

from compileboard.app.analysis import rows
from compileboard.app.analysis.runs.states import describe_state
from compileboard.app.api.answers import Answer, find_run, read_cursor, read_limit, read_number, refuse
from compileboard.app.api.fleet.imports import LOG, REJECT
from compileboard.app.api.schema import (
    FILE,
    FUNCTION,
    JSON,
    LINE,
    PHASES,
    PROCESS_ID,
    Schema,
    anything,
    array_of,
    count,
    duration_us,
    extend,
    flag,
    mapping,
    maybe,
    record,
    text,
    time_us,
    whole,
    word,
)
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.fleet import runs
from compileboard.app.queries.fleet.runs import STATES, RunRow
from compileboard.app.queries.fleet.scope import read_run_filter
from compileboard.app.queries.run import compiles, failures
from compileboard.app.queries.run import run as run_detail
from compileboard.app.screens.run.compiles import build_compile
from compileboard.app.screens.run.environment import build_config, build_environment, build_processes
from compileboard.app.screens.run.run import MOST_FIXES, build_summary

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
    source=word("How it came in.", ("live", "import", "bench")),
    state=word("How it stands.", STATES),
    shown_state=text("`state`, or `interrupted?` for a running one whose recorder fell silent."),
    level=text("How much was recorded: light or full."),
    command=text("The command, without secrets."),
    started_us=time_us("Start."),
    ended_us=maybe(time_us("End.")),
    heartbeat_us=time_us("Last sign of life from its recorder."),
    duration_us=maybe(duration_us("From start to end, or to the last sign of life.")),
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
    compile_count=maybe(count("Attempts to compile a frame.")),
    record_count=maybe(count("CompilationMetrics records.")),
    graph_break_count=maybe(count("Graph breaks.")),
    recompile_count=maybe(count("Recompiles.")),
    recompile_limit_count=maybe(count("Compiles that hit the recompile limit.")),
    failure_count=maybe(count("Failed compiles.")),
    runtime_failure_count=maybe(count("Exceptions while compiled code ran, or that ended the program.")),
    restart_count=maybe(count("Restarts of an analysis.")),
    cache_hit_count=maybe(count("Cache hits.")),
    cache_miss_count=maybe(count("Cache misses.")),
    cache_bypass_count=maybe(count("Graphs that cannot be cached.")),
    cudagraph_skip_count=maybe(count("CUDA graphs not used.")),
    process_count=maybe(count("Processes.")),
    loss_count=count("Records lost while recording."),
    compile_us=maybe(duration_us("Sum of the records' durations, forward and backward.")),
    recompile_us=maybe(duration_us("The part of it spent on recompiles.")),
    result_count=count("Results of a benchmark: one a model and experiment."),
    failed_result_count=count("Those that failed."),
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
FINDING = record(
    "One thing to do about a run.",
    kind=text("What it is about: unfinished, failure, limit, stack, recompile, break, cache or cudagraph."),
    severity=word("How grave it is.", ("bad", "warn")),
    title=text("What happened."),
    number=text("How often or how much, in words."),
    function=FUNCTION,
    file=FILE,
    line=LINE,
    fix=text("What to do."),
    tab=text("The tab of the run's page that has the details."),
    cost_us=maybe(duration_us("Compile time that it cost.")),
    code=maybe(text("A line of code or a reason.")),
    others=count("Functions that have the same, beside the one named."),
)
RUN_DETAIL = extend(
    RUN,
    "One run with its surroundings and sums.",
    cwd=maybe(text("Working directory.")),
    keep_source=flag("Whether lines of the user's code were kept."),
    stack_room=maybe(flag("Whether `run --stack-room` started it.")),
    facts=mapping(JSON, "argv, git, host, gpus and environment as the collector wrote them."),
    findings=array_of(FINDING, f"What to do, the most costly first: at most {MOST_FIXES}."),
    phases_us=PHASES,
    outcomes=mapping(count("Compiles."), "Compiles by outcome."),
    distinct_break_count=count("Distinct graph breaks."),
    cache_results=array_of(CACHE_RESULT, "Cache look-ups by cache, result and reason: at most 200."),
    configs=array_of(CONFIG_USE, "Configuration texts: at most 200."),
    changed_settings=array_of(CHANGED_SETTING, "Settings that differ from torch's defaults."),
    trace_files=array_of(
        record("torch's own trace log.", name=text("File."), size_bytes=count("Size.")), "Kept trace logs."
    ),
    logs=array_of(LOG, "The trace logs that the run was imported from: at most 1000."),
    rejects=array_of(REJECT, "What of these logs could not be read, summed by kind, the most first."),
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
    task=maybe(text("The benchmark's task that it worked on: one of `tasks` of a result.")),
    calm_us=maybe(duration_us("How long it compiled nothing, as far as it was watched from outside.")),
    calm_cpu_us=maybe(duration_us("Processor time in it.")),
    calm_fault_count=maybe(count("Minor page faults in it.")),
    is_on_stack_cliff=maybe(flag("Whether a chunk of its frame stack came and went all the time.")),
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


def shown_state(run: RunRow) -> str:
    """Return a run's state as pages show it: a silent recorder's run is "interrupted?"."""
    return describe_state(run, time.time_ns() // 1000, get_settings().stale_after_s).word


def list_runs() -> Answer:
    """List runs."""
    reader, wanted = get_reader(), read_run_filter(request.args)
    sort = request.args.get("sort") or "started"
    page = runs.list_runs(reader, wanted, sort=sort, cursor=read_cursor(), limit=read_limit(), pinned_first=False)
    tags = runs.list_tags(reader, [run.id for run in page.rows])
    found = [rows.run_row(run, tags[run.id]) | {"shown_state": shown_state(run)} for run in page.rows]
    return Answer(found, page.next)


def get_run(run_id: str) -> Answer:
    """Return one run."""
    detail, reader = find_run(run_id), get_reader()
    summary, environment = build_summary(reader, detail.run), build_environment(reader, run_id)
    files = build_processes(reader, run_id)
    return Answer(
        rows.run_detail_row(detail)
        | {
            "shown_state": shown_state(detail.run),
            "findings": [rows.plain_row(fix) for fix in summary.fixes],
            "phases_us": rows.phases_row(summary.phases),
            "outcomes": compiles.count_outcomes(reader, run_id),
            "distinct_break_count": summary.distinct_break_count,
            "cache_results": [rows.plain_row(row) for row in failures.count_cache_results(reader, run_id)],
            "configs": [rows.plain_row(use) for use in run_detail.list_configs(reader, run_id)],
            "changed_settings": [rows.plain_row(change) for change in environment.changes],
            "trace_files": [rows.plain_row(file) for file in files.trace_files],
            "logs": [rows.plain_row(log) for log in files.logs],
            "rejects": [{"kind": row.kind, "count": row.count, "first_line": row.first_line} for row in files.rejects],
        }
    )


def get_compile(run_id: str, key: str) -> Answer:
    """Return one compile with all that belongs to it."""
    run, number = find_run(run_id).run, read_number(key)
    screen = None if number is None else build_compile(get_reader(), run, number)
    if screen is None:
        refuse(f"Run {run.shown_name[:80]} has no compile number {key[:40]}.")
    return Answer(
        rows.compile_row(screen.compile)
        | {
            "stack": screen.stack,
            "chain": [{"id": row.id, "compile_id": row.compile_id, "outcome": row.outcome} for row in screen.chain],
            "restart_reasons": screen.restart_reasons,
            "compilations": [rows.compilation_row(record) for record in screen.records],
            "recompiles": [rows.recompile_row(row) for row in screen.recompiles],
            "graph_breaks": [rows.graph_break_row(row) for row in screen.graph_breaks],
            "failures": [rows.plain_row(row) for row in screen.failures],
            "cache_lookups": [rows.plain_row(row) for row in screen.cache_lookups],
            "cudagraph_skips": [rows.plain_row(row) for row in screen.cudagraph_skips],
        }
    )


def get_config(run_id: str, config_hash: str) -> Answer:
    """Return one configuration text."""
    detail = find_run(run_id)
    screen = build_config(get_reader(), run_id, config_hash)
    if screen is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no configuration text {config_hash[:40]}.")
    return Answer(rows.plain_row(screen.text) | {"values": screen.values})
