-- Version 12: a server that many boxes push to, and the people who may read and change it.

-- Who may do what. The secret itself is stored nowhere: `secret_hash` is its SHA-256.
create table tokens (
  id text primary key,                -- its public part, as lists and the audit log show it
  name text not null,                 -- the person or box that has it
  secret_hash blob not null,
  scopes text not null,               -- separated by commas: ingest, read, write, admin
  created_us integer not null,
  created_by text not null,
  expires_us integer,
  revoked_us integer,
  last_used_us integer,               -- to the minute
  last_address text
) strict, without rowid;

-- Logins of browsers. A session ends with its token.
create table sessions (
  session_hash blob primary key,      -- SHA-256 of the cookie
  token_id text not null references tokens (id) on delete cascade,
  created_us integer not null,
  expires_us integer not null,
  last_used_us integer not null
) strict, without rowid;
create index sessions_token on sessions (token_id);

-- What recorders on boxes send, by run and recorder. Offset and checksum move in the transaction of their events.
create table streams (
  run_id text not null,               -- those of a deleted run wait with it: restored, it goes on
  stream_id text not null,
  token_id text,                      -- who began it, and alone may go on; null where no token was asked for
  stored_bytes integer not null,
  checksum integer not null,          -- CRC-32 of these bytes
  event_count integer not null,
  lost_count integer not null,        -- events that the box had no room for
  dropped_text_count integer not null,
  version text,                       -- of the collector
  started_us integer not null,
  updated_us integer not null,        -- when something of it was received
  ended_us integer,                   -- when its last line was stored
  primary key (run_id, stream_id)
) strict, without rowid;
create index streams_updated on streams (updated_us);

-- Texts that a box had no room to wait with: what refers to them is stored without.
create table dropped_texts (
  run_id text not null,
  digest blob not null,
  primary key (run_id, digest)
) strict, without rowid;

-- Texts that came before what refers to them; none is dropped within a day.
create table sent_texts (
  digest blob primary key,
  received_us integer not null
) strict, without rowid;
create index sent_texts_received on sent_texts (received_us);

-- Runs whose detail was deleted to save room. Their totals, results, summaries, repros and people's words stay.
create table pruned_runs (
  run_id text primary key references runs (id) on delete cascade,
  pruned_us integer not null,
  deleted_bytes integer               -- texts and events, packed; null until all of it is deleted
) strict, without rowid;
