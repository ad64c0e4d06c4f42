-- Version 8: ids of content, the same number in every database, and a number for every commit to a run.

-- Functions, distinct breaks, recompile causes and series have the first 63 bits of a SHA-256 over what they are
-- (collectors/contract/fingerprints.py) as their ids since; content_ids.py gives them to what is there. Addresses had
-- the numbers of before.
create table old_ids (
  kind text not null,                 -- break | cause | function
  old_id integer not null,
  id integer not null,
  primary key (kind, old_id)
) strict, without rowid;

-- How far detection and whoever copies runs have come is a number of this database that grows with every commit to a
-- run, and is never given again.
alter table runs add column pub integer not null default 0;  -- of the newest commit to it
create index runs_pub on runs (pub);
create table publications (
  id integer primary key check (id = 1),
  pub integer not null,               -- the newest given
  removed_pub integer not null        -- of the newest removal of a run
) strict;

-- A recorder of before that runs on would go on giving numbers. It asks for this table in each transaction: without it,
-- it stops writing and leaves its spool for one of ours.
alter table deleted_runs rename to removed_runs;
