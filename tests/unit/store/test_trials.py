"""Trials are kept with their run, newest first, and go with it."""

import pytest

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.dashboard import Trial, get_trial_of, list_trials, save_trial
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.run_causes import list_tried_fixes
from compileboard.collectors.store.trash import delete_run, restore_run


def trial(id, **changes):
    values = {
        "run_id": "A",
        "base_run_id": "B",
        "new_run_id": "C",
        "fix_id": "print",
        "cause_fingerprint": None,
    }
    texts = {
        "title": "Take print out",
        "patch": "--- a\n",
        "summary": "1 break → 0",
        "outcome": "improved",
    }
    times = {"settings": ("x = 1",), "started_us": 5, "ended_us": 9, "result": {"metrics": []}}
    return Trial(id=id, **{**values, **texts, **times, **changes})


@pytest.fixture
def connection(tmp_path):
    connection = open_writer(tmp_path / "t.db")
    migrate_connection(connection)
    for run_id in "ABC":
        connection.execute(
            "insert into runs (id, name, source, state, level, keep_source, command, "
            "started_us, heartbeat_us, "
            "gpu_count, facts) values (?, 'n', 'live', 'finished', 'light', 1, '', 1, 1, 0, '{}')",
            (run_id,),
        )
    yield connection
    connection.close()


def test_trials_of_a_run_come_newest_first(connection):
    save_trial(connection, trial("1"))
    save_trial(connection, trial("2", started_us=7, outcome="failed"))
    assert [entry.id for entry in list_trials(connection, "A")] == ["2", "1"]
    assert list_trials(connection, "A")[1] == trial("1")
    assert list_trials(connection, "A")[0].outcome_label == "Failed"
    assert list_trials(connection, "B") == []


def test_times_that_grew_and_what_became_fewer_are_named(connection):
    metrics = [
        {"name": "graph_break_count", "base": 2.0, "new": 1.0, "word": "better"},
        {"name": "recompile_count", "base": 6.0, "new": 3.0, "word": "better"},
        {"name": "compile_s", "base": 1.0, "new": 1.12, "change": 0.12, "word": "single"},
        {"name": "abs_latency_ms", "base": 1.0, "new": 2.0, "change": 1.0, "word": "worse"},
    ]
    result = {"metrics": metrics, "is_step_changed": False}
    save_trial(connection, trial("1", result=result))
    save_trial(connection, trial("2", started_us=7, result={**result, "is_step_changed": True}))
    slower = [tried.slower for tried in list_tried_fixes(connection, "A")]
    compile_time = "compile time 12% more in one execution"
    assert sorted(slower) == [(compile_time,), (compile_time, "step 100% more")]
    (tried, _same) = list_tried_fixes(connection, "A")
    assert (tried.fewer, tried.verdict) == (
        "1 graph break and 3 recompiles fewer",
        "Verified, takes longer",
    )
    assert (tried.compile_label, tried.saved_share) == ("one sample each", pytest.approx(-0.12))


def test_a_run_knows_the_trial_that_it_was_made_for(connection):
    save_trial(connection, trial("1"))
    assert [get_trial_of(connection, run_id) for run_id in "ABC"] == [None, trial("1"), trial("1")]


def test_a_trial_publishes_its_run(connection):
    before = connection.execute("select pub from runs where id = 'A'").fetchone()[0]
    save_trial(connection, trial("1"))
    assert connection.execute("select pub from runs where id = 'A'").fetchone()[0] > (before or 0)


def test_a_trial_goes_and_comes_back_with_its_run(connection):
    save_trial(connection, trial("1"))
    assert delete_run(connection, "A")
    assert get_trial_of(connection, "C") is None
    assert restore_run(connection, "A")
    assert list_trials(connection, "A") == [trial("1")]


def test_a_trial_outlives_the_runs_that_it_made(connection):
    save_trial(connection, trial("1"))
    assert delete_run(connection, "C")
    assert list_trials(connection, "A") == [trial("1", new_run_id=None)]


def test_a_trial_comes_back_without_a_run_that_was_deleted_since(connection):
    save_trial(connection, trial("1"))
    assert delete_run(connection, "A") and delete_run(connection, "B")
    assert restore_run(connection, "A")
    assert list_trials(connection, "A") == [trial("1", base_run_id=None)]
