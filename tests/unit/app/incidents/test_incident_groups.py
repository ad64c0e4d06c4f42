"""Which changes are one incident, and that an incident stays itself while runs shift its ranges."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from compileboard.app.alerts.queries import list_deliveries
from compileboard.app.incidents.model import Incident
from compileboard.app.incidents.queries import list_comments, load_changes, load_incidents
from compileboard.collectors.store.dashboard import OPENED, AlertKey, queue_deliveries
from compileboard.collectors.store.incident_triage import save_comment
from tests.unit.app.benched import RUNS
from tests.unit.app.series_changes import keep, make_change

ALONE: dict[str, Any] = {"environment": [], "causes": []}
EARLY = {
    "before_run_id": RUNS[0],
    "first_run_id": RUNS[1],
    "low_run_id": RUNS[1],
    "high_run_id": RUNS[1],
}
LATE = {
    "before_run_id": RUNS[1],
    "first_run_id": RUNS[2],
    "low_run_id": RUNS[2],
    "high_run_id": RUNS[2],
}
WIDE = EARLY | {"first_run_id": RUNS[2], "high_run_id": RUNS[2]}
SUITE = {"subject": "suite", "model": "", "batch_size": 0, "metric": "geomean_speedup"}


def group(store: sqlite3.Connection, *changes: dict[str, Any]) -> list[set[str]]:
    keep(store, *changes)
    groups: dict[str | None, set[str]] = {}
    for change in load_changes(store):
        groups.setdefault(change.incident_id, set()).add(change.id)
    return sorted(groups.values(), key=sorted)


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        (EARLY, LATE, False),
        (EARLY, WIDE, True),
        (
            EARLY | {"model": "other"},
            WIDE,
            True,
        ),  # one run may have brought both, and neither has a cause
        (EARLY | {"model": "other"}, WIDE | {"direction": "better"}, False),
        (EARLY | {"branch": "next"}, EARLY, False),
        (EARLY | {"suite": "other"}, EARLY, False),
        (EARLY | {"kind": "drift"}, EARLY, False),
        (EARLY | {"kind": "drift"}, WIDE | {"kind": "drift"}, True),
    ],
)
def test_changes_of_a_model_join_where_their_ranges_overlap(
    store: sqlite3.Connection, first: dict[str, Any], second: dict[str, Any], is_one: bool
) -> None:
    changes = (
        make_change(id="a", **first, evidence=ALONE),
        make_change(id="b", **second, evidence=ALONE),
    )
    assert group(store, *changes) == ([{"a", "b"}] if is_one else [{"a"}, {"b"}])


def test_one_run_has_to_have_brought_changes_of_several_models(store: sqlite3.Connection) -> None:
    """Three models: the first and the last have no run in common, and do not join through the
    second.
    """
    spans = {"a": EARLY, "b": WIDE, "c": LATE}
    groups = group(
        store,
        *(make_change(id=id_, model=id_, **span, evidence=ALONE) for id_, span in spans.items()),
    )
    assert groups == [{"a", "b"}, {"c"}]


def test_small_steps_within_a_gradual_change_of_several_models_belong_to_it(
    store: sqlite3.Connection,
) -> None:
    drifts = [
        make_change(id=f"d{n}", model=f"d{n}", kind="drift", relative=-0.1, **WIDE, evidence=ALONE)
        for n in "123"
    ]
    small, large = (
        make_change(id=id_, model=id_, **EARLY, evidence=ALONE) for id_ in ("small", "large")
    )
    keep(store, *drifts, small | {"relative": -0.04})
    assert len(load_incidents(store)) == 1
    keep(store, *drifts, small | {"relative": -0.04}, large | {"relative": -0.5})
    assert len(load_incidents(store)) == 2


BROKEN = ALONE | {
    "causes": [{"kind": "graph_break", "word": "new", "label": "x", "break_id": "0" * 16}]
}


@pytest.mark.parametrize(
    ("measured", "is_one"),
    [
        ({"metric": "abs_latency_ms"}, True),
        ({"metric": "graph_breaks"}, False),  # a count is not noisy
        ({"metric": "abs_latency_ms", "model": "other"}, False),
        ({"metric": "abs_latency_ms", "direction": "better"}, False),
        ({"metric": "abs_latency_ms", "kind": "drift"}, False),
    ],
)
def test_a_number_without_a_cause_joins_one_with_a_cause_in_the_next_run(
    store: sqlite3.Connection, measured: dict[str, Any], is_one: bool
) -> None:
    changes = (
        make_change(id="a", **LATE, evidence=BROKEN),
        make_change(id="b", **EARLY, **measured, evidence=ALONE),
    )
    assert group(store, *changes) == ([{"a", "b"}] if is_one else [{"a"}, {"b"}])


def test_models_that_share_a_new_cause_join(store: sqlite3.Connection) -> None:
    driver = ALONE | {"environment": [{"word": "driver", "before": "570", "now": "580"}]}
    assert group(
        store,
        make_change(id="a", model="m1", **EARLY, evidence=driver),
        make_change(id="b", model="m2", **WIDE, evidence=driver),
        make_change(id="c", model="m3", **EARLY, evidence=BROKEN),
        make_change(id="d", model="m4", **WIDE, evidence=BROKEN),
    ) == [{"a", "b"}, {"c", "d"}]


def test_a_suite_joins_the_model_that_moved_it_and_keeps_no_incident_open(
    store: sqlite3.Connection,
) -> None:
    groups = group(
        store,
        make_change(id="a", model="m1", **EARLY, evidence=ALONE, recovered_run_id=RUNS[2]),
        make_change(id="b", model="m2", metric="abs_latency_ms", **LATE, evidence=ALONE),
        make_change(id="suite", **SUITE, **WIDE, evidence=ALONE),
    )
    assert groups == [{"a", "suite"}, {"b"}]
    assert {incident.id: incident.state for incident in load_incidents(store)} == {
        "a": "recovered",
        "b": "open",
    }


@pytest.mark.parametrize(
    ("recovered", "span", "state"),
    [
        ("ab", (RUNS[2], RUNS[2]), "recovered"),
        ("ab", (RUNS[1], RUNS[2]), "recovered"),
        ("ab", (RUNS[1], RUNS[1]), "open"),  # not when the others did
        ("ab", None, "open"),
        ("a", (RUNS[2], RUNS[2]), "open"),  # as many that recovered as did not is no majority
    ],
)
def test_a_noisy_series_keeps_no_incident_open_that_is_over(
    store: sqlite3.Connection, recovered: str, span: tuple[str, str] | None, state: str
) -> None:
    noisy = ALONE | {"may_be_back": span}
    changes = [
        make_change(id=id_, model=id_, evidence=ALONE, recovered_run_id=RUNS[2])
        for id_ in recovered
    ]
    keep(store, *changes, make_change(id="c", model="c", evidence=noisy))
    assert [incident.state for incident in load_incidents(store)] == [state]


def test_what_is_better_or_neutral_is_never_open(store: sqlite3.Connection) -> None:
    keep(
        store,
        make_change(id="a", direction="better", suite="s1", evidence=ALONE),
        make_change(id="b", direction="changed", suite="s2", evidence=ALONE),
        make_change(
            id="c",
            direction="better",
            suite="s3",
            state="unconfirmed",
            confirmed_us=None,
            evidence=ALONE,
        ),
    )
    assert [incident.state for incident in load_incidents(store)] == [
        "closed",
        "closed",
        "unconfirmed",
    ]


def find(store: sqlite3.Connection, *ids: str) -> Sequence[Incident]:
    return [incident for incident in load_incidents(store) if incident.id in ids]


def test_incidents_that_merge_keep_status_comments_and_alerts(store: sqlite3.Connection) -> None:
    keep(store, make_change(id="a", **EARLY, evidence=ALONE))
    keep(
        store,
        make_change(id="b", metric="abs_latency_ms", **LATE, evidence=ALONE),
        now_us=2 * 10**15,
    )
    save_comment(store, "b", "acknowledge", author="Ada", text="on it")
    queue_deliveries(store, "rule", "team", [AlertKey("b", OPENED)], 1)
    keep(store, make_change(id="c", metric="recompiles", **WIDE, evidence=ALONE), now_us=3 * 10**15)
    (merged,) = load_incidents(store)
    assert (merged.id, merged.change_count, merged.status, merged.owner) == (
        "a",
        3,
        "acknowledged",
        "Ada",
    )
    assert [(row.author, row.text) for row in list_comments(store, "a")] == [("Ada", "on it")]
    assert [row.incident_id for row in list_deliveries(store).rows] == ["a"]


def test_a_part_that_splits_off_has_a_copy_of_status_and_comments(
    store: sqlite3.Connection,
) -> None:
    first = (
        make_change(id="a", **EARLY, evidence=ALONE),
        make_change(id="b", metric="recompiles", **EARLY, evidence=ALONE),
    )
    keep(store, *first, make_change(id="c", metric="abs_latency_ms", **WIDE, evidence=ALONE))
    save_comment(store, "a", "ignore", author="Ada", text="known")
    keep(store, make_change(id="c", metric="abs_latency_ms", **LATE, evidence=ALONE))
    assert [
        (row.id, row.change_count, row.status, row.reason) for row in load_incidents(store)
    ] == [
        ("a", 2, "ignored", "known"),
        ("c", 1, "ignored", "known"),
    ]
    assert [[row.text for row in list_comments(store, id_)] for id_ in ("a", "c")] == [
        ["known"],
        ["known"],
    ]


def test_the_part_with_the_id_of_another_incident_gets_a_free_one(
    store: sqlite3.Connection,
) -> None:
    others = [
        make_change(id=id_, metric=metric, **WIDE, evidence=ALONE)
        for id_, metric in METRICS.items()
    ]
    keep(store, make_change(id="a", **EARLY, evidence=ALONE), *others)
    keep(store, *[change | LATE for change in others])
    assert {incident.id: incident.change_count for incident in load_incidents(store)} == {
        "a": 2,
        "a-2": 1,
    }


METRICS = {"b": "recompiles", "c": "graph_breaks"}


def test_detecting_anew_changes_nothing(store: sqlite3.Connection) -> None:
    changes = make_change(id="a", **EARLY), make_change(id="b", metric="abs_latency_ms", **WIDE)
    keep(store, *changes)
    before = load_incidents(store)
    keep(store, *changes)
    assert load_incidents(store) == before
