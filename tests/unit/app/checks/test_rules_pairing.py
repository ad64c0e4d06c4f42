"""Pairing: names that tell configurations apart, and models known to be flaky."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.checks.check_sides import select_results
from compileboard.app.checks.decision import compare
from compileboard.app.checks.model import CannotCompare, RuleInput, RuleOptions, Side
from compileboard.app.checks.pairing import align_row_names
from compileboard.app.checks.upstream_csv import list_flaky
from compileboard.app.comparison.baselines import dump_baseline, load_baseline
from compileboard.app.comparison.model import ModelResult
from compileboard.app.comparison.pairs import pair_entries
from tests.unit.app.compared import distinct

SERIES = {
    "suite": "s",
    "mode": "inference",
    "dtype": "float32",
    "device": "cpu",
    "backend": "inductor",
    "dynamic": False,
}


def _row(name: str, cells: dict[str, Any] | None = None, **series: Any) -> RuleInput:
    told = {**SERIES, "world_size": 1, "batch_size": 8, "hardware": "CPU", **series}
    return RuleInput(
        name, cells or {"accuracy": "pass"}, told, "/".join(map(str, (name, *told.values())))
    )


def _names(side: Side) -> list[str]:
    return [row.name for row in side.rows]


def test_one_configuration_goes_by_the_models_name() -> None:
    first, two = align_row_names(
        Side("a", (_row("m"), _row("n"))), Side("b", (_row("m", batch_size=32),))
    )
    assert (_names(first), _names(two)) == (["m", "n"], ["m"])


def test_configurations_are_told_apart_by_what_differs() -> None:
    first, two = align_row_names(
        Side("a", (_row("m"), _row("m", mode="training"))), Side("b", (_row("m", dynamic=True),))
    )
    assert _names(first) == ["m (inference, static)", "m (training, static)"]
    assert _names(two) == ["m (inference, dynamic)"]


def test_batch_sizes_tell_twins_apart_where_both_sides_say_them() -> None:
    first, two = align_row_names(
        Side("a", (_row("m"), _row("m", batch_size=32))), Side("b", (_row("m"),))
    )
    assert (_names(first), _names(two)) == (
        ["m (batch size 8)", "m (batch size 32)"],
        ["m (batch size 8)"],
    )


def test_another_batch_size_is_said_of_one_model_while_batch_sizes_tell_another_apart() -> None:
    rows = (_row("m"), _row("m", batch_size=32), _row("n"))
    first, two = align_row_names(Side("a", rows), Side("b", (*rows[:2], _row("n", batch_size=16))))
    assert _names(first) == _names(two) == ["m (batch size 8)", "m (batch size 32)", "n"]
    report = compare(
        Side("a", (_row("n", {"speedup": 2.0}),)),
        Side("b", (_row("n", {"speedup": 4.0}, batch_size=16),)),
        ["speedup"],
        RuleOptions(),
    )
    assert report.rules[0].counts == {"OTHER_BATCH_SIZE": 1}


def test_what_is_paired_is_what_compare_pairs() -> None:
    sides = [
        [
            _row("m", {"speedup": 2.0}),
            _row("m", batch_size=32),
            _row("m", mode="training"),
            _row("n", device="cuda"),
        ],
        [
            _row("m", batch_size=16),
            _row("m"),
            _row("n"),
            _row("m", mode="training", backend="eager"),
            _row("o"),
        ],
    ]
    first, two = align_row_names(*(Side(title, tuple(rows)) for title, rows in zip("ab", sides)))
    results = [
        [
            ModelResult({"model": row.name, **row.series}, "measured", {"speedup": 2.0})
            for row in rows
        ]
        for rows in sides
    ]
    paired = pair_entries(results[1], results[0])
    both = [
        (results[1].index(pair.base), results[0].index(pair.new))
        for pair in (*paired.pairs, *paired.excluded)
    ]
    assert len(both) == 3
    names = _names(first), _names(two)
    assert {
        (names[1].index(name), names[0].index(name)) for name in {*names[0]} & {*names[1]}
    } == set(both)


def test_a_csv_cannot_tell_configurations_apart() -> None:
    run = Side("run A", (_row("m"), _row("m", mode="training")))
    expected = Side("x.csv", (RuleInput("m", {"accuracy": "pass"}),))
    with pytest.raises(
        CannotCompare, match=r"run A has 2 results of m \(s, inference.*choose by suite, mode"
    ):
        align_row_names(run, expected)
    chosen = select_results(run, {"mode": "training"}, ())
    assert _names(
        align_row_names(chosen, select_results(expected, {"mode": "training"}, ()))[0]
    ) == ["m"]


def test_breaks_follow_their_models_name() -> None:
    rows = (_row("m"), _row("m", mode="training"))
    breaks = (
        distinct("x", rows[0].key, "why", 1),
        distinct("x", rows[1].key, "why", 2),
        distinct("x", "filtered", "", 1),
    )
    first, _two = align_row_names(
        Side("a", rows, breaks=(*breaks, distinct("y", None, "", 1))), Side("b", rows)
    )
    assert [graph_break.model for graph_break in first.breaks or ()] == [
        "m (inference)",
        "m (training)",
        None,
    ]


def test_flaky_models_are_known_by_name_whatever_their_configuration() -> None:
    flaky = next(iter(list_flaky()))
    run = Side(
        "a",
        (
            _row(flaky, {"accuracy": "fail_accuracy"}),
            _row(flaky, {"accuracy": "pass"}, mode="training"),
        ),
    )
    before = Side("b", (_row(flaky), _row(flaky, mode="training")))
    report = compare(run, before, ["accuracy"], RuleOptions(flaky=list_flaky()))
    assert report.rules[0].counts == {"PASS": 1, "FAIL_BUT_FLAKY": 1} and report.exit_code == 0


@given(
    st.dictionaries(
        st.text(), st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text())
    ),
    st.text(),
)
def test_what_a_baseline_keeps_is_read_back(cells: dict[str, Any], name: str) -> None:
    side = Side(
        "a",
        (RuleInput(name, cells, {"dynamic": True}, "k"),),
        (distinct("x", None, "why", 1),),
        rerecordings=(distinct("y", None, "why", 2),),
        environment={"torch": "2"},
    )
    assert load_baseline(dump_baseline(side), "a") == side


@pytest.mark.parametrize(
    ("count", "listed"), [(1, "m0"), (3, "m0, m1, m2"), (4, "m0, m1, m2 and 1 more")]
)
def test_sides_without_a_common_model_are_refused_by_name(count: int, listed: str) -> None:
    ours = Side("new", tuple(_row(f"m{number}") for number in range(count)))
    with pytest.raises(CannotCompare, match=f"no model in common: {listed} against other$"):
        compare(ours, Side("old", (_row("other"),)), ["accuracy"], RuleOptions())
