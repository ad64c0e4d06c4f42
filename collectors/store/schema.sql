-- Version 1. Times are microseconds since the epoch (_us), sizes bytes. What torch did not record is NULL.

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
  facts text not null                 -- JSON: argv, git, host, gpus, environment
) strict;
create index runs_started on runs (started_us desc, id desc);
create index runs_series on runs (suite, name, started_us);

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
create table deleted_runs (
  run_id text primary key,
  deleted_us integer not null
) strict, without rowid;

-- What ingest keeps per run, so that lists and trends cost what the number of runs costs.
create table run_totals (
  run_id text primary key references runs (id) on delete cascade,
  compile_count integer not null default 0,
  record_count integer not null default 0,
  graph_break_count integer not null default 0,
  recompile_count integer not null default 0,
  recompile_limit_count integer not null default 0,
  failure_count integer not null default 0,
  restart_count integer not null default 0,
  cache_hit_count integer not null default 0,
  cache_miss_count integer not null default 0,
  cache_bypass_count integer not null default 0,
  cudagraph_skip_count integer not null default 0,
  process_count integer not null default 0,
  loss_count integer not null default 0,
  compile_us integer not null default 0,    -- sum of the records' durations, forward and backward
  recompile_us integer not null default 0   -- the part of it spent on compiles that were recompiles
) strict, without rowid;

create table functions (
  id integer primary key,
  file text not null,                 -- repository-relative or module path
  name text not null                  -- qualified name
) strict;
create unique index functions_key on functions (file, name);

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
  snapshot_final integer not null default 0
) strict;
create index processes_run on processes (run_id, started_us);

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
  recompile_category text             -- of the newest cache entry's failed guard
) strict;
create unique index compiles_key on compiles (process_id, generation, compile_id);
create index compiles_run on compiles (run_id, started_us, id);
create index compiles_function on compiles (function_id, run_id);
create index compiles_frame on compiles (process_id, generation, frame_id);

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
  compile_us integer not null default 0,      -- time of those compiles
  primary key (run_id, cause_id)
) strict, without rowid;
create index run_causes_cause on run_causes (cause_id, run_id);

create table failures (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  error_type text,
  message text,
  time_us integer not null
) strict;
create unique index failures_key on failures (process_id, sequence);
create index failures_run on failures (run_id, time_us, id);
create index failures_compile on failures (compile_key);

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
