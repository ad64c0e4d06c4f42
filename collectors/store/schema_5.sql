-- Version 5: what the results of a run come to, so that trends cost what the number of runs costs.

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
  primary key (run_id, suite, mode, dtype, device, hardware, backend, dynamic, world_size, definition)
) strict, without rowid;
create index run_summaries_set on run_summaries
  (definition, suite, mode, dtype, device, hardware, backend, dynamic, world_size, run_id);
