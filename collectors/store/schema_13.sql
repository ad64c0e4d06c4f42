-- Version 13: a second engine for the tables across runs. Whoever adds to this version adds a section below.

-- == code of saved packages, recorded before it was told from compiles that never finished (ingest/compiles.py) ==

update compiles
set outcome = 'loaded'
where outcome = 'started'
  and exists (
    select 1
    from stack_nodes as frame
    join stack_nodes as caller on caller.id = frame.parent_id
    where frame.id = compiles.stack_id
      and caller.file = 'torch/_dynamo/eval_frame.py'
      and caller.name = '__call__'
  );

-- == sealed runs: the detail and the roll-ups of a run that ended are in a file of its own (app/engines) ==

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

-- The largest id of a result of any run that was sealed: none is given again.
alter table publications add column last_result_id integer not null default 0;

-- == publications of runs in the second engine ==

create table published_runs (
  run_id text primary key,            -- also of a deleted run, until the engine has forgotten it
  run_pub integer not null,           -- runs.pub when its row was read; -1 before its first row is there
  rows_pub integer not null,          -- of its roll-ups there: they count while its row there names this number
  rows_run_pub integer not null,      -- runs.pub when its roll-ups were read
  annotated_us integer,               -- run_annotations.changed_us when its row was read
  rows_count integer not null,        -- how often its roll-ups were published
  rows_us integer not null,           -- when its roll-ups were; before, when it was first seen
  published_us integer not null,      -- when its row was
  heartbeat_us integer not null default 0,  -- when its row was read
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

-- == lists across runs: what is asked of all runs is read of an index, since a run's row has all its facts ==

drop index runs_series;
create index runs_series on runs (suite, name, started_us, state, source, id);
-- The newest runs, of all or of one name or suite, with what tells which of them count.
drop index runs_started;
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
create index run_totals_benched on run_totals (run_id) where result_count > 0;
create index runs_with_nul on runs (id, name, command, git_branch, git_subject)  -- LIKE stops at a NUL
where instr(name || command || coalesce(git_branch, '') || coalesce(git_subject, ''), char(0)) > 0;

-- == failed logins: what all servers of one board count together ==

create table login_failures (
  id integer primary key,
  address text not null,              -- of the client
  failed_us integer not null
) strict;
create index login_failures_age on login_failures (failed_us);
