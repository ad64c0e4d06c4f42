-- Version 7: what was refused, what failed while it ran, what a program may have lost to its stack, and what was deleted.

-- == rejects of runs, and what a run could not be recorded for ==

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

-- == trace logs: envelope keys, stacks, record counts ==
-- What else torch wrote around a record, as JSON: subgraph_name, and any key that is not known yet.
alter table artifacts add column envelope text;
-- Where a record outside any compile comes from: export and AOTInductor have no compile id.
alter table artifacts add column stack_id integer references stack_nodes (id);
alter table symbols add column stack_id integer references stack_nodes (id);
create index artifacts_stack on artifacts (stack_id) where stack_id is not null;
create index symbols_stack on symbols (stack_id) where stack_id is not null;

-- == failures while compiled code runs ==
--
-- `failures` holds them beside what compiles raised: phase is compile, forward, backward, wrapper (AOTAutograd's code
-- around a graph) or program (the exception that ended it, from no compiled code). The same failure again is counted.

alter table failures add column phase text not null default 'compile';
alter table failures add column position integer;  -- among its process's; null for what a compile raised
alter table failures add column occurrence_count integer not null default 1;
alter table failures add column ended_program integer not null default 0;
alter table failures add column function_id integer references functions (id);  -- where it was raised; null for a compile's
alter table failures add column line integer;
create unique index failures_position on failures (process_id, position) where position is not null;
alter table run_totals add column runtime_failure_count integer not null default 0;  -- all but the phase compile

-- == page faults and stack room ==
--
-- Minor page faults of a process while it compiled nothing, counted from outside by the recorder (fault_watch.py).

alter table runs add column stack_room integer;  -- 1: `run --stack-room` started it; null where nobody could have
alter table processes add column calm_us integer;  -- how long it compiled nothing, as far as it was watched
alter table processes add column calm_cpu_us integer;
alter table processes add column calm_fault_count integer;
alter table processes add column is_on_stack_cliff integer;  -- a chunk of its frame stack came and went all the time
alter table processes add column faults_counted_us integer;  -- when, of the newest count

-- == deleted runs that can be restored, who did what, the import queue ==
--
-- A run's rows wait in a file of their own (trash.py); without expires_us it is gone for good.
alter table deleted_runs add column expires_us integer;
alter table deleted_runs add column name text;
alter table deleted_runs add column suite text;
alter table deleted_runs add column started_us integer;
alter table deleted_runs add column trash_bytes integer;

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
--

