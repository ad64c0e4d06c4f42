"""Incidents: lasting changes in every series, grouped by commit range, with likely causes.

A series change's `evidence` is JSON, made by `app.incidents.evidence`:

    before, after   the runs next to the change: run_id, name, started_us, commit, subject, torch
    environment     [{word, before, now}]: GPU, driver, torch, triton, Python that changed
    commits         {known, count, listed: [{hash, author, subject, time_us}]}: after `before` to
                    `after`, inclusive
    causes          [{kind, word, label, before, after, break_id, cause_id, rerecording_id}]: what
                    appeared in the same range; kind is graph_break, recompile, rerecording,
                    guard, cache, setting, counter, eager_mode or failure; word is new, resolved,
                    more often, less often or changed; before and after are counts
    points          {before, after}: number of runs at each level

An incident's evidence:

    last_good, first_bad, recovered     runs, as before and after
    commits, environment                of the range between the first two
    measured_as, models, others         texts: the configuration, the models, what else changed
    headline        the most important changes: {change_id, subject, metric, label, values, size,
                    direction}
    causes          the likely ones, made by `app.incidents.likely_causes`: {kind, text, reason,
                    file, line, source_line, function, break_id, cause_id, before, after, also,
                    checks: [{passed, text}]}
"""
