-- What crosses runs, in ClickHouse, with the names and columns of the SQLite schema.
--
-- `runs` says what counts: rows of the tables that end in `_rows` count while the row of their run there names their
-- publication, `pub`. The views named as in SQLite read those alone, so a statement is the same for both.
-- `runs` is read with the setting final = 1, as are the tables of things.

-- The board that this is of.
create table if not exists boards (
  id String
) engine = MergeTree order by id;

create table if not exists runs (
  id String,
  name String,
  suite Nullable(String),
  source LowCardinality(String),
  state LowCardinality(String),
  level LowCardinality(String),
  keep_source Int64,
  command String codec(ZSTD(1)),
  cwd Nullable(String) codec(ZSTD(1)),
  started_us Int64,
  ended_us Nullable(Int64),
  heartbeat_us Int64,
  exit_code Nullable(Int64),
  signal Nullable(String),
  host Nullable(String),
  gpu_name Nullable(String),
  gpu_count Int64,
  torch_version Nullable(String),
  cuda_version Nullable(String),
  python_version Nullable(String),
  git_commit Nullable(String),
  git_branch Nullable(String),
  git_subject Nullable(String),
  git_dirty Nullable(Int64),
  stack_room Nullable(Int64),
  pub Int64,                          -- of its roll-ups: they count while it is named here
  version Int64,                      -- of this row
  is_deleted UInt8,
  driver_version Nullable(String),    -- in SQLite among `facts`
  triton_version Nullable(String),    -- in SQLite of `processes`
  tags Map(String, String),
  title Nullable(String),             -- run_annotations; changed_us is null without one
  note Nullable(String) codec(ZSTD(1)),
  pinned Int64,
  changed_us Nullable(Int64),
  compile_count Int64,                -- run_totals
  record_count Int64,
  graph_break_count Int64,
  recompile_count Int64,
  recompile_limit_count Int64,
  failure_count Int64,
  skipped_frame_count Int64,
  restart_count Int64,
  cache_hit_count Int64,
  cache_miss_count Int64,
  cache_bypass_count Int64,
  cudagraph_skip_count Int64,
  process_count Int64,
  loss_count Int64,
  compile_us Int64,
  recompile_us Int64,
  result_count Int64,
  failed_result_count Int64
) engine = ReplacingMergeTree(version, is_deleted) order by id;

create view if not exists run_totals as
select
  id as run_id, compile_count, record_count, graph_break_count, recompile_count, recompile_limit_count, failure_count,
  skipped_frame_count, restart_count, cache_hit_count, cache_miss_count, cache_bypass_count, cudagraph_skip_count, process_count, loss_count,
  compile_us, recompile_us, result_count, failed_result_count
from runs final;

create view if not exists run_annotations as
select r.id as run_id, r.title as title, r.note as note, r.pinned as pinned, assumeNotNull(r.changed_us) as changed_us
from runs as r final
where r.changed_us is not null;

create view if not exists run_tags as
select id as run_id, key, value
from runs final
array join mapKeys(tags) as key, mapValues(tags) as value;

-- == roll-ups of runs: never changed, only added, and swept when no run names them ==
-- Granules are small: of one thing, or one series, a month has few rows. So are blocks: what is read of a column is a
-- block at least, and 64 KiB are eight granules.

create table if not exists run_breaks_rows (
  month UInt32,                       -- 202611: of the run's start
  pub Int64 codec(Delta, ZSTD(1)),
  started_us Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  distinct_id Int64,
  break_count Int64 codec(T64, ZSTD(1)),
  compile_us Int64 codec(T64, ZSTD(1)),
  projection by_thing (select * order by distinct_id, pub)
) engine = MergeTree partition by month order by (pub, distinct_id)
settings lightweight_mutation_projection_mode = 'rebuild', index_granularity = 1024,
  min_compress_block_size = 8192, max_compress_block_size = 16384;

create view if not exists run_breaks as
select run_id, distinct_id, break_count, compile_us
from run_breaks_rows
where pub in (select pub from runs final);

create table if not exists run_causes_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  started_us Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  cause_id Int64,
  guard_failure_count Int64 codec(T64, ZSTD(1)),
  recompile_count Int64 codec(T64, ZSTD(1)),
  compile_us Int64 codec(T64, ZSTD(1)),
  projection by_thing (select * order by cause_id, pub)
) engine = MergeTree partition by month order by (pub, cause_id)
settings lightweight_mutation_projection_mode = 'rebuild', index_granularity = 1024,
  min_compress_block_size = 8192, max_compress_block_size = 16384;

create view if not exists run_causes as
select run_id, cause_id, guard_failure_count, recompile_count, compile_us
from run_causes_rows
where pub in (select pub from runs final);

create table if not exists run_functions_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  started_us Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  function_id Int64,
  compile_count Int64 codec(T64, ZSTD(1)),
  graph_break_count Int64 codec(T64, ZSTD(1)),
  recompile_count Int64 codec(T64, ZSTD(1)),
  recompile_limit_count Int64 codec(T64, ZSTD(1)),
  compile_us Int64 codec(T64, ZSTD(1)),
  projection by_thing (select * order by function_id, pub)
) engine = MergeTree partition by month order by (pub, function_id)
settings lightweight_mutation_projection_mode = 'rebuild', index_granularity = 1024,
  min_compress_block_size = 8192, max_compress_block_size = 16384;

create view if not exists run_functions as
select
  run_id, function_id, compile_count, graph_break_count, recompile_count, recompile_limit_count, compile_us
from run_functions_rows
where pub in (select pub from runs final);

create table if not exists run_summaries_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  started_us Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  suite LowCardinality(String),
  mode LowCardinality(String),
  dtype LowCardinality(String),
  device LowCardinality(String),
  hardware LowCardinality(String),
  backend LowCardinality(String),
  dynamic Int64,
  world_size Int64,
  definition LowCardinality(String),
  time_us Int64,
  total_count Int64,
  measured_count Int64,
  failed_count Int64,
  passed_count Nullable(Int64),
  speedup_count Int64,
  geomean_speedup Nullable(Float64),
  compilation_latency_s Nullable(Float64),
  abs_latency_ms Nullable(Float64),
  compression_ratio Nullable(Float64),
  dynamo_peak_mem_gb Nullable(Float64),
  graph_breaks_per_model Nullable(Float64),
  recompiles_per_model Nullable(Float64),
  load_latency_s Nullable(Float64),
  package_bytes Nullable(Float64),
  scaling_efficiency Nullable(Float64),
  quantized_error Nullable(Float64)
) engine = MergeTree partition by month
order by (definition, suite, mode, dtype, device, hardware, backend, dynamic, world_size, pub);

create view if not exists run_summaries as
select
  run_id, suite, mode, dtype, device, hardware, backend, dynamic, world_size, definition, time_us, total_count,
  measured_count, failed_count, passed_count, speedup_count, geomean_speedup, compilation_latency_s, abs_latency_ms,
  compression_ratio, dynamo_peak_mem_gb, graph_breaks_per_model, recompiles_per_model, load_latency_s, package_bytes,
  scaling_efficiency, quantized_error
from run_summaries_rows
where pub in (select pub from runs final);

-- Without the traceback and the facts of each result: they are of its run.
create table if not exists results_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  id Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  series_id Int64,
  experiment LowCardinality(String),
  process_id String codec(ZSTD(1)),
  sequence Int64,
  task Nullable(String) codec(ZSTD(1)),
  status LowCardinality(String),
  reason Nullable(String),
  accuracy Nullable(String),
  speedup Nullable(Float64),
  speedup_low Nullable(Float64),
  speedup_high Nullable(Float64),
  abs_latency_ms Nullable(Float64),
  eager_latency_ms Nullable(Float64),
  compilation_latency_s Nullable(Float64),
  warm_compilation_latency_s Nullable(Float64),
  compression_ratio Nullable(Float64),
  eager_peak_mem_gb Nullable(Float64),
  dynamo_peak_mem_gb Nullable(Float64),
  cache_lookup_latency_us Nullable(Float64),
  calls_captured Nullable(Int64),
  unique_graphs Nullable(Int64),
  graph_breaks Nullable(Int64),
  unique_graph_breaks Nullable(Int64),
  recompiles Nullable(Int64),
  fallbacks_to_eager Nullable(Int64),
  autograd_captures Nullable(Int64),
  autograd_compiles Nullable(Int64),
  cudagraph_skips Nullable(Int64),
  message Nullable(String) codec(ZSTD(1)),
  time_us Int64,
  started_us Nullable(Int64),
  duration_us Nullable(Int64),
  command Nullable(String) codec(ZSTD(1)),
  origin Nullable(String) codec(ZSTD(1)),
  export_latency_s Nullable(Float64),
  load_latency_s Nullable(Float64),
  second_process_latency_s Nullable(Float64),
  package_bytes Nullable(Float64),
  scaling_efficiency Nullable(Float64),
  output_error Nullable(Float64),
  quantized_error Nullable(Float64),
  quantized_eager_error Nullable(Float64),
  projection by_run (select * order by run_id, series_id, experiment)
) engine = MergeTree partition by month order by (series_id, experiment, time_us, pub)
settings lightweight_mutation_projection_mode = 'rebuild', index_granularity = 1024,
  min_compress_block_size = 8192, max_compress_block_size = 16384;

create view if not exists results as
select * except (month, pub)
from results_rows
where pub in (select pub from runs final);

-- The newest result of each series and experiment, with the columns of `results`.
create table if not exists newest_results (
  id Int64,
  run_id String,
  series_id Int64,
  experiment LowCardinality(String),
  process_id String,
  sequence Int64,
  task Nullable(String),
  status LowCardinality(String),
  reason Nullable(String),
  accuracy Nullable(String),
  speedup Nullable(Float64),
  speedup_low Nullable(Float64),
  speedup_high Nullable(Float64),
  abs_latency_ms Nullable(Float64),
  eager_latency_ms Nullable(Float64),
  compilation_latency_s Nullable(Float64),
  warm_compilation_latency_s Nullable(Float64),
  compression_ratio Nullable(Float64),
  eager_peak_mem_gb Nullable(Float64),
  dynamo_peak_mem_gb Nullable(Float64),
  cache_lookup_latency_us Nullable(Float64),
  calls_captured Nullable(Int64),
  unique_graphs Nullable(Int64),
  graph_breaks Nullable(Int64),
  unique_graph_breaks Nullable(Int64),
  recompiles Nullable(Int64),
  fallbacks_to_eager Nullable(Int64),
  autograd_captures Nullable(Int64),
  autograd_compiles Nullable(Int64),
  cudagraph_skips Nullable(Int64),
  message Nullable(String),
  time_us Int64,
  started_us Nullable(Int64),
  duration_us Nullable(Int64),
  command Nullable(String),
  origin Nullable(String),
  export_latency_s Nullable(Float64),
  load_latency_s Nullable(Float64),
  second_process_latency_s Nullable(Float64),
  package_bytes Nullable(Float64),
  scaling_efficiency Nullable(Float64),
  output_error Nullable(Float64),
  quantized_error Nullable(Float64),
  quantized_eager_error Nullable(Float64),
  version Int64,
  is_deleted UInt8
) engine = ReplacingMergeTree(version, is_deleted) order by (series_id, experiment);

-- == things, by the id of their content: added, never deleted ==

create table if not exists functions (
  id Int64,
  file String,
  name String,
  version Int64
) engine = ReplacingMergeTree(version) order by id;

create table if not exists distinct_breaks (
  id Int64,
  fingerprint String,
  gb_id Nullable(String),
  gb_type Nullable(String),
  reason String,
  explanation Nullable(String),
  hints String,
  function_id Nullable(Int64),
  source_line Nullable(String),
  line Nullable(Int64),
  version Int64
) engine = ReplacingMergeTree(version) order by id;

create table if not exists recompile_causes (
  id Int64,
  fingerprint String,
  category LowCardinality(String),
  source Nullable(String),
  reason String,
  suggestion Nullable(String),
  function_id Nullable(Int64),
  version Int64
) engine = ReplacingMergeTree(version) order by id;

create table if not exists series_rows (
  id Int64,
  suite LowCardinality(String),
  model String,
  mode LowCardinality(String),
  dtype LowCardinality(String),
  device LowCardinality(String),
  hardware LowCardinality(String),
  backend LowCardinality(String),
  dynamic Int64,
  batch_size Int64,
  world_size Int64,
  version Int64
) engine = ReplacingMergeTree(version) order by id;

-- Filters offer what there are results of.
create view if not exists series as
select id, suite, model, mode, dtype, device, hardware, backend, dynamic, batch_size, world_size
from series_rows final
where id in (select series_id from newest_results final);

create table if not exists commits (
  hash String,
  parent_hash Nullable(String),
  time_us Int64,
  author Nullable(String),
  subject Nullable(String),
  version Int64,
  is_deleted UInt8
) engine = ReplacingMergeTree(version, is_deleted) order by hash;

-- == months: sums of the roll-ups, of the months that nothing changed in since ==

create table if not exists months (
  month UInt32,
  is_clean UInt8,
  version Int64
) engine = ReplacingMergeTree(version) order by month;

create view if not exists clean_months as
select month
from months final
where is_clean;

create table if not exists break_months (
  month UInt32,
  suite LowCardinality(Nullable(String)),
  name LowCardinality(String),
  distinct_id Int64,
  break_count Int64,
  compile_us Int64,
  run_count Int64,
  first_us Int64,
  last_us Int64,
  projection by_thing (
    select month, distinct_id, sum(break_count), sum(compile_us), sum(run_count), min(first_us), max(last_us)
    group by month, distinct_id
  )
) engine = MergeTree partition by month order by (suite, name, distinct_id) settings allow_nullable_key = 1;

create table if not exists break_months_new as break_months;

create table if not exists cause_months (
  month UInt32,
  suite LowCardinality(Nullable(String)),
  name LowCardinality(String),
  cause_id Int64,
  guard_failure_count Int64,
  recompile_count Int64,
  compile_us Int64,
  run_count Int64,
  first_us Int64,
  last_us Int64,
  projection by_thing (
    select month, cause_id, sum(guard_failure_count), sum(recompile_count), sum(compile_us), sum(run_count),
      min(first_us), max(last_us)
    group by month, cause_id
  )
) engine = MergeTree partition by month order by (suite, name, cause_id) settings allow_nullable_key = 1;

create table if not exists cause_months_new as cause_months;

create table if not exists function_months (
  month UInt32,
  suite LowCardinality(Nullable(String)),
  name LowCardinality(String),
  function_id Int64,
  compile_count Int64,
  graph_break_count Int64,
  recompile_count Int64,
  recompile_limit_count Int64,
  compile_us Int64,
  run_count Int64,
  first_us Int64,
  last_us Int64,
  projection by_thing (
    select month, function_id, sum(compile_count), sum(graph_break_count), sum(recompile_count),
      sum(recompile_limit_count), sum(compile_us), sum(run_count), min(first_us), max(last_us)
    group by month, function_id
  )
) engine = MergeTree partition by month order by (suite, name, function_id) settings allow_nullable_key = 1;

create table if not exists function_months_new as function_months;

-- == sums of a run's breaks and causes by kind: made of each block of rows as it is added ==

create table if not exists run_break_kinds_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  kind LowCardinality(String),
  break_count Int64 codec(T64, ZSTD(1)),
  compile_us Int64 codec(T64, ZSTD(1))
) engine = MergeTree partition by month order by (pub, kind);

create materialized view if not exists run_break_kinds_sums to run_break_kinds_rows as
select
  b.month as month, b.pub as pub, coalesce(d.gb_type, d.reason) as kind, sum(b.break_count) as break_count,
  sum(b.compile_us) as compile_us
from run_breaks_rows as b
join (select id, gb_type, reason from distinct_breaks final) as d on d.id = b.distinct_id
group by month, pub, kind;

create table if not exists run_cause_kinds_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  kind LowCardinality(String),
  guard_failure_count Int64 codec(T64, ZSTD(1)),
  recompile_count Int64 codec(T64, ZSTD(1)),
  compile_us Int64 codec(T64, ZSTD(1))
) engine = MergeTree partition by month order by (pub, kind);

create materialized view if not exists run_cause_kinds_sums to run_cause_kinds_rows as
select
  b.month as month, b.pub as pub, d.category as kind, sum(b.guard_failure_count) as guard_failure_count,
  sum(b.recompile_count) as recompile_count, sum(b.compile_us) as compile_us
from run_causes_rows as b
join (select id, category from recompile_causes final) as d on d.id = b.cause_id
group by month, pub, kind;
