"""What a comparison says: every verdict, who is paired, what is left out and why."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.benchmarks.metrics import BY_NAME, Metric
from compileboard.app.comparison.differences import compare, diff_distinct, sum_metrics
from compileboard.app.comparison.model import COMPARED, WORDS, ComparedSide, ModelResult
from compileboard.app.comparison.pairs import pair_entries
from compileboard.app.comparison.queries import BREAKS_SQL, CAUSES_SQL, list_task_distinct
from compileboard.app.reasons.run_queries import list_distinct_breaks
from compileboard.collectors.contract.verdicts import LABELS, METHODS, Measurement, decide, judge
from tests.unit.app.compared import broke, entry, repeats, side

SPEEDUP, LATENCY, COLD = (
    BY_NAME[name] for name in ("speedup", "abs_latency_ms", "compilation_latency_s")
)


def timed(latency_ms: float, seed: int = 1, count: int = 30, noise: float = 0.01) -> ModelResult:
    samples = {"compiled": repeats(latency_ms, count, noise, seed)}
    return entry(values={"abs_latency_ms": latency_ms}, repeats=samples)


def sped(speedup: float, low: float, high: float) -> ModelResult:
    return entry(values={"speedup": speedup}, interval=(low, high))


def compiled(*samples_s: float) -> ModelResult:
    return entry(values={COLD.name: median(samples_s)}, repeats={"cold_compile_s": samples_s})


def peaked(eager_gb: float, compiled_gb: float) -> ModelResult:
    samples = {"eager_peak_gb": [eager_gb] * 3, "compiled_peak_gb": [compiled_gb] * 3}
    return entry(
        values={"compression_ratio": eager_gb / compiled_gb, "eager_peak_mem_gb": eager_gb},
        repeats=samples,
    )


SOME = tuple(3.0 + n / 1000 for n in range(8))
# Each verdict by each method that can give it: metric, base, new, verdict, method.
CASES: tuple[tuple[str, ModelResult, ModelResult, str, str], ...] = (
    ("speedup", sped(1.5, 1.4, 1.6), sped(1.2, 1.1, 1.3), "worse", "intervals"),
    ("speedup", sped(1.2, 1.1, 1.3), sped(1.5, 1.4, 1.6), "better", "intervals"),
    ("speedup", sped(1.5, 1.4, 1.6), sped(1.4, 1.3, 1.5), "noise", "intervals"),
    ("speedup", sped(1.5, 1.499, 1.501), sped(1.51, 1.509, 1.511), "negligible", "intervals"),
    ("abs_latency_ms", timed(10), timed(12, 2), "worse", "repeats"),
    ("abs_latency_ms", timed(10), timed(8, 2), "better", "repeats"),
    ("abs_latency_ms", timed(10), timed(10.001, 2), "noise", "repeats"),
    (
        "abs_latency_ms",
        timed(10, noise=0.001),
        timed(10.1, 2, noise=0.001),
        "negligible",
        "repeats",
    ),
    ("abs_latency_ms", timed(10, count=3), timed(12, 2, count=3), "worse", "samples"),
    ("abs_latency_ms", timed(10, count=3), timed(10.4, 2, count=3), "noise", "samples"),
    ("abs_latency_ms", timed(10, count=1), timed(12, 2, count=1), "single", "threshold"),
    (
        "abs_latency_ms",
        entry(values={LATENCY.name: 10}),
        entry(values={LATENCY.name: 12}),
        "worse",
        "threshold",
    ),
    ("abs_latency_ms", timed(10), timed(10), "same", "threshold"),
    (
        "compilation_latency_s",
        entry(values={COLD.name: 10}),
        entry(values={COLD.name: 10.9}),
        "noise",
        "threshold",
    ),
    (
        "compilation_latency_s",
        entry(values={COLD.name: 10}),
        entry(values={COLD.name: 11.5}),
        "single",
        "threshold",
    ),
    ("compilation_latency_s", compiled(3.0, 3.1, 3.2), compiled(4.0, 4.1, 4.2), "worse", "samples"),
    (
        "compilation_latency_s",
        compiled(4.0, 4.1, 4.2),
        compiled(3.0, 3.1, 3.2),
        "better",
        "samples",
    ),
    ("compilation_latency_s", compiled(3.0, 3.2, 5.3), compiled(5.4, 5.5, 5.6), "noise", "samples"),
    (
        "compilation_latency_s",
        compiled(*SOME),
        compiled(*(1.08 * value for value in SOME)),
        "noise",
        "repeats",
    ),
    (
        "compilation_latency_s",
        compiled(*SOME),
        compiled(*(1.2 * value for value in SOME)),
        "worse",
        "repeats",
    ),
    ("compression_ratio", peaked(2.0, 1.0), peaked(2.0, 1.9), "worse", "samples"),
    (
        "compilation_latency_s",
        entry(values={COLD.name: -0.1}),
        entry(values={COLD.name: 2}),
        "noise",
        "threshold",
    ),
    (
        "eager_peak_mem_gb",
        entry(values={"eager_peak_mem_gb": 2}),
        entry(values={"eager_peak_mem_gb": 3}),
        "single",
        "threshold",
    ),
    ("eager_peak_mem_gb", peaked(2.0, 1.0), peaked(3.0, 1.0), "changed", "samples"),
    (
        "graph_breaks",
        entry(values={"graph_breaks": 0}),
        entry(values={"graph_breaks": 1}),
        "worse",
        "count",
    ),
    (
        "graph_breaks",
        entry(values={"graph_breaks": 4}),
        entry(values={"graph_breaks": 1}),
        "better",
        "count",
    ),
    (
        "graph_breaks",
        entry(values={"graph_breaks": 0}),
        entry(values={"graph_breaks": 0}),
        "same",
        "count",
    ),
    (
        "calls_captured",
        entry(values={"calls_captured": 8}),
        entry(values={"calls_captured": 9}),
        "changed",
        "count",
    ),
    (
        "unique_graphs",
        entry(values={"unique_graphs": 2}),
        entry(values={"unique_graphs": 1}),
        "changed",
        "count",
    ),
)


@pytest.mark.parametrize(("name", "base", "new", "verdict", "method"), CASES)
def test_a_change_is_judged_by_what_is_known(
    name: str, base: ModelResult, new: ModelResult, verdict: str, method: str
) -> None:
    judged = judge(BY_NAME[name], base, new)
    assert judged is not None
    assert (judged.word, judged.method) == (verdict, method)


def test_every_verdict_and_method_has_a_fixture() -> None:
    assert {case[3] for case in CASES} | {"eager", "wrong"} == set(LABELS)
    assert {case[4] for case in CASES} == set(METHODS)


def test_repeats_of_both_sides_judge_a_speedup_without_intervals() -> None:
    base = entry(
        values={"speedup": 2.0}, repeats={"eager": repeats(20), "compiled": repeats(10, seed=2)}
    )
    new = entry(
        values={"speedup": 1.6}, repeats={"eager": repeats(20), "compiled": repeats(12.5, seed=3)}
    )
    verdict = judge(SPEEDUP, base, new)
    assert verdict is not None
    assert (verdict.word, verdict.method) == ("worse", "repeats")
    assert "over 30 and 30 repeats" in verdict.reason


@pytest.mark.parametrize(
    ("compiled_ms", "eager_ms", "moved"), [(2.0, 6.0, True), (1.5, 4.5, False), (2.0, 4.0, False)]
)
def test_a_speedup_that_moved_with_eager_mode_alone_says_so(
    compiled_ms: float, eager_ms: float, moved: bool
) -> None:
    def timed(compiled: float, eager: float, seed: int) -> ModelResult:
        values = {
            "speedup": eager / compiled,
            "abs_latency_ms": compiled,
            "eager_latency_ms": eager,
        }
        samples = {"compiled": repeats(compiled, seed=seed), "eager": repeats(eager, seed=seed + 1)}
        return entry(values=values, repeats=samples)

    (pair,) = compare(side(timed(2.0, 4.0, 1)), side(timed(compiled_ms, eager_ms, 5))).pairs
    assert ("speedup changed because eager mode did" in pair.warning) == moved
    assert (pair.deltas["speedup"].word == "eager") == moved
    assert pair.deltas["speedup"].reason.startswith("eager mode got slower (+") == moved


@given(
    metric=st.sampled_from([metric for metric in COMPARED if metric.kind != "count"]),
    values=st.tuples(*[st.floats(0.001, 1e4)] * 2),
    counts=st.tuples(*[st.integers(0, 2)] * 2).filter(any),
)
def test_what_was_sampled_less_than_three_times_is_never_worse(
    metric: Metric, values: tuple[float, float], counts: tuple[int, int]
) -> None:
    sides = [Measurement(value, samples=[value] * count) for value, count in zip(values, counts)]
    assert decide(metric, *sides).word in ("single", "noise", "same")


def test_one_sample_says_how_many_each_side_has() -> None:
    three = compiled(3.0, 3.1, 3.2)
    bare = entry(values={COLD.name: 9.0})
    details = [judge(COLD, *sides) for sides in ((bare, compiled(2.0)), (three, bare))]
    assert [detail and detail.reason for detail in details] == [
        "one sample each; a verdict takes 3 each",
        "3 samples on base, one sample in new; a verdict takes 3 each",
    ]


def test_delta_is_new_relative_to_base() -> None:
    verdict = judge(SPEEDUP, entry(values={"speedup": 1.0}), entry(values={"speedup": 1.5}))
    assert verdict is not None
    assert verdict.change == 0.5
    assert judge(LATENCY, entry(values={"abs_latency_ms": 2.0}), entry()) is None


def test_dropping_models_from_one_side_changes_nothing() -> None:
    models = [
        entry(f"model {n}", {"speedup": 1 + n / 37, "abs_latency_ms": 1 + n / 11})
        for n in range(40)
    ]
    comparison = compare(side(*models), side(*models[:10]))
    assert (len(comparison.pairs), len(comparison.only_base), len(comparison.only_new)) == (
        10,
        30,
        0,
    )
    assert [metric_sum.change for metric_sum in comparison.sums] == [0, 0]
    assert {delta.word for pair in comparison.pairs for delta in pair.deltas.values()} == {"same"}


def test_a_model_that_failed_is_excluded_with_the_reason() -> None:
    ran, oom = entry("a", {"speedup": 2}), entry("a", status="failed", reason="OOM")
    lost = compare(side(ran), side(oom)).excluded[0]
    assert (lost.reason, lost.kind) == ("measured on base, failed (out of memory) in new", "bad")
    assert compare(side(oom), side(ran)).excluded[0].kind == "good"
    skipped = compare(side(entry("a", status="skipped")), side(oom)).excluded[0]
    assert (skipped.reason, skipped.kind) == (
        "skipped on base, failed (out of memory) in new",
        "quiet",
    )
    assert (
        compare(side(entry("a")), side(ran)).excluded[0].reason
        == "no number that both sides measured"
    )


def test_another_machine_is_refused_until_it_is_wanted() -> None:
    base = side(entry(values={"speedup": 2}), environment={"hardware": ("NVIDIA H200",)})
    new = side(
        entry(values={"speedup": 3}, hardware="NVIDIA A100"),
        environment={"hardware": ("NVIDIA A100",)},
    )
    comparison = compare(base, new)
    assert comparison.excluded[0].reason == "hardware NVIDIA H200 on base, NVIDIA A100 in new"
    assert comparison.refused == ("Hardware: NVIDIA H200 on base, NVIDIA A100 in new",)
    assert comparison.pairs == ()
    anyway_compared = compare(base, new, anyway=True)
    assert (len(anyway_compared.pairs), anyway_compared.refused) == (1, ())
    assert anyway_compared.warnings[0].startswith("compared anyway: Hardware")
    assert anyway_compared.pairs[0].warning == "not the same hardware on both sides"


def test_an_unknown_machine_is_paired_and_said() -> None:
    comparison = compare(
        side(entry(values={"speedup": 2}, hardware=None)), side(entry(values={"speedup": 2}))
    )
    assert comparison.pairs[0].warning == "not the same hardware on both sides"


def test_another_batch_size_is_another_number() -> None:
    comparison = compare(
        side(entry(values={"speedup": 2})),
        side(entry(values={"speedup": 2}, batch_size=16)),
        anyway=True,
    )
    assert comparison.excluded[0].reason == "batch size 8 on base, 16 in new"


def test_a_wrong_answer_counts_in_no_geomean() -> None:
    base = [entry(model, {"speedup": 2.0}, accuracy="pass") for model in "ab"]
    comparison = compare(
        side(*base), side(base[0], entry("b", {"speedup": 9.0}, accuracy="fail_accuracy"))
    )
    assert [pair.accuracy for pair in comparison.pairs] == ["", "broke"]
    speed = comparison.sum_of("speedup")
    assert speed is not None
    assert (speed.count, speed.change) == (1, 0)


def test_a_mean_is_not_worse_because_of_a_wrong_answer_that_is_in_no_mean() -> None:
    def model_entry(
        model: str, speedup: float, width: float, accuracy: str = "pass"
    ) -> ModelResult:
        values, interval = {"speedup": speedup}, (speedup - width, speedup + width)
        return entry(model, values, interval=interval, accuracy=accuracy)

    base = side(model_entry("right", 2.0, 0.4), model_entry("wrong", 2.0, 0.01))
    comparison = compare(
        base, side(model_entry("right", 1.8, 0.4), model_entry("wrong", 1.0, 0.01, "fail_accuracy"))
    )
    assert {pair.model: pair.deltas["speedup"].word for pair in comparison.pairs} == {
        "right": "noise",
        "wrong": "wrong",
    }
    speed = comparison.sum_of("speedup")
    assert speed is not None and speed.overall is not None
    assert (speed.overall.word, speed.count, speed.verdicts) == ("noise", 1, {"noise": 1})


def test_versions_that_differ_warn_and_torch_may_be_what_is_compared() -> None:
    old, new = (
        {"torch": (version,), "host": (version,), "timing": ("repeat 30",)}
        for version in ("2.11", "2.12")
    )
    comparison = compare(side(environment=old), side(environment=new))
    assert comparison.warnings == ("torch: 2.11 on base, 2.12 in new",)
    assert {difference.name: difference.weight for difference in comparison.environment} == {
        "torch": "warns",
        "Timing policy": "same",
        "Host": "differs",
    }
    base, later = (
        ComparedSide(f"torch:{environment['torch'][0]}", "", environment=environment)
        for environment in (old, new)
    )
    assert compare(base, later).warnings == ()
    assert (
        compare(side(environment=old), side()).warnings == ()
    )  # what is not recorded is no difference


def test_settings_that_differ_come_first() -> None:
    base = side(config={("dynamo", "a"): ("1", "0"), ("dynamo", "b"): ("2", "0")})
    settings = compare(
        base, side(config={("dynamo", "b"): ("2", "0"), ("inductor", "c"): ("3", "0")})
    ).settings
    assert [
        (changed_setting.name, changed_setting.base, changed_setting.new)
        for changed_setting in settings
    ] == [
        ("a", "1", None),
        ("c", None, "3"),
        ("b", "2", "2"),
    ]


def test_distinct_breaks_are_new_resolved_unchanged_or_more_often() -> None:
    first, other, removed = (
        entry(fingerprint, {"speedup": 1}) for fingerprint in ("one", "other", "gone")
    )
    base = [
        broke("was", 1, first),
        broke("same", 2, first),
        broke("more", 1, other),
        broke("less", 3, other),
    ]
    new = [
        broke("same", 2, first),
        broke("more", 4, other),
        broke("less", 1, other),
        broke("now", 1, first),
    ]
    base.append(broke("of a model that new has not", 1, removed))
    breaks = compare(
        side(first, other, removed, breaks=base), side(first, other, breaks=new)
    ).breaks
    words = {change.fingerprint: change.word for change in breaks.changes}
    assert words == {
        "now": "new",
        "more": "worse",
        "was": "resolved",
        "less": "less",
        "same": "unchanged",
    }
    assert breaks.left_out_count == 1
    assert breaks.changes[0].model == "one"


def test_a_break_that_torch_makes_by_design_is_not_worse() -> None:
    own, by_design = broke("mine"), replace(broke("ddp", 3), is_by_design=True)
    diff = diff_distinct([by_design], [own, replace(by_design, count=8)], {}, str)
    assert [(change.fingerprint, change.word) for change in diff.changes] == [
        ("mine", "new"),
        ("ddp", "by_design"),
    ]
    assert WORDS["by_design"][1] == "quiet"


def test_a_break_has_the_title_and_line_that_its_run_has(
    recorded_reader: sqlite3.Connection,
) -> None:
    runs = [row["id"] for row in recorded_reader.execute("select id from runs")]
    for run_id in runs:
        own = list_distinct_breaks(recorded_reader, run_id, limit=1000).rows
        known = {(row.title, row.file, row.function) for row in own}
        for _task, item in list_task_distinct(recorded_reader, BREAKS_SQL, run_id):
            assert (item.title, item.file, item.function) in known
            assert "DistributedDataParallel" in item.head or not item.is_by_design
    causes = [
        item
        for run_id in runs
        for _task, item in list_task_distinct(recorded_reader, CAUSES_SQL, run_id)
    ]
    assert len(causes) > 10 and "Dimension 0 of x changes" in {item.title for item in causes}


def test_the_same_break_of_another_model_is_new_there() -> None:
    first, other = (entry(fingerprint, {"speedup": 1}) for fingerprint in ("one", "other"))
    base, new = [broke("x", 1, first)], [broke("x", 1, first), broke("x", 1, other)]
    breaks = compare(side(first, other, breaks=base), side(first, other, breaks=new)).breaks
    assert [(change.word, change.model) for change in breaks.changes] == [
        ("new", "other"),
        ("unchanged", "one"),
    ]
    per_run = compare(side(breaks=[broke("x")]), side(first, other, breaks=new)).breaks
    assert [(change.word, change.model, change.new_count) for change in per_run.changes] == [
        ("worse", None, 2)
    ]


def test_breaks_of_an_experiment_that_only_one_side_made_are_left_out() -> None:
    timed, judged = (
        replace(broke("x", 2, entry()), experiment=experiment)
        for experiment in ("performance", "accuracy")
    )
    base = side(entry(values={"speedup": 1}, experiments=("performance",)), breaks=[timed])
    both = entry(values={"speedup": 1}, experiments=("performance", "accuracy"))
    breaks = compare(base, side(both, breaks=[timed, judged])).breaks
    assert [(change.word, change.base_count, change.new_count) for change in breaks.changes] == [
        ("unchanged", 2, 2)
    ]
    assert breaks.left_out_count == 1


def test_breaks_that_nothing_recorded_are_not_resolved() -> None:
    breaks = compare(side(breaks=[broke("x")]), side()).breaks
    assert breaks.changes == ()
    assert breaks.not_compared == "torch was not recorded in new: there are only numbers"


VALUES = st.dictionaries(
    st.sampled_from([metric.name for metric in COMPARED]),
    st.floats(0.001, 1e6).map(lambda value: float(f"{value:.6g}")),
)
ENTRIES = st.lists(
    st.builds(entry, st.sampled_from("abcdefgh"), VALUES),
    max_size=8,
    unique_by=lambda result: result.model,
)


@given(ENTRIES, ENTRIES, st.randoms(use_true_random=False))
def test_order_does_not_matter_and_nothing_is_invented(
    base: list[ModelResult], new: list[ModelResult], chance: Any
) -> None:
    paired = pair_entries(base, new)
    assert len(paired.pairs) + len(paired.excluded) + len(paired.only_base) == len(base)
    assert len(paired.pairs) + len(paired.excluded) + len(paired.only_new) == len(new)
    for pair in paired.pairs:
        assert set(pair.deltas) == set(pair.base.values) & set(pair.new.values)
        assert all(
            (delta.base, delta.new) == (pair.base.values[k], pair.new.values[k])
            for k, delta in pair.deltas.items()
        )
    chance.shuffle(base)
    chance.shuffle(new)
    assert pair_entries(base, new) == paired


@given(ENTRIES, st.sampled_from([0.25, 2.0, 1024.0]))
def test_scale_does_not_matter(base: list[ModelResult], factor: float) -> None:
    new = [
        entry(result.model, {name: value * 1.5 for name, value in result.values.items()})
        for result in base
    ]
    small, large = (
        [entry(result.model, {k: v * factor for k, v in result.values.items()}) for result in side]
        for side in (base, new)
    )
    plain = [
        {k: (delta.word, delta.change) for k, delta in pair.deltas.items()}
        for pair in pair_entries(base, new).pairs
    ]
    pairs = pair_entries(small, large).pairs
    assert [
        {k: (delta.word, delta.change) for k, delta in pair.deltas.items()} for pair in pairs
    ] == plain
    for first, other in zip(sum_metrics(pair_entries(base, new).pairs), sum_metrics(pairs)):
        assert first.change == pytest.approx(other.change)
