"""Findings: what changed for good in every series, since when, and what may have caused it.

A finding's `evidence` is JSON, made by `app.incidents.evidence` and read by pages, reports and alerts:

    before, after   the runs next to the change: run_id, name, started_us, commit, subject, torch
    environment     [{word, before, now}]: GPU, driver, torch, triton, Python that changed between them
    commits         {known, count, listed: [{hash, author, subject, time_us}]}: after the one, up to the other
    causes          [{kind, word, label, before, after, break_id, cause_id}]: what appeared in the same range;
                    kind is graph_break, recompile, guard, cache, setting or failure; word is new, resolved, more often,
                    less often or changed; before and after are counts; ids lead to the pages of breaks and recompiles
    points          {before, after}: how many runs each level has
"""
