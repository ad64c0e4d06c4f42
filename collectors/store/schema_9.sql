-- Version 9: incidents. Whoever adds to this version adds a section below.

-- == incidents: series changes that came in together, with one status, one discussion, one alert ==

create table incidents (
  id text primary key,                -- of the change that first led it: the same whenever it is detected anew
  direction text not null,            -- worse | better | changed; only what is worse is ever open
  state text not null,                -- unconfirmed | open | recovered | closed | withdrawn
  status text not null default 'open',  -- open | acknowledged | ignored: what people made of it
  owner text,                         -- who acknowledged or ignored it last
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
  noticed_us integer,                 -- when it was found out to be confirmed
  changed_us integer not null,
  evidence text not null              -- JSON: runs, commits, environment, causes with their checks, headline changes
) strict, without rowid;
create index incidents_newest on incidents (first_us desc, id);
create index incidents_open on incidents (state, status, severity, first_us desc);

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

-- == trials: a fix that was tried on a copy of a run's program, and what came of it ==

create table trials (
  id text primary key,
  run_id text not null references runs (id) on delete cascade, -- whose program it was
  base_run_id text references runs (id) on delete set null,    -- the program as it is, run again beside it
  new_run_id text references runs (id) on delete set null,     -- with the fix
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

-- == the user's source around graph breaks and recompiles ==

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
