"""Every table of the database, each column declared once: name, type, SQL constraint and meaning.

The lists of columns and ClickHouse's tables come from here; SQLite's are made by the steps of
store/migrations.py, which a test compares with these. A column with `?`
after its type may be null. Of a run's tables, those marked `detail` and `rollup` move into its file
when it is sealed; `detail` is deleted by pruning. Times are microseconds since the epoch (time_us),
durations microseconds (us), sizes bytes. Values that torch did not record are null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

Getter = TypeVar("Getter", bound=Callable[..., Any])
PRIVATE = {"private": True}  # metadata of a field that responses omit

_TABLES = """
table runs
id|text|primary key|The run's id.
name|text||The name it was recorded under.
suite|text?||The suite it belongs to.
source|text:live import bench trial||Recorded live by the collector, imported from files, by
  `bench`, or a trial of `try`.
state|text:running finished failed killed interrupted imported||Its state; `interrupted`:
  the recorder ended before the program.
level|text||How much was recorded: light or full.
keep_source|bool||Whether lines of the user's code were kept.
command|text||The command, without secrets.
cwd|text?||Working directory.
started_us|time_us||Start.
ended_us|time_us?||End.
heartbeat_us|time_us||Last heartbeat of its recorder.
exit_code|int?||Exit code of the program.
signal|text?||The signal that ended it.
host|text?||Name of the machine.
gpu_name|text?||Model of the GPU.
gpu_count|count||How many GPUs the program saw.
torch_version|text?||Version of torch.
cuda_version|text?||Version of CUDA.
python_version|text?||Version of Python.
git_commit|text?||Commit of the program's repository.
git_branch|text?||Branch of the commit.
git_subject|text?||First line of the commit's message.
git_dirty|bool?||Whether the repository had uncommitted changes.
facts|json||argv, git, host, gpus and environment as the collector wrote them.
stack_room|bool?||Whether `run --stack-room` started it; null if the collector did not.
pub|int|default 0|Number of the newest commit to this run. It grows with every commit of this
  database and is never used
  twice: detection and whoever copies runs go by it.

table run_tags without rowid
run_id|text|references runs (id) on delete cascade|
key|text||
value|text||
primary key (run_id, key)

table run_annotations without rowid|A person's own words about a run.
run_id|text|primary key references runs (id) on delete cascade|
title|text?||Its title, set by a person.
note|text?||A person's note.
pinned|bool|default 0|Whether a person pinned it.
changed_us|time_us||

table removed_runs without rowid|Runs a person deleted, so that a spool or a log cannot bring them
  back.
run_id|text|primary key|
deleted_us|time_us||When it was deleted.
expires_us|time_us?||When it goes for good. Until then its rows wait in a file of their own; null:
  they are gone.
name|text?||Its title or name.
suite|text?||Suite that it was of.
started_us|time_us?||When it started.
trash_bytes|bytes?||Size of the files that keep it until then, without its texts in the
  database. Bytes.

table pruned_runs without rowid|Runs whose detail was deleted to save space. Their totals, results,
  summaries, repros
  and people's words stay.
run_id|text|primary key references runs (id) on delete cascade|
pruned_us|time_us||When its detail was pruned; totals and results stay.
deleted_bytes|bytes?||Packed texts and events; null until all of it is deleted.

table sealed_runs without rowid
run_id|text|primary key references runs (id) on delete cascade|
file_name|text||Its name in the folder of run files.
digest|blob||SHA-256 of the file as it is stored.
size_bytes|bytes||Size of the file as it is stored.
unpacked_bytes|bytes||Its size without compression.
sealed_us|time_us||
emptied_us|time_us?||When its detail was deleted here; null: some of it may be left; 0: it was put
  back.

table run_rejects without rowid|Records of a run's spool that could not be stored, counted by file
  and kind;
  `log_rejects` has those of logs.
run_id|text|references runs (id) on delete cascade|
file_name|text||A process's file in the spool, said.events or run.json.
kind|text||Kind of damage.
reject_count|count||
first_line|int?||
example|text?||
primary key (run_id, file_name, kind)

table publications
id|int|primary key check (id = 1)|
pub|int||The newest number of a commit.
removed_pub|int||The number of the newest removal of a run.
last_result_id|int|default 0|Largest id of a result of any run that was sealed, so that none is
  used again.

table processes
id|text|primary key|The process's id.
run_id|text|references runs (id) on delete cascade|
parent_id|text?||The process that started it: by fork, multiprocessing or subprocess.
pid|int?||Process number of the operating system.
rank|int?||Number of the process among the ranks.
local_rank|int?||Rank on its machine.
world_size|int?||Ranks of the run.
level|text?||light or full.
command|text?||Its command, without secrets.
started_us|time_us||Start.
last_seen_us|time_us||Its last event.
last_sequence|int||
python_version|text?||Version of Python.
torch_version|text?||Version of torch.
torch_git|text?||Commit of torch.
cuda_version|text?||Version of CUDA.
cudnn_version|text?||Version of cuDNN.
triton_version|text?||Version of triton.
capabilities|json||`ok`, `later` (its module was not loaded yet) or why not, by capability.
environment|json||Recorded environment variables by name.
counters|json?||torch's counters as last seen.
compile_times|json?||Seconds by torch's own names of phases.
losses|json?||Lost records by reason.
snapshot_final|bool|default 0|Whether counters and losses are of the process's end.
task|text?||The benchmark's task that it worked on: one of `tasks` of a result.
calm_us|us?||Time in which it was watched and compiled nothing.
calm_cpu_us|us?||Processor time in `calm_us`.
calm_fault_count|count?||Minor page faults in `calm_us`.
is_on_stack_cliff|bool?||Whether memory for Python's frames was mapped and unmapped all the
  time (docs/stack-cliff.md).
faults_counted_us|time_us?||When page faults were last counted.

table configs without rowid|Configuration texts, once each.
hash|text|primary key|
kind|text||
body|blob||Compressed with zlib.

table process_configs without rowid
process_id|text|references processes (id) on delete cascade|
kind|text||
config_hash|text|references configs (hash)|
primary key (process_id, kind, config_hash)

table events detail|Every event as it came, compressed: nothing recorded is lost, and a better
  decoder can
  read it again. It
  has a rowid: without one, each body of more than 1 KB would take a page of its own.
process_id|text||
sequence|int||
run_id|text|references runs (id) on delete cascade|
kind|text||
time_us|time_us||
body|blob||
primary key (process_id, sequence)

table logs|The logs that were read, and how far.
process_id|text|primary key references processes (id) on delete cascade|
run_id|text|references runs (id) on delete cascade|
name|text||Its name, with the archive it came from.
file_name|text||
size_bytes|bytes?||Its size as far as it was read, unpacked.
end_offset_bytes|bytes||
content_digest|text?||Digest of the bytes before `end_offset_bytes`, once they are all read.
line_count|count||Lines that were read.
record_count|count||
payloads|text:kept left_out||Whether its texts were kept.
redacted|bool||Whether the user's code was left out.
first_us|time_us?||
last_us|time_us?||
read_us|time_us||When it was last read.

table log_rejects without rowid|Records of a log that could not be read, counted by kind.
process_id|text|references logs (process_id) on delete cascade|
kind|text||
reject_count|count||
first_line|int?||
example|text?||
primary key (process_id, kind)

table trace_files detail without rowid|torch's own trace logs of a run recorded with --level full,
  cut
  into compressed pieces.
run_id|text|references runs (id) on delete cascade|
name|text||
size_bytes|bytes||
primary key (run_id, name)

table trace_pieces detail without rowid
run_id|text||
name|text||
position|int||
body|blob||Compressed with zlib.
primary key (run_id, name, position)
foreign key (run_id, name) references trace_files (run_id, name) on delete cascade

table payloads|Texts that torch wrote (graphs, generated code, guards), once each by their content.
id|int|primary key|
digest|blob||BLAKE2b of the text, 16 bytes.
size_bytes|bytes||
body|blob||Packed, as collectors/store/codec.py does.

table artifacts detail|Records without an event of their own: name, metadata, text.
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
sequence|int||Where it stands in its log: bytes from the beginning.
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
attempt|count?||Analysis of the frame that wrote it: 0, and one more after each restart.
name|text||torch's name of the record: `dynamo_output_graph`.
title|text?||What tells it from others of its name: a file, a graph.
encoding|text||`string` or `json`.
metadata|json?||torch's metadata of the text.
state|text||`kept`, `none`, `left_out`, `withheld`, `damaged` or `too_large`.
size_bytes|bytes?||Size of the text as torch wrote it. Bytes.
md5|text?||torch's checksum of the text.
payload_id|int?|references payloads (id)|
time_us|time_us||
envelope|json?||What else torch wrote around the record, as `subgraph_name`.
stack_id|int?|references stack_nodes (id)|Innermost frame of the stack around a record outside any
  compile: an `id` of
  `trie`; null without a stack.

table functions
id|int|primary key|Its id, the same in every database.
file|text||Its file: path in the repository, or module path.
name|text||Qualified name of the function.

table run_totals without rowid|Counts of a run that ingest keeps, so that lists and trends cost
  only the number of runs.
run_id|text|primary key references runs (id) on delete cascade|
compile_count|count|default 0|Compiles of all processes.
record_count|count|default 0|CompilationMetrics records.
graph_break_count|count|default 0|Graph breaks of all processes.
recompile_count|count|default 0|Recompiles of all processes.
recompile_limit_count|count|default 0|Compiles that reached the recompile limit.
failure_count|count|default 0|Failed compiles, exceptions that compiled code
  raised, and those that ended the program.
skipped_frame_count|count|default 0|Frames that Dynamo left to run eagerly, without a failure.
restart_count|count|default 0|Restarts of an analysis.
cache_hit_count|count|default 0|Lookups that found an entry in a cache.
cache_miss_count|count|default 0|Lookups that found no entry in a cache.
cache_bypass_count|count|default 0|Graphs that cannot be cached.
cudagraph_skip_count|count|default 0|CUDA graphs not used.
cudagraph_recording_count|count|default 0|CUDA graphs recorded.
cudagraph_rerecording_count|count|default 0|CUDA graphs recorded again, because no other fitted.
process_count|count|default 0|Processes that were recorded.
loss_count|count|default 0|Records dropped while recording.
compile_us|us|default 0|Sum of the records' durations, forward and backward.
recompile_us|us|default 0|The part of it spent on recompiles.
result_count|count|default 0|Results of a benchmark: one a model and experiment.
failed_result_count|count|default 0|Those that failed.

table run_functions rollup without rowid
run_id|text|references runs (id) on delete cascade|
function_id|int|references functions (id)|Its id, the same in every database.
compile_count|count|default 0|Compiles of the function.
graph_break_count|count|default 0|
recompile_count|count|default 0|Recompiles of the function.
recompile_limit_count|count|default 0|Compiles that reached the recompile limit.
compile_us|us|default 0|Time of the compiles that had it.
primary key (run_id, function_id)

table compiles detail|Attempts to compile a frame: the number in headlines.
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
generation|count||Calls of `torch._dynamo.reset()` in the process before it. Compile IDs restart at
  each.
compile_id|text||
frame_id|int?||First number of the compile id.
frame_compile_id|int?||Second number of the compile id.
rank|int?||Rank of the process in a distributed run.
function_id|int?|references functions (id)|
line|int?||
resumed_at|int?||Line after the graph break at which it resumes.
outcome|text||Outcome of the compile: `announced`, `started`, `compiled`, `empty`, `failed`,
  `skipped` or
  `recompile_limit`.
started_us|time_us||Start.
duration_us|us?||Duration of its forward record.
total_us|us|default 0|Forward and backward records together.
attempt_count|count|default 1|Analyses, restarts included.
graph_break_count|count|default 0|Graph breaks in this compile.
recompiled_from|text?||Compile id of the newest cache entry, whose guard failed.
recompile_category|text?||Kind of guard that failed on the newest cache entry.
stack_id|int?|references stack_nodes (id)|

table compilations detail|CompilationMetrics records.
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
sequence|int||
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
kind|text||`forward`, `backward` or `runtime`: what compiled code did at its first calls.
function_id|int?|references functions (id)|
outcome|text||
start_us|time_us?||
duration_us|us?||
dynamo_us|us?||The phases are exclusive and add up to `duration_us`.
aot_us|us?||
inductor_us|us?||
codegen_us|us?||
triton_us|us?||
cudagraph_us|us?||
restart_us|us?||
graph_op_count|count?||
graph_node_count|count?||
graph_input_count|count?||
guard_count|count?||
guard_latency_us|real?||
cache_size|int?||
restart_count|count|default 0|
fail_type|text?||
fail_reason|text?||
issue_id|int?|references failure_issues (id)|The failure across runs; null unless it
  failed.

table stack_nodes detail|Where compiles were started from, as a tree that stacks of a run share.
id|int|primary key|Number of the frame; 0 stands for compiles that have no stack.
run_id|text|references runs (id) on delete cascade|
parent_id|int?|references stack_nodes (id) on delete cascade|The frame that called it, with a
  smaller `id`; null at the
  top.
depth|int||
file|text||Its file: path in the repository, or module path.
line|int?||
name|text||Name of the function.
code|text?||That line of the code; null with `--no-source`, and where torch gave none.

table failures detail
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
sequence|int||
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
error_type|text?||Type of the exception.
message|text?||The exception's message.
time_us|time_us||
phase|text:compile forward backward wrapper program|default 'compile'|What raised it:
  the compile, compiled code, AOTAutograd's wrapper around it, or the program.
position|int?||Its number in its process; null for what a compile raised.
occurrence_count|count|default 1|Number of times it was raised; 1 for a compile.
ended_program|bool|default 0|Whether it ended the program.
function_id|int?|references functions (id)|Where it was raised; null for a compile's.
line|int?||
issue_id|int?|references failure_issues (id)|The failure across runs; of a compile, its
  record has it.

table failure_issues|What failed across runs: one row an exception type, operation and message.
id|int|primary key|Its id, the same in every database.
fingerprint|text||Identifies it, the same in every database.
error_type|text?||Type of the exception.
operation|text?||Operation that the error names, or the graph's node that raised it.
message|text?||The line of the message that says most, without numbers, addresses, sizes and paths.
function_id|int?|references functions (id)|Function it was first seen in.

table run_issues rollup without rowid
run_id|text|references runs (id) on delete cascade|
issue_id|int|references failure_issues (id)|
failure_count|count|default 0|Failed compiles, exceptions that compiled code
  raised, and those that ended the program.
compile_us|us|default 0|Time of the compiles that failed.
primary key (run_id, issue_id)

table cache_lookups detail
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
sequence|int||
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
cache|text:fx_graph aot_autograd||Which cache was asked.
result|text:hit miss bypass||Result of the lookup.
key|text?||Key of the cache entry.
reason|text?||torch's reason.
time_taken_us|us?||Time it took.
time_saved_us|us?||Time saved, as torch reports it.
time_us|time_us||

table cudagraph_skips detail
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
sequence|int||
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
reason|text||torch's reason.
file|text?||Where torch found it: path in the repository, or module path.
line|int?||
code|text?||That line of the code; null with `--no-source`.
time_us|time_us||

table cudagraphs detail|CUDA graphs that were recorded, and runs to warm up before them.
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
sequence|int||
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
stage|text:warm_up recording||Whether it was recorded, or only run before.
mode|text?||`forward`, `backward` or `inference`.
tree|int||Number of its tree in the process: one a device and thread.
device|int?||Number of the GPU.
graph_function|int||Number of its function in the tree: a compile has several where sizes vary.
graph|int?||Its number in the tree; below zero for a warm-up.
parent_graph|int?||The graph before it in its path.
depth|count||Graphs before it in its path.
duration_us|us?||Time it took.
reserved_before_bytes|bytes?||What torch's allocator held on the GPU before it.
reserved_after_bytes|bytes?||What it held after it.
call_count|count?||Calls of compiled functions until then.
status|text?||Why the newest graph of the function did not fit, in torch's word, or `PathNotEnded`;
  null where it was recorded for the first time at that place.
reasons|json||What did not fit of each graph of the function at that place.
reason_id|int?|references rerecording_reasons (id)|`id` of why it was recorded again.
time_us|time_us||

table rerecording_reasons|Why CUDA graphs were recorded again: one row a function and status.
id|int|primary key|Its id, the same in every database.
fingerprint|text||Identifies it, the same in every database.
status|text||Reason, in torch's words, why no graph matched.
inputs|text?||The inputs that moved, as first seen: name in the graph, type and shape.
source_line|text?||Line of the user's code that uses the first of them; null with `--no-source`, and
  where torch gave none.
function_id|int?|references functions (id)|

table run_rerecordings rollup without rowid
run_id|text|references runs (id) on delete cascade|
reason_id|int|references rerecording_reasons (id)|
rerecording_count|count|default 0|CUDA graphs recorded again.
duration_us|us|default 0|Time to record them.
primary key (run_id, reason_id)

table step_windows detail|Times of a process's steps in a window: one row a window.
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
sequence|int||
wanted_count|count||Steps that were to be timed.
earlier_count|count||Steps before the window.
device|text?||The GPU on whose timeline graphs and gaps were timed; null: on the host's.
peak_bytes_per_s|int?||Bytes a second that the GPU's memory moves at most.
graphs|json||Compiled graphs that the steps called.
steps|json||The parts of each step.
traced|json?||What torch's profiler saw in the steps after them.
costs|json?||What the usual step would save without each gap; null where each one compiled.
time_us|time_us||

table symbols detail|Symbolic shapes: a symbol made, specialised, or guarded.
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
sequence|int||
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
kind|text||`created`, `unbacked`, `specialized`, `guarded` or `other`.
symbol|text?||The symbol: `s0`.
expression|text?||The guard, or the reason.
value|text?||Its value in the call that was compiled.
value_range|text?||The values it was allowed when it was made, as torch writes them.
source|text?||Its source: `x.size()[0]`.
file|text?||Its file: path in the repository, or module path.
line|int?||
source_line|text?||Source of that line; null with `--no-source`.
detail|blob||Packed JSON: all that torch said, with stacks.
time_us|time_us||
stack_id|int?|references stack_nodes (id)|

table guard_sets detail|The guards of a compile, summed up.
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
artifact_id|int|references artifacts (id) on delete cascade|`id` of the artifact that holds them,
  as in
  `/runs/<run_id>/guards/<guards_id>`.
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
guard_count|count?||Guards: conditions as torch prints them.
latency_us|real?||Time that checking a whole set takes, measured by torch once. Microseconds.
summary|json||The guards of the compile, summed up.

table aot_graphs detail|AOTAutograd's metadata of a graph, summed up.
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
artifact_id|int|references artifacts (id) on delete cascade|`id` of the artifact that holds its
  metadata.
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
summary|json||The metadata summed up: inputs mutated, outputs that alias, counts. Null is not
  recorded.

table source_excerpts
id|int|primary key|Made of its content.
file|text||Its file: path in the repository, or module path.
first_line|int||
text|text||Ten lines at most, without secrets.

table run_source_excerpts without rowid
run_id|text|references runs (id) on delete cascade|
excerpt_id|int|references source_excerpts (id)|
primary key (run_id, excerpt_id)

table distinct_breaks
id|int|primary key|Its id, the same in every database.
fingerprint|text||Identifies it, the same in every database.
gb_id|text?||torch's id of this kind of graph break: `GB0059`.
gb_type|text?||torch's name of this kind of graph break.
reason|text||Reason for the break, in torch's words.
explanation|text?||torch's explanation of the reason.
hints|json||torch's hints.
function_id|int?|references functions (id)|
source_line|text?||Source of that line; null with `--no-source`.
line|int?||Line, as last seen.

table graph_breaks detail
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
sequence|int||Number of the event in its process.
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
distinct_id|int|references distinct_breaks (id)|`id` of the graph break.
function_id|int?|references functions (id)|
line|int?||Line of the innermost frame of your own code.
outcome|text:resumed skipped unknown||Whether the function resumes compiled (resumed) or
  its frame runs eagerly (skipped); unknown where this torch does not tell.
time_us|time_us||

table run_breaks rollup without rowid
run_id|text|references runs (id) on delete cascade|
distinct_id|int|references distinct_breaks (id)|
break_count|count|default 0|Graph breaks.
compile_us|us|default 0|Time of the compiles that had it.
primary key (run_id, distinct_id)

table recompile_causes
id|int|primary key|Its id, the same in every database.
fingerprint|text||Identifies it, the same in every database.
category|text||Kind of guard that failed, `several` where kinds differ, `unknown` where it could not
  be told.
source|text?||What would have had to stay the same, as the guards name it.
reason|text||The failed guards in torch's words, as first seen.
function_id|int?|references functions (id)|

table recompiles detail
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
sequence|int||
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
function_id|int?|references functions (id)|
line|int?||
recompiled_from|text?||Compile id of the newest cache entry, whose guard failed.
time_us|time_us||
cause_id|int?|references recompile_causes (id)|`id` of the cause: what would have saved it.
cache_entry|text?||Compile id of the cache entry that would have passed without the cause.
reason|text?||The guards of the cause in torch's words.
expected|text?||What the guard expected; null where the cause has several.
actual|text?||The actual value; null where the cause has several.
source_line|text?||Line of the user's code of the guard; null with `--no-source`.
guard_line|int?||Line number of `source_line`.
is_partial|bool|default 0|Whether only torch's first failed guard is known for some cache entries.

table guard_failures detail without rowid
recompile_id|int|references recompiles (id) on delete cascade|
position|count||0 is the newest cache entry.
category|text||Kind of guard that failed, `unknown` where it could not be told.
source|text?||The guard's source expression.
cache_entry|text?||Compile id of the cache entry.
reason|text||torch's first failed guard of the cache entry, in its words.
expected|text?||What the guard expected.
actual|text?||The actual value.
source_line|text?||Source of that line; null with `--no-source`.
line|int?||
primary key (recompile_id, position)

table run_causes rollup without rowid
run_id|text|references runs (id) on delete cascade|
cause_id|int|references recompile_causes (id)|
recompile_count|count|default 0|Recompiles that it would have saved: each counts for one cause.
partial_count|count|default 0|Of them, those of which not every failed guard is known: more may
  have varied.
compile_us|us|default 0|Time of the compiles that had it.
primary key (run_id, cause_id)

table trials without rowid
id|text|primary key|
run_id|text|references runs (id) on delete cascade|Whose program it was.
base_run_id|text?|references runs (id) on delete set null|The run without, beside it.
new_run_id|text?|references runs (id) on delete set null|The run with the fix.
fix_id|text?||Id of the fix in the catalogue; a person's own patch has none.
cause_fingerprint|text?||
title|text||The fix.
patch|text?||Unified diff; null for a run without source.
settings|json||A list of statements.
outcome|text||`improved`, `unchanged`, `worse`, `different`, `failed`, `not_applied` or
  `interrupted`.
summary|text||What changed, in one line: 7 breaks → 0, output equal, compile 12.1 → 4.0 s.
result|json||Metrics, output and failure.
started_us|time_us||
ended_us|time_us||

table lanes detail|A lane of the timeline: one thread of one process.
id|int|primary key|
run_id|text|references runs (id) on delete cascade|
process_id|text||
thread|int||
span_count|count|default 0|
first_us|time_us?||
last_us|time_us?||

table span_names
id|int|primary key|
name|text||

table spans detail|Phases that torch timed (chromium_event): begin and end paired.
id|int|primary key|
lane_id|int|references lanes (id) on delete cascade|
name_id|int|references span_names (id)|
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
begin_us|time_us||
duration_us|us?||Null: its end was not recorded.
depth|int||One more than the deepest of its lane that was open when it began.
instant|bool|default 0|
args|json?||What torch recorded at its end or beginning; long texts are left out.
payload_id|int?|references payloads (id)|The whole of `args`, where they are long.

table span_totals detail without rowid|Time of each phase in a lane, kept by ingest. `exclusive_us`
  is
  without what ran inside
  it.
lane_id|int|references lanes (id) on delete cascade|
name_id|int|references span_names (id)|
span_count|count||Spans, with instants and those without an end.
instant_count|count||
ended_count|count||Phases whose end was recorded: the times are theirs.
total_us|us||
exclusive_us|us||
longest_us|us?||
longest_begin_us|time_us?||
primary key (lane_id, name_id)

table repros
id|int|primary key|Its id, the same in every database.
run_id|text|references runs (id) on delete cascade|
process_id|text||
position|int||Its number in its process.
compile_key|int?|references compiles (id) on delete cascade|
compile_id|text?||
failure_position|int?||`position` of the failure that it belongs to.
issue_id|int?|references failure_issues (id)|The failure across runs; null where none is
  recorded.
state|text||`captured`, or `candidate`: compiled with `--repro=crash` and dropped at the end of the
  run.
kind|text||What failed: `compile` or `runtime`; `accuracy` is a wrong result, `crash` an end by a
  signal.
level|text||Producer of the graph: `dynamo`, or `aot` for AOTAutograd.
phase|text||Pass of the graph: `forward`, `backward` or `inference`.
fingerprint|text||Error class, message without values, and operation: the same in every database.
error_type|text?||Class of the exception, or the signal.
message|text?||First 300 characters of its message.
operation|text?||The operation that failed or is wrong, where it is known.
function_id|int?|references functions (id)|
line|int?||
node_count|count?||Call nodes of the graph.
torch_version|text?||Version of torch.
device|text?||The GPU's name, or `cpu`.
program_id|int?|references payloads (id)|
dynamo_program_id|int?|references payloads (id)|
time_us|time_us||
manifest|blob||Packed JSON. It is the last column, so that lists need not read it.

table repro_storages|The bytes of inputs, where they were asked for: whole storages, so that views
  share them as before.
repro_id|int|references repros (id) on delete cascade|
digest|text||SHA-256 of the bytes.
size_bytes|bytes||
body|blob||Compressed with zlib.
primary key (repro_id, digest)

table repro_results|What `compileboard-collect repro` found out about a repro.
id|int|primary key|
repro_id|int|references repros (id) on delete cascade|
command|text||`run`, `minify`, `analyze`, `check` or `bisect`.
status|text||The result in a word.
operation|text?||The operation that fails or is wrong.
node_count|count?||Call nodes of the minimal graph.
seconds|real||How long it took. Seconds.
torch_version|text?||Version of torch it ran with.
device|text?||The GPU's name, or `cpu`.
detail|json||The result; its fields depend on the command.
program_id|int?|references payloads (id)|The minimal graph.
started_us|time_us||Start.
ended_us|time_us||End.

table series|What is measured again and again. Unknown words are '', an unknown batch size is 0:
  null is not equal to
  null.
id|int|primary key|
suite|text||The model's suite.
model|text||The model's name.
mode|text||`inference` or `training`.
dtype|text||`float32`, `float16`, `bfloat16` or `amp`.
device|text||`cpu` or `cuda`.
hardware|text||The GPU's model, or the processor's.
backend|text||The backend with its config label: `inductor`.
dynamic|bool||Whether shapes are dynamic.
batch_size|int||Inputs in one batch.
world_size|int||Ranks that it ran on.

table results rollup|One row for a run, a series and an experiment. Numbers are in the benchmark's
  own
  units, so that a geomean
  over them is PyTorch HUD's to the last digit.
id|int|primary key|Number of the row in this database, of several experiments the leading one's.
run_id|text|references runs (id) on delete cascade|`id` of its run.
series_id|int|references series (id)|
experiment|text||The experiment: `performance`, `accuracy`, `tolerance`, `coverage` …
process_id|text||
sequence|int||
task|text?||The benchmark's task: `task` of the processes that worked on it.
status|text:measured failed skipped not_run||How measuring it ended.
reason|text?||Of a failure upstream's status (`OOM`, `timeout`); of `skipped` and `not_run` the
  reason.
accuracy|text?||Upstream's verdict: `pass`, `fail_accuracy`, …
speedup|real?||Median eager latency ÷ median compiled latency, over interleaved repeats.
speedup_low|real?||Lower bound of its 95% interval.
speedup_high|real?||Upper bound; an interval that contains 1 shows no clear difference.
abs_latency_ms|real?||Median latency compiled. Milliseconds.
eager_latency_ms|real?||Median latency in eager mode. Milliseconds.
compilation_latency_s|real?||Compile time with cold caches, of the performance experiment. Seconds.
warm_compilation_latency_s|real?||Compile time with warm caches. Seconds.
compression_ratio|real?||Peak memory in eager mode ÷ compiled.
eager_peak_mem_gb|real?||Peak memory in eager mode. GB of 10^9 bytes.
dynamo_peak_mem_gb|real?||Peak memory compiled. GB of 10^9 bytes.
cache_lookup_latency_us|real?||dynamo's lookups of compiled code in five steps. Microseconds.
calls_captured|count?||Operations in the captured graphs.
unique_graphs|count?||Graphs.
graph_breaks|count?||Graph breaks by torch's counters.
unique_graph_breaks|count?||Distinct reasons among them.
recompiles|count?||Recompiles while it was measured.
fallbacks_to_eager|count?||Frames that fell back to eager.
autograd_captures|count?||Graphs that compiled autograd captured.
autograd_compiles|count?||Graphs that compiled autograd compiled.
cudagraph_skips|count?||CUDA graphs that inductor could not use.
message|text?||The exception's last line.
traceback|blob?||Compressed.
time_us|time_us||When it was measured.
started_us|time_us?||
duration_us|us?||
command|text?||The command that measures it again.
origin|text?||
facts|json||What else was recorded of the measurement.
export_latency_s|real?||Time of torch.export alone. Seconds.
load_latency_s|real?||Load time of the package, or of the precompiled code. Seconds.
second_process_latency_s|real?||First call in a second process. Seconds.
package_bytes|real?||Size of the package.
scaling_efficiency|real?||Samples a second of all ranks ÷ ranks × those of one process.
output_error|real?||Largest relative error of the output against eager.
quantized_error|real?||Relative error of the quantized model against eager in float32.
quantized_eager_error|real?||Relative error of compiled quantized against eager quantized.

table result_values rollup without rowid|Every other number, by the name it came with.
result_id|int|references results (id) on delete cascade|
name|text||
value|real||
primary key (result_id, name)

table result_repeats rollup without rowid
result_id|int|references results (id) on delete cascade|
name|text||`eager`, `compiled` or `shape=…/eager`.
body|blob||Compressed JSON list, ms, in their order.
primary key (result_id, name)

table result_files without rowid|Files of benchmark results that were imported, by content.
run_id|text|references runs (id) on delete cascade|
content_hash|text||
name|text||
kind|text||performance, accuracy, graph_breaks …
row_count|count||
primary key (run_id, content_hash)

table run_summaries rollup without rowid|One row for a run, a configuration and a definition.
  Unknown
  words are '', as in
  `series`. What was not measured is null.
run_id|text|references runs (id) on delete cascade|
suite|text||The model's suite.
mode|text||`inference` or `training`.
dtype|text||`float32`, `float16`, `bfloat16` or `amp`.
device|text||`cpu` or `cuda`.
hardware|text||The GPU's model, or the processor's.
backend|text||The backend with its config label: `inductor`.
dynamic|bool||Whether shapes are dynamic.
world_size|int||Ranks that it ran on.
definition|text||Whose sums these are: `hud`, `runner` or `summarize_perf`.
time_us|time_us||When its newest result was measured.
total_count|count||Models.
measured_count|count||Models that were measured.
failed_count|count||Models that failed.
passed_count|count?||Models that pass; null where nothing tells.
speedup_count|count||Models that the geomean is over.
geomean_speedup|real?||Geomean of the speedups.
compilation_latency_s|real?||Mean compile time, cold. Seconds.
abs_latency_ms|real?||Mean latency, compiled. Milliseconds.
compression_ratio|real?||Peak memory eager ÷ compiled, over the models.
dynamo_peak_mem_gb|real?||Mean peak memory, compiled. GB of 10^9 bytes.
graph_breaks_per_model|real?||Mean graph breaks of the counted models, equal in every formula.
recompiles_per_model|real?||Mean recompiles of the counted models, equal in every formula.
load_latency_s|real?||Mean load time of what was packaged or precompiled. Seconds.
package_bytes|real?||Mean size of the packages.
scaling_efficiency|real?||Mean efficiency of several ranks: samples a second ÷ ranks × those of one.
quantized_error|real?||Mean relative error of quantized models against eager in float32.
primary key (run_id, suite, mode, dtype, device, hardware, backend, dynamic, world_size, definition)

table commits without rowid|First-parent history as test machines saw it: which commits lie between
  two measured ones, in
  which order.
hash|text|primary key|
parent_hash|text?||Its first parent.
time_us|time_us||When it was committed; not when it was written.
author|text?||
subject|text?||

table baselines without rowid|What a person keeps to compare with. It holds the rows themselves, so
  that deleting the
  run takes nothing from it.
name|text|primary key|Name that it was kept under.
run_id|text?||The run that it was last made of; that run may have been deleted.
note|text?||Why it is the baseline.
created_us|time_us||When it was saved.
changed_us|time_us||When it was last updated.
body|blob||Compressed JSON.

table saved_views|Names that people gave to a page with its filters.
id|int|primary key|
name|text|unique|
address|text||Path, query and fragment of the page.
author|text?||The login that saved it.
created_us|time_us||When it was saved.
changed_us|time_us||When it was last renamed.

table detection|The state of detection: one row.
id|int|primary key check (id = 1)|
seen|json||What of the database has been looked at.
version|int||Version of the detector: another one looks at everything again.
finished_us|time_us||

table incidents without rowid
id|text|primary key|Its id: the same when it is detected anew.
direction|text||`worse`, `better` or `changed`; improvements and neutral changes are never open.
state|text||Detection state: `unconfirmed`, `open`, `recovered`, `closed` or `withdrawn`.
status|text|default 'open'|Triage status: `open`, `acknowledged` or `ignored`. Ignored incidents
  send no alerts.
owner|text?||Person who last acknowledged or ignored it.
reason|text?||Why it is ignored.
title|text||What is worse and why, in one line.
suite|text||The suite; empty for recorded programs without one.
branch|text||The branch; empty where not recorded.
severity|int||0 is a failure; larger is less severe.
lead_change_id|text||Its leading change.
change_count|count||Changes that are its evidence.
last_good_run_id|text?||
first_bad_run_id|text||
recovered_run_id|text?||
first_us|time_us||When the first bad run started.
recovered_us|time_us?||When the run started that recovered it.
found_us|time_us||When it was first found.
confirmed_us|time_us?||When the run started that confirmed it.
noticed_us|time_us?||When detection confirmed it.
changed_us|time_us||When detection last changed it.
evidence|json||Its evidence, as app/incidents/__init__.py describes it.

table incident_comments|What people did with an incident and wrote about it, in order; no row is
  ever changed or
  removed.
id|int|primary key|
incident_id|text|references incidents (id) on delete cascade|
action|text||`acknowledge`, `ignore`, `comment` or `reopen`.
author|text||The person's name, as given.
text|text?||The comment, or the reason.
time_us|time_us||

table series_changes without rowid|A lasting change of one series. Detection replaces its values
  when more runs refine
  it; `id` stays.
id|text|primary key|Its ID; stable while more runs refine the change.
kind|text||Change point (`step`), gradual change (`drift`), or stopped reporting (`vanished`).
direction|text||`worse`, `better` or `changed`.
state|text||`unconfirmed`, `confirmed` or `withdrawn`.
subject|text||What the series is of: a model, a suite, or the observed runs of one name.
suite|text||Suite of the series.
model|text||The model, or the name of the runs.
mode|text||`inference` or `training`.
dtype|text||Dtype of the series.
device|text||`cpu` or `cuda`.
hardware|text||The GPU's model, or the processor's.
backend|text||The backend with its config label.
dynamic|bool||Whether shapes were dynamic.
batch_size|count||Inputs in one batch; 0 where it has none.
world_size|count||Ranks.
branch|text||Branch of the runs that are compared.
metric|text||The metric's name.
before_value|real?||The level before, in the unit that the metric's name has; a share is of one.
after_value|real?||The level after, likewise; null where it is no longer measured.
relative|real?||(after − before) ÷ |before|; null where before is 0.
p_value|real?||How often noise makes such a change; null where it is no longer measured.
before_run_id|text?||The newest run surely before.
first_run_id|text||The first run after.
low_run_id|text?||The earliest run that may be the first after.
high_run_id|text?||The latest run that may be the first after.
recovered_run_id|text?||The first run back at the level before.
first_us|time_us||When the first run after started.
found_us|time_us||When it was first found.
confirmed_us|time_us?||When the run started that confirmed it.
noticed_us|time_us?||When detection confirmed it.
changed_us|time_us||When detection last wrote it.
evidence|json||Environment, commits and suspected causes.
incident_id|text?|references incidents (id)|The incident that it is evidence of.

table alert_rules without rowid|When each rule first ran. Findings before `since_us` send no alert,
  so that a first
  start sends no history.
rule|text|primary key|
first_us|time_us||
since_us|time_us||
seen_us|time_us||When the rule last ran.

table incident_deliveries without rowid|Which incidents each rule sent, and where. A row is claimed
  before it is sent,
  so that nothing is sent twice.
rule|text||
channel|text||
incident_id|text||
event|text||`opened` or `recovered`.
state|text||`waiting`, `sending`, `sent`, `failed`, `unknown` or `dropped`.
message_id|text?||The newest message that had it; incidents of one message share it.
attempt_count|count|default 0|
error|text?||What went wrong last, or why it was dropped.
due_us|time_us||When it is sent next, at the earliest.
queued_us|time_us||
changed_us|time_us||
primary key (rule, channel, incident_id, event)

table search_documents|The documents of the search index: one text of a run each. Contentless FTS5
  deletes a document by
  its words, so a row keeps its title as it was indexed.
id|int|primary key autoincrement|Never used again: the words of a document that could not be read
  stay behind.
run_id|text|references runs (id) on delete cascade|
kind|text||What it is: artifact, graph_break, recompile, failure …
ref_id|int||The row in that kind's table.
compile_key|int?||
title|text||
payload_id|int?|references payloads (id)|Its text, unless it is in `body`.
body|blob?||Its text, packed.
character_count|count||Characters of the text that are indexed.

table search_runs without rowid|How far a run is in the search index.
run_id|text|primary key references runs (id) on delete cascade|
indexed_us|time_us?||When the texts that were stored before were indexed; null: not yet.
text_bytes|bytes|default 0|

table tokens without rowid|Who may do what. The secret itself is not stored: `secret_hash` is its
  SHA-256.
id|text|primary key|Its public part.
name|text||The person or machine that has it.
secret_hash|blob||
scopes|text||What it allows: `ingest`, `read`, `write`, `admin`, with commas.
created_us|time_us||When it was made.
created_by|text||Who made it: user@host.
expires_us|time_us?||When it ends; null is never.
revoked_us|time_us?||When it was revoked.
last_used_us|time_us?||Its last use, to the minute.
last_address|text?||The client's address then.

table sessions without rowid|Logins of browsers. A session ends with its token.
session_hash|blob|primary key|SHA-256 of the cookie.
token_id|text|references tokens (id) on delete cascade|
created_us|time_us||
expires_us|time_us||
last_used_us|time_us||

table login_failures
id|int|primary key|
address|text||Address of the client.
failed_us|time_us||

table audit|Who changed what, and from where. Nothing is ever changed or removed.
id|int|primary key|Its number.
time_us|time_us||
action|text||The action: `run.delete`, `run.restore`, `run.annotate`, `incident.comment`,
  `import.done` …
subject|text||The ID of the subject.
detail|text?||More about the change; null where there is nothing to add.
channel|text||How it was made: `page`, `api`, `command` or `server`.
actor|text?||The name of a token or login; of a command: user@host. Null of the
  server, and of a request without either.
address|text?||Of a request: the client's address, as far as `--trusted-proxies` lets it be known.
user_agent|text?||Of a request: the client's program.

table run_owners without rowid|Who sent a run first: only that sender may add to it, or a token
  with the scope write. A
  run without a row was recorded on the server's machine.
run_id|text|primary key|The run's id; it stays when the run is deleted, so that the run becomes
  nobody else's.
owner|text||`token:NAME`, or `login:NAME` of a person whom a proxy names.

table streams without rowid|What recorders send, by run and recorder. Offset and checksum
  change in the transaction of their events.
run_id|text||The run's id; the stream of a deleted run waits with it and goes on when it is
  restored.
stream_id|text||The recorder's id of its stream; one that starts anew begins another.
token_id|text?||Who began it; null where no token was asked for.
stored_bytes|bytes||Bytes of lines that are stored.
checksum|int||CRC-32 of these bytes.
event_count|count||Events that came; one that came twice is stored once.
lost_count|count||Events that the machine had no room for.
dropped_text_count|count||Texts that the machine had no room for, or was refused with.
version|text?||Version of the collector.
started_us|time_us||Start.
updated_us|time_us||When something of it came last.
ended_us|time_us?||When its last line came.
primary key (run_id, stream_id)

table dropped_texts without rowid|Texts that a machine had no room to keep; what refers to them is
  stored without them.
run_id|text||
digest|blob||
primary key (run_id, digest)

table sent_texts without rowid|Texts that arrived before what refers to them; none is dropped
  within a day.
digest|blob|primary key|
received_us|time_us||

table published_runs without rowid
run_id|text|primary key|The run's id; of a deleted run until the engine has deleted its rows.
run_pub|int||`runs.pub` when its row was read; -1 before its first row is there.
rows_pub|int||Number of its roll-ups there: they count while its row there names this number.
rows_run_pub|int||`runs.pub` when its roll-ups were read.
annotated_us|time_us?||`run_annotations.changed_us` when its row was read.
rows_count|count||How often its roll-ups were published.
rows_us|time_us||When its roll-ups were published; before that, when it was first seen.
published_us|time_us||When its row was published.
heartbeat_us|time_us|default 0|`runs.heartbeat_us` when its row was read.
month|int|default 0|Month of its roll-ups: 202611.
version|int|default 0|Version of its row there.

table engine_publications|This database as the engine has it: no row where there is none. No number
  is used twice.
id|int|primary key check (id = 1)|
board_id|text||Id of this database, since two do not share one database there.
version|int||The newest version given to a row of a run.
pub|int||The newest number given to roll-ups.
passed_us|time_us?||When a pass last left nothing waiting that was due.
error|text?||Why the last pass failed, or left a run out.
error_us|time_us?||
"""
# Columns of many tables.
_HELP = {
    "id": "Number of the row in this database.",
    "run_id": "The run's id.",
    "process_id": "The process's id.",
    "compile_key": "`id` of the compile, as in `/runs/<run_id>/compiles/<key>`.",
    "compile_id": "Compile id as torch prints it: `0/1`.",
    "line": "Line number.",
    "time_us": "Time of the event.",
}
_FILE_TYPES = {
    **dict.fromkeys(("int", "count", "bytes", "us"), "int"),
    "real": "float",
    "bool": "bool",
    "time_us": "moment",
}


class Column(NamedTuple):
    """A column; `type` is text, json, blob, real, int, bool, count, bytes, time_us or us,
    `constraint` is SQL.

    `words` are all possible values, if these are few.
    """

    name: str
    type: str
    words: tuple[str, ...]
    is_nullable: bool
    constraint: str
    help: str


@dataclass(frozen=True)
class Table:
    """A table: its columns by name, in order, and the SQL after them."""

    name: str
    help: str
    columns: dict[str, Column]
    keys: tuple[str, ...]
    has_rowid: bool
    part: str  # detail or rollup for a run's tables; empty if they always stay in the database.

    def list_names(self, *without: str) -> tuple[str, ...]:
        """List its column names in order, except some."""
        return tuple(name for name in self.columns if name not in without)

    def select_sql(self, alias: str, *without: str) -> str:
        """Return its columns for a select, except some."""
        return ", ".join(f"{alias}.{name}" for name in self.list_names(*without))

    def insert_sql(self, *without: str) -> str:
        """Return an insert of named values without its first word; columns may be left out."""
        names = self.list_names(*without)
        return (
            f"into {self.name} ({', '.join(names)})\nvalues "
            f"({', '.join(f':{name}' for name in names)})"
        )


def list_types(*tables: str) -> dict[str, str]:
    """List the columns of tables that are not text, each as int, float, bool or moment."""
    columns = (column for table in tables for column in TABLES[table].columns.values())
    return {
        column.name: _FILE_TYPES[column.type] for column in columns if column.type in _FILE_TYPES
    }


def published(getter: Getter) -> Getter:
    """Mark a property's getter as a field of responses, described by its docstring."""
    getter.in_json = True  # type: ignore[attr-defined]
    return getter


def _read_tables() -> Iterator[Table]:
    for block in _TABLES.strip().replace("\n  ", " ").split("\n\n"):
        head, *lines = (line for line in block.splitlines() if not line.startswith("#"))
        title, _, meaning = head.partition("|")
        name, *marks = title.removeprefix("table ").split()
        columns, keys = {}, []
        for line in lines:
            if "|" not in line:
                keys.append(line)
                continue
            column, kind, constraint, text = line.split("|", 3)
            kind, _, words = kind.partition(":")
            columns[column] = Column(
                column,
                kind.rstrip("?"),
                tuple(words.split()),
                kind.endswith("?"),
                constraint,
                text or _HELP.get(column, ""),
            )
        part = "".join(mark for mark in marks if mark in ("detail", "rollup"))
        yield Table(name, meaning, columns, tuple(keys), "rowid" not in marks, part)


TABLES: dict[str, Table] = {table.name: table for table in _read_tables()}
