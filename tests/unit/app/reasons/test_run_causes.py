from __future__ import annotations

import sqlite3
from dataclasses import replace

from compileboard.collectors.fixes.causes import Cause, build_causes
from compileboard.collectors.fixes.fix import TriedFix
from compileboard.collectors.store.run_causes import load_causes, load_recorded_run


def _check_sums(reader: sqlite3.Connection) -> int:
    count = 0
    for row in reader.execute("select run_id, compile_us from run_totals").fetchall():
        causes = load_causes(reader, row["run_id"])
        assert sum(cause.saved_us or 0 for cause in causes) <= row["compile_us"]
        count += len(causes)
    return count


def test_savings_of_recorded_runs_never_pass_their_compile_time(
    recorded_reader: sqlite3.Connection, explored_reader: sqlite3.Connection
) -> None:
    assert _check_sums(recorded_reader) > 20
    assert _check_sums(explored_reader) > 3


def test_a_break_in_a_called_function_has_the_code_after_it(
    recorded_reader: sqlite3.Connection,
) -> None:
    runs = [row["run_id"] for row in recorded_reader.execute("select run_id from run_totals")]
    causes = [cause for run_id in runs for cause in load_causes(recorded_reader, run_id)]
    assert any(part.recompile_keys for cause in causes for part in cause.resumed)
    assert all(not cause.function or "wrap_inline" not in cause.function for cause in causes)


def _make_trial(cause: Cause, outcome: str) -> TriedFix:
    first = cause.fixes[0]
    words = (outcome, "", first.title, None, None, first.fix.id, cause.fingerprint, 1)
    return TriedFix(outcome, *words, settings=first.settings, base_us=5_000, new_us=4_000)


def test_a_fix_keeps_its_number_whatever_a_trial_finds(
    explored_reader: sqlite3.Connection,
) -> None:
    orders = set()
    for row in explored_reader.execute("select run_id from run_totals").fetchall():
        run = load_recorded_run(explored_reader, row["run_id"])
        causes = build_causes(run)
        numbers = {cause.fingerprint: cause.number for cause in causes}
        assert [*numbers.values()] == [*range(1, len(causes) + 1)]
        tried = [_make_trial(cause, "improved") for cause in causes if cause.is_fixable]
        failed = [replace(trial, outcome="different") for trial in tried]
        for trials in ([], tried[-1:], tried, failed[:1], [*failed[:1], *tried[-1:]]):
            ordered = build_causes(replace(run, trials=trials))
            assert {cause.fingerprint: cause.number for cause in ordered} == numbers
            orders.add(tuple(cause.number for cause in ordered))
    assert any(list(order) != sorted(order) for order in orders)
