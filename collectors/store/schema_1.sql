-- Schema 1. Times are microseconds since the epoch (_us), sizes bytes. What torch did not record is null.


-- == runs ==

create table runs (
  id text primary key,
  name text not null,
  suite text,
  source text not null,               -- live | import
  state text not null,                -- running | finished | failed | killed | interrupted | imported
  level text not null,
  keep_source integer not null,
  command text not null,              -- one line, secrets removed
  cwd text,
  started_us integer not null,
  ended_us integer,
  heartbeat_us integer not null,      -- last time its recorder was alive
  exit_code integer,
  signal text,
  host text,
  gpu_name text,
  gpu_count integer not null,
  torch_version text,
  cuda_version text,
  python_version text,
  git_commit text,
  git_branch text,
  git_subject text,
  git_dirty integer,
  facts text not null,                -- JSON: argv, git, host, gpus, environment
  stack_room integer,                 -- 1: `run --stack-room` started it; null where nobody could have
  -- How far detection and whoever copies runs have come is a number of this database that grows with every commit to a
  -- run, and is never given again.
  pub integer not null default 0      -- of the newest commit to it
) strict;
create index runs_pub on runs (pub);
create index runs_series on runs (suite, name, started_us, state, source, id);
create index runs_started on runs (started_us desc, id desc, suite, name, state, source);
create index runs_name on runs (name, started_us, id, suite, state, source);
create index runs_suite on runs (suite, started_us, id, name, state, source);
-- The runs of one value in the order of the list, and each value that there is, without reading every run.
create index runs_host on runs (host, started_us, id);
create index runs_gpu on runs (gpu_name, started_us, id);
create index runs_torch on runs (torch_version, started_us, id);
create index runs_branch on runs (git_branch, started_us, id);
create index runs_text on runs (id, name, command, git_branch, git_subject);
-- Few runs of many. What is always the same stands first: without it SQLite reads the table, or a larger index. Without
-- heartbeat_us a sign of life writes no index.
create index runs_running on runs (state, id) where state = 'running';
create index runs_trials on runs (source, id) where source = 'trial';
create index runs_with_nul on runs (id, name, command, git_branch, git_subject)  -- LIKE stops at a NUL
where instr(name || command || coalesce(git_branch, '') || coalesce(git_subject, ''), char(0)) > 0;

create table run_tags (
  run_id text not null references runs (id) on delete cascade,
  key text not null,
  value text not null,
  primary key (run_id, key)
) strict, without rowid;
create index run_tags_value on run_tags (key, value);

-- People's own words about a run; written by store/annotations.py alone.
create table run_annotations (
  run_id text primary key references runs (id) on delete cascade,
  title text,
  note text,
  pinned integer not null default 0,
  changed_us integer not null
) strict, without rowid;

-- Runs a person deleted, so that a spool or a log cannot bring them back.
create table removed_runs (
  run_id text primary key,
  deleted_us integer not null,
  -- A run's rows wait in a file of their own (trash.py); without expires_us it is gone for good.
  expires_us integer,
  name text,
  suite text,
  started_us integer,
  trash_bytes integer
) strict, without rowid;

-- Runs whose detail was deleted to save room. Their totals, results, summaries, repros and people's words stay.
create table pruned_runs (
  run_id text primary key references runs (id) on delete cascade,
  pruned_us integer not null,
  deleted_bytes integer               -- texts and events, packed; null until all of it is deleted
) strict, without rowid;

create table sealed_runs (
  run_id text primary key references runs (id) on delete cascade,
  file_name text not null,            -- in the folder of run files
  digest blob not null,               -- SHA-256 of the file as it is stored
  size_bytes integer not null,        -- of the file as it is stored
  unpacked_bytes integer not null,
  sealed_us integer not null,
  emptied_us integer                  -- when its detail was gone from here; null: some of it may be left; 0: put back
) strict, without rowid;
create index sealed_runs_left on sealed_runs (run_id) where coalesce(emptied_us, 0) = 0;

-- What of a run's spool could not be recorded, counted by file and kind; logs have log_rejects.
create table run_rejects (
  run_id text not null references runs (id) on delete cascade,
  file_name text not null,            -- of the spool: a process's file, said.events, run.json
  kind text not null,                 -- collectors/rejects.py
  reject_count integer not null,
  first_line integer,
  example text,
  primary key (run_id, file_name, kind)
) strict, without rowid;

create table publications (
  id integer primary key check (id = 1),
  pub integer not null,               -- the newest given
  removed_pub integer not null,       -- of the newest removal of a run
  -- The largest id of a result of any run that was sealed: none is given again.
  last_result_id integer not null default 0
) strict;


-- == processes and what they wrote ==

create table processes (
  id text primary key,
  run_id text not null references runs (id) on delete cascade,
  parent_id text,
  pid integer,
  rank integer,
  local_rank integer,
  world_size integer,
  level text,
  command text,
  started_us integer not null,
  last_seen_us integer not null,
  last_sequence integer not null,
  python_version text,
  torch_version text,
  torch_git text,
  cuda_version text,
  cudnn_version text,
  triton_version text,
  capabilities text not null,         -- JSON: capability -> ok, or why not
  environment text not null,          -- JSON
  counters text,                      -- JSON, torch's counters as last seen
  compile_times text,                 -- JSON, seconds a phase
  losses text,                        -- JSON: reason -> count
  snapshot_final integer not null default 0,
  task text,
  calm_us integer,                    -- how long it compiled nothing, as far as it was watched
  calm_cpu_us integer,
  calm_fault_count integer,
  is_on_stack_cliff integer,          -- a chunk of its frame stack came and went all the time
  faults_counted_us integer           -- when, of the newest count
) strict;
create index processes_run on processes (run_id, started_us);
create index processes_task on processes (run_id, task) where task is not null;

-- Configuration texts, once each.
create table configs (
  hash text primary key,
  kind text not null,
  body blob not null                  -- zlib
) strict, without rowid;

create table process_configs (
  process_id text not null references processes (id) on delete cascade,
  kind text not null,
  config_hash text not null references configs (hash),
  primary key (process_id, kind, config_hash)
) strict, without rowid;

-- Every event as it came, compressed: nothing recorded is lost, and a better decoder can read it again.
-- With a rowid: bodies of more than 1 KB would each take a page of their own without.
create table events (
  process_id text not null,
  sequence integer not null,
  run_id text not null references runs (id) on delete cascade,
  kind text not null,
  time_us integer not null,
  body blob not null,
  primary key (process_id, sequence)
) strict;
create index events_run on events (run_id, kind);

-- One row a log that was read: which process it is, and how far it was read.
create table logs (
  process_id text primary key references processes (id) on delete cascade,
  run_id text not null references runs (id) on delete cascade,
  name text not null,                 -- the file's own name
  file_name text not null,
  size_bytes integer,                 -- as far as it was read
  end_offset_bytes integer not null,
  content_digest text,                -- of the bytes before it, once they are all read
  line_count integer not null,
  record_count integer not null,
  payloads text not null,             -- kept | left_out
  redacted integer not null,
  first_us integer,
  last_us integer,
  read_us integer not null            -- when it was last read
) strict;
create index logs_run on logs (run_id, name);

-- What of a log could not be read, counted by kind.
create table log_rejects (
  process_id text not null references logs (process_id) on delete cascade,
  kind text not null,
  reject_count integer not null,
  first_line integer,
  example text,
  primary key (process_id, kind)
) strict, without rowid;

-- torch's own trace logs of a run recorded with --level full, cut into compressed pieces.
create table trace_files (
  run_id text not null references runs (id) on delete cascade,
  name text not null,
  size_bytes integer not null,
  primary key (run_id, name)
) strict, without rowid;

create table trace_pieces (
  run_id text not null,
  name text not null,
  position integer not null,
  body blob not null,                 -- zlib
  primary key (run_id, name, position),
  foreign key (run_id, name) references trace_files (run_id, name) on delete cascade
) strict, without rowid;

-- Texts that torch wrote (graphs, generated code, guards), once each by their content.
create table payloads (
  id integer primary key,
  digest blob not null,               -- BLAKE2b of the text, 16 bytes
  size_bytes integer not null,
  body blob not null                  -- packed, see codec.py
) strict;
create unique index payloads_digest on payloads (digest);

-- One row a record that is no event of its own: its name, what torch said beside it, its text.
create table artifacts (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,          -- the record's byte offset in its log
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  attempt integer,
  name text not null,                 -- torch's: dynamo_output_graph, artifact:fx_graph_runnable
  title text,                         -- what tells it from others of its name: a file, a graph
  encoding text not null,             -- string | json
  metadata text,                      -- JSON
  state text not null,                -- kept | none | left_out | withheld | damaged | too_large
  size_bytes integer,                 -- of the text as torch wrote it
  md5 text,                           -- torch's own, of the text as torch wrote it
  payload_id integer references payloads (id),
  time_us integer not null,
  -- What else torch wrote around a record, as JSON: subgraph_name, and any key that is not known yet.
  envelope text,
  -- Where a record outside any compile comes from: export and AOTInductor have no compile id.
  stack_id integer references stack_nodes (id)
) strict;
create unique index artifacts_key on artifacts (process_id, sequence);
create index artifacts_run on artifacts (run_id, name, id);
create index artifacts_compile on artifacts (compile_key, sequence);
create index artifacts_payload on artifacts (payload_id);
create index artifacts_loose on artifacts (run_id) where compile_key is null;
create index artifacts_stack on artifacts (stack_id) where stack_id is not null;


-- == compiles ==

create table functions (
  id integer primary key,
  file text not null,                 -- repository-relative or module path
  name text not null                  -- qualified name
) strict;
create unique index functions_key on functions (file, name);

-- What ingest keeps per run, so that lists and trends cost what the number of runs costs.
create table run_totals (
  run_id text primary key references runs (id) on delete cascade,
  compile_count integer not null default 0,
  record_count integer not null default 0,
  graph_break_count integer not null default 0,
  recompile_count integer not null default 0,
  recompile_limit_count integer not null default 0,
  failure_count integer not null default 0, -- failed compiles, and what compiled code raised or ended the program
  skipped_frame_count integer not null default 0, -- frames that dynamo left to eager without a failure
  restart_count integer not null default 0,
  cache_hit_count integer not null default 0,
  cache_miss_count integer not null default 0,
  cache_bypass_count integer not null default 0,
  cudagraph_skip_count integer not null default 0,
  process_count integer not null default 0,
  loss_count integer not null default 0,
  compile_us integer not null default 0, -- sum of the records' durations, forward and backward
  recompile_us integer not null default 0, -- the part of it spent on compiles that were recompiles
  result_count integer not null default 0,
  failed_result_count integer not null default 0
) strict, without rowid;
create index run_totals_benched on run_totals (run_id) where result_count > 0;

create table run_functions (
  run_id text not null references runs (id) on delete cascade,
  function_id integer not null references functions (id),
  compile_count integer not null default 0,
  graph_break_count integer not null default 0,
  recompile_count integer not null default 0,
  recompile_limit_count integer not null default 0,
  compile_us integer not null default 0,
  primary key (run_id, function_id)
) strict, without rowid;
create index run_functions_function on run_functions (function_id, run_id);

-- One row an attempt to compile a frame: the number in headlines.
create table compiles (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  generation integer not null,        -- torch's compile ids start again at 0/0 after reset()
  compile_id text not null,
  frame_id integer,
  frame_compile_id integer,
  rank integer,
  function_id integer references functions (id),
  line integer,
  resumed_at integer,
  outcome text not null,              -- announced | started | compiled | empty | failed | skipped | recompile_limit
  started_us integer not null,
  duration_us integer,                -- of its forward record
  total_us integer not null default 0, -- forward and backward records together
  attempt_count integer not null default 1,
  graph_break_count integer not null default 0,
  recompiled_from text,
  recompile_category text,            -- of the newest cache entry's failed guard
  stack_id integer references stack_nodes (id)
) strict;
create unique index compiles_key on compiles (process_id, generation, compile_id);
create index compiles_run on compiles (run_id, started_us, id);
create index compiles_function on compiles (function_id, run_id);
create index compiles_frame on compiles (process_id, generation, frame_id);
create index compiles_stack on compiles (stack_id);

-- One row a CompilationMetrics record.
create table compilations (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  kind text not null,                 -- forward | backward | runtime
  function_id integer references functions (id),
  outcome text not null,
  start_us integer,
  duration_us integer,
  dynamo_us integer,                  -- exclusive phases; they add up to duration_us
  aot_us integer,
  inductor_us integer,
  codegen_us integer,
  triton_us integer,
  cudagraph_us integer,
  restart_us integer,
  graph_op_count integer,
  graph_node_count integer,
  graph_input_count integer,
  guard_count integer,
  guard_latency_us real,
  cache_size integer,
  restart_count integer not null default 0,
  fail_type text,
  fail_reason text
) strict;
create unique index compilations_key on compilations (process_id, sequence);
create index compilations_run on compilations (run_id, start_us, id);
create index compilations_compile on compilations (compile_key);

-- Where compiles were started from, as a tree that stacks of a run share.
create table stack_nodes (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  parent_id integer references stack_nodes (id) on delete cascade,
  depth integer not null,
  file text not null,
  line integer,
  name text not null,
  code text
) strict;
create unique index stack_nodes_key on stack_nodes (run_id, coalesce(parent_id, 0), file, coalesce(line, -1), name);
create index stack_nodes_parent on stack_nodes (parent_id);

create table failures (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  error_type text,
  message text,
  time_us integer not null,
  phase text not null default 'compile',
  position integer,                   -- among its process's; null for what a compile raised
  occurrence_count integer not null default 1,
  ended_program integer not null default 0,
  function_id integer references functions (id), -- where it was raised; null for a compile's
  line integer
) strict;
create unique index failures_key on failures (process_id, sequence);
create index failures_run on failures (run_id, time_us, id);
create index failures_compile on failures (compile_key);
create unique index failures_position on failures (process_id, position) where position is not null;

create table cache_lookups (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  cache text not null,                -- fx_graph | aot_autograd
  result text not null,               -- hit | miss | bypass
  key text,
  reason text,
  time_taken_us integer,
  time_saved_us integer,
  time_us integer not null
) strict;
create unique index cache_lookups_key on cache_lookups (process_id, sequence);
create index cache_lookups_run on cache_lookups (run_id, time_us, id);
create index cache_lookups_compile on cache_lookups (compile_key);

create table cudagraph_skips (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  reason text not null,
  time_us integer not null
) strict;
create unique index cudagraph_skips_key on cudagraph_skips (process_id, sequence);
create index cudagraph_skips_run on cudagraph_skips (run_id, time_us, id);
create index cudagraph_skips_compile on cudagraph_skips (compile_key);

-- Symbolic shapes: a symbol made, specialised, or guarded.
create table symbols (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  kind text not null,                 -- created | unbacked | specialized | guarded | other
  symbol text,
  expression text,                    -- the guard, or the reason
  value text,
  value_range text,
  source text,                        -- the guard source expression: L['x'].size()[0]
  file text,                          -- of the innermost frame of the user's
  line integer,
  source_line text,
  detail blob not null,               -- packed JSON: all that torch said, with stacks
  time_us integer not null,
  stack_id integer references stack_nodes (id)
) strict;
create unique index symbols_key on symbols (process_id, sequence);
create index symbols_run on symbols (run_id, kind, id);
create index symbols_compile on symbols (compile_key);
create index symbols_stack on symbols (stack_id) where stack_id is not null;

-- The guards of a compile, summed up (collectors/decode/guard_tree.py).
create table guard_sets (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  artifact_id integer not null references artifacts (id) on delete cascade,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  guard_count integer,
  latency_us real,
  summary text not null               -- JSON
) strict;
create unique index guard_sets_artifact on guard_sets (artifact_id);
create index guard_sets_run on guard_sets (run_id, latency_us desc, id);
create index guard_sets_compile on guard_sets (compile_key);

-- What AOTAutograd's metadata says of a graph, summed up (collectors/decode/aot.py).
create table aot_graphs (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  artifact_id integer not null references artifacts (id) on delete cascade,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  summary text not null               -- JSON
) strict;
create unique index aot_graphs_artifact on aot_graphs (artifact_id);
create index aot_graphs_run on aot_graphs (run_id, id);
create index aot_graphs_compile on aot_graphs (compile_key);

create table source_excerpts (
  id integer primary key,             -- of its content
  file text not null,                 -- repository-relative or module path
  first_line integer not null,
  text text not null                  -- ten lines at most, secrets removed
) strict;

create table run_source_excerpts (
  run_id text not null references runs (id) on delete cascade,
  excerpt_id integer not null references source_excerpts (id),
  primary key (run_id, excerpt_id)
) strict, without rowid;
create index run_source_excerpts_excerpt on run_source_excerpts (excerpt_id);


-- == graph breaks and recompiles ==

create table distinct_breaks (
  id integer primary key,
  fingerprint text not null,
  gb_id text,
  gb_type text,
  reason text not null,
  explanation text,
  hints text not null,                -- JSON list
  function_id integer references functions (id),
  source_line text,
  line integer                        -- as last seen; display only
) strict;
create unique index distinct_breaks_fingerprint on distinct_breaks (fingerprint);

create table graph_breaks (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  distinct_id integer not null references distinct_breaks (id),
  function_id integer references functions (id),
  line integer,
  outcome text not null,              -- resumed | skipped | unknown
  time_us integer not null
) strict;
create unique index graph_breaks_key on graph_breaks (process_id, sequence);
create index graph_breaks_run on graph_breaks (run_id, time_us, id);
create index graph_breaks_distinct on graph_breaks (distinct_id, time_us);
create index graph_breaks_compile on graph_breaks (compile_key);

create table run_breaks (
  run_id text not null references runs (id) on delete cascade,
  distinct_id integer not null references distinct_breaks (id),
  break_count integer not null default 0,
  compile_us integer not null default 0, -- time of the compiles that had this break
  primary key (run_id, distinct_id)
) strict, without rowid;
create index run_breaks_distinct on run_breaks (distinct_id, run_id);

create table recompile_causes (
  id integer primary key,
  fingerprint text not null,
  category text not null,
  source text,
  reason text not null,               -- as first seen
  suggestion text,
  function_id integer references functions (id)
) strict;
create unique index recompile_causes_fingerprint on recompile_causes (fingerprint);

create table recompiles (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  function_id integer references functions (id),
  line integer,
  recompiled_from text,
  time_us integer not null
) strict;
create unique index recompiles_key on recompiles (process_id, sequence);
create index recompiles_run on recompiles (run_id, time_us, id);
create index recompiles_compile on recompiles (compile_key);

create table guard_failures (
  recompile_id integer not null references recompiles (id) on delete cascade,
  position integer not null,          -- 0 is the newest cache entry
  cause_id integer not null references recompile_causes (id),
  cache_entry text,
  reason text not null,
  expected text,
  actual text,
  source_line text,
  line integer,
  primary key (recompile_id, position)
) strict, without rowid;
create index guard_failures_cause on guard_failures (cause_id);

create table run_causes (
  run_id text not null references runs (id) on delete cascade,
  cause_id integer not null references recompile_causes (id),
  guard_failure_count integer not null default 0, -- every cache entry it failed on
  recompile_count integer not null default 0, -- recompiles whose newest entry failed on it
  compile_us integer not null default 0, -- time of those compiles
  primary key (run_id, cause_id)
) strict, without rowid;
create index run_causes_cause on run_causes (cause_id, run_id);

create table trials (
  id text primary key,
  run_id text not null references runs (id) on delete cascade, -- whose program it was
  base_run_id text references runs (id) on delete set null, -- the program as it is, run again beside it
  new_run_id text references runs (id) on delete set null, -- with the fix
  fix_id text,                        -- of the catalogue; a patch of a person's own has none
  cause_fingerprint text,
  title text not null,
  patch text,                         -- unified diff; NULL for a run without source
  settings text not null,             -- JSON list of statements
  outcome text not null,              -- improved | unchanged | worse | different | failed | not_applied | interrupted
  summary text not null,              -- one line: 7 breaks → 0, output equal, compile 12.1 → 4.0 s
  result text not null,               -- JSON: metrics, output, failure
  started_us integer not null,
  ended_us integer not null
) strict, without rowid;
create index trials_run on trials (run_id, started_us);
create index trials_base_run on trials (base_run_id);
create index trials_new_run on trials (new_run_id);


-- == the timeline ==

-- A lane of the timeline: one thread of one process.
create table lanes (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  thread integer not null,
  span_count integer not null default 0,
  first_us integer,
  last_us integer
) strict;
create unique index lanes_key on lanes (process_id, thread);
create index lanes_run on lanes (run_id, process_id, thread);

create table span_names (
  id integer primary key,
  name text not null
) strict;
create unique index span_names_name on span_names (name);

-- One row a phase that torch timed (chromium_event): begin and end paired.
create table spans (
  id integer primary key,
  lane_id integer not null references lanes (id) on delete cascade,
  name_id integer not null references span_names (id),
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  begin_us integer not null,
  duration_us integer,                -- NULL: its end was not recorded
  depth integer not null,             -- one more than the deepest of its lane that was open when it began
  instant integer not null default 0,
  args text,                          -- JSON, what torch said at its end or beginning; long ones without their texts
  payload_id integer references payloads (id) -- the whole of it, where args are long
) strict;
create index spans_compile on spans (compile_key);
create index spans_payload on spans (payload_id) where payload_id is not null;
-- The spans of one depth of a lane follow one another, so the last that began before a window is the only one of its
-- depth that can reach into it. spans_depth does all that spans_begin did: what begins in a window, depth by depth.
create index spans_depth on spans (lane_id, depth, begin_us, duration_us);
create index spans_duration on spans (lane_id, duration_us desc, begin_us, depth);
-- Cache hits and misses and their like; few, and they must not be lost among phases.
create index spans_instant on spans (lane_id, begin_us, name_id) where instant = 1;

-- What each phase took in a lane, kept by ingest. Exclusive: without what ran inside it.
create table span_totals (
  lane_id integer not null references lanes (id) on delete cascade,
  name_id integer not null references span_names (id),
  span_count integer not null,        -- all, instants and those without an end included
  instant_count integer not null,
  ended_count integer not null,       -- phases whose end was recorded: what the times are of
  total_us integer not null,
  exclusive_us integer not null,
  longest_us integer,
  longest_begin_us integer,
  primary key (lane_id, name_id)
) strict, without rowid;
create index span_totals_name on span_totals (name_id);


-- == repros ==

create table repros (
  id integer primary key,             -- of its content: process and position
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  position integer not null,          -- among its process's
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  failure_position integer,           -- of the process's failure that it belongs to
  state text not null,                -- captured | candidate: compiled with --repro=crash, dropped at the run's end
  kind text not null,                 -- compile | runtime | accuracy | crash
  level text not null,                -- dynamo | aot: whose graph the program is
  phase text not null,                -- forward | backward | inference
  fingerprint text not null,          -- of the failure: the same wherever it is seen
  error_type text,                    -- or the signal
  message text,
  operation text,
  function_id integer references functions (id),
  line integer,
  node_count integer,                 -- call nodes of the graph
  torch_version text,
  device text,                        -- the GPU's name, or "cpu"
  program_id integer references payloads (id),
  dynamo_program_id integer references payloads (id),
  time_us integer not null,
  manifest blob not null              -- packed JSON, whole; last, so that lists need not read it
) strict;
create unique index repros_key on repros (process_id, position);
create index repros_run on repros (run_id, time_us, id);
-- All that the list of failures groups, so that it reads no row.
create index repros_fingerprint on repros (
  fingerprint, state, time_us, run_id, node_count, torch_version, device
);
create index repros_compile on repros (compile_key) where compile_key is not null;
create index repros_candidates on repros (run_id) where state = 'candidate';
create index repros_program on repros (program_id) where program_id is not null;
create index repros_dynamo_program on repros (dynamo_program_id) where dynamo_program_id is not null;

-- The bytes of inputs, where they were asked for: whole storages, so that views share what they shared.
create table repro_storages (
  repro_id integer not null references repros (id) on delete cascade,
  digest text not null,               -- SHA-256 of the bytes
  size_bytes integer not null,
  body blob not null,                 -- zlib
  primary key (repro_id, digest)
) strict;

-- What `collectors repro` found out about one.
create table repro_results (
  id integer primary key,
  repro_id integer not null references repros (id) on delete cascade,
  command text not null,              -- run | minify | analyze | check | bisect
  status text not null,
  operation text,                     -- that fails or is wrong
  node_count integer,                 -- call nodes of the minimal graph
  seconds real not null,
  torch_version text,
  device text,
  detail text not null,               -- JSON
  program_id integer references payloads (id), -- the minimal graph
  started_us integer not null,
  ended_us integer not null
) strict;
create index repro_results_repro on repro_results (repro_id, started_us);
create index repro_results_minimal on repro_results (repro_id, node_count) where node_count is not null;
create index repro_results_program on repro_results (program_id) where program_id is not null;


-- == benchmarks ==

-- What is measured again and again. Unknown words are '', an unknown batch size is 0: null is not equal to null.
create table series (
  id integer primary key,
  suite text not null,
  model text not null,
  mode text not null,                 -- inference | training
  dtype text not null,                -- float32 | float16 | bfloat16 | amp
  device text not null,               -- cpu | cuda
  hardware text not null,             -- the GPU's model, or the processor's
  backend text not null,              -- with its config label
  dynamic integer not null,
  batch_size integer not null,
  world_size integer not null
) strict;
create unique index series_key on series
  (suite, model, mode, dtype, device, hardware, backend, dynamic, batch_size, world_size);
create index series_model on series (model, suite);

-- One row a run, a series and an experiment. Numbers are as the benchmark said them, in its units: a geomean over
-- them is then PyTorch HUD's to the last digit.
create table results (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  series_id integer not null references series (id),
  experiment text not null,           -- performance | accuracy | tolerance | coverage | ...
  process_id text not null,
  sequence integer not null,
  task text,                          -- processes.task of the processes that worked on it
  status text not null,               -- measured | failed | skipped | not_run
  reason text,                        -- of failed: upstream's word; of skipped and not_run: why
  accuracy text,                      -- upstream's verdict
  speedup real,
  speedup_low real,
  speedup_high real,
  abs_latency_ms real,                -- compiled, median
  eager_latency_ms real,
  compilation_latency_s real,         -- cold
  warm_compilation_latency_s real,
  compression_ratio real,
  eager_peak_mem_gb real,
  dynamo_peak_mem_gb real,
  cache_lookup_latency_us real,
  calls_captured integer,
  unique_graphs integer,
  graph_breaks integer,               -- as upstream counts them: torch's counters
  unique_graph_breaks integer,
  recompiles integer,
  fallbacks_to_eager integer,
  autograd_captures integer,
  autograd_compiles integer,
  cudagraph_skips integer,
  message text,
  traceback blob,                     -- compressed
  time_us integer not null,           -- when it was done
  started_us integer,
  duration_us integer,
  command text,
  origin text,
  facts text not null,                -- JSON
  export_latency_s real,
  load_latency_s real,                -- of a package, or of precompiled code
  second_process_latency_s real,      -- the first call in a second process
  package_bytes real,
  scaling_efficiency real,            -- ranks · batch ÷ time, ÷ that of one process
  output_error real,                  -- largest relative error against eager
  quantized_error real,               -- against eager in float32
  quantized_eager_error real          -- compiled quantized against eager quantized
) strict;
create unique index results_key on results (run_id, series_id, experiment);
-- The newest of each experiment is one step; the history of a series is read whole.
create index results_series on results (series_id, experiment, time_us desc, id desc);

-- Every other number, by the name it came with.
create table result_values (
  result_id integer not null references results (id) on delete cascade,
  name text not null,
  value real not null,
  primary key (result_id, name)
) strict, without rowid;

create table result_repeats (
  result_id integer not null references results (id) on delete cascade,
  name text not null,                 -- eager | compiled | shape=…/eager
  body blob not null,                 -- compressed JSON list, ms, in their order
  primary key (result_id, name)
) strict, without rowid;

-- Files of benchmark results that were imported, by content.
create table result_files (
  run_id text not null references runs (id) on delete cascade,
  content_hash text not null,
  name text not null,
  kind text not null,                 -- performance | accuracy | graph_breaks | ...
  row_count integer not null,
  primary key (run_id, content_hash)
) strict, without rowid;

-- One row a run, what its models were measured as, and a definition (store/summaries.py). Unknown words are '', as in
-- `series`. What was not measured is null.
create table run_summaries (
  run_id text not null references runs (id) on delete cascade,
  suite text not null,
  mode text not null,
  dtype text not null,
  device text not null,
  hardware text not null,
  backend text not null,
  dynamic integer not null,
  world_size integer not null,
  definition text not null,           -- hud | runner | summarize_perf
  time_us integer not null,           -- of its newest result
  total_count integer not null,       -- models
  measured_count integer not null,
  failed_count integer not null,
  passed_count integer,
  speedup_count integer not null,
  geomean_speedup real,
  compilation_latency_s real,
  abs_latency_ms real,
  compression_ratio real,
  dynamo_peak_mem_gb real,
  graph_breaks_per_model real,
  recompiles_per_model real,
  -- Means over the models that have the number, by every definition.
  load_latency_s real,
  package_bytes real,
  scaling_efficiency real,
  quantized_error real,
  primary key (run_id, suite, mode, dtype, device, hardware, backend, dynamic, world_size, definition)
) strict, without rowid;
create index run_summaries_set on run_summaries
  (definition, suite, mode, dtype, device, hardware, backend, dynamic, world_size, run_id);

-- First-parent history as test boxes saw it: what lies between two measured commits, and in which order.
create table commits (
  hash text primary key,
  parent_hash text,                   -- the first parent
  time_us integer not null,           -- of the commit, not of its author
  author text,
  subject text
) strict, without rowid;
create index commits_time on commits (time_us, hash, parent_hash);

-- What a person keeps to compare with; written by store/baselines.py alone. It holds the rows themselves, so that
-- deleting the run takes nothing from it.
create table baselines (
  name text primary key,
  run_id text,
  note text,
  created_us integer not null,
  changed_us integer not null,
  body blob not null                  -- compressed JSON
) strict, without rowid;


-- == incidents and alerts ==

-- How far detection has come: one row.
create table detection (
  id integer primary key check (id = 1),
  seen text not null,                 -- JSON: what of the database had been looked at
  version integer not null,           -- of the detector: another one looks at everything again
  finished_us integer not null
) strict;

create table incidents (
  id text primary key,                -- of the change that first led it: the same whenever it is detected anew
  direction text not null,            -- worse | better | changed; only what is worse is ever open
  state text not null,                -- unconfirmed | open | recovered | closed | withdrawn
  status text not null default 'open', -- open | acknowledged | ignored: what people made of it
  owner text,                         -- who acknowledged or ignored it last
  reason text,                        -- why it is ignored
  title text not null,
  suite text not null,
  branch text not null,
  severity integer not null,          -- of its leading metric: 0 is a failure; smaller is worse
  lead_change_id text not null,
  change_count integer not null,
  last_good_run_id text,
  first_bad_run_id text not null,
  recovered_run_id text,
  first_us integer not null,          -- when first_bad_run_id started
  recovered_us integer,
  found_us integer not null,
  confirmed_us integer,               -- when the run started that confirmed it
  noticed_us integer,                 -- when that was found out
  changed_us integer not null,
  evidence text not null              -- JSON: app/incidents/__init__.py says what is in it
) strict, without rowid;
create index incidents_newest on incidents (first_us desc, id);
create index incidents_noticed on incidents (noticed_us desc, id);
create index incidents_state on incidents (state, status, severity, first_us desc);
create index incidents_run on incidents (first_bad_run_id);

-- What people did with an incident and said of it, in order; nothing is ever changed or removed.
create table incident_comments (
  id integer primary key,
  incident_id text not null references incidents (id) on delete cascade,
  action text not null,               -- acknowledge | ignore | comment | reopen
  author text not null,
  text text,
  time_us integer not null
) strict;
create index incident_comments_incident on incident_comments (incident_id, id);

-- A lasting change of one series. What detection found is replaced when more runs say it better; `id` is not.
create table series_changes (
  id text primary key,
  kind text not null,                 -- step | drift | vanished
  direction text not null,            -- worse | better | changed
  state text not null,                -- suspected | confirmed | withdrawn
  subject text not null,              -- model | suite | runs: what the series is of
  suite text not null,                -- '' and 0 are what was not said, as in `series`
  model text not null,                -- of 'runs' the runs' name
  mode text not null,
  dtype text not null,
  device text not null,
  hardware text not null,
  backend text not null,
  dynamic integer not null,
  batch_size integer not null,
  world_size integer not null,
  branch text not null,
  metric text not null,
  before_value real,
  after_value real,                   -- null of a series that stopped
  relative real,                      -- (after − before) ÷ |before|; null where before is 0
  p_value real,                       -- null of a series that stopped
  before_run_id text,                 -- the newest run surely before
  first_run_id text not null,         -- the first run after: the best place
  low_run_id text,                    -- the first run after may lie from here
  high_run_id text,                   -- to here
  recovered_run_id text,              -- the first run back at the level before
  first_us integer not null,          -- when first_run_id started
  found_us integer not null,          -- when it was first found
  confirmed_us integer,               -- when the run started that confirmed it
  noticed_us integer,                 -- when that was found out
  changed_us integer not null,
  evidence text not null,             -- JSON: environment, commits, suspected causes
  incident_id text references incidents (id)
) strict, without rowid;
create index series_changes_series on series_changes (subject, suite, model, metric);
create index series_changes_newest on series_changes (first_us desc, id);
create index series_changes_first_run on series_changes (first_run_id);
create index series_changes_model on series_changes (model, first_us desc);
create index series_changes_incident on series_changes (incident_id);

-- When a rule first ran, and from when on findings are its business: a first start sends no history.
create table alert_rules (
  rule text primary key,
  first_us integer not null,
  since_us integer not null,
  seen_us integer not null            -- of its last pass
) strict, without rowid;

-- What each rule sent of which incident, and where: claimed before it is sent, so that nothing is sent twice.
create table incident_deliveries (
  rule text not null,
  channel text not null,
  incident_id text not null,
  event text not null,                -- opened | recovered
  state text not null,                -- waiting | sending | sent | failed | unknown | dropped
  message_id text,                    -- of the newest message that had it; incidents of one message share it
  attempt_count integer not null default 0,
  error text,                         -- what went wrong last, or why it was dropped
  due_us integer not null,            -- not before: moves when it is tried again
  queued_us integer not null,
  changed_us integer not null,
  primary key (rule, channel, incident_id, event)
) strict, without rowid;
create index incident_deliveries_changed on incident_deliveries (changed_us desc, rule, channel, incident_id, event);
create index incident_deliveries_state on incident_deliveries (state, changed_us);


-- == search ==

-- What the search index holds: a document is one text of a run, with its title as it was indexed. Contentless FTS5
-- takes a document out by its own words alone, so what was indexed must be told from this row for ever.
create table search_documents (
  id integer primary key autoincrement, -- never again: the words of a document that could not be read stay behind
  run_id text not null references runs (id) on delete cascade,
  kind text not null,                 -- search_texts.py: artifact, graph_break, recompile, failure, ...
  ref_id integer not null,            -- the row in that kind's table
  compile_key integer,
  title text not null,
  payload_id integer references payloads (id), -- its text, or else:
  body blob,                          -- its text, packed
  character_count integer not null    -- of the text, as far as it is indexed
) strict;
create unique index search_documents_key on search_documents (run_id, kind, ref_id);
create index search_documents_payload on search_documents (payload_id) where payload_id is not null;

-- How far a run is in the search index.
create table search_runs (
  run_id text primary key references runs (id) on delete cascade,
  indexed_us integer,                 -- what was stored before is indexed; NULL: not yet
  text_bytes integer not null default 0
) strict, without rowid;

-- The words alone. Without "_" as a letter, "addmm_15" is found by "addmm" and "fused_addmm" inside a kernel's name;
-- detail = full keeps positions, which phrases (torch.ops.aten.addmm) need. The tags are a document's run and kind.
create virtual table search_words using fts5 (
  body, tags, content = '', tokenize = "unicode61 remove_diacritics 0", detail = full
);


-- == access, and what boxes send ==

-- Who may do what. The secret itself is stored nowhere: `secret_hash` is its SHA-256.
create table tokens (
  id text primary key,                -- its public part, as lists and the audit log show it
  name text not null,                 -- the person or box that has it
  secret_hash blob not null,
  scopes text not null,               -- separated by commas: ingest, read, write, admin
  created_us integer not null,
  created_by text not null,
  expires_us integer,
  revoked_us integer,
  last_used_us integer,               -- to the minute
  last_address text
) strict, without rowid;

-- Logins of browsers. A session ends with its token.
create table sessions (
  session_hash blob primary key,      -- SHA-256 of the cookie
  token_id text not null references tokens (id) on delete cascade,
  created_us integer not null,
  expires_us integer not null,
  last_used_us integer not null
) strict, without rowid;
create index sessions_token on sessions (token_id);

create table login_failures (
  id integer primary key,
  address text not null,              -- of the client
  failed_us integer not null
) strict;
create index login_failures_age on login_failures (failed_us);

-- Who changed what, and from where. Nothing is ever changed or removed.
create table audit (
  id integer primary key,
  time_us integer not null,
  action text not null,               -- run.delete, run.restore, run.annotate, finding.note, baseline.save …
  subject text not null,              -- the id of what was changed
  detail text,
  channel text not null,              -- page | api | command | server
  actor text,                         -- of a command: user@host
  address text,                       -- of a request: the client's, as far as --trusted-proxies lets it be known
  user_agent text
) strict;
create index audit_subject on audit (subject, id);

-- Who sent a run first: that sender alone adds to it, beside the scope write (collectors/store/runs.py). A run
-- without a row was recorded on the server's machine.
create table run_owners (
  run_id text primary key,            -- also of a deleted run: it becomes nobody else's
  owner text not null                 -- token:NAME, or login:NAME of a person whom a proxy names
) strict, without rowid;

-- What recorders on boxes send, by run and recorder. Offset and checksum move in the transaction of their events.
create table streams (
  run_id text not null,               -- those of a deleted run wait with it: restored, it goes on
  stream_id text not null,
  token_id text,                      -- who began it; null where no token was asked for
  stored_bytes integer not null,
  checksum integer not null,          -- CRC-32 of these bytes
  event_count integer not null,
  lost_count integer not null,        -- events that the box had no room for
  dropped_text_count integer not null,
  version text,                       -- of the collector
  started_us integer not null,
  updated_us integer not null,        -- when something of it was received
  ended_us integer,                   -- when its last line was stored
  primary key (run_id, stream_id)
) strict, without rowid;
create index streams_updated on streams (updated_us);

-- Texts that a box had no room to wait with: what refers to them is stored without.
create table dropped_texts (
  run_id text not null,
  digest blob not null,
  primary key (run_id, digest)
) strict, without rowid;

-- Texts that came before what refers to them; none is dropped within a day.
create table sent_texts (
  digest blob primary key,
  received_us integer not null
) strict, without rowid;
create index sent_texts_received on sent_texts (received_us);


-- == a second engine ==

create table published_runs (
  run_id text primary key,            -- also of a deleted run, until the engine has forgotten it
  run_pub integer not null,           -- runs.pub when its row was read; -1 before its first row is there
  rows_pub integer not null,          -- of its roll-ups there: they count while its row there names this number
  rows_run_pub integer not null,      -- runs.pub when its roll-ups were read
  annotated_us integer,               -- run_annotations.changed_us when its row was read
  rows_count integer not null,        -- how often its roll-ups were published
  rows_us integer not null,           -- when its roll-ups were; before, when it was first seen
  published_us integer not null,      -- when its row was
  heartbeat_us integer not null default 0, -- when its row was read
  month integer not null default 0,   -- 202611: that its roll-ups are of
  version integer not null default 0  -- of its row there
) strict, without rowid;

-- The board, as the engine knows it: no row where it has none. No number is given twice.
create table engine_publications (
  id integer primary key check (id = 1),
  board_id text not null,             -- two boards do not share one database there
  version integer not null,           -- the newest given to a row of a run
  pub integer not null,               -- the newest given to roll-ups
  passed_us integer,                  -- when last nothing waited but what is not due
  error text,                         -- why the last pass failed, or left a run out
  error_us integer
) strict;

insert into publications (id, pub, removed_pub) values (1, 1, 1);
