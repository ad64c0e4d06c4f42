-- Version 10: repros. Whoever adds to this version adds a section below.

-- == repros: a graph that failed or was wrong, as text that can be run again (collectors/contract/repros.py) ==

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
