-- Version 4: benchmark results.

alter table processes add column task text;
create index processes_task on processes (run_id, task) where task is not null;

alter table run_totals add column result_count integer not null default 0;
alter table run_totals add column failed_result_count integer not null default 0;

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
  facts text not null                 -- JSON
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
