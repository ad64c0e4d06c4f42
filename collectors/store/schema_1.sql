-- Schema 1, of version 0.2.0. It is never edited: what changes later is a step of its own.

-- == tables ==

create table runs (
  id text primary key,
  name text not null,
  suite text,
  source text not null,
  state text not null,
  level text not null,
  keep_source integer not null,
  command text not null,
  cwd text,
  started_us integer not null,
  ended_us integer,
  heartbeat_us integer not null,
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
  facts text not null,
  stack_room integer,
  pub integer not null default 0
) strict;

create table run_tags (
  run_id text not null references runs (id) on delete cascade,
  key text not null,
  value text not null,
  primary key (run_id, key)
) strict, without rowid;

create table run_annotations (
  run_id text primary key references runs (id) on delete cascade,
  title text,
  note text,
  pinned integer not null default 0,
  changed_us integer not null
) strict, without rowid;

create table removed_runs (
  run_id text primary key,
  deleted_us integer not null,
  expires_us integer,
  name text,
  suite text,
  started_us integer,
  trash_bytes integer
) strict, without rowid;

create table pruned_runs (
  run_id text primary key references runs (id) on delete cascade,
  pruned_us integer not null,
  deleted_bytes integer
) strict, without rowid;

create table sealed_runs (
  run_id text primary key references runs (id) on delete cascade,
  file_name text not null,
  digest blob not null,
  size_bytes integer not null,
  unpacked_bytes integer not null,
  sealed_us integer not null,
  emptied_us integer
) strict, without rowid;

create table run_rejects (
  run_id text not null references runs (id) on delete cascade,
  file_name text not null,
  kind text not null,
  reject_count integer not null,
  first_line integer,
  example text,
  primary key (run_id, file_name, kind)
) strict, without rowid;

create table publications (
  id integer primary key check (id = 1),
  pub integer not null,
  removed_pub integer not null,
  last_result_id integer not null default 0
) strict;

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
  capabilities text not null,
  environment text not null,
  counters text,
  compile_times text,
  losses text,
  snapshot_final integer not null default 0,
  task text,
  calm_us integer,
  calm_cpu_us integer,
  calm_fault_count integer,
  is_on_stack_cliff integer,
  faults_counted_us integer
) strict;

create table configs (
  hash text primary key,
  kind text not null,
  body blob not null
) strict, without rowid;

create table process_configs (
  process_id text not null references processes (id) on delete cascade,
  kind text not null,
  config_hash text not null references configs (hash),
  primary key (process_id, kind, config_hash)
) strict, without rowid;

create table events (
  process_id text not null,
  sequence integer not null,
  run_id text not null references runs (id) on delete cascade,
  kind text not null,
  time_us integer not null,
  body blob not null,
  primary key (process_id, sequence)
) strict;

create table logs (
  process_id text primary key references processes (id) on delete cascade,
  run_id text not null references runs (id) on delete cascade,
  name text not null,
  file_name text not null,
  size_bytes integer,
  end_offset_bytes integer not null,
  content_digest text,
  line_count integer not null,
  record_count integer not null,
  payloads text not null,
  redacted integer not null,
  first_us integer,
  last_us integer,
  read_us integer not null
) strict;

create table log_rejects (
  process_id text not null references logs (process_id) on delete cascade,
  kind text not null,
  reject_count integer not null,
  first_line integer,
  example text,
  primary key (process_id, kind)
) strict, without rowid;

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
  body blob not null,
  primary key (run_id, name, position),
  foreign key (run_id, name) references trace_files (run_id, name) on delete cascade
) strict, without rowid;

create table payloads (
  id integer primary key,
  digest blob not null,
  size_bytes integer not null,
  body blob not null
) strict;

create table artifacts (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  attempt integer,
  name text not null,
  title text,
  encoding text not null,
  metadata text,
  state text not null,
  size_bytes integer,
  md5 text,
  payload_id integer references payloads (id),
  time_us integer not null,
  envelope text,
  stack_id integer references stack_nodes (id)
) strict;

create table functions (
  id integer primary key,
  file text not null,
  name text not null
) strict;

create table run_totals (
  run_id text primary key references runs (id) on delete cascade,
  compile_count integer not null default 0,
  record_count integer not null default 0,
  graph_break_count integer not null default 0,
  recompile_count integer not null default 0,
  recompile_limit_count integer not null default 0,
  failure_count integer not null default 0,
  skipped_frame_count integer not null default 0,
  restart_count integer not null default 0,
  cache_hit_count integer not null default 0,
  cache_miss_count integer not null default 0,
  cache_bypass_count integer not null default 0,
  cudagraph_skip_count integer not null default 0,
  cudagraph_recording_count integer not null default 0,
  cudagraph_rerecording_count integer not null default 0,
  process_count integer not null default 0,
  loss_count integer not null default 0,
  compile_us integer not null default 0,
  recompile_us integer not null default 0,
  result_count integer not null default 0,
  failed_result_count integer not null default 0
) strict, without rowid;

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

create table compiles (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  generation integer not null,
  compile_id text not null,
  frame_id integer,
  frame_compile_id integer,
  rank integer,
  function_id integer references functions (id),
  line integer,
  resumed_at integer,
  outcome text not null,
  started_us integer not null,
  duration_us integer,
  total_us integer not null default 0,
  attempt_count integer not null default 1,
  graph_break_count integer not null default 0,
  recompiled_from text,
  recompile_category text,
  stack_id integer references stack_nodes (id)
) strict;

create table compilations (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  kind text not null,
  function_id integer references functions (id),
  outcome text not null,
  start_us integer,
  duration_us integer,
  dynamo_us integer,
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
  fail_reason text,
  issue_id integer references failure_issues (id)
) strict;

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
  position integer,
  occurrence_count integer not null default 1,
  ended_program integer not null default 0,
  function_id integer references functions (id),
  line integer,
  issue_id integer references failure_issues (id)
) strict;

create table failure_issues (
  id integer primary key,
  fingerprint text not null,
  error_type text,
  operation text,
  message text,
  function_id integer references functions (id)
) strict;

create table run_issues (
  run_id text not null references runs (id) on delete cascade,
  issue_id integer not null references failure_issues (id),
  failure_count integer not null default 0,
  compile_us integer not null default 0,
  primary key (run_id, issue_id)
) strict, without rowid;

create table cache_lookups (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  cache text not null,
  result text not null,
  key text,
  reason text,
  time_taken_us integer,
  time_saved_us integer,
  time_us integer not null
) strict;

create table cudagraph_skips (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  reason text not null,
  file text,
  line integer,
  code text,
  time_us integer not null
) strict;

create table cudagraphs (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  stage text not null,
  mode text,
  tree integer not null,
  device integer,
  graph_function integer not null,
  graph integer,
  parent_graph integer,
  depth integer not null,
  duration_us integer,
  reserved_before_bytes integer,
  reserved_after_bytes integer,
  call_count integer,
  status text,
  reasons text not null,
  reason_id integer references rerecording_reasons (id),
  time_us integer not null
) strict;

create table rerecording_reasons (
  id integer primary key,
  fingerprint text not null,
  status text not null,
  inputs text,
  source_line text,
  function_id integer references functions (id)
) strict;

create table run_rerecordings (
  run_id text not null references runs (id) on delete cascade,
  reason_id integer not null references rerecording_reasons (id),
  rerecording_count integer not null default 0,
  duration_us integer not null default 0,
  primary key (run_id, reason_id)
) strict, without rowid;

create table step_windows (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  wanted_count integer not null,
  earlier_count integer not null,
  device text,
  peak_bytes_per_s integer,
  graphs text not null,
  steps text not null,
  traced text,
  costs text,
  time_us integer not null
) strict;

create table symbols (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  kind text not null,
  symbol text,
  expression text,
  value text,
  value_range text,
  source text,
  file text,
  line integer,
  source_line text,
  detail blob not null,
  time_us integer not null,
  stack_id integer references stack_nodes (id)
) strict;

create table guard_sets (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  artifact_id integer not null references artifacts (id) on delete cascade,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  guard_count integer,
  latency_us real,
  summary text not null
) strict;

create table aot_graphs (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  artifact_id integer not null references artifacts (id) on delete cascade,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  summary text not null
) strict;

create table source_excerpts (
  id integer primary key,
  file text not null,
  first_line integer not null,
  text text not null
) strict;

create table run_source_excerpts (
  run_id text not null references runs (id) on delete cascade,
  excerpt_id integer not null references source_excerpts (id),
  primary key (run_id, excerpt_id)
) strict, without rowid;

create table distinct_breaks (
  id integer primary key,
  fingerprint text not null,
  gb_id text,
  gb_type text,
  reason text not null,
  explanation text,
  hints text not null,
  function_id integer references functions (id),
  source_line text,
  line integer
) strict;

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
  outcome text not null,
  time_us integer not null
) strict;

create table run_breaks (
  run_id text not null references runs (id) on delete cascade,
  distinct_id integer not null references distinct_breaks (id),
  break_count integer not null default 0,
  compile_us integer not null default 0,
  primary key (run_id, distinct_id)
) strict, without rowid;

create table recompile_causes (
  id integer primary key,
  fingerprint text not null,
  category text not null,
  source text,
  reason text not null,
  function_id integer references functions (id)
) strict;

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
  time_us integer not null,
  cause_id integer references recompile_causes (id),
  cache_entry text,
  reason text,
  expected text,
  actual text,
  source_line text,
  guard_line integer,
  is_partial integer not null default 0
) strict;

create table guard_failures (
  recompile_id integer not null references recompiles (id) on delete cascade,
  position integer not null,
  category text not null,
  source text,
  cache_entry text,
  reason text not null,
  expected text,
  actual text,
  source_line text,
  line integer,
  primary key (recompile_id, position)
) strict, without rowid;

create table run_causes (
  run_id text not null references runs (id) on delete cascade,
  cause_id integer not null references recompile_causes (id),
  recompile_count integer not null default 0,
  partial_count integer not null default 0,
  compile_us integer not null default 0,
  primary key (run_id, cause_id)
) strict, without rowid;

create table trials (
  id text primary key,
  run_id text not null references runs (id) on delete cascade,
  base_run_id text references runs (id) on delete set null,
  new_run_id text references runs (id) on delete set null,
  fix_id text,
  cause_fingerprint text,
  title text not null,
  patch text,
  settings text not null,
  outcome text not null,
  summary text not null,
  result text not null,
  started_us integer not null,
  ended_us integer not null
) strict, without rowid;

create table lanes (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  thread integer not null,
  span_count integer not null default 0,
  first_us integer,
  last_us integer
) strict;

create table span_names (
  id integer primary key,
  name text not null
) strict;

create table spans (
  id integer primary key,
  lane_id integer not null references lanes (id) on delete cascade,
  name_id integer not null references span_names (id),
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  begin_us integer not null,
  duration_us integer,
  depth integer not null,
  instant integer not null default 0,
  args text,
  payload_id integer references payloads (id)
) strict;

create table span_totals (
  lane_id integer not null references lanes (id) on delete cascade,
  name_id integer not null references span_names (id),
  span_count integer not null,
  instant_count integer not null,
  ended_count integer not null,
  total_us integer not null,
  exclusive_us integer not null,
  longest_us integer,
  longest_begin_us integer,
  primary key (lane_id, name_id)
) strict, without rowid;

create table repros (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  position integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  failure_position integer,
  issue_id integer references failure_issues (id),
  state text not null,
  kind text not null,
  level text not null,
  phase text not null,
  fingerprint text not null,
  error_type text,
  message text,
  operation text,
  function_id integer references functions (id),
  line integer,
  node_count integer,
  torch_version text,
  device text,
  program_id integer references payloads (id),
  dynamo_program_id integer references payloads (id),
  time_us integer not null,
  manifest blob not null
) strict;

create table repro_storages (
  repro_id integer not null references repros (id) on delete cascade,
  digest text not null,
  size_bytes integer not null,
  body blob not null,
  primary key (repro_id, digest)
) strict;

create table repro_results (
  id integer primary key,
  repro_id integer not null references repros (id) on delete cascade,
  command text not null,
  status text not null,
  operation text,
  node_count integer,
  seconds real not null,
  torch_version text,
  device text,
  detail text not null,
  program_id integer references payloads (id),
  started_us integer not null,
  ended_us integer not null
) strict;

create table series (
  id integer primary key,
  suite text not null,
  model text not null,
  mode text not null,
  dtype text not null,
  device text not null,
  hardware text not null,
  backend text not null,
  dynamic integer not null,
  batch_size integer not null,
  world_size integer not null
) strict;

create table results (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  series_id integer not null references series (id),
  experiment text not null,
  process_id text not null,
  sequence integer not null,
  task text,
  status text not null,
  reason text,
  accuracy text,
  speedup real,
  speedup_low real,
  speedup_high real,
  abs_latency_ms real,
  eager_latency_ms real,
  compilation_latency_s real,
  warm_compilation_latency_s real,
  compression_ratio real,
  eager_peak_mem_gb real,
  dynamo_peak_mem_gb real,
  cache_lookup_latency_us real,
  calls_captured integer,
  unique_graphs integer,
  graph_breaks integer,
  unique_graph_breaks integer,
  recompiles integer,
  fallbacks_to_eager integer,
  autograd_captures integer,
  autograd_compiles integer,
  cudagraph_skips integer,
  message text,
  traceback blob,
  time_us integer not null,
  started_us integer,
  duration_us integer,
  command text,
  origin text,
  facts text not null,
  export_latency_s real,
  load_latency_s real,
  second_process_latency_s real,
  package_bytes real,
  scaling_efficiency real,
  output_error real,
  quantized_error real,
  quantized_eager_error real
) strict;

create table result_values (
  result_id integer not null references results (id) on delete cascade,
  name text not null,
  value real not null,
  primary key (result_id, name)
) strict, without rowid;

create table result_repeats (
  result_id integer not null references results (id) on delete cascade,
  name text not null,
  body blob not null,
  primary key (result_id, name)
) strict, without rowid;

create table result_files (
  run_id text not null references runs (id) on delete cascade,
  content_hash text not null,
  name text not null,
  kind text not null,
  row_count integer not null,
  primary key (run_id, content_hash)
) strict, without rowid;

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
  definition text not null,
  time_us integer not null,
  total_count integer not null,
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
  load_latency_s real,
  package_bytes real,
  scaling_efficiency real,
  quantized_error real,
  primary key (run_id, suite, mode, dtype, device, hardware, backend, dynamic, world_size, definition)
) strict, without rowid;

create table commits (
  hash text primary key,
  parent_hash text,
  time_us integer not null,
  author text,
  subject text
) strict, without rowid;

create table baselines (
  name text primary key,
  run_id text,
  note text,
  created_us integer not null,
  changed_us integer not null,
  body blob not null
) strict, without rowid;

create table saved_views (
  id integer primary key,
  name text not null unique,
  address text not null,
  author text,
  created_us integer not null,
  changed_us integer not null
) strict;

create table detection (
  id integer primary key check (id = 1),
  seen text not null,
  version integer not null,
  finished_us integer not null
) strict;

create table incidents (
  id text primary key,
  direction text not null,
  state text not null,
  status text not null default 'open',
  owner text,
  reason text,
  title text not null,
  suite text not null,
  branch text not null,
  severity integer not null,
  lead_change_id text not null,
  change_count integer not null,
  last_good_run_id text,
  first_bad_run_id text not null,
  recovered_run_id text,
  first_us integer not null,
  recovered_us integer,
  found_us integer not null,
  confirmed_us integer,
  noticed_us integer,
  changed_us integer not null,
  evidence text not null
) strict, without rowid;

create table incident_comments (
  id integer primary key,
  incident_id text not null references incidents (id) on delete cascade,
  action text not null,
  author text not null,
  text text,
  time_us integer not null
) strict;

create table series_changes (
  id text primary key,
  kind text not null,
  direction text not null,
  state text not null,
  subject text not null,
  suite text not null,
  model text not null,
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
  after_value real,
  relative real,
  p_value real,
  before_run_id text,
  first_run_id text not null,
  low_run_id text,
  high_run_id text,
  recovered_run_id text,
  first_us integer not null,
  found_us integer not null,
  confirmed_us integer,
  noticed_us integer,
  changed_us integer not null,
  evidence text not null,
  incident_id text references incidents (id)
) strict, without rowid;

create table alert_rules (
  rule text primary key,
  first_us integer not null,
  since_us integer not null,
  seen_us integer not null
) strict, without rowid;

create table incident_deliveries (
  rule text not null,
  channel text not null,
  incident_id text not null,
  event text not null,
  state text not null,
  message_id text,
  attempt_count integer not null default 0,
  error text,
  due_us integer not null,
  queued_us integer not null,
  changed_us integer not null,
  primary key (rule, channel, incident_id, event)
) strict, without rowid;

create table search_documents (
  id integer primary key autoincrement,
  run_id text not null references runs (id) on delete cascade,
  kind text not null,
  ref_id integer not null,
  compile_key integer,
  title text not null,
  payload_id integer references payloads (id),
  body blob,
  character_count integer not null
) strict;

create table search_runs (
  run_id text primary key references runs (id) on delete cascade,
  indexed_us integer,
  text_bytes integer not null default 0
) strict, without rowid;

create table tokens (
  id text primary key,
  name text not null,
  secret_hash blob not null,
  scopes text not null,
  created_us integer not null,
  created_by text not null,
  expires_us integer,
  revoked_us integer,
  last_used_us integer,
  last_address text
) strict, without rowid;

create table sessions (
  session_hash blob primary key,
  token_id text not null references tokens (id) on delete cascade,
  created_us integer not null,
  expires_us integer not null,
  last_used_us integer not null
) strict, without rowid;

create table login_failures (
  id integer primary key,
  address text not null,
  failed_us integer not null
) strict;

create table audit (
  id integer primary key,
  time_us integer not null,
  action text not null,
  subject text not null,
  detail text,
  channel text not null,
  actor text,
  address text,
  user_agent text
) strict;

create table run_owners (
  run_id text primary key,
  owner text not null
) strict, without rowid;

create table streams (
  run_id text not null,
  stream_id text not null,
  token_id text,
  stored_bytes integer not null,
  checksum integer not null,
  event_count integer not null,
  lost_count integer not null,
  dropped_text_count integer not null,
  version text,
  started_us integer not null,
  updated_us integer not null,
  ended_us integer,
  primary key (run_id, stream_id)
) strict, without rowid;

create table dropped_texts (
  run_id text not null,
  digest blob not null,
  primary key (run_id, digest)
) strict, without rowid;

create table sent_texts (
  digest blob primary key,
  received_us integer not null
) strict, without rowid;

create table published_runs (
  run_id text primary key,
  run_pub integer not null,
  rows_pub integer not null,
  rows_run_pub integer not null,
  annotated_us integer,
  rows_count integer not null,
  rows_us integer not null,
  published_us integer not null,
  heartbeat_us integer not null default 0,
  month integer not null default 0,
  version integer not null default 0
) strict, without rowid;

create table engine_publications (
  id integer primary key check (id = 1),
  board_id text not null,
  version integer not null,
  pub integer not null,
  passed_us integer,
  error text,
  error_us integer
) strict;

-- == runs ==

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

create index run_tags_value on run_tags (key, value);

create index sealed_runs_left on sealed_runs (run_id) where coalesce(emptied_us, 0) = 0;

-- == processes and what they wrote ==

create index processes_run on processes (run_id, started_us);
create index processes_task on processes (run_id, task) where task is not null;

create index events_run on events (run_id, kind);

create index logs_run on logs (run_id, name);

create unique index payloads_digest on payloads (digest);

create unique index artifacts_key on artifacts (process_id, sequence);
create index artifacts_run on artifacts (run_id, name, id);
create index artifacts_compile on artifacts (compile_key, sequence);
create index artifacts_payload on artifacts (payload_id);
create index artifacts_loose on artifacts (run_id) where compile_key is null;
create index artifacts_stack on artifacts (stack_id) where stack_id is not null;

-- == compiles ==

create unique index functions_key on functions (file, name);

create index run_totals_benched on run_totals (run_id) where result_count > 0;

create index run_functions_function on run_functions (function_id, run_id);

create unique index compiles_key on compiles (process_id, generation, compile_id);
create index compiles_run on compiles (run_id, started_us, id);
create index compiles_function on compiles (function_id, run_id);
create index compiles_frame on compiles (process_id, generation, frame_id);
create index compiles_stack on compiles (stack_id);

create unique index compilations_key on compilations (process_id, sequence);
create index compilations_run on compilations (run_id, start_us, id);
create index compilations_compile on compilations (compile_key);
create index compilations_issue on compilations (issue_id) where issue_id is not null;

create unique index stack_nodes_key on stack_nodes (run_id, coalesce(parent_id, 0), file, coalesce(line, -1), name);
create index stack_nodes_parent on stack_nodes (parent_id);

create unique index failures_key on failures (process_id, sequence);
create index failures_run on failures (run_id, time_us, id);
create index failures_compile on failures (compile_key);
create unique index failures_position on failures (process_id, position) where position is not null;
create index failures_issue on failures (issue_id) where issue_id is not null;

create unique index failure_issues_fingerprint on failure_issues (fingerprint);
create index run_issues_issue on run_issues (issue_id, run_id);

create unique index cache_lookups_key on cache_lookups (process_id, sequence);
create index cache_lookups_run on cache_lookups (run_id, time_us, id);
create index cache_lookups_compile on cache_lookups (compile_key);

create unique index cudagraph_skips_key on cudagraph_skips (process_id, sequence);
create index cudagraph_skips_run on cudagraph_skips (run_id, time_us, id);
create index cudagraph_skips_compile on cudagraph_skips (compile_key);

create unique index step_windows_key on step_windows (process_id, sequence);
create index step_windows_run on step_windows (run_id, time_us, id);

create unique index cudagraphs_key on cudagraphs (process_id, sequence);
create index cudagraphs_run on cudagraphs (run_id, time_us, id);
create index cudagraphs_compile on cudagraphs (compile_key);
create index cudagraphs_reason on cudagraphs (reason_id) where reason_id is not null;

create unique index rerecording_reasons_fingerprint on rerecording_reasons (fingerprint);
create index run_rerecordings_reason on run_rerecordings (reason_id, run_id);

create unique index symbols_key on symbols (process_id, sequence);
create index symbols_run on symbols (run_id, kind, id);
create index symbols_compile on symbols (compile_key);
create index symbols_stack on symbols (stack_id) where stack_id is not null;

create unique index guard_sets_artifact on guard_sets (artifact_id);
create index guard_sets_run on guard_sets (run_id, latency_us desc, id);
create index guard_sets_compile on guard_sets (compile_key);

create unique index aot_graphs_artifact on aot_graphs (artifact_id);
create index aot_graphs_run on aot_graphs (run_id, id);
create index aot_graphs_compile on aot_graphs (compile_key);

create index run_source_excerpts_excerpt on run_source_excerpts (excerpt_id);

-- == graph breaks and recompiles ==

create unique index distinct_breaks_fingerprint on distinct_breaks (fingerprint);

create unique index graph_breaks_key on graph_breaks (process_id, sequence);
create index graph_breaks_run on graph_breaks (run_id, time_us, id);
create index graph_breaks_distinct on graph_breaks (distinct_id, time_us);
create index graph_breaks_compile on graph_breaks (compile_key);

create index run_breaks_distinct on run_breaks (distinct_id, run_id);

create unique index recompile_causes_fingerprint on recompile_causes (fingerprint);

create unique index recompiles_key on recompiles (process_id, sequence);
create index recompiles_run on recompiles (run_id, time_us, id);
create index recompiles_compile on recompiles (compile_key);
create index recompiles_cause on recompiles (cause_id);

create index run_causes_cause on run_causes (cause_id, run_id);

create index trials_run on trials (run_id, started_us);
create index trials_base_run on trials (base_run_id);
create index trials_new_run on trials (new_run_id);

-- == the timeline ==

create unique index lanes_key on lanes (process_id, thread);
create index lanes_run on lanes (run_id, process_id, thread);

create unique index span_names_name on span_names (name);

create index spans_compile on spans (compile_key);
create index spans_payload on spans (payload_id) where payload_id is not null;
-- The spans of one depth of a lane follow one another, so the last that began before a window is the only one of its
-- depth that can reach into it. spans_depth does all that spans_begin did: what begins in a window, depth by depth.
create index spans_depth on spans (lane_id, depth, begin_us, duration_us);
create index spans_duration on spans (lane_id, duration_us desc, begin_us, depth);
-- Cache hits and misses and their like; few, and they must not be lost among phases.
create index spans_instant on spans (lane_id, begin_us, name_id) where instant = 1;

create index span_totals_name on span_totals (name_id);

-- == repros ==

create unique index repros_key on repros (process_id, position);
create index repros_run on repros (run_id, time_us, id);
-- All that the list of failures groups, so that it reads no row.
create index repros_fingerprint on repros (
  fingerprint, state, time_us, run_id, node_count, torch_version, device
);
create index repros_compile on repros (compile_key) where compile_key is not null;
create index repros_issue on repros (issue_id, time_us) where issue_id is not null;
create index repros_candidates on repros (run_id) where state = 'candidate';
create index repros_program on repros (program_id) where program_id is not null;
create index repros_dynamo_program on repros (dynamo_program_id) where dynamo_program_id is not null;

create index repro_results_repro on repro_results (repro_id, started_us);
create index repro_results_minimal on repro_results (repro_id, node_count) where node_count is not null;
create index repro_results_program on repro_results (program_id) where program_id is not null;

-- == benchmarks ==

create unique index series_key on series
  (suite, model, mode, dtype, device, hardware, backend, dynamic, batch_size, world_size);
create index series_model on series (model, suite);

create unique index results_key on results (run_id, series_id, experiment);
-- The newest of each experiment is one step; the history of a series is read whole.
create index results_series on results (series_id, experiment, time_us desc, id desc);

create index run_summaries_set on run_summaries
  (definition, suite, mode, dtype, device, hardware, backend, dynamic, world_size, run_id);

create index commits_time on commits (time_us, hash, parent_hash);

-- == incidents and alerts ==

create index incidents_newest on incidents (first_us desc, id);
create index incidents_noticed on incidents (noticed_us desc, id);
create index incidents_state on incidents (state, status, severity, first_us desc);
create index incidents_run on incidents (first_bad_run_id);

create index incident_comments_incident on incident_comments (incident_id, id);

create index series_changes_series on series_changes (subject, suite, model, metric);
create index series_changes_newest on series_changes (first_us desc, id);
create index series_changes_first_run on series_changes (first_run_id);
create index series_changes_model on series_changes (model, first_us desc);
create index series_changes_incident on series_changes (incident_id);

create index incident_deliveries_changed on incident_deliveries (changed_us desc, rule, channel, incident_id, event);
create index incident_deliveries_state on incident_deliveries (state, changed_us);

-- == search ==

create unique index search_documents_key on search_documents (run_id, kind, ref_id);
create index search_documents_payload on search_documents (payload_id) where payload_id is not null;

-- The words alone. Without "_" as a letter, "addmm_15" is found by "addmm" and "fused_addmm" inside a kernel's name;
-- detail = full keeps positions, which phrases (torch.ops.aten.addmm) need. The tags are a document's run and kind.
create virtual table search_words using fts5 (
  body, tags, content = '', tokenize = "unicode61 remove_diacritics 0", detail = full
);

-- == access, and what boxes send ==

create index sessions_token on sessions (token_id);

create index login_failures_age on login_failures (failed_us);

create index audit_subject on audit (subject, id);

create index streams_updated on streams (updated_us);

create index sent_texts_received on sent_texts (received_us);

-- == a second engine ==

insert into publications (id, pub, removed_pub) values (1, 1, 1);
