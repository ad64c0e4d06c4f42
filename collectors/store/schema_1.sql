-- Schema 1: what the tables of collectors/contract/records.py have besides their columns.

-- == runs ==

create index runs_pub on runs (pub);
create index runs_series on runs (suite, name, started_us, state, source, id);
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
create index runs_with_nul on runs (id, name, command, git_branch, git_subject)  -- LIKE stops at a NUL
where instr(name || command || coalesce(git_branch, '') || coalesce(git_subject, ''), char(0)) > 0;

create index run_tags_value on run_tags (key, value);

create index sealed_runs_left on sealed_runs (run_id) where coalesce(emptied_us, 0) = 0;

-- == processes and what they wrote ==

create index processes_run on processes (run_id, started_us);
create index processes_task on processes (run_id, task) where task is not null;

create index events_run on events (run_id, kind);

create index logs_run on logs (run_id, name);

create unique index payloads_digest on payloads (digest);

create unique index artifacts_key on artifacts (process_id, sequence);
create index artifacts_run on artifacts (run_id, name, id);
create index artifacts_compile on artifacts (compile_key, sequence);
create index artifacts_payload on artifacts (payload_id);
create index artifacts_loose on artifacts (run_id) where compile_key is null;
create index artifacts_stack on artifacts (stack_id) where stack_id is not null;

-- == compiles ==

create unique index functions_key on functions (file, name);

create index run_totals_benched on run_totals (run_id) where result_count > 0;

create index run_functions_function on run_functions (function_id, run_id);

create unique index compiles_key on compiles (process_id, generation, compile_id);
create index compiles_run on compiles (run_id, started_us, id);
create index compiles_function on compiles (function_id, run_id);
create index compiles_frame on compiles (process_id, generation, frame_id);
create index compiles_stack on compiles (stack_id);

create unique index compilations_key on compilations (process_id, sequence);
create index compilations_run on compilations (run_id, start_us, id);
create index compilations_compile on compilations (compile_key);
create index compilations_issue on compilations (issue_id) where issue_id is not null;

create unique index stack_nodes_key on stack_nodes (run_id, coalesce(parent_id, 0), file, coalesce(line, -1), name);
create index stack_nodes_parent on stack_nodes (parent_id);

create unique index failures_key on failures (process_id, sequence);
create index failures_run on failures (run_id, time_us, id);
create index failures_compile on failures (compile_key);
create unique index failures_position on failures (process_id, position) where position is not null;
create index failures_issue on failures (issue_id) where issue_id is not null;

create unique index failure_issues_fingerprint on failure_issues (fingerprint);
create index run_issues_issue on run_issues (issue_id, run_id);

create unique index cache_lookups_key on cache_lookups (process_id, sequence);
create index cache_lookups_run on cache_lookups (run_id, time_us, id);
create index cache_lookups_compile on cache_lookups (compile_key);

create unique index cudagraph_skips_key on cudagraph_skips (process_id, sequence);
create index cudagraph_skips_run on cudagraph_skips (run_id, time_us, id);
create index cudagraph_skips_compile on cudagraph_skips (compile_key);

create unique index step_windows_key on step_windows (process_id, sequence);
create index step_windows_run on step_windows (run_id, time_us, id);

create unique index cudagraphs_key on cudagraphs (process_id, sequence);
create index cudagraphs_run on cudagraphs (run_id, time_us, id);
create index cudagraphs_compile on cudagraphs (compile_key);
create index cudagraphs_reason on cudagraphs (reason_id) where reason_id is not null;

create unique index rerecording_reasons_fingerprint on rerecording_reasons (fingerprint);
create index run_rerecordings_reason on run_rerecordings (reason_id, run_id);

create unique index symbols_key on symbols (process_id, sequence);
create index symbols_run on symbols (run_id, kind, id);
create index symbols_compile on symbols (compile_key);
create index symbols_stack on symbols (stack_id) where stack_id is not null;

create unique index guard_sets_artifact on guard_sets (artifact_id);
create index guard_sets_run on guard_sets (run_id, latency_us desc, id);
create index guard_sets_compile on guard_sets (compile_key);

create unique index aot_graphs_artifact on aot_graphs (artifact_id);
create index aot_graphs_run on aot_graphs (run_id, id);
create index aot_graphs_compile on aot_graphs (compile_key);

create index run_source_excerpts_excerpt on run_source_excerpts (excerpt_id);

-- == graph breaks and recompiles ==

create unique index distinct_breaks_fingerprint on distinct_breaks (fingerprint);

create unique index graph_breaks_key on graph_breaks (process_id, sequence);
create index graph_breaks_run on graph_breaks (run_id, time_us, id);
create index graph_breaks_distinct on graph_breaks (distinct_id, time_us);
create index graph_breaks_compile on graph_breaks (compile_key);

create index run_breaks_distinct on run_breaks (distinct_id, run_id);

create unique index recompile_causes_fingerprint on recompile_causes (fingerprint);

create unique index recompiles_key on recompiles (process_id, sequence);
create index recompiles_run on recompiles (run_id, time_us, id);
create index recompiles_compile on recompiles (compile_key);
create index recompiles_cause on recompiles (cause_id);

create index run_causes_cause on run_causes (cause_id, run_id);

create index trials_run on trials (run_id, started_us);
create index trials_base_run on trials (base_run_id);
create index trials_new_run on trials (new_run_id);

-- == the timeline ==

create unique index lanes_key on lanes (process_id, thread);
create index lanes_run on lanes (run_id, process_id, thread);

create unique index span_names_name on span_names (name);

create index spans_compile on spans (compile_key);
create index spans_payload on spans (payload_id) where payload_id is not null;
-- The spans of one depth of a lane follow one another, so the last that began before a window is the only one of its
-- depth that can reach into it. spans_depth does all that spans_begin did: what begins in a window, depth by depth.
create index spans_depth on spans (lane_id, depth, begin_us, duration_us);
create index spans_duration on spans (lane_id, duration_us desc, begin_us, depth);
-- Cache hits and misses and their like; few, and they must not be lost among phases.
create index spans_instant on spans (lane_id, begin_us, name_id) where instant = 1;

create index span_totals_name on span_totals (name_id);

-- == repros ==

create unique index repros_key on repros (process_id, position);
create index repros_run on repros (run_id, time_us, id);
-- All that the list of failures groups, so that it reads no row.
create index repros_fingerprint on repros (
  fingerprint, state, time_us, run_id, node_count, torch_version, device
);
create index repros_compile on repros (compile_key) where compile_key is not null;
create index repros_issue on repros (issue_id, time_us) where issue_id is not null;
create index repros_candidates on repros (run_id) where state = 'candidate';
create index repros_program on repros (program_id) where program_id is not null;
create index repros_dynamo_program on repros (dynamo_program_id) where dynamo_program_id is not null;

create index repro_results_repro on repro_results (repro_id, started_us);
create index repro_results_minimal on repro_results (repro_id, node_count) where node_count is not null;
create index repro_results_program on repro_results (program_id) where program_id is not null;

-- == benchmarks ==

create unique index series_key on series
  (suite, model, mode, dtype, device, hardware, backend, dynamic, batch_size, world_size);
create index series_model on series (model, suite);

create unique index results_key on results (run_id, series_id, experiment);
-- The newest of each experiment is one step; the history of a series is read whole.
create index results_series on results (series_id, experiment, time_us desc, id desc);

create index run_summaries_set on run_summaries
  (definition, suite, mode, dtype, device, hardware, backend, dynamic, world_size, run_id);

create index commits_time on commits (time_us, hash, parent_hash);

-- == incidents and alerts ==

create index incidents_newest on incidents (first_us desc, id);
create index incidents_noticed on incidents (noticed_us desc, id);
create index incidents_state on incidents (state, status, severity, first_us desc);
create index incidents_run on incidents (first_bad_run_id);

create index incident_comments_incident on incident_comments (incident_id, id);

create index series_changes_series on series_changes (subject, suite, model, metric);
create index series_changes_newest on series_changes (first_us desc, id);
create index series_changes_first_run on series_changes (first_run_id);
create index series_changes_model on series_changes (model, first_us desc);
create index series_changes_incident on series_changes (incident_id);

create index incident_deliveries_changed on incident_deliveries (changed_us desc, rule, channel, incident_id, event);
create index incident_deliveries_state on incident_deliveries (state, changed_us);

-- == search ==

create unique index search_documents_key on search_documents (run_id, kind, ref_id);
create index search_documents_payload on search_documents (payload_id) where payload_id is not null;

-- The words alone. Without "_" as a letter, "addmm_15" is found by "addmm" and "fused_addmm" inside a kernel's name;
-- detail = full keeps positions, which phrases (torch.ops.aten.addmm) need. The tags are a document's run and kind.
create virtual table search_words using fts5 (
  body, tags, content = '', tokenize = "unicode61 remove_diacritics 0", detail = full
);

-- == access, and what boxes send ==

create index sessions_token on sessions (token_id);

create index login_failures_age on login_failures (failed_us);

create index audit_subject on audit (subject, id);

create index streams_updated on streams (updated_us);

create index sent_texts_received on sent_texts (received_us);

-- == a second engine ==

insert into publications (id, pub, removed_pub) values (1, 1, 1);
