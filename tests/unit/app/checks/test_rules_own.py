"""Rules of our own: what upstream's checkers cannot see."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.benchmarks.metrics import BY_NAME
from compileboard.app.checks.model import FAIL, RuleInput, RuleOptions, Side
from compileboard.app.checks.rules import DEFAULT, RULES, find_rules
from compileboard.app.comparison.queries import DistinctItem
from compileboard.collectors.contract.verdicts import SAMPLES, Measurement, decide
from tests.unit.app.compared import distinct


def _row(name: str, **cells: Any) -> RuleInput:
    repeats = cells.pop("repeats", {})
    return RuleInput(name, {"status": "measured", **cells}, repeats=repeats)


def _repeats(metric: str, samples: list[float]) -> dict[str, list[float]]:
    """Return the repeats whose ratios are these samples of a metric."""
    over, under = SAMPLES[metric]
    return {over: samples, under: [1.0] * len(samples)}


def _timed(speedup: float, count: int, spread: float = 0.01) -> dict[str, Any]:
    """Return a speedup and the samples that it is the median of."""
    samples = [speedup * (1 + spread * (position - count // 2)) for position in range(count)]
    return {"speedup": speedup, "repeats": _repeats("speedup", samples)}


def _words(rule: str, actual: Side, expected: Side, **options: Any) -> list[tuple[str, str]]:
    (found_rule,) = find_rules([rule])
    assert found_rule.applies(actual, expected, RuleOptions(**options)) == ""
    return [
        (rule_verdict.name, rule_verdict.verdict)
        for rule_verdict in found_rule.check(actual, expected, RuleOptions(**options))
    ]


def _broken(model: str | None, fingerprint: str) -> DistinctItem:
    return DistinctItem(
        fingerprint, "GB0001", f"reason of {fingerprint}", "forward", "m.py", 3, 1, model
    )


def test_vanished_models_are_named() -> None:
    before = Side("before", tuple(_row(name) for name in ("kept", "gone", "skipped", "not_run")))
    now = Side(
        "now", (_row("kept"), _row("skipped", status="skipped"), _row("not_run", status="not_run"))
    )
    assert _words("vanished", now, before) == [
        ("kept", "PASS"),
        ("gone", "VANISHED"),
        ("skipped", "SKIPPED"),
        ("not_run", "NOT_RUN"),
    ]


@pytest.mark.parametrize(
    ("rule", "column", "base", "new", "word"),
    [
        ("package-size", "package_bytes", 3.2e6, 3.4e6, "LARGER"),
        ("package-size", "package_bytes", 3.2e6, 3.3e6, "PASS"),
        ("package-size", "package_bytes", 3.2e6, 1.6e6, "SMALLER"),
        ("scaling-efficiency", "scaling_efficiency", 0.93, 0.71, "LOWER"),
        ("quantized-error", "quantized_error", 0.0063, 0.016, "LARGER"),
        ("export-time", "export_latency", 0.2, 0.4, "FEW_SAMPLES"),  # exported once on each side
        ("load-time", "load_latency", 0.02, 0.04, "FEW_SAMPLES"),  # loaded once on each side
    ],
)
def test_a_number_that_is_exact_needs_no_samples(
    rule: str, column: str, base: float, new: float, word: str
) -> None:
    sides = [
        Side(title, (_row("mlp", **{column: value}),))
        for title, value in (("now", new), ("before", base))
    ]
    assert _words(rule, *sides) == [("mlp", word)]


@pytest.mark.parametrize(
    ("rule", "column", "samples_name"),
    [("load-time", "load_latency", "load_s"), ("export-time", "export_latency", "export_s")],
)
def test_a_load_or_export_time_is_judged_by_its_samples(
    rule: str, column: str, samples_name: str
) -> None:
    def side(seconds: float) -> Side:
        samples = [seconds, 1.01 * seconds, 0.99 * seconds]
        return Side("side", (_row("mlp", **{column: seconds}, repeats={samples_name: samples}),))

    assert _words(rule, side(0.04), side(0.02)) == [("mlp", "SLOWER")]


def test_missing_baselines_are_named() -> None:
    before, now = Side("before", (_row("old"),)), Side("now", (_row("old"), _row("new")))
    assert _words("missing-baseline", now, before) == [("old", "PASS"), ("new", "MISSING_BASELINE")]


@pytest.mark.parametrize(
    ("now", "before", "word"),
    [
        ({"speedup": 1.0}, {"speedup": 1.02}, "PASS"),
        ({"speedup": 0.9}, {"speedup": 1.0}, "SLOWER"),  # no intervals: the tolerance alone decides
        ({"speedup": 1.2}, {"speedup": 1.0}, "FASTER"),
        (_timed(0.9, 1), {"speedup": 1.0}, "FEW_SAMPLES"),
        (_timed(0.9, 3), {"speedup": 1.0}, "SLOWER"),  # a file's: nobody knows of how many
        (_timed(0.9, 3), _timed(1.0, 2), "FEW_SAMPLES"),
        (_timed(0.9, 3), _timed(1.0, 3), "SLOWER"),
        (_timed(0.9, 3, spread=0.1), _timed(1.0, 3), "NOISE"),
        (
            {"speedup": 0.9, "speedup_low": 0.7, "speedup_high": 1.1},
            {"speedup": 1.0, "speedup_low": 0.99, "speedup_high": 1.01},
            "NOISE",
        ),
        (
            {"speedup": 0.9, "speedup_low": 0.89, "speedup_high": 0.91},
            {"speedup": 1.0, "speedup_low": 0.99, "speedup_high": 1.01},
            "SLOWER",
        ),
        ({"status": "failed", "reason": "OOM"}, {"speedup": 1.0}, "FAIL"),
        ({"status": "skipped"}, {"speedup": 1.0}, "SKIPPED"),
        ({"speedup": 1.0}, {"status": "failed"}, "MISSING"),
        ({"speedup": 1.0}, {"speedup": "0.0"}, "MISSING"),  # upstream's padding is no measurement
    ],
)
def test_speedup_weighs_the_noise(now: dict[str, Any], before: dict[str, Any], word: str) -> None:
    sides = (
        Side("now", (_row("m", **now), _row("other", speedup=1.0))),
        Side("b", (_row("m", **before), _row("other", speedup=1.0))),
    )
    assert _words("speedup", *sides)[0] == ("m", word)


@pytest.mark.parametrize(
    ("samples", "word"),
    [
        (None, "FAIL"),  # an upstream file's, by upstream's rule
        ([], "FEW_SAMPLES"),
        ([0.8], "FEW_SAMPLES"),
        ([0.79, 0.8, 0.81], "FAIL"),
        ([0.7, 0.8, 0.95], "NOISE"),
    ],
)
def test_memory_below_its_share_is_judged_by_its_samples(
    samples: list[float] | None, word: str
) -> None:
    sampled, known = [
        {}
        if samples is None
        else {"repeats": _repeats("speedup", [1.0]) | _repeats("compression_ratio", values)}
        for values in (samples, [0.99, 1.0, 1.01])
    ]
    before, now = (
        _row("a", compression_ratio=1.0, **known),
        _row("a", compression_ratio=0.8, **sampled),
    )
    assert _words("memory", Side("now", (now,)), Side("before", (before,))) == [("a", word)]


@given(
    *[st.lists(st.floats(0.5, 2), min_size=1, max_size=12)] * 2,
    st.sampled_from(["speedup", "compression_ratio"]),
)
def test_check_fails_only_what_compare_calls_worse(
    before: list[float], now: list[float], metric: str
) -> None:
    values = [median(samples) for samples in (before, now)]
    rows = [
        _row("m", **{metric: value}, repeats=_repeats(metric, samples))
        for value, samples in zip(values, (before, now))
    ]
    rule = {"speedup": "speedup", "compression_ratio": "memory"}[metric]
    ((_name, word),) = _words(rule, Side("now", (rows[1],)), Side("before", (rows[0],)))
    sides = [Measurement(value, samples=samples) for value, samples in zip(values, (before, now))]
    verdict = decide(BY_NAME[metric], *sides).word
    is_large = abs(values[1] / values[0] - 1) > 0.05
    assert (word in ("SLOWER", "FAIL")) == (verdict == "worse" and is_large)


def test_speedups_of_other_batch_sizes_are_not_compared() -> None:
    now = Side("now", (RuleInput("m", {"speedup": 0.5}, {"batch_size": 8}),))
    before = Side("before", (RuleInput("m", {"speedup": 1.0}, {"batch_size": 32}),))
    assert _words("speedup", now, before) == [("m", "OTHER_BATCH_SIZE")]


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_speedup_never_fails_both_ways(first: float, second: float) -> None:
    one_side, other_side = (
        Side("one", (_row("m", speedup=first),)),
        Side("two", (_row("m", speedup=second),)),
    )
    words = {
        _words("speedup", one_side, other_side)[0][1],
        _words("speedup", other_side, one_side)[0][1],
    }
    assert words != {"SLOWER"}


@pytest.mark.parametrize(
    ("rule", "field", "word"),
    [
        ("new-breaks", "breaks", "NEW_BREAK"),
        ("new-recompiles", "causes", "NEW_RECOMPILE"),
        ("new-rerecordings", "rerecordings", "NEW_RERECORDING"),
    ],
)
def test_new_distinct_things_are_told_from_known_ones(rule: str, field: str, word: str) -> None:
    rows = (_row("a"), _row("b"))
    before = Side("before", rows, **{field: (_broken("a", "x"), _broken("a", "gone"))})
    now = Side("now", rows, **{field: (_broken("a", "x"), _broken("b", "x"), _broken("b", "y"))})
    assert _words(rule, now, before) == [
        ("b", word),
        ("b", word),
        ("a", "RESOLVED"),
        ("the run", "PASS"),
    ]


def test_breaks_of_a_new_model_are_new_only_where_nobody_has_them() -> None:
    before = Side("before", (_row("a"),), breaks=(_broken("a", "x"),))
    now = Side(
        "now",
        (_row("a"), _row("new")),
        breaks=(_broken("a", "x"), _broken("new", "x"), _broken("new", "y")),
    )
    assert _words("new-breaks", now, before) == [("new", "NEW_BREAK"), ("the run", "PASS")]


def test_breaks_without_a_model_are_the_runs() -> None:
    before = Side("before", (_row("a"),), breaks=(_broken(None, "x"),))
    now = Side("now", (_row("a"),), breaks=(_broken("a", "x"), _broken("a", "y")))
    assert _words("new-breaks", now, before) == [("a", "NEW_BREAK"), ("the run", "PASS")]


def test_breaks_of_a_vanished_model_are_not_resolved() -> None:
    before = Side("before", (_row("a"), _row("gone")), breaks=(_broken("gone", "x"),))
    assert _words("new-breaks", Side("now", (_row("a"),), breaks=()), before) == [
        ("the run", "PASS")
    ]


def test_rules_say_what_they_lack() -> None:
    bare = Side("a.csv", (_row("a"),))
    lacks_by_rule = {rule.name: rule.applies(bare, bare, RuleOptions()) for rule in RULES}
    assert {name for name, lacks in lacks_by_rule.items() if not lacks} == {
        "vanished",
        "missing-baseline",
    }
    assert all(
        "a.csv" in lacks or "no threshold" in lacks for lacks in lacks_by_rule.values() if lacks
    )


def test_rules_are_found_by_name() -> None:
    assert [rule.name for rule in find_rules(["speedup", "accuracy"])] == ["accuracy", "speedup"]
    assert find_rules([]) == find_rules([DEFAULT]) == [rule for rule in RULES if rule.is_default]
    assert all(FAIL in rule.words.values() for rule in RULES)
    with pytest.raises(ValueError, match="no rule 'speed'; the rules are default, accuracy"):
        find_rules(["speed"])


def test_rules_look_at_each_row_once() -> None:
    looked = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal looked
            looked += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    cells = {
        "accuracy": "pass",
        "graph_breaks": 1,
        "unique_graphs": 1,
        "compression_ratio": 1.0,
        "speedup": 1.0,
    }
    items = tuple(distinct(f"f{n}", Name(f"m{n}"), "reason", 1) for n in range(500))
    sides = [
        Side("s", tuple(RuleInput(Name(f"m{n}"), cells) for n in range(500)), items, items)
        for _side in "ab"
    ]
    for rule in RULES:
        rule.check(sides[0], sides[1], RuleOptions(threshold=1.0))
    assert 0 < looked < 500 * 10 * len(RULES), (
        "a rule that looked for each row in all would ask 250 000 times"
    )


def test_a_run_without_results_says_what_it_recorded_instead() -> None:
    plain = Side(
        "run B",
        (),
        breaks=(distinct("f1", None, "print", 3), distinct("f2", None, "data", 2)),
    )
    (rule,) = find_rules(["graph-breaks"])
    assert rule.applies(plain, plain, RuleOptions()) == (
        "run B has no benchmark results; new-breaks compares its recorded graph breaks (5)"
    )
    assert (
        rule.applies(Side("run C", (), breaks=()), plain, RuleOptions())
        == "run C has no benchmark results"
    )


@pytest.mark.parametrize(
    ("metric", "value", "improvement", "word"),
    [
        ("speedup", "0.9", False, "PASS"),  # the bound itself is good
        ("speedup", "0.899", False, "REGRESSED"),
        ("speedup", "9.0", False, "PASS"),
        ("speedup", "1.112", True, "IMPROVED"),
        ("speedup", "1.111", True, "PASS"),
        ("abs_latency", "1.111", False, "PASS"),
        ("abs_latency", "1.112", False, "REGRESSED"),
        ("abs_latency", "0.9", True, "PASS"),
        ("abs_latency", "0.899", True, "IMPROVED"),
    ],
)
def test_performance_is_good_up_to_its_bound_and_no_further(
    metric: str, value: str, improvement: bool, word: str
) -> None:
    side = Side("a", (RuleInput("m", {metric: value}),))
    options = {
        "metric": metric,
        "threshold": 1.0,
        "threshold_scale": 0.9,
        "fail_on_improvement": improvement,
    }
    assert _words("performance", side, side, **options) == [("m", word)]
