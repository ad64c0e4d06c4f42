"""Two runs against each other: each verdict is Compare's, with what it rests on."""

from __future__ import annotations

from typing import Any

from compileboard.collectors.bench.report.summary import (
    compare,
    describe_verdicts,
    judge_results,
    summarize,
)
from compileboard.collectors.contract.events import BenchMeasured


def result(model: str = "Net", experiment: str = "performance", **changes: Any) -> BenchMeasured:
    return BenchMeasured(
        process_id="p",
        sequence=0,
        time_us=0,
        suite="local",
        model=model,
        experiment=experiment,
        **changes,
    )


def timed(
    speedup: float, spread: float | None = 0.05, model: str = "Net", **more: float
) -> BenchMeasured:
    low_high = (
        {}
        if spread is None
        else {"speedup_low": speedup - spread, "speedup_high": speedup + spread}
    )
    return result(model, values={"speedup": speedup, **low_high, **more})


def verdict(base: BenchMeasured, new: BenchMeasured) -> str:
    return describe_verdicts(judge_results(base, new))


def repeated(speedup: float, count: int) -> BenchMeasured:
    times = {"eager": [10.0 * speedup + n / 100 for n in range(count)], "compiled": [10.0] * count}
    return result(values={"speedup": speedup}, repeats=times)


def test_intervals_that_overlap_tell_nothing() -> None:
    assert verdict(timed(1.0), timed(1.08)) == "no clear difference (95% intervals, ±7.1%)"
    assert verdict(timed(1.0), timed(1.2)) == "better (95% intervals, ±6.7%)"
    assert verdict(timed(1.0), timed(0.8)) == "worse (95% intervals, ±8.3%)"
    assert verdict(timed(1.0, 0.001), timed(1.04, 0.001)) == "within 5% (95% intervals, ±0.1%)"


def test_too_few_repeats_are_not_judged_and_some_are_held_apart() -> None:
    assert verdict(repeated(1.0, 1), repeated(2.0, 1)) == "one sample each: not judged"
    assert (
        verdict(repeated(1.0, 2), repeated(2.0, 4))
        == "2 samples on base, 4 samples in new: not judged"
    )
    assert verdict(repeated(1.0, 4), repeated(2.0, 4)) == "better (4 samples a side, ±0.1%)"


def test_other_metrics_that_changed_are_named_and_counted() -> None:
    base = timed(1.0, graph_breaks=2, compilation_latency=3.0)
    new = timed(1.2, graph_breaks=4, compilation_latency=9.0)
    assert verdict(base, new) == "better (95% intervals, ±6.7%); graph breaks worse (counted)"
    judged = [[result(experiment="accuracy", accuracy=name)] for name in ("pass", "fail_accuracy")]
    text = compare(
        [base, timed(1.0, model="B"), *judged[0]], [new, timed(1.0, model="B"), *judged[1]]
    )
    assert "2 models over all metrics: 1 worse, 0 better, 1 neither\n" in text + "\n"


def test_a_speedup_that_moved_with_eager_mode_is_neither() -> None:
    def both(eager_ms: float, compiled_ms: float) -> BenchMeasured:
        times = {
            "eager": [eager_ms * (1 + n / 1000) for n in range(30)],
            "compiled": [compiled_ms] * 30,
        }
        speeds = {
            "speedup": eager_ms / compiled_ms,
            "eager_latency": eager_ms,
            "abs_latency": compiled_ms,
        }
        return result(values=speeds, repeats=times)

    base, new = both(4.0, 2.0), both(3.0, 2.0)
    assert verdict(base, new) == (
        "eager mode moved (30 samples a side, ±1.1%); eager latency changed (30 samples a "
        "side, ±1.1%)"
    )
    assert "1 model over all metrics: 0 worse, 0 better, 1 neither" in compare([base], [new])


def test_a_baseline_file_is_judged_by_the_threshold() -> None:
    models = [timed(1.0, model="A", baseline=1.5), timed(1.0, model="B", baseline=1.02)]
    assert "worse than the baseline  A (threshold, repeats not kept, ±5.0%)" in summarize(models)
    assert "against the baseline  none of 1 worse or better" in summarize(models[1:])


def test_a_row_has_both_sides_with_their_intervals() -> None:
    base = timed(1.0, abs_latency=2.0, compilation_latency=3.0, graph_breaks=2)
    heading, row, count = compare(
        [base], [timed(1.2, abs_latency=1.5, graph_breaks=0)]
    ).splitlines()
    assert heading.split("  ")[0] == "model"
    for part in (
        "1.000x [0.950, 1.050] → 1.200x [1.150, 1.250]",
        "2.000 → 1.500",
        "3.0 → –",
        "2 → 0",
        "better",
    ):
        assert part in row
    assert count == "1 model over all metrics: 0 worse, 1 better, 0 neither"


def test_what_cannot_be_divided_is_said_in_words() -> None:
    failed = result(status="failed", reason="OOM")
    text = compare(
        [failed, result("Old", status="measured")], [timed(1.0), timed(2.0, model="New")]
    )
    assert "Net (performance): failed (out of memory) → 1.000x [0.950, 1.050]" in text
    assert "Old (performance): only in base" in text and "New (performance): only in new" in text
    verdicts = (
        [result(experiment="accuracy", accuracy="pass")],
        [result(experiment="accuracy", accuracy="pass")],
    )
    assert "accuracy" not in compare(*verdicts), "the same verdict twice is no news"


def test_several_models_have_a_geomean() -> None:
    base = [timed(1.0, model="A"), timed(1.0, model="B")]
    text = compare(base, [timed(2.0, model="A"), timed(0.5, model="B")])
    assert text.endswith("geomean of 2 models: 1.000x → 1.000x")


def test_the_geomean_is_of_performance_alone() -> None:
    def side(speedup: float) -> list[BenchMeasured]:
        overheads = [result(model, "overhead", values={"speedup": 0.5}) for model in "AB"]
        return [timed(speedup, model="A"), timed(speedup, model="B"), *overheads]

    text = compare(side(2.0), side(3.0))
    assert "geomean of 2 models: 2.000x → 3.000x" in text
    assert "A (overhead)" in text
