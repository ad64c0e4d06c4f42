from __future__ import annotations

from dataclasses import replace

import plotly.graph_objects as go

from compileboard.app.comparison.environment import compare_texts, list_changes
from compileboard.app.compiles.charts import chart_compiles
from compileboard.app.compiles.model import group_compiles, list_present_phases, shorten_steps
from compileboard.app.compiles.run_queries import CompileRow, Phases
from compileboard.app.core.fields import gb_url
from compileboard.app.core.labels import (
    CAPABILITIES,
    PHASES,
    describe_losses,
    describe_outcome,
    list_shares,
    split_capabilities,
    sum_phases,
)
from compileboard.app.reasons.run_queries import LimitHit
from compileboard.app.runs.advice import RunFacts, describe_order, list_problems, list_savings
from compileboard.app.runs.failures import CacheResult, FailureGroup
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.fixes.fix import TriedFix
from compileboard.collectors.observe import torch_compat


def test_problems_name_what_runs_eagerly_without_a_cause() -> None:
    limit = LimitHit(1, "0/8", "p", "", None, "f", "a.py", 3, "tensor_size", "0/7", 0, None)
    (problem,) = list_problems(RunFacts(limit_hits=[limit]))
    assert (problem.severity, problem.kind, problem.line) == ("bad", "limit", 3)
    assert list_problems(RunFacts()) == []


def test_problems_name_caches_that_are_off_or_bypassed() -> None:
    changed = [{"inductor": {"fx_graph_cache": {"value": False, "default": True}}}]
    bypass = CacheResult("aot_autograd", "bypass", "custom op", 3, None, None)
    problems = list_problems(RunFacts(changed=changed, cacheable_us=2_000_000, caches=[bypass]))
    assert [problem.title for problem in problems] == [
        "Caches are disabled",
        "AOTAutograd cache bypassed",
    ]
    assert "inductor.fx_graph_cache = False" in problems[0].advice
    assert problems[1].number == "3 graphs"


def test_shares_fill_the_bar_and_leave_out_what_took_no_time() -> None:
    phases = Phases(750, 250, 0, None, None, None, None, None)
    shares = list_shares(phases)
    assert [(share.phase.name, share.start, share.width) for share in shares] == [
        ("dynamo", 0, 75),
        ("aot", 75, 25),
    ]
    assert sum_phases(phases) == 1000
    assert sum_phases(Phases(*(None,) * 8)) is None
    assert list_shares(phases, 2000)[0].width == 37.5


def test_list_changes_counts_the_processes_that_have_one() -> None:
    verbose = {"dynamo": {"verbose": {"value": True, "default": False}}}
    changes = list_changes(
        [
            ("a", verbose),
            ("b", verbose),
            ("c", {"dynamo": {"verbose": {"value": "", "default": False}}}),
        ]
    )
    assert [
        (change.name, change.value, change.default, change.process_count) for change in changes
    ] == [
        ("verbose", '""', "False", 1),
        ("verbose", "True", "False", 2),
    ]


def test_compare_texts_lists_what_is_not_the_same_everywhere() -> None:
    differences = compare_texts([("h1", {"a": 1, "b": 2}), ("h2", {"a": 1, "b": 3, "c": None})])
    assert [(difference.name, difference.values) for difference in differences] == [
        ("b", (("2", "h1"), ("3", "h2"))),
        ("c", (("not there", "h1"), ("None", "h2"))),
    ]


def test_shorten_steps_keeps_both_ends() -> None:
    shown, left_out = shorten_steps(list(range(100)), 40)  # type: ignore[arg-type]
    assert (shown[:10], shown[-1], left_out) == (list(range(10)), 99, 60)
    assert shorten_steps([], 40) == ([], 0)


def test_words_tell_an_unfinished_compile_from_a_running_one() -> None:
    assert describe_outcome("started", True).word == "started"
    assert describe_outcome("started", False).word == "not finished"
    assert (
        gb_url("GB0059") == "https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html"
    )
    assert gb_url("GB../x") is None


def test_words_say_what_was_lost_and_never_claim_more_than_was_reported() -> None:
    assert describe_losses({"disk full": 2}, True, True, True).word == "2 dropped records"
    assert describe_losses(None, True, True, True).word == "no dropped records"
    assert describe_losses({}, True, False, True).word == "no dropped records so far"
    assert describe_losses(None, False, False, True).word == "dropped records unknown"
    assert describe_losses(None, True, True, False).word == "dropped records unknown"


def test_capabilities_are_missing_only_where_torch_lacks_them() -> None:
    capabilities = {
        "events": "ok (beside another reader)",
        "metrics": "ok",
        "repro_script": "later",
        "skip_code": "okra",
    }
    assert split_capabilities(capabilities) == (
        [("skip_code", "okra")],
        [("events", "ok (beside another reader)")],
    )
    assert set(torch_compat.NAMES) < set(CAPABILITIES)


def test_chart_compiles_escapes_names_and_is_plotlys() -> None:
    phases = Phases(2_000_000, 10, None, None, None, None, None, None)
    row = CompileRow(
        *(
            4,
            "p",
            1,
            0,
            "0/0",
            0,
            0,
            1,
            "<a>",
            "a.py",
            1,
            None,
            "compiled",
            0,
            1,
            1,
            1,
            0,
            None,
            None,
            "rank 1",
        ),
        phases,
        None,
        None,
    )
    chart = chart_compiles([row], "RUN", 1)
    go.Figure(chart.figure)
    assert chart.figure["layout"]["yaxis"]["ticktext"] == [
        "rank 1 · &lt;a> · a.py:1 · first compile 0/0 "
    ]
    assert chart.figure["data"][0]["customdata"] == ["/runs/RUN/compiles/4"]
    assert chart.rows[0][:4] == ["rank 1 · <a> · a.py:1 · first compile", "0/0", "2.00 s", "2.00 s"]


def test_labels_of_phases_are_so_on_a_cpu_too() -> None:
    (kernels,) = [phase for phase in PHASES if phase.name == "triton"]
    assert (kernels.label, "C++ on a CPU" in kernels.meaning) == ("kernels", True)


def test_bars_are_grouped_by_function_and_begin_with_its_first_compile() -> None:
    first = CompileRow(
        *(
            0,
            "p",
            1,
            0,
            "0/0",
            0,
            0,
            None,
            "f",
            "a.py",
            1,
            None,
            "compiled",
            5,
            1,
            1,
            1,
            0,
            None,
            None,
            "",
        ),
        Phases(500, *(None,) * 7),
        None,
        None,
    )
    again = replace(
        first, id=1, started_us=9, recompiled_from="0/0", recompile_category="tensor_size"
    )
    rows = [
        replace(again, phases=Phases(1000, *(None,) * 7)),
        replace(first, function="g", phases=Phases(0, *(None,) * 7)),
        replace(first, function="h"),
        first,
    ]
    groups = group_compiles(rows)
    assert [(group.code, group.line, len(group.bars)) for group in groups] == [
        ("f", "a.py:1", 2),
        ("h", "a.py:1", 1),
    ]
    assert [(bar.compile.role, bar.time_us, bar.shares[0].width) for bar in groups[0].bars] == [
        ("first compile", 500, 50.0),
        ("recompile: tensor size", 1000, 100.0),
    ]
    assert [phase.name for phase in list_present_phases(groups)] == ["dynamo"]


def test_an_operator_that_refuses_its_inputs_is_not_left_to_an_except() -> None:
    message = (
        "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node"
    )
    failure = FailureGroup("TorchRuntimeError", message, "f", "model.py", 7, 1)
    (refused,) = list_problems(RunFacts(failures=[failure]))
    (other,) = list_problems(RunFacts(failures=[replace(failure, message="no module named x")]))
    assert "test the condition instead of catching the operator's error" in refused.advice
    assert "Read the traceback" in other.advice


def test_each_part_of_the_bar_says_what_it_rests_on() -> None:
    place = ("forward", "model.py", 1, None, "", "")
    made = Cause(1, "graph_break", "Break", "f", 30, False, 1, *place)
    trial = TriedFix("improved", "", "", "", None, None, None, None, 0, base_us=9, new_us=6)
    tried = replace(made, number=2, saved_us=20, trials=(trial,))
    slower = replace(made, number=3, saved_us=-5)
    parts = list_savings([made, tried, slower], 100)
    assert [(part.label, part.basis, part.time_us) for part in parts] == [
        ("Cause 1", "estimate", 30),  # no fix is known
        ("Cause 2", "measured", 20),
        ("Remaining", "", 50),
    ]
    assert list_savings([slower], 100) == []


def test_causes_name_the_order_that_they_are_in() -> None:
    def cause(
        saved_us: int, is_eager: bool = False, verified: bool = False, run_us: int | None = None
    ) -> Cause:
        improved = TriedFix("improved", "", "", "", None, None, None, None, 0)
        place = ("forward", "model.py", 1, None, "", "")
        made = Cause(1, "graph_break", "Break", "f", saved_us, is_eager, 1, *place, run_us=run_us)
        return replace(made, trials=(improved,) if verified else ())

    assert describe_order([cause(3), cause(2, True), cause(0)]) == "Most compile time first"
    eager = "What runs eagerly first, then most compile time"
    assert describe_order([cause(1, True), cause(3), cause(2)]) == eager
    assert describe_order([cause(1), cause(3)]) == ""
    verified = "Verified fixes first, then most compile time"
    assert describe_order([cause(1, verified=True), cause(3), cause(2)]) == verified
    assert describe_order([cause(3), cause(1, verified=True)]) == ""
    slow = cause(-4, verified=True)
    slow = replace(slow, trials=(replace(slow.trials[0], slower=("step 9% more",)),))
    assert describe_order([cause(3), cause(2), slow]) == (
        "Most compile time first, then verified fixes that take longer"
    )
    assert describe_order([slow, cause(3)]) == ""
    timed = [cause(1, run_us=9), cause(3, True, run_us=3)]
    assert describe_order(timed) == "Most of the run's time first"
