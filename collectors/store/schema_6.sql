-- Version 6: commits and their ancestors, findings, what people said of them, and what was sent.

-- First-parent history as test boxes saw it: what lies between two measured commits, and in which order.
create table commits (
  hash text primary key,
  parent_hash text,                   -- the first parent
  time_us integer not null,           -- of the commit, not of its author
  author text,
  subject text
) strict, without rowid;
create index commits_time on commits (time_us, hash, parent_hash);

-- A lasting change of one series. What detection found is replaced when more runs say it better; `id` is not.
create table findings (
  id text primary key,
  kind text not null,                 -- step | drift | vanished
  direction text not null,            -- worse | better | changed
  state text not null,                -- suspected | confirmed | withdrawn
  handling text not null default 'open',  -- open | acknowledged | ignored; of the newest of its words
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
  evidence text not null              -- JSON: environment, commits, suspected causes
) strict, without rowid;
create index findings_series on findings (subject, suite, model, metric);
create index findings_newest on findings (first_us desc, id);
create index findings_first_run on findings (first_run_id);
create index findings_model on findings (model, first_us desc);
create index findings_counts on findings (state, handling, direction, recovered_run_id);

-- What people said of a finding, in order; nothing is ever changed or removed.
create table finding_words (
  id integer primary key,
  finding_id text not null references findings (id) on delete cascade,
  action text not null,               -- acknowledge | ignore | note | reopen
  who text not null,
  text text,
  time_us integer not null
) strict;
create index finding_words_finding on finding_words (finding_id, id);

-- How far detection has come: one row.
create table detection (
  id integer primary key check (id = 1),
  seen text not null,                 -- JSON: what of the database had been looked at
  version integer not null,           -- of the detector: another one looks at everything again
  finished_us integer not null
) strict;

-- When a rule first ran, and from when on findings are its business: a first start sends no history.
create table alert_rules (
  rule text primary key,
  first_us integer not null,
  since_us integer not null,
  seen_us integer not null            -- of its last pass
) strict, without rowid;

-- What each rule sent of which finding, and where: claimed before it is sent, so that nothing is sent twice.
create table alert_deliveries (
  rule text not null,
  channel text not null,
  finding_id text not null,
  state text not null,                -- waiting | sending | sent | failed | unknown | dropped
  message_id text,                    -- of the newest message that had it; findings of one message share it
  attempt_count integer not null default 0,
  error text,                         -- what went wrong last, or why it was dropped
  due_us integer not null,            -- not before: moves when it is tried again
  queued_us integer not null,
  changed_us integer not null,
  primary key (rule, channel, finding_id)
) strict, without rowid;
create index alert_deliveries_changed on alert_deliveries (changed_us desc, rule, channel, finding_id);
create index alert_deliveries_state on alert_deliveries (state, changed_us);
