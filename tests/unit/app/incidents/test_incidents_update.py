"""Findings of real histories, recorded day by day through the one ingest."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.metrics import BY_NAME
from compileboard.app.benchmarks.series_queries import SeriesRun
from compileboard.app.incidents.detection import detect_changes, make_id, match
from compileboard.app.incidents.model import SeriesChange, describe_cause
from compileboard.app.incidents.queries import list_comments, load_changes, load_incidents
from compileboard.app.incidents.series import Series
from compileboard.app.incidents.update import UpdateReport, update_incidents
from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.store.incident_triage import SERIES, save_comment
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.trash import delete_run
from tests.unit.app.benched import ACCURACY, DAY_US, add_results, list_break, measure
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.noisy import NOISE
from tests.unit.app.seed import START_US

N = 16
FLAT = [2.0] * N
STEPPED = FLAT + [1.6] * 4
KEY = dict.fromkeys(SERIES, "") | {"model": "mlp"}


def run_of(day: int) -> str:
    return f"01JDAY{day:020d}"


def list_runs(count: int) -> list[SeriesRun]:
    return [
        SeriesRun(day, run_of(day), START_US + day * DAY_US, "main", None, "finished")
        for day in range(count)
    ]


def count_before(change: SeriesChange) -> int:
    return int(change.evidence["points"]["before"])


def record(
    store: sqlite3.Connection,
    history: Sequence[float | None],
    first: int = 0,
    *,
    model: str = "mlp",
    others: Sequence[str] = ("a", "b", "c", "d"),
) -> None:
    """Record a run a day of a model with some speedups, and of others that never change; None is a
    failure.
    """
    for day, value in enumerate(history, first):
        wobble = 1 + NOISE[day % 97] / 100
        measured = measure(
            model=model,
            values={"speedup": value * wobble} if value else {},
            task=f"{model}-performance",
        )
        measured = measured if value else replace(measured, status="failed", reason="OOM")
        steady = [
            measure(model=other_model, values={"speedup": 1.5 * wobble}, task=None)
            for other_model in others
        ]
        add_results(store, run_of(day), measured, *steady, started_us=START_US + day * DAY_US)


def look(
    store: sqlite3.Connection, database: Path, *, everything: bool = False
) -> list[SeriesChange]:
    update_incidents(database, everything=everything)
    return [
        finding
        for finding in load_changes(store)
        if finding.subject == "model" and finding.metric in ("speedup", "passes")
    ]


def test_a_step_names_runs_levels_and_size(store: sqlite3.Connection, database: Path) -> None:
    record(store, STEPPED)
    (change,) = look(store, database)
    assert (change.kind, change.direction, change.state) == ("step", "worse", "confirmed")
    assert (change.before_run_id, change.first_run_id, change.low_run_id, change.high_run_id) == (
        run_of(N - 1),
        *[run_of(N)] * 3,
    )
    assert change.before_value == pytest.approx(2, rel=0.01) and change.relative == pytest.approx(
        -0.2, abs=0.01
    )
    assert change.evidence["points"] == {"before": N, "after": 4}
    assert change.sentence == "mlp: speedup 1.99× → 1.6× (−20%)"


@pytest.mark.parametrize("experiment", ["performance", "accuracy"])
def test_a_failure_without_a_batch_size_belongs_to_its_models_series(
    store: sqlite3.Connection, database: Path, experiment: str
) -> None:
    """Upstream writes batch_size 0 for what failed, and that run's other batch size passes."""
    failed = measure(
        experiment=experiment,
        batch_size=None,
        status="failed",
        reason="unknown",
        values={},
        repeats={},
    )
    for day in range(-2, 9):
        others = [
            measure(batch_size=4),
            *([measure(**ACCURACY, batch_size=4)] if experiment == "accuracy" else []),
        ]
        passing = [measure(**ACCURACY), measure()] if experiment == "accuracy" else [measure()]
        failing = [failed, *passing[1:]]
        own = failing if day in (-2, 5, 6) else passing
        add_results(store, run_of(day + 2), *others, *own, started_us=START_US + day * DAY_US)
        if day == 5:
            (change,) = [change for change in look(store, database) if change.direction == "worse"]
            assert (change.first_run_id, change.batch_size, change.before_run_id) == (
                run_of(7),
                8,
                run_of(6),
            )
    for everything in (False, True):
        changes = look(store, database, everything=everything)
        assert {change.batch_size for change in changes} == {8}
        assert [change.recovered_run_id for change in changes if change.direction == "worse"] == [
            run_of(9)
        ]


@pytest.mark.parametrize(
    ("eager_ms", "compiled_ms", "directions"),
    [
        (3.2, 2.0, {"speedup": "changed", "eager_latency_ms": "changed"}),
        (4.0, 2.5, {"speedup": "worse", "abs_latency_ms": "worse"}),
        (6.0, 3.0, {"abs_latency_ms": "changed", "eager_latency_ms": "changed"}),
    ],
)
def test_a_speed_that_moved_with_eager_mode_is_not_worse(
    store: sqlite3.Connection,
    database: Path,
    eager_ms: float,
    compiled_ms: float,
    directions: dict[str, str],
) -> None:
    for day in range(N + 5):
        eager, compiled = (4.0, 2.0) if day < N else (eager_ms, compiled_ms)
        eager *= 1 + NOISE[day % 97] / 200
        compiled *= 1 + NOISE[(day + 31) % 97] / 200
        values = {"speedup": eager / compiled, "eager_latency": eager, "abs_latency": compiled}
        add_results(
            store,
            run_of(day),
            measure(values=values, repeats={}),
            started_us=START_US + day * DAY_US,
        )
    update_incidents(database)
    changes = [finding for finding in load_changes(store) if finding.subject == "model"]
    assert {change.metric: change.direction for change in changes} == directions
    assert {change.first_run_id for change in changes} == {run_of(N)}


def test_a_wrong_answer_is_neither_faster_nor_slower(
    store: sqlite3.Connection, database: Path
) -> None:
    for day, speedup in enumerate(STEPPED):
        wobble, start_us = 1 + NOISE[day % 97] / 100, START_US + day * DAY_US
        answer = measure(**ACCURACY | {"accuracy": "pass" if day < N else "fail_accuracy"})
        add_results(
            store,
            run_of(day),
            measure(values={"speedup": speedup * wobble}),
            answer,
            started_us=start_us,
        )
    assert {(change.metric, change.direction) for change in look(store, database)} == {
        ("passes", "worse")
    }


def test_a_finding_waits_for_a_second_run_to_be_confirmed(
    store: sqlite3.Connection, database: Path
) -> None:
    record(store, STEPPED[: N + 2])
    (suspected,) = look(store, database)
    record(store, STEPPED[-1:], first=N + 2)
    (confirmed,) = look(store, database)
    assert (suspected.state, suspected.confirmed_us) == ("unconfirmed", None)
    assert (confirmed.id, confirmed.state) == (suspected.id, "confirmed")
    assert confirmed.confirmed_us == START_US + (N + 2) * DAY_US


def test_a_slower_second_process_is_found_beside_performance(
    store: sqlite3.Connection, database: Path
) -> None:
    for day, wobble in enumerate(1 + noise / 100 for noise in NOISE[: N + 4]):
        second = measure(
            experiment="caching_precompile",
            values={"second_process_latency": (3.0 if day < N else 5.0) * wobble},
            repeats={},
            task=None,
        )
        add_results(
            store,
            run_of(day),
            measure(values={"speedup": 2 * wobble}),
            second,
            started_us=START_US + day * DAY_US,
        )
    update_incidents(database)
    (change,) = [
        change for change in load_changes(store) if change.metric == "second_process_latency_s"
    ]
    assert (change.direction, change.state, change.first_run_id) == (
        "worse",
        "confirmed",
        run_of(N),
    )
    assert change.sentence == "mlp: first call in a second process 2.99 s → 5 s (+67%)"


def test_one_slow_run_is_no_finding(store: sqlite3.Connection, database: Path) -> None:
    record(store, [*FLAT, 1.2, *FLAT])
    assert look(store, database) == []


def test_what_was_suspected_and_not_borne_out_goes(
    store: sqlite3.Connection, database: Path
) -> None:
    record(store, STEPPED[: N + 2])
    (change,) = look(store, database)
    record(store, [2.0] * 6, first=N + 2)
    changes = look(store, database)
    assert [finding.recovered_run_id for finding in changes] in ([], [run_of(N + 2)])
    assert all(finding.id == change.id and finding.state == "unconfirmed" for finding in changes)


def test_a_step_that_comes_again_is_a_finding_again(
    store: sqlite3.Connection, database: Path
) -> None:
    record(store, [*FLAT, *[1.6] * 8, *FLAT, *[1.6] * 8])
    first, again = sorted(look(store, database), key=lambda change: change.first_us)
    assert (first.first_run_id, first.recovered_run_id) == (run_of(N), run_of(N + 8))
    assert (again.first_run_id, again.recovered_run_id, again.state) == (
        run_of(2 * N + 8),
        None,
        "confirmed",
    )


@pytest.mark.parametrize("seed", range(8))
def test_no_run_finds_a_step_and_confirms_it_as_well(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.concatenate((np.full(30, 100.0), np.full(12, 110.0))) * rng.normal(1, 0.03, 42)
    runs = list_runs(42)
    before: list[SeriesChange] = []
    for count in range(30, 43):
        line = Series("model", KEY, BY_NAME["abs_latency_ms"], runs[:count], values[:count])
        steps = [change for change in detect_changes(line) if change.kind == "step"]
        sure = [change for change in steps if change.confirmed_us is not None]
        assert all(
            any(abs(count_before(change) - count_before(earlier)) <= 3 for earlier in before)
            for change in sure
        )
        before += steps


def test_a_step_that_recovered_is_one_finding(store: sqlite3.Connection, database: Path) -> None:
    record(store, STEPPED)
    (change,) = look(store, database)
    record(store, FLAT, first=N + 4)
    (again,) = look(store, database)
    assert (again.id, again.recovered_run_id) == (change.id, run_of(N + 4))


def test_ten_small_steps_are_found_although_none_crosses_a_threshold(
    store: sqlite3.Connection, database: Path
) -> None:
    record(store, [*FLAT, *[2 * 0.99**n for n in range(1, 11)], *[2 * 0.99**10] * 4])
    (change,) = look(store, database)
    assert (change.kind, change.direction) == ("drift", "worse")
    assert change.relative == pytest.approx(-0.096, abs=0.02)


def test_a_model_that_fails_since_a_run_is_found(store: sqlite3.Connection, database: Path) -> None:
    record(store, [*FLAT, None, None, None])
    (change,) = look(store, database)
    assert change.sentence == "mlp: fails"
    assert "failure, new: OOM" in map(describe_cause, change.evidence["causes"])


def test_a_model_that_stopped_is_found_and_comes_back(
    store: sqlite3.Connection, database: Path
) -> None:
    record(store, FLAT)
    for day in range(N, N + 4):
        steady = [measure(model=model, values={"speedup": 1.5}) for model in ("a", "b", "c", "d")]
        add_results(store, run_of(day), *steady, started_us=START_US + day * DAY_US)
    (change,) = look(store, database)
    assert (change.kind, change.first_run_id, change.before_run_id) == (
        "vanished",
        run_of(N),
        run_of(N - 1),
    )
    record(store, FLAT[:1], first=N + 4)
    assert [(finding.id, finding.recovered_run_id) for finding in look(store, database)] == [
        (change.id, run_of(N + 4))
    ]


def test_a_model_that_stopped_long_ago_stays_found(
    store: sqlite3.Connection, database: Path
) -> None:
    others = ["mlp", "a", "b", "c"]
    for day in range(N + 90):
        steady = [
            measure(model=model, values={"speedup": 1.5}, task=None)
            for model in others[0 if day < N else 1 :]
        ]
        add_results(store, run_of(day), *steady, started_us=START_US + day * DAY_US)
        if day in (N + 4, N + 60, N + 78, N + 89):
            (change,) = look(store, database)
            assert (change.kind, change.model, change.state) == ("vanished", "mlp", "confirmed")


def test_a_suite_that_stopped_while_others_go_on_is_found_and_comes_back(
    store: sqlite3.Connection, database: Path
) -> None:
    def measure_on(days: Sequence[int], *suites: str) -> list[SeriesChange]:
        for day in days:
            measured = [
                measure(suite=suite, values={"speedup": 1.5}, task=None) for suite in suites
            ]
            add_results(store, run_of(day), *measured, started_us=START_US + day * DAY_US)
        update_incidents(database)
        return [finding for finding in load_changes(store) if finding.subject == "suite"]

    assert measure_on(range(12), "builtin", "nightly") == []
    assert measure_on(range(12, 21), "builtin") == []
    (change,) = measure_on([21, 22], "builtin")
    assert (change.suite, change.kind, change.state, change.first_run_id) == (
        "nightly",
        "vanished",
        "confirmed",
        run_of(12),
    )
    assert change.sentence == "Suite nightly: no longer measured"
    assert [finding.recovered_run_id for finding in measure_on([23], "builtin", "nightly")] == [
        run_of(23)
    ]
    update_incidents(database, everything=True)
    assert [
        finding.recovered_run_id for finding in load_changes(store) if finding.subject == "suite"
    ] == [run_of(23)]


def test_runs_of_one_chosen_model_stop_no_other(store: sqlite3.Connection, database: Path) -> None:
    record(store, FLAT)
    for day in range(N, N + 5):
        add_results(
            store, run_of(day), measure(values={"speedup": 2.0}), started_us=START_US + day * DAY_US
        )
    assert look(store, database) == []


def test_new_graph_breaks_are_the_suspected_cause(
    store: sqlite3.Connection, database: Path
) -> None:
    record(store, STEPPED)
    for day in range(N, N + 4):
        started_us = START_US + day * DAY_US
        Ingestor(store).ingest(
            run_of(day), list_break(f"{run_of(day)}/mlp-performance", started_us), now_us=started_us
        )
    (change,) = look(store, database)
    causes = [describe_cause(cause) for cause in change.evidence["causes"]]
    assert (
        causes[0].startswith("graph break, new: Dynamo does not know how to trace")
        and "(0 → 2)" in causes[0]
    )
    assert any(cause.startswith("recompile, new: tensor 'x' size mismatch") for cause in causes)
    assert all(
        cause["break_id"] for cause in change.evidence["causes"] if cause["kind"] == "graph_break"
    )


def test_the_range_of_commits_is_said(store: sqlite3.Connection, database: Path) -> None:
    record(store, STEPPED)
    (change,) = look(store, database)
    assert change.range.startswith("between ")
    assert change.evidence["before"]["commit"] != change.evidence["after"]["commit"]


def test_branches_are_series_of_their_own(store: sqlite3.Connection, database: Path) -> None:
    record(store, FLAT)
    record(store, [1.0] * N, first=30)
    store.execute("update runs set git_branch = 'slow' where id >= ?", (run_of(30),))
    store.commit()
    assert look(store, database) == []


def test_new_runs_alone_are_looked_at(store: sqlite3.Connection, database: Path) -> None:
    record(store, FLAT)
    assert update_incidents(database).run_count == N
    assert update_incidents(database) == UpdateReport(0, 0, (), 0, 0)
    record(store, [2.0], first=N)
    assert (
        update_incidents(database).run_count,
        update_incidents(database, everything=True).run_count,
    ) == (1, N + 1)


def test_a_run_that_takes_the_place_of_a_deleted_one_is_looked_at(
    store: sqlite3.Connection, database: Path
) -> None:
    record(store, FLAT)
    assert update_incidents(database).run_count == N
    delete_run(store, run_of(N - 1))
    record(store, [2.0], first=N)
    assert update_incidents(database).run_count == N
    delete_run(store, run_of(3))
    record(store, [2.0], first=N + 1)
    assert update_incidents(database).run_count == N


def test_two_findings_never_have_one_id() -> None:
    values = np.array([*[10.0] * 10, *[20.0] * 10, *[40.0] * 10])
    line = Series("model", KEY, BY_NAME["abs_latency_ms"], list_runs(30), values)
    first, other = detect_changes(line)
    other = replace(other, first_run_id=first.first_run_id)  # as one that had moved there since
    matched, _lost = match(
        [first, other], [], {run_id: day for day, run_id in enumerate(line.run_ids)}
    )
    ids = [found.id for found, _stored in matched]
    assert ids[0] == make_id(first) and len(set(ids)) == 2


def test_day_by_day_finds_what_all_at_once_finds(store: sqlite3.Connection, database: Path) -> None:
    history = [*FLAT, *[1.6] * 6, *FLAT, *[2.4] * 25, None, None, None]
    for day, value in enumerate(history):
        record(store, [value], first=day)
        update_incidents(database)
    grown = {
        (finding.id, finding.state, finding.recovered_run_id)
        for finding in load_changes(store)
        if finding.state != "withdrawn"
    }
    store.execute("delete from series_changes")
    store.execute("delete from incidents")
    store.commit()
    update_incidents(database, everything=True)
    whole = {
        (finding.id, finding.state, finding.recovered_run_id) for finding in load_changes(store)
    }
    assert {row[1:] for row in grown} == {row[1:] for row in whole} and len(grown) == len(whole)


def test_what_people_said_stays_when_a_finding_is_withdrawn(
    store: sqlite3.Connection, database: Path
) -> None:
    record(store, STEPPED)
    (change,) = look(store, database)
    save_comment(store, str(change.incident_id), "acknowledge", author="Ada", text="on it")
    for day in range(N - 4, N):
        delete_run(store, run_of(day))
    record(store, [3.0, 1.0, 3.0, 1.0, 3.0, 1.0], first=N + 4)
    (again,) = [finding for finding in look(store, database) if finding.id == change.id]
    assert [(row.author, row.text) for row in list_comments(store, str(again.incident_id))] == [
        ("Ada", "on it")
    ]
    assert {
        incident.status for incident in load_incidents(store) if incident.id == again.incident_id
    } == {"acknowledged"}


def test_a_running_run_is_not_looked_at(store: sqlite3.Connection, database: Path) -> None:
    record(store, STEPPED)
    store.execute("update runs set state = 'running' where id >= ?", (run_of(N),))
    store.commit()
    assert look(store, database) == []
    store.execute("update runs set state = 'finished'")
    store.commit()
    assert [change.state for change in look(store, database)] == ["confirmed"]


def wrong(**changes: object) -> BenchMeasured:
    return measure(
        experiment="accuracy", accuracy="fail_accuracy", values={}, repeats={}, **changes
    )


def test_a_wrong_answer_is_a_failure(store: sqlite3.Connection, database: Path) -> None:
    record(store, [2.0] * (N + 3))
    for day in range(N, N + 3):
        failed = wrong(
            status="failed",
            reason="fail_accuracy",
            process_id=f"{run_of(day)}/accuracy",
            sequence=900,
        )
        Ingestor(store).ingest(run_of(day), [failed], now_us=START_US)
    (change,) = look(store, database)
    assert change.sentence == "mlp: fails"


@on_both_engines
def test_a_run_that_lost_a_model_is_no_best_and_no_step_of_its_suite(
    client: FlaskClient, store: sqlite3.Connection, database: Path
) -> None:
    history = [0.7] * 12 + [None] * 3
    record(
        store, history, others=("a", "b", "c", "d")
    )  # 0.7 of five lost: the mean of the others is the highest ever
    update_incidents(database)
    steps = [
        finding.metric
        for finding in load_changes(store)
        if finding.subject == "suite" and finding.kind == "step"
    ]
    assert "geomean_speedup" not in steps
    (series,) = client.get("/api/v1/trend?metric=speedup").json["data"]["series"]  # type: ignore[index]
    assert [point["is_incomplete"] for point in series["points"]] == [False] * 12 + [True] * 3
    page = client.get("/trends").text
    assert (
        "1 of 5 models failed" in page and page.count(" of the others, 1 of 5 models failed") >= 3
    )
