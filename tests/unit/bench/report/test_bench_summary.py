"""The end of a bench run: means by experiment, failures by reason, distinct breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from compileboard.collectors.bench.report.progress import describe
from compileboard.collectors.bench.report.summary import BenchBreak, format_breaks, summarize
from compileboard.collectors.contract.events import BenchMeasured


def result(model: str, experiment: str, **changes: Any) -> BenchMeasured:
    return BenchMeasured(
        process_id="p",
        sequence=0,
        time_us=0,
        suite="local",
        model=model,
        experiment=experiment,
        **changes,
    )


def make_breaks(count: int) -> list[BenchBreak]:
    return [
        BenchBreak("GB0059", f"reason {i}\nmore of it", "nets.py", i + 1, 2, ("Net",))
        for i in range(count)
    ]


def test_each_experiment_is_summed_up_by_itself() -> None:
    text = summarize(
        [
            result("A", "performance", values={"speedup": 2.0}),
            result("A", "overhead", values={"speedup": 0.5}),
            result("A", "coverage", values={"pct_ops": 0.5, "graphs": 1.0}),
            result("B", "coverage", values={"pct_ops": 1.0, "graphs": 2.0}),
            result("B", "tolerance", status="failed", reason="fail_to_run"),
        ]
    )
    lines = {
        line.rsplit("  ", 1)[0].strip(): line.rsplit("  ", 1)[-1] for line in text.splitlines()
    }
    assert lines["speedup"] == "gmean=2.00x mean=2.000x of 1 model", (
        "the overhead is no speedup of a backend"
    )
    assert lines["overhead speedup"] == "gmean=0.50x of 1 model"
    assert (lines["coverage pct_ops"], lines["coverage graphs"]) == ("mean=75.000%", "mean=1.500")
    assert "failed (fail_to_run: the compiled model failed): B (tolerance)" in text


def test_ranks_and_second_processes_are_summed_up_and_stand_in_their_lines() -> None:
    ranks = result("A", "performance", values={"speedup": 2.0, "scaling_efficiency": 0.8})
    second = result(
        "A", "caching_precompile", accuracy="pass", values={"second_process_latency": 1.5}
    )
    text = summarize([ranks, second])
    assert "scaling_efficiency  mean=0.800, 1 is linear" in text
    assert "caching_precompile second_process_latency  mean=1.500 seconds" in text
    assert describe(ranks).endswith(", scaling efficiency 0.800")
    assert describe(second) == "pass, second process 1.50 s"


def test_the_noise_floor_is_how_far_eager_is_from_itself() -> None:
    bounds = [(0.98, 1.04), (0.9, 1.01), (1.02, 1.06)]
    text = summarize(
        [
            result(
                "A", "nothing", values={"speedup": 1.0, "speedup_low": low, "speedup_high": high}
            )
            for low, high in bounds
        ]
    )
    assert "nothing speedup      gmean=1.00x of 3 models" in text
    assert "nothing noise floor  ±6.0%, median of 3; 2 of 3 intervals hold 1" in text


def test_a_speedup_of_any_experiment_has_its_noise() -> None:
    exported = result("A", "onnx", accuracy="pass", values={"speedup": 237.0})
    assert describe(exported) == "pass, 237.000x, 0 repeats: too few to tell an interval"
    assert "onnx speedup          gmean=237.00x of 1 model\nonnx too few repeats  A" in summarize(
        [exported]
    )


def test_a_baseline_beside_noisy_repeats_is_neither_better_nor_worse() -> None:
    noisy = {"eager": [1.0, 4.0, 9.0], "compiled": [1.0, 1.0, 1.0]}
    measured = result("A", "performance", repeats=noisy)
    measured = replace(
        measured, values={"speedup": 4.0, "baseline": 2.5, "speedup_vs_baseline": 1.6}
    )
    assert describe(measured).partition("[1.600x]: ")[2].startswith("no clear difference (")
    assert "against the baseline  none of 1 worse or better" in summarize([measured])


def test_each_experiment_with_verdicts_has_its_pass_rate() -> None:
    failed = {"status": "failed", "reason": "fail_to_run"}
    text = summarize(
        [
            result("A", "accuracy", status="failed", reason="timeout"),
            result("A", "export", accuracy="pass"),
            result("B", "export", accuracy="fail_to_run", **failed),
            result("C", "export", status="skipped", reason="not here"),
        ]
    )
    assert "accuracy  pass_rate=0.00% (0 of 1)\nexport    pass_rate=50.00% (1 of 2)" in text


def test_a_pass_that_was_not_checked_counts_as_upstreams_summary_does() -> None:
    verdicts = ["pass", "pass_due_to_skip", "eager_variation", "fail_accuracy"]
    text = summarize(
        [result(str(n), "accuracy", accuracy=verdict) for n, verdict in enumerate(verdicts)]
    )
    assert (
        "accuracy  pass_rate=25.00% (1 of 4; not counted: eager_variation 1, pass_due_to_skip 1)"
        in text
    )


def test_a_tag_heads_the_summary() -> None:
    tagged = result("A", "accuracy", accuracy="pass", facts={"tag": "main"})
    assert summarize([tagged]).startswith("\nSummary for tag=main:\naccuracy")


def test_breaks_are_a_short_list_unless_they_are_asked_for() -> None:
    short = format_breaks(make_breaks(12), explain=False)
    assert (
        short[1] == "distinct graph breaks: 12, by reason and line; 24 in all"
        and short[-1] == "  and 2 more, which --explain lists"
    )
    assert short[2:4] == ["  GB0059 reason 0", "    nets.py:1, 2 times in Net"], (
        "one line of a reason"
    )
    assert len(format_breaks(make_breaks(12), explain=True)) == 2 + 2 * 12
    assert format_breaks([], explain=True) == []


def test_a_break_of_an_unknown_place_in_several_models_is_said() -> None:
    [_, _, reason, location] = format_breaks(
        [BenchBreak(None, "why", None, None, 3, ("A", "B"))], explain=False
    )
    assert (reason, location) == ("  why", "    no place recorded, 3 times in 2 models: A, B")


def test_both_counts_of_breaks_come_to_dynamos() -> None:
    own = BenchBreak(
        "GB0123", "backward()", "compileboard/collectors/bench/steps.py", 69, 3, ("Net",)
    )
    heading = format_breaks([*make_breaks(2), own], explain=True)[1]
    assert heading.startswith("distinct graph breaks: 2, by reason and line; 4 in all")
    assert heading.endswith("(3 more in bench's own training step, as in upstream's harness)")
