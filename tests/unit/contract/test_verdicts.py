"""A verdict names its grounds; a mean is no surer than its models; eager changes no verdict."""

from __future__ import annotations

import subprocess
import sys

import pytest

from compileboard.collectors.contract.verdicts import (
    COMPARED,
    LABELS,
    ComparedMetric,
    Measurement,
    SideValues,
    Verdict,
    compare_counts,
    count_models,
    decide,
    decide_overall,
    judge_sides,
)

SPEEDUP, LATENCY, _EAGER, COLD = COMPARED[:4]
BREAKS = next(
    compared_metric for compared_metric in COMPARED if compared_metric.name == "graph_breaks"
)
Verdicts = dict[str, Verdict[ComparedMetric]]


def timed(eager_ms: float, compiled_ms: float, count: int = 12) -> SideValues:
    """Make a side whose repeats scatter by 1%."""
    scatter = [1 + (n - count // 2) / 1000 for n in range(count)]
    return SideValues(
        {
            "speedup": eager_ms / compiled_ms,
            "abs_latency_ms": compiled_ms,
            "eager_latency_ms": eager_ms,
        },
        repeats={
            "eager": [eager_ms * value for value in scatter],
            "compiled": [compiled_ms * value for value in scatter[::-1]],
        },
    )


def compare(base: SideValues, new: SideValues) -> Verdicts:
    return judge_sides(COMPARED, base, new)


@pytest.mark.parametrize(
    ("base", "new", "basis"),
    [
        ([1.0] * 12, [2.0] * 12, "12 samples a side, ±0.0%"),
        ([1.0, 1.1, 1.2], [4.0, 4.1, 4.2, 4.3], "3 samples on base, 4 samples in new, ±13.5%"),
        ([1.0], [2.0], "one sample each: not judged"),
        ([1.0], [2.0, 2.0], "one sample on base, 2 samples in new: not judged"),
    ],
)
def test_a_verdict_says_how_many_samples_it_rests_on(
    base: list[float], new: list[float], basis: str
) -> None:
    verdict = decide(
        COLD, *(Measurement(samples[len(samples) // 2], samples=samples) for samples in (base, new))
    )
    assert verdict.basis == basis
    assert (verdict.word == "single") == basis.endswith("not judged")
    assert verdict.text == (
        basis if verdict.word == "single" else f"{LABELS[verdict.word]} ({basis})"
    )


def test_an_interval_says_how_far_the_ratio_may_be_off() -> None:
    verdict = decide(SPEEDUP, Measurement(2.0, (1.9, 2.1)), Measurement(1.5, (1.45, 1.55)))
    assert (verdict.word, verdict.basis) == ("worse", "95% intervals, ±6.2%")


def test_a_count_and_a_number_of_a_file_say_so() -> None:
    assert decide(BREAKS, Measurement(1), Measurement(2)).basis == "counted"
    assert (
        decide(SPEEDUP, Measurement(2.0), Measurement(1.0)).basis == "threshold, repeats not kept"
    )


def test_a_speedup_that_fell_because_eager_mode_got_faster_is_not_worse() -> None:
    comparison = compare(timed(4.0, 2.0), timed(3.0, 2.0))
    assert {name: verdict.word for name, verdict in comparison.items()} == {
        "speedup": "eager",
        "abs_latency_ms": "same",
        "eager_latency_ms": "changed",
    }
    assert comparison["speedup"].reason.startswith(
        "eager mode got faster (−25.0%), the compiled model's latency is unchanged; p = "
    )


def test_a_latency_that_rose_with_eager_mode_is_not_worse() -> None:
    comparison = compare(timed(4.0, 2.0), timed(6.0, 3.0))
    assert (comparison["abs_latency_ms"].word, comparison["speedup"].word) == ("eager", "same")
    assert comparison["abs_latency_ms"].reason.startswith(
        "eager mode got slower (+50.0%) as well, the speedup is unchanged;"
    )


@pytest.mark.parametrize(
    ("eager_gb", "compiled_gb", "words"),
    [
        (3.0, 1.5, {"compression_ratio": "same", "dynamo_peak_mem_gb": "eager"}),
        (3.0, 1.0, {"compression_ratio": "eager", "dynamo_peak_mem_gb": "same"}),
        (2.0, 1.5, {"compression_ratio": "worse", "dynamo_peak_mem_gb": "worse"}),
        (3.0, 3.0, {"compression_ratio": "worse", "dynamo_peak_mem_gb": "worse"}),
    ],
)
def test_peak_memory_is_judged_beside_eager_modes(
    eager_gb: float, compiled_gb: float, words: dict[str, str]
) -> None:
    def side(eager_gb: float, compiled_gb: float) -> SideValues:
        peaks = {"eager_peak_mem_gb": eager_gb, "dynamo_peak_mem_gb": compiled_gb}
        samples = {"eager_peak_gb": [eager_gb] * 12, "compiled_peak_gb": [compiled_gb] * 12}
        return SideValues(peaks | {"compression_ratio": eager_gb / compiled_gb}, repeats=samples)

    verdicts = compare(side(2.0, 1.0), side(eager_gb, compiled_gb))
    assert {name: verdicts[name].word for name in words} == words


@pytest.mark.parametrize(
    ("eager_ms", "compiled_ms"), [(4.0, 3.0), (6.0, 4.0), (3.0, 3.0), (2.0, 2.5)]
)
def test_a_compiled_model_that_got_slower_by_itself_is_worse(
    eager_ms: float, compiled_ms: float
) -> None:
    comparison = compare(timed(4.0, 2.0), timed(eager_ms, compiled_ms))
    assert (comparison["speedup"].word, comparison["abs_latency_ms"].word) == ("worse", "worse")


def overall(
    base: float, new: float, counts: dict[str, int] | None, noise: float | None = None
) -> tuple[str, str]:
    verdict = decide_overall(COLD, base, new, counts, noise)
    return verdict.word, verdict.reason


def test_a_mean_is_worse_where_a_model_is_and_no_surer_than_they_are() -> None:
    assert overall(1.0, 1.668, {"worse": 2, "noise": 3}) == ("worse", "2 of 5 models worse")
    assert overall(1.0, 1.668, {"single": 4, "noise": 1}) == (
        "single",
        "4 of 5 measured once, none worse",
    )
    assert overall(1.0, 1.668, {"noise": 1, "better": 1}) == ("noise", "0 of 2 models worse")
    assert overall(1.0, 0.5, {"worse": 1, "better": 1}) == ("better", "1 of 2 models better")
    assert overall(1.0, 1.668, {"eager": 1, "noise": 4}) == (
        "eager",
        "1 of 5 changed with eager mode, none alone",
    )
    assert overall(1.0, 1.09, {"worse": 1})[0] == "negligible", (
        "compile times vary: up to 10% is noise"
    )
    assert (
        decide_overall(COLD, 1.0, 1.09, {"worse": 1}).text
        == "within 10% (threshold, repeats not kept)"
    )
    assert overall(1.0, 1.668, None)[0] == "worse"
    assert overall(1.0, 1.0, {"worse": 1, "better": 1})[0] == "same"


def test_a_mean_whose_intervals_tell_needs_no_single_model_that_does() -> None:
    assert overall(1.0, 1.3, {"noise": 40}, 0.1)[0] == "worse"
    assert overall(1.0, 1.3, {"noise": 40}, 0.5)[0] == "noise"
    assert overall(1.0, 1.3, {"noise": 40, "eager": 3}, 0.1)[0] == "eager"


def test_a_mean_of_speedups_is_eager_mode_s_where_compiled_models_did_not_move_with_it() -> None:
    def decide(new: float, latency: float | None) -> tuple[str, str]:
        verdict = decide_overall(SPEEDUP, 2.0, new, {"noise": 2}, 0.1, latency=latency)
        return verdict.word, verdict.reason

    assert [decide(1.7, latency)[0] for latency in (1.2, 1.05, 0.85, None)] == [
        "worse",
        "eager",
        "eager",
        "worse",
    ]
    assert decide(2.4, 1.03) == (
        "eager",
        "the compiled models' latency changed by +3.0%: the rest is eager mode's",
    )


def test_a_mean_of_one_model_is_what_that_model_is() -> None:
    assert overall(1.0, 1.3, {"noise": 1}, 0.1) == ("noise", "0 of 1 model worse")
    assert overall(1.0, 1.3, {"single": 1}, 0.1)[0] == "single"
    assert overall(1.0, 1.3, {"worse": 1}, 0.1) == ("worse", "1 of 1 model worse")


def test_distinct_things_are_compared_by_how_often_they_came() -> None:
    base, new = (
        {"was": 1, "same": 2, "more": 1, "less": 3},
        {"same": 2, "more": 2, "less": 1, "now": 1},
    )
    words = {"was": "resolved", "same": "unchanged", "more": "worse", "less": "less", "now": "new"}
    assert compare_counts(base, new) == words


def test_models_are_counted_by_the_worst_that_happened_to_them() -> None:
    words = [["worse", "noise"], ["better"], ["worse", "better"], ["single", "eager"], []]
    assert count_models(words) == {"worse": 1, "better": 1, "both": 1, "neither": 2}


def test_the_standard_library_is_all_that_it_needs() -> None:
    code = (
        "import sys, compileboard.collectors.contract.verdicts; print({'numpy', 'sqlite3'} & "
        "{*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
