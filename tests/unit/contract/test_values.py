"""Values fit the types that events and columns declare; what does not fit is left out and noted."""

from __future__ import annotations

from typing import Any

import pytest

from compileboard.collectors.contract.events import (
    ArtifactSeen,
    CommitsSeen,
    Compiled,
    CompileStarted,
    GraphBroke,
    RunStarted,
)
from compileboard.collectors.contract.shapes import GuardSummary
from compileboard.collectors.contract.values import fit_event, fit_json

EVENT: dict[str, Any] = {"process_id": "p", "sequence": 1, "time_us": 2}
GUARDS = {"guard_count": 3, "manager_count": 1, "latency_us": 0.5, "depth": 2, "root_count": 1}
GUARDS |= {"kinds": {"TYPE_MATCH": 3}, "roots": [["L['x']", 3]]}


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        *(("line", value, value) for value in (2**53, -(2**53))),
        *(("line", value, None) for value in (2**53 + 1, -(2**62))),
        *(("duration_us", value, value) for value in (2**43, -(2**43))),
        *(("duration_us", value, None) for value in (2**43 + 1, -(2**53))),
        ("end_us", 2**53, 2**53),
    ],
)
def test_whole_numbers_end_where_a_float_or_a_sum_still_holds_them(
    field: str, value: int, kept: int | None
) -> None:
    event, notes = fit_event(Compiled(**EVENT, **{field: value}))
    assert getattr(event, field) == kept
    assert len(notes) == (kept is None)


def test_phases_and_metrics_are_summed_too() -> None:
    metrics = {
        "guard_count": 2**43 + 1,
        "duration_us": 2**43 + 1,
        "inductor_code_gen_cumulative_compile_time_us": 2**43,
    }
    event, notes = fit_event(
        Compiled(**EVENT, phases_us={"dynamo": 2**44, "aot": 5}, metrics=metrics)
    )
    assert event is not None and event.phases_us == {"aot": 5} and len(notes) == 3
    assert event.metrics["guard_count"] is None and event.metrics["duration_us"] is None


@pytest.mark.parametrize("value", [1e308, float("nan"), float("-inf")])
def test_a_measurement_that_no_sum_could_hold_is_none(value: float) -> None:
    event, notes = fit_event(
        Compiled(**EVENT, metrics={"guard_latency_us": value, "guard_count": 2})
    )
    assert (
        event is not None
        and event.metrics["guard_latency_us"] is None
        and event.metrics["guard_count"] == 2
    )
    assert len(notes) >= 1


def test_an_odd_field_has_its_default_and_the_others_stay() -> None:
    made: Any = GraphBroke(**EVENT, reason=5, source_line=True, hints="x", explanation="kept")  # type: ignore[arg-type]
    event, notes = fit_event(made)
    assert event == GraphBroke(**EVENT, explanation="kept") and len(notes) == 3


def test_an_odd_frame_of_a_stack_is_left_out_and_its_odd_line_too() -> None:
    stack: Any = [
        {"file": "a.py", "line": "x", "name": "f"},
        5,
        {"file": "b.py", "line": 2, "new": 1},
    ]
    event, notes = fit_event(CompileStarted(**EVENT, stack=stack))
    assert event is not None and len(notes) == 2
    empty = dict.fromkeys(("line", "name", "code"))
    assert event.stack == [
        empty | {"file": "a.py", "name": "f"},
        empty | {"file": "b.py", "line": 2, "new": 1},
    ]


def test_facts_of_a_run_keep_what_fits() -> None:
    git: Any = {"commit": ["x"], "branch": "main", "dirty": "yes"}
    event, notes = fit_event(RunStarted(**EVENT, run_id="R", name="n", git=git))
    assert event is not None and event.git == {"branch": "main"} and len(notes) == 2


def test_a_commit_that_is_no_row_is_left_out() -> None:
    commits: Any = [["a", 1, None, "one"], ["b", 2], ["c", "x", None, None]]
    event, notes = fit_event(CommitsSeen(**EVENT, commits=commits))
    assert event is not None and event.commits == [["a", 1, None, "one"]] and len(notes) == 2


@pytest.mark.parametrize("name", ["guard_count", "latency_us", "root_count"])
def test_a_summary_lacks_what_is_odd_and_keeps_its_place(name: str) -> None:
    fitted = fit_json(GuardSummary, GUARDS | {name: "x"})
    assert fitted == GUARDS | {name: None}
    assert fit_json(GuardSummary, {key: GUARDS[key] for key in GUARDS if key != name}) == fitted


@pytest.mark.parametrize("odd", [{"kinds": 5}, {"roots": None}])
def test_a_summary_without_what_it_is_of_is_none(odd: dict[str, Any]) -> None:
    summary: Any = GUARDS | odd
    event, notes = fit_event(ArtifactSeen(**EVENT, name="guards", guards=summary))
    assert event is not None and event.guards is None and event.name == "guards" and len(notes) == 1


def test_what_fits_is_not_copied() -> None:
    event = ArtifactSeen(**EVENT, guards=GUARDS)  # type: ignore[arg-type]
    assert fit_event(event) == (event, []) and fit_event(event)[0] is event
