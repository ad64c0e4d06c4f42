"""Two runs against each other: a difference is one whose intervals do not overlap."""

from __future__ import annotations

from typing import Any

from compileboard.collectors.bench.report.comparison import compare, verdict
from compileboard.collectors.contract.events import BenchMeasured


def result(model: str = "Net", experiment: str = "performance", **said: Any) -> BenchMeasured:
    return BenchMeasured(
        process_id="p", sequence=0, time_us=0, suite="local", model=model, experiment=experiment, **said
    )


def timed(speedup: float, spread: float | None = 0.05, model: str = "Net", **more: float) -> BenchMeasured:
    low_high = {} if spread is None else {"speedup_low": speedup - spread, "speedup_high": speedup + spread}
    return result(model, values={"speedup": speedup, **low_high, **more})


def test_intervals_that_overlap_tell_nothing() -> None:
    assert verdict(timed(1.0), timed(1.08)) == "no clear difference: the intervals overlap"
    assert verdict(timed(1.0), timed(1.2)) == "better"
    assert verdict(timed(1.0), timed(0.8)) == "worse"
    assert verdict(timed(1.0, None), timed(2.0)) == "too few repeats to tell"


def test_a_row_has_both_sides_with_their_intervals() -> None:
    base = timed(1.0, abs_latency=2.0, compilation_latency=3.0, graph_breaks=2)
    heading, row = compare([base], [timed(1.2, abs_latency=1.5, graph_breaks=0)]).splitlines()
    assert heading.split("  ")[0] == "model"
    for part in ("1.000x [0.950, 1.050] → 1.200x [1.150, 1.250]", "2.000 → 1.500", "3.0 → –", "2 → 0", "better"):
        assert part in row


def test_what_cannot_be_divided_is_said_in_words() -> None:
    failed = result(status="failed", reason="OOM")
    text = compare([failed, result("Old", status="measured")], [timed(1.0), timed(2.0, model="New")])
    assert "Net (performance): failed (out of memory) → 1.000x [0.950, 1.050]" in text
    assert "Old (performance): only in base" in text and "New (performance): only in new" in text
    verdicts = [result(experiment="accuracy", accuracy="pass")], [result(experiment="accuracy", accuracy="pass")]
    assert "accuracy" not in compare(*verdicts), "the same verdict twice is no news"


def test_several_models_have_a_geomean() -> None:
    base = [timed(1.0, model="A"), timed(1.0, model="B")]
    text = compare(base, [timed(2.0, model="A"), timed(0.5, model="B")])
    assert text.endswith("geomean of 2 models: 1.000x → 1.000x")
