-- Version 2: what torch's own trace log tells beside the events: artifacts, spans, stacks, symbols, guards.

-- Texts that torch wrote (graphs, generated code, guards), once each by their content.
create table payloads (
  id integer primary key,
  digest blob not null,               -- BLAKE2b of the text, 16 bytes
  size_bytes integer not null,
  body blob not null                  -- packed, see codec.py
) strict;
create unique index payloads_digest on payloads (digest);

-- One row a log that was read: which process it is, and how far it was read.
create table logs (
  process_id text primary key references processes (id) on delete cascade,
  run_id text not null references runs (id) on delete cascade,
  name text not null,                 -- the file's own name
  file_name text not null,
  size_bytes integer,                 -- as far as it was read
  end_offset_bytes integer not null,
  line_count integer not null,
  record_count integer not null,
  payloads text not null,             -- kept | left_out
  redacted integer not null,
  first_us integer,
  last_us integer,
  read_us integer not null            -- when it was last read
) strict;
create index logs_run on logs (run_id, name);

-- What of a log could not be read, counted by kind.
create table log_rejects (
  process_id text not null references logs (process_id) on delete cascade,
  kind text not null,
  reject_count integer not null,
  first_line integer,
  example text,
  primary key (process_id, kind)
) strict, without rowid;

-- One row a record that is no event of its own: its name, what torch said beside it, its text.
create table artifacts (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,          -- the record's byte offset in its log
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  attempt integer,
  name text not null,                 -- torch's: dynamo_output_graph, artifact:fx_graph_runnable
  title text,                         -- what tells it from others of its name: a file, a graph
  encoding text not null,             -- string | json
  metadata text,                      -- JSON
  state text not null,                -- kept | none | left_out | withheld | damaged | too_large
  size_bytes integer,                 -- of the text as torch wrote it
  md5 text,                           -- torch's own, of the text as torch wrote it
  payload_id integer references payloads (id),
  time_us integer not null
) strict;
create unique index artifacts_key on artifacts (process_id, sequence);
create index artifacts_run on artifacts (run_id, name, id);
create index artifacts_compile on artifacts (compile_key, sequence);
create index artifacts_payload on artifacts (payload_id);
create index artifacts_loose on artifacts (run_id) where compile_key is null;

-- A lane of the timeline: one thread of one process.
create table lanes (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  thread integer not null,
  span_count integer not null default 0,
  first_us integer,
  last_us integer
) strict;
create unique index lanes_key on lanes (process_id, thread);
create index lanes_run on lanes (run_id, process_id, thread);

create table span_names (
  id integer primary key,
  name text not null
) strict;
create unique index span_names_name on span_names (name);

-- One row a phase that torch timed (chromium_event): begin and end paired.
create table spans (
  id integer primary key,
  lane_id integer not null references lanes (id) on delete cascade,
  name_id integer not null references span_names (id),
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  begin_us integer not null,
  duration_us integer,                -- NULL: its end was not recorded
  depth integer not null,             -- one more than the deepest of its lane that was open when it began
  instant integer not null default 0,
  args text,                          -- JSON, what torch said at its end or beginning; long ones without their texts
  payload_id integer references payloads (id) -- the whole of it, where args are long
) strict;
create index spans_begin on spans (lane_id, begin_us);
create index spans_duration on spans (lane_id, duration_us desc);
create index spans_compile on spans (compile_key);
create index spans_payload on spans (payload_id) where payload_id is not null;

-- Where compiles were started from, as a tree that stacks of a run share.
create table stack_nodes (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  parent_id integer references stack_nodes (id) on delete cascade,
  depth integer not null,
  file text not null,
  line integer,
  name text not null,
  code text
) strict;
create unique index stack_nodes_key on stack_nodes (run_id, coalesce(parent_id, 0), file, coalesce(line, -1), name);
create index stack_nodes_parent on stack_nodes (parent_id);
alter table compiles add column stack_id integer references stack_nodes (id);
create index compiles_stack on compiles (stack_id);

-- Symbolic shapes: a symbol made, specialised, or guarded.
create table symbols (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  process_id text not null,
  sequence integer not null,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  kind text not null,                 -- created | unbacked | specialized | guarded | other
  symbol text,
  expression text,                    -- the guard, or the reason
  value text,
  value_range text,
  source text,                        -- the guard source expression: L['x'].size()[0]
  file text,                          -- of the innermost frame of the user's
  line integer,
  source_line text,
  detail blob not null,               -- packed JSON: all that torch said, with stacks
  time_us integer not null
) strict;
create unique index symbols_key on symbols (process_id, sequence);
create index symbols_run on symbols (run_id, kind, id);
create index symbols_compile on symbols (compile_key);

-- The guards of a compile, summed up (collectors/decode/guard_tree.py).
create table guard_sets (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  artifact_id integer not null references artifacts (id) on delete cascade,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  guard_count integer,
  latency_us real,
  summary text not null               -- JSON
) strict;
create unique index guard_sets_artifact on guard_sets (artifact_id);
create index guard_sets_run on guard_sets (run_id, latency_us desc, id);
create index guard_sets_compile on guard_sets (compile_key);

-- What AOTAutograd's metadata says of a graph, summed up (collectors/decode/aot.py).
create table aot_graphs (
  id integer primary key,
  run_id text not null references runs (id) on delete cascade,
  artifact_id integer not null references artifacts (id) on delete cascade,
  compile_key integer references compiles (id) on delete cascade,
  compile_id text,
  summary text not null               -- JSON
) strict;
create unique index aot_graphs_artifact on aot_graphs (artifact_id);
create index aot_graphs_run on aot_graphs (run_id, id);
create index aot_graphs_compile on aot_graphs (compile_key);

-- What the search index holds: a document is one text of a run, with its title as it was indexed. Contentless FTS5
-- takes a document out by its own words alone, so what was indexed must be told from this row for ever.
create table search_documents (
  id integer primary key autoincrement, -- never again: the words of a document that could not be read stay behind
  run_id text not null references runs (id) on delete cascade,
  kind text not null,                 -- search_texts.py: artifact, graph_break, recompile, failure, ...
  ref_id integer not null,            -- the row in that kind's table
  compile_key integer,
  title text not null,
  payload_id integer references payloads (id), -- its text, or else:
  body blob,                          -- its text, packed
  character_count integer not null    -- of the text, as far as it is indexed
) strict;
create unique index search_documents_key on search_documents (run_id, kind, ref_id);
create index search_documents_payload on search_documents (payload_id) where payload_id is not null;

-- How far a run is in the search index.
create table search_runs (
  run_id text primary key references runs (id) on delete cascade,
  indexed_us integer,                 -- what was stored before is indexed; NULL: not yet
  text_bytes integer not null default 0
) strict, without rowid;

-- The words alone. Without "_" as a letter, "addmm_15" is found by "addmm" and "fused_addmm" inside a kernel's name;
-- detail = full keeps positions, which phrases (torch.ops.aten.addmm) need. The tags are a document's run and kind.
create virtual table search_words using fts5 (
  body, tags, content = '', tokenize = "unicode61 remove_diacritics 0", detail = full
);
