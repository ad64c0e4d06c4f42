from __future__ import annotations

import sqlite3

from compileboard.collectors.store.run_causes import load_causes


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
