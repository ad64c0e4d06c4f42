-- What crosses runs, in ClickHouse. `$columns(TABLE -NAME)` are the columns that collectors/contract/records.py has of a
-- table, without some; `$sums` writes its counters more compactly, and `$names` are the names alone.
--
-- `runs` says what counts: rows of the tables that end in `_rows` count while the row of their run there names their
-- publication, `pub`. The views named as in SQLite read those alone, so a statement is the same for both.
-- `runs` is read with the setting final = 1, as are the tables of things.

-- The board that this is of.
create table if not exists boards (
  id String
) engine = MergeTree order by id;

create table if not exists runs (
  $columns(runs -facts -pub),
  pub Int64,                          -- of its roll-ups: they count while it is named here
  version Int64,                      -- of this row
  is_deleted UInt8,
  driver_version Nullable(String),    -- in SQLite among `facts`
  triton_version Nullable(String),    -- in SQLite of `processes`
  tags Map(String, String),
  $columns(run_annotations -run_id -changed_us),
  changed_us Nullable(Int64),         -- null without a row of run_annotations
  $columns(run_totals -run_id)
) engine = ReplacingMergeTree(version, is_deleted) order by id;

create view if not exists run_totals as
select
  id as run_id, $names(run_totals -run_id)
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
  $sums(run_breaks -run_id),
  projection by_thing (select * order by distinct_id, pub)
) engine = MergeTree partition by month order by (pub, distinct_id)
settings lightweight_mutation_projection_mode = 'rebuild', index_granularity = 1024,
  min_compress_block_size = 8192, max_compress_block_size = 16384;

create view if not exists run_breaks as
select $names(run_breaks)
from run_breaks_rows
where pub in (select pub from runs final);

create table if not exists run_causes_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  started_us Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  $sums(run_causes -run_id),
  projection by_thing (select * order by cause_id, pub)
) engine = MergeTree partition by month order by (pub, cause_id)
settings lightweight_mutation_projection_mode = 'rebuild', index_granularity = 1024,
  min_compress_block_size = 8192, max_compress_block_size = 16384;

create view if not exists run_causes as
select $names(run_causes)
from run_causes_rows
where pub in (select pub from runs final);

create table if not exists run_rerecordings_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  started_us Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  $sums(run_rerecordings -run_id),
  projection by_thing (select * order by reason_id, pub)
) engine = MergeTree partition by month order by (pub, reason_id)
settings lightweight_mutation_projection_mode = 'rebuild', index_granularity = 1024,
  min_compress_block_size = 8192, max_compress_block_size = 16384;

create view if not exists run_rerecordings as
select $names(run_rerecordings)
from run_rerecordings_rows
where pub in (select pub from runs final);

create table if not exists run_issues_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  started_us Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  $sums(run_issues -run_id),
  projection by_thing (select * order by issue_id, pub)
) engine = MergeTree partition by month order by (pub, issue_id)
settings lightweight_mutation_projection_mode = 'rebuild', index_granularity = 1024,
  min_compress_block_size = 8192, max_compress_block_size = 16384;

create view if not exists run_issues as
select $names(run_issues)
from run_issues_rows
where pub in (select pub from runs final);

create table if not exists run_functions_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  started_us Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  $sums(run_functions -run_id),
  projection by_thing (select * order by function_id, pub)
) engine = MergeTree partition by month order by (pub, function_id)
settings lightweight_mutation_projection_mode = 'rebuild', index_granularity = 1024,
  min_compress_block_size = 8192, max_compress_block_size = 16384;

create view if not exists run_functions as
select $names(run_functions)
from run_functions_rows
where pub in (select pub from runs final);

create table if not exists run_summaries_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  started_us Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  $columns(run_summaries -run_id)
) engine = MergeTree partition by month
order by (definition, suite, mode, dtype, device, hardware, backend, dynamic, world_size, pub);

create view if not exists run_summaries as
select $names(run_summaries)
from run_summaries_rows
where pub in (select pub from runs final);

-- Without the traceback and the facts of each result: they are of its run.
create table if not exists results_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  id Int64 codec(Delta, ZSTD(1)),
  run_id String codec(ZSTD(1)),
  $columns(results -id -run_id -traceback -facts),
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
  $columns(results -traceback -facts),
  version Int64,
  is_deleted UInt8
) engine = ReplacingMergeTree(version, is_deleted) order by (series_id, experiment);

-- == things, by the id of their content: added, never deleted ==

create table if not exists functions (
  $columns(functions),
  version Int64
) engine = ReplacingMergeTree(version) order by id;

create table if not exists distinct_breaks (
  $columns(distinct_breaks),
  version Int64
) engine = ReplacingMergeTree(version) order by id;

create table if not exists recompile_causes (
  $columns(recompile_causes),
  version Int64
) engine = ReplacingMergeTree(version) order by id;

create table if not exists rerecording_reasons (
  $columns(rerecording_reasons),
  version Int64
) engine = ReplacingMergeTree(version) order by id;

create table if not exists failure_issues (
  $columns(failure_issues),
  version Int64
) engine = ReplacingMergeTree(version) order by id;

create table if not exists series_rows (
  $columns(series),
  version Int64
) engine = ReplacingMergeTree(version) order by id;

-- Filters offer what there are results of.
create view if not exists series as
select $names(series)
from series_rows final
where id in (select series_id from newest_results final);

create table if not exists commits (
  $columns(commits),
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
  partial_count Int64,
  recompile_count Int64,
  compile_us Int64,
  run_count Int64,
  first_us Int64,
  last_us Int64,
  projection by_thing (
    select month, cause_id, sum(recompile_count), sum(partial_count), sum(compile_us), sum(run_count),
      min(first_us), max(last_us)
    group by month, cause_id
  )
) engine = MergeTree partition by month order by (suite, name, cause_id) settings allow_nullable_key = 1;

create table if not exists cause_months_new as cause_months;

create table if not exists rerecording_months (
  month UInt32,
  suite LowCardinality(Nullable(String)),
  name LowCardinality(String),
  reason_id Int64,
  rerecording_count Int64,
  duration_us Int64,
  run_count Int64,
  first_us Int64,
  last_us Int64,
  projection by_thing (
    select month, reason_id, sum(rerecording_count), sum(duration_us), sum(run_count), min(first_us), max(last_us)
    group by month, reason_id
  )
) engine = MergeTree partition by month order by (suite, name, reason_id) settings allow_nullable_key = 1;

create table if not exists rerecording_months_new as rerecording_months;

create table if not exists issue_months (
  month UInt32,
  suite LowCardinality(Nullable(String)),
  name LowCardinality(String),
  issue_id Int64,
  failure_count Int64,
  compile_us Int64,
  run_count Int64,
  first_us Int64,
  last_us Int64,
  projection by_thing (
    select month, issue_id, sum(failure_count), sum(compile_us), sum(run_count), min(first_us), max(last_us)
    group by month, issue_id
  )
) engine = MergeTree partition by month order by (suite, name, issue_id) settings allow_nullable_key = 1;

create table if not exists issue_months_new as issue_months;

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

-- == sums of a run's breaks, causes, recordings again and failures by kind: made of each block of rows as it is added ==

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
  partial_count Int64 codec(T64, ZSTD(1)),
  recompile_count Int64 codec(T64, ZSTD(1)),
  compile_us Int64 codec(T64, ZSTD(1))
) engine = MergeTree partition by month order by (pub, kind);

create materialized view if not exists run_cause_kinds_sums to run_cause_kinds_rows as
select
  b.month as month, b.pub as pub, d.category as kind, sum(b.partial_count) as partial_count,
  sum(b.recompile_count) as recompile_count, sum(b.compile_us) as compile_us
from run_causes_rows as b
join (select id, category from recompile_causes final) as d on d.id = b.cause_id
group by month, pub, kind;

create table if not exists run_rerecording_kinds_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  kind LowCardinality(String),
  rerecording_count Int64 codec(T64, ZSTD(1)),
  duration_us Int64 codec(T64, ZSTD(1))
) engine = MergeTree partition by month order by (pub, kind);

create materialized view if not exists run_rerecording_kinds_sums to run_rerecording_kinds_rows as
select
  b.month as month, b.pub as pub, d.status as kind, sum(b.rerecording_count) as rerecording_count,
  sum(b.duration_us) as duration_us
from run_rerecordings_rows as b
join (select id, status from rerecording_reasons final) as d on d.id = b.reason_id
group by month, pub, kind;

create table if not exists run_issue_kinds_rows (
  month UInt32,
  pub Int64 codec(Delta, ZSTD(1)),
  kind LowCardinality(String),
  failure_count Int64 codec(T64, ZSTD(1)),
  compile_us Int64 codec(T64, ZSTD(1))
) engine = MergeTree partition by month order by (pub, kind);

create materialized view if not exists run_issue_kinds_sums to run_issue_kinds_rows as
select
  b.month as month, b.pub as pub, coalesce(d.error_type, '') as kind, sum(b.failure_count) as failure_count,
  sum(b.compile_us) as compile_us
from run_issues_rows as b
join (select id, error_type from failure_issues final) as d on d.id = b.issue_id
group by month, pub, kind;
