"""A verdict names its grounds to the number; its bounds are where the rule says."""

from __future__ import annotations

import pytest

from compileboard.app.benchmarks.metrics import BY_NAME
from compileboard.app.comparison.model import MetricDelta, ModelResult
from compileboard.collectors.contract.verdicts import judge, judge_values
from tests.unit.app.compared import entry, repeats

SPEEDUP, LATENCY, BREAKS = (BY_NAME[name] for name in ("speedup", "abs_latency_ms", "graph_breaks"))
THRESHOLD = "a change up to 5% is taken as noise"
NO_RATIO = "one side is not above 0, so there is no ratio"


def sped(speedup: float, low: float, high: float) -> ModelResult:
    return entry(values={"speedup": speedup}, interval=(low, high))


def known(delta: MetricDelta | None) -> MetricDelta:
    assert delta is not None
    return delta


def test_intervals_that_lie_apart_say_so_and_how_far() -> None:
    verdict = known(judge(SPEEDUP, sped(2.0, 1.6, 2.5), sped(4.0, 3.0, 8.0)))
    assert (verdict.metric, verdict.base, verdict.new, verdict.change, verdict.word) == (
        SPEEDUP,
        2.0,
        4.0,
        1.0,
        "better",
    )
    assert verdict.reason == "1.600 to 2.500 and 3.000 to 8.000 lie apart"
    assert verdict.ratio_interval == (3.0 / 2.5, 8.0 / 1.6)


@pytest.mark.parametrize(
    ("base", "new", "message"),
    [
        ((1.0, 2.0), (2.0, 3.0), "overlap"),
        ((2.0, 3.0), (1.0, 2.0), "overlap"),
        ((2.1, 3.0), (1.0, 2.0), "lie apart"),
        ((1.0, 2.0), (1.5, 3.0), "overlap"),
    ],
)
def test_intervals_that_touch_overlap(
    base: tuple[float, float], new: tuple[float, float], message: str
) -> None:
    assert known(judge(SPEEDUP, sped(1.5, *base), sped(2.5, *new))).reason.endswith(message)


@pytest.mark.parametrize("low", [0.0, -0.5])
def test_an_interval_that_reaches_zero_has_no_ratio(low: float) -> None:
    assert known(judge(SPEEDUP, sped(0.5, low, 1.0), sped(4.0, 3.0, 5.0))).ratio_interval is None
    assert known(judge(SPEEDUP, sped(0.5, 0.4, 0.9), sped(4.0, 3.0, 5.0))).ratio_interval == (
        3.0 / 0.9,
        5.0 / 0.4,
    )


def test_an_interval_of_one_side_alone_is_none() -> None:
    assert (
        known(judge(SPEEDUP, sped(1.0, 0.9, 1.1), entry(values={"speedup": 2.0}))).method
        == "threshold"
    )
    assert (
        known(judge(SPEEDUP, entry(values={"speedup": 2.0}), sped(1.0, 0.9, 1.1))).method
        == "threshold"
    )


@pytest.mark.parametrize(
    ("base", "new", "verdict", "change", "message"),
    [
        (100.0, 104.9, "noise", 0.049, THRESHOLD),
        (100.0, 105.1, "worse", 0.051, THRESHOLD),
        (100.0, 95.1, "noise", -0.049, THRESHOLD),
        (100.0, 94.9, "better", -0.051, THRESHOLD),
        (0.5, 0.6, "worse", 0.2, THRESHOLD),
        (100.0, 0.0, "noise", -1.0, NO_RATIO),
        (0.0, 100.0, "noise", None, NO_RATIO),
        (-1.0, 100.0, "noise", None, NO_RATIO),
        (0.0, 0.0, "same", 0.0, ""),
        (-1.0, -1.0, "same", 0.0, ""),
        (3.0, 3.0, "same", 0.0, ""),
    ],
)
def test_bare_numbers_are_judged_by_the_threshold(
    base: float, new: float, verdict: str, change: float | None, message: str
) -> None:
    for actual in (
        judge_values(LATENCY, base, new),
        known(judge(LATENCY, *(entry(values={LATENCY.name: value}) for value in (base, new)))),
    ):
        assert actual.change == (None if change is None else pytest.approx(change))
        assert (actual.metric, actual.base, actual.new, actual.word) == (
            LATENCY,
            base,
            new,
            verdict,
        )
        assert (actual.method, actual.reason, actual.p_value, actual.ratio_interval) == (
            "threshold",
            message,
            None,
            None,
        )


@pytest.mark.parametrize(
    ("base", "new", "verdict", "change"),
    [(0, 1, "worse", None), (2, 1, "better", -0.5), (4, 4, "same", 0.0)],
)
def test_a_count_is_never_noise(base: int, new: int, verdict: str, change: float | None) -> None:
    actual = judge_values(BREAKS, base, new)
    assert (actual.metric, actual.base, actual.new) == (BREAKS, base, new)
    assert (actual.word, actual.method, actual.change, actual.reason) == (
        verdict,
        "count",
        change,
        "",
    )


def timed(latency: float, count: int, seed: int) -> ModelResult:
    return entry(
        values={LATENCY.name: latency}, repeats={"compiled": repeats(latency, count, 0.001, seed)}
    )


def test_repeats_say_how_many_and_how_likely() -> None:
    verdict = known(judge(LATENCY, timed(10.0, 30, 1), timed(12.5, 20, 2)))
    assert (verdict.metric, verdict.base, verdict.new, verdict.change) == (
        LATENCY,
        10.0,
        12.5,
        0.25,
    )
    assert verdict.p_value is not None and 0 < verdict.p_value < 1e-6
    assert verdict.reason == f"p = {verdict.p_value:.2g} over 30 and 20 repeats"


def test_repeats_of_one_side_or_too_few_to_tell_are_not_asked() -> None:
    for few in (entry(values={LATENCY.name: 12.5}), timed(12.5, 2, 2)):
        assert known(judge(LATENCY, timed(10.0, 2, 1), few)).method == "threshold"
    assert (
        known(judge(LATENCY, entry(values={LATENCY.name: 12.5}), timed(10.0, 30, 1))).method
        == "threshold"
    )


def paired(speedup: float, eager: list[float], compiled: list[float]) -> ModelResult:
    return entry(values={"speedup": speedup}, repeats={"eager": eager, "compiled": compiled})


def test_a_speedups_repeats_are_pairs_of_both_and_none_where_they_are_no_pairs() -> None:
    slow, fast = paired(1.0, [2.0] * 20, [2.0] * 20), paired(4.0, [2.0] * 20, [0.5] * 20)
    verdict = known(judge(SPEEDUP, slow, fast))
    assert (verdict.method, verdict.word, verdict.change) == ("repeats", "better", 3.0)
    for odd in (
        paired(4.0, [2.0] * 19, [0.5] * 20),
        paired(4.0, [2.0] * 20, [0.5] * 19 + [0.0]),
        paired(4.0, [], []),
    ):
        assert known(judge(SPEEDUP, slow, odd)).method == "threshold"


def test_a_clear_change_within_five_percent_is_negligible_and_beyond_it_is_one() -> None:
    def verdict(new: float) -> str:
        return known(
            judge(SPEEDUP, sped(100.0, 99.99, 100.01), sped(new, new - 0.01, new + 0.01))
        ).word

    assert [verdict(new) for new in (104.9, 105.1, 95.1, 94.9)] == [
        "negligible",
        "better",
        "negligible",
        "worse",
    ]
