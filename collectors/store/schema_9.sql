-- Version 9: incidents. Whoever adds to this version adds a section below.

-- == incidents: series changes that came in together, with one status, one discussion, one alert ==

create table incidents (
  id text primary key,                -- of the change that first led it: the same whenever it is detected anew
  direction text not null,            -- worse | better | changed; only what is worse is ever open
  state text not null,                -- unconfirmed | open | recovered | closed | withdrawn
  status text not null default 'open',  -- open | acknowledged | ignored: what people made of it
  owner text,                         -- who acknowledged or ignored it last
  reason text,                        -- why it is ignored
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
  confirmed_us integer,               -- when the run started that confirmed it
  noticed_us integer,                 -- when that was found out
  changed_us integer not null,
  evidence text not null              -- JSON: app/incidents/__init__.py says what is in it
) strict, without rowid;
create index incidents_newest on incidents (first_us desc, id);
create index incidents_noticed on incidents (noticed_us desc, id);
create index incidents_state on incidents (state, status, severity, first_us desc);
create index incidents_run on incidents (first_bad_run_id);

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

-- Each finding of before is an incident until the next pass of detection puts them together; what people said moves along.
insert into incidents (
  id, direction, state, status, owner, reason, title, suite, branch, severity, lead_change_id, change_count,
  last_good_run_id, first_bad_run_id, recovered_run_id, first_us, found_us, confirmed_us, noticed_us, changed_us, evidence
)
select
  f.id,
  f.direction,
  case
    when f.state = 'withdrawn' then 'withdrawn'
    when f.state = 'suspected' then 'unconfirmed'
    when f.direction <> 'worse' then 'closed'
    when f.recovered_run_id is not null then 'recovered'
    else 'open'
  end,
  f.handling,
  (select w.who from finding_words as w where w.finding_id = f.id and w.action in ('acknowledge', 'ignore')
    and f.handling <> 'open' order by w.id desc limit 1),
  (select w.text from finding_words as w where w.finding_id = f.id and w.action = 'ignore'
    and f.handling = 'ignored' order by w.id desc limit 1),
  iif(f.model = '', 'suite ' || f.suite, f.model) || ': ' || replace(f.metric, '_', ' '),
  f.suite, f.branch, 9, f.id, 1,
  f.before_run_id, f.first_run_id, f.recovered_run_id, f.first_us, f.found_us, f.confirmed_us, f.noticed_us, f.changed_us,
  '{}'
from findings as f;
insert into incident_comments (id, incident_id, action, author, text, time_us)
select w.id, w.finding_id, iif(w.action = 'note', 'comment', w.action), w.who, w.text, w.time_us
from finding_words as w;
drop table finding_words;

-- A lasting change of one series is evidence of an incident.
drop index findings_counts;
alter table findings rename to series_changes;
alter table series_changes drop column handling;
alter table series_changes add column incident_id text references incidents (id);
update series_changes set incident_id = id, state = iif(state = 'suspected', 'unconfirmed', state);
create index series_changes_incident on series_changes (incident_id);

-- What each rule sent of which incident, and where: claimed before it is sent, so that nothing is sent twice.
create table incident_deliveries (
  rule text not null,
  channel text not null,
  incident_id text not null,
  event text not null,                -- opened | recovered
  state text not null,                -- waiting | sending | sent | failed | unknown | dropped
  message_id text,                    -- of the newest message that had it; incidents of one message share it
  attempt_count integer not null default 0,
  error text,                         -- what went wrong last, or why it was dropped
  due_us integer not null,            -- not before: moves when it is tried again
  queued_us integer not null,
  changed_us integer not null,
  primary key (rule, channel, incident_id, event)
) strict, without rowid;
create index incident_deliveries_changed on incident_deliveries (changed_us desc, rule, channel, incident_id, event);
create index incident_deliveries_state on incident_deliveries (state, changed_us);
insert into incident_deliveries
select rule, channel, finding_id, 'opened', state, message_id, attempt_count, error, due_us, queued_us, changed_us
from alert_deliveries;
drop table alert_deliveries;

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
