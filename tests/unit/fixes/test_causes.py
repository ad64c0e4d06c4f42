from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.fixes.causes import Cause, build_causes
from compileboard.collectors.fixes.fix import (
    BreakOccurrence,
    RecordedBreak,
    RecordedCompile,
    RecordedGuard,
    RecordedRecompile,
    RecordedRun,
    SourceLines,
    StackFrame,
)
from compileboard.collectors.fixes.titles import describe_savings


def _compile(
    key: int, total_us: int = 100, resumed_at: int | None = None, **more: Any
) -> RecordedCompile:
    row = RecordedCompile(
        key,
        "p",
        f"{key}/0",
        (0, key),
        "f",
        "model.py",
        resumed_at or 3,
        resumed_at,
        "compiled",
        total_us,
        0,
        False,
    )
    return replace(row, **more)


def _size(
    source: str = "x", expected: str = "16", actual: str = "7", dim: int = 0
) -> RecordedGuard:
    reason = f"tensor '{source}' size mismatch at index {dim}. expected {expected}, actual {actual}"
    return RecordedGuard(
        f"size {source} {dim}",
        "tensor_size",
        source,
        expected,
        actual,
        reason,
        None,
        None,
    )


def _break(number: int, line: int, gb_type: str = "Graph break") -> RecordedBreak:
    return RecordedBreak(
        "GB0001",
        gb_type,
        gb_type,
        function="f",
        file="model.py",
        line=line,
        source_line="x",
        id=number,
        fingerprint=f"b{number}",
    )


def test_one_size_in_several_places_is_one_cause_with_its_siblings() -> None:
    compiles = [_compile(1, is_recompile=True), _compile(2, is_recompile=True, function="g")]
    recompiles = [RecordedRecompile(1, (_size("user"),)), RecordedRecompile(2, (_size("item"),))]
    (cause,) = build_causes(RecordedRun(compiles, recompiles))
    assert (cause.saved_us, cause.event_count, cause.place_count) == (200, 2, 2)
    assert cause.title == "Dimension 0 of user, item changes: 16 → 7"
    two = [recompiles[0], RecordedRecompile(2, (_size("item", dim=1),))]
    assert len(build_causes(RecordedRun(compiles, two))) == 2


def test_recompiles_after_a_break_belong_to_the_break() -> None:
    compiles = [
        _compile(1, restart_us=30),
        _compile(2, 50, 22),
        _compile(3, 60, 22, is_recompile=True),
    ]
    recompiles = [RecordedRecompile(3, (_size("___stack0"),))]
    breaks, occurrences = [_break(1, 22)], [BreakOccurrence(1, 1, "resumed", 22)]
    (cause,) = build_causes(RecordedRun(compiles, recompiles, breaks, occurrences))
    assert (cause.kind, cause.saved_us, cause.graph_count) == ("graph_break", 30 + 50 + 60, 2)
    assert cause.resumed[0].recompile_keys == (3,)
    (alone,) = build_causes(RecordedRun(compiles, recompiles))  # the break itself was not recorded
    assert (alone.kind, alone.saved_us) == ("recompile", 60)


def test_a_line_that_breaks_thousands_of_times_looks_its_resumed_code_up_once() -> None:
    count = 3_000  # events × compiles × compiles would not end
    compiles = [_compile(1), *(_compile(key, resumed_at=5) for key in range(2, count))]
    occurrences = [BreakOccurrence(1, 1, "resumed", 5)] * count
    (cause,) = build_causes(RecordedRun(compiles, [], [_break(1, 5)], occurrences))
    assert cause.event_count == count
    assert [len(part.compile_keys) for part in cause.resumed] == [count - 2]


def test_what_runs_eagerly_is_the_skipped_frame_and_what_it_calls_stands_below() -> None:
    lines = ("def forward(self, x):", "    for block in self.blocks:", "        x = block(x)")
    compiles = [
        _compile(1, function="Net.forward", outcome="skipped"),
        _compile(2, function="Block.forward"),
        _compile(3, function="Block.forward", is_recompile=True),
    ]
    grad = replace(_size(), category="requires_grad", fingerprint="grad")
    recorded = RecordedRun(
        compiles,
        [RecordedRecompile(3, (grad,))],
        [replace(_break(1, 10), function="Block.forward")],
        [BreakOccurrence(1, 1, "skipped", 3, is_inlined=True)],
        [SourceLines("model.py", 1, lines)],
        called={1: (2, 3)},
    )
    (cause,) = build_causes(recorded)
    assert (cause.function, cause.line, cause.is_eager) == ("Block.forward", 10, True)
    assert cause.title == "`Net.forward` runs eagerly: Graph break in its `for` loop"
    assert cause.eager_sentences == [
        "`Net.forward` (model.py:3) runs eagerly: its `for` loop at line 2 calls what breaks."
    ]
    assert [(part.function, part.compile_keys) for part in cause.resumed] == [
        ("Block.forward", (2, 3))
    ]
    size = replace(recorded, recompiles=[RecordedRecompile(3, (_size(),))])
    assert [cause.kind for cause in build_causes(size)] == ["graph_break", "recompile"]


def test_a_break_in_a_package_is_mended_at_the_users_call() -> None:
    call = StackFrame("train.py", "forward", 17, "y = run_steps(torch.sin, x, 3)")
    broken = replace(_break(1, 9), file="site-packages/stepping/run.py", call=call)
    skipped = [BreakOccurrence(1, 1, "skipped", 9)]
    rows = [_compile(1, file=broken.file), _compile(2, file="train.py", function="Net.forward")]
    (inside,) = build_causes(RecordedRun(rows, [], [broken], skipped))
    assert [suggested.fix.id for suggested in inside.fixes] == ["library_call", "library_outside"]
    assert "`run_steps(torch.sin, x, 3)` at `train.py:17`" in inside.fixes[1].title
    (outside,) = build_causes(RecordedRun(rows[:1], [], [broken], skipped))
    assert [suggested.fix.id for suggested in outside.fixes] == ["library_call"]
    assert not any(suggested.edits for suggested in (*inside.fixes, *outside.fixes))


def test_time_that_two_causes_claim_counts_for_the_larger() -> None:
    compiles = [
        _compile(1, is_recompile=True),
        _compile(2, 50, 22),
        _compile(3, 60, 22, is_recompile=True),
    ]
    recompiles = [RecordedRecompile(1, (_size(),)), RecordedRecompile(3, (_size("y"),))]
    breaks, occurrences = [_break(1, 22)], [BreakOccurrence(1, 1, "resumed", 22)]
    size, graph_break = build_causes(RecordedRun(compiles, recompiles, breaks, occurrences))
    assert (size.saved_us, graph_break.saved_us) == (160, 50)
    assert (size.event_count, size.title) == (
        2,
        "Dimension 0 of x changes: 16 → 7",
    )  # y is a name after the break


def test_breaks_of_one_branch_are_one() -> None:
    branch, inside = _break(1, 3, "Data-dependent branching"), _break(2, 5)
    code = SourceLines(
        "model.py",
        2,
        ("def f(x):", "    if x > 0:", "        x = x + 1", "        print(x)", "    return x"),
    )
    occurrences = [BreakOccurrence(number, None, "resumed", None) for number in (1, 2, 3)]
    after = _break(3, 6)
    causes = build_causes(
        RecordedRun(breaks=[branch, inside, after], occurrences=occurrences, code=[code])
    )
    assert sorted(cause.content_ids for cause in causes) == [(1, 2), (3,)]
    assert (
        len(build_causes(RecordedRun(breaks=[branch, inside], occurrences=occurrences))) == 2
    )  # source unknown
    assert (
        len(build_causes(RecordedRun(breaks=[branch, _break(2, 4)], occurrences=occurrences))) == 1
    )


def test_what_runs_eagerly_comes_first() -> None:
    compiles = [_compile(1, 900, is_recompile=True), _compile(2, 5, outcome="skipped")]
    recompiles, occurrences = (
        [RecordedRecompile(1, (_size(),))],
        [BreakOccurrence(1, 2, "skipped", 9)],
    )
    causes = build_causes(RecordedRun(compiles, recompiles, [_break(1, 9)], occurrences))
    assert [(cause.number, cause.kind, cause.is_eager) for cause in causes] == [
        (1, "graph_break", True),
        (2, "recompile", False),
    ]


def _both(*guards: RecordedGuard) -> list[Cause]:
    failed = tuple(replace(guard, cache_entry="1/0") for guard in guards)
    recompile = RecordedRecompile(1, (guards[0],), failed)
    return build_causes(RecordedRun([_compile(1, is_recompile=True)], [recompile]))


def test_what_must_stay_the_same_together_is_one_cause() -> None:
    number = replace(_size(), category="int_value", source="y", fingerprint="y")
    (cause,) = _both(_size("x"), number)
    assert cause.title == "The size of x and y change together"
    assert cause.sources == ("x", "y") and cause.event_count == 1


_keys = st.integers(0, 8)
_compiles = st.builds(
    _compile,
    _keys,
    st.integers(0, 10**9),
    st.sampled_from([None, 22, 24]),
    restart_us=st.just(0),
    is_recompile=st.booleans(),
    outcome=st.sampled_from(["compiled", "skipped", "recompile_limit"]),
)
_guards = st.builds(
    _size,
    st.sampled_from(["x", "y", "___stack0"]),
    st.sampled_from("12"),
    st.sampled_from("12"),
    st.integers(0, 1),
)


_recompiles = st.builds(RecordedRecompile, _keys, st.lists(_guards, max_size=3).map(tuple))
_outcomes, _lines = st.sampled_from(["resumed", "skipped"]), st.sampled_from([22, 24])
_occurrences = st.builds(BreakOccurrence, st.integers(1, 3), st.none() | _keys, _outcomes, _lines)


@given(
    st.lists(_compiles, unique_by=lambda row: row.key),
    st.lists(_recompiles, unique_by=lambda recompile: recompile.compile_key),
    st.lists(_occurrences),
)
def test_savings_never_pass_the_compile_time(
    compiles: list[RecordedCompile],
    recompiles: list[RecordedRecompile],
    occurrences: list[BreakOccurrence],
) -> None:
    compiles = [replace(row, restart_us=row.total_us // 3) for row in compiles]
    breaks = [_break(1, 22), _break(2, 24), _break(3, 24)]
    causes = build_causes(RecordedRun(compiles, recompiles, breaks, occurrences))
    assert sum(cause.saved_us or 0 for cause in causes) <= sum(row.total_us for row in compiles)
    assert [cause.number for cause in causes] == list(range(1, len(causes) + 1))


def test_what_needs_no_fix_stands_last_and_saves_nothing() -> None:
    modes = RecordedGuard(
        "mode", "module_attribute", "self.training", "True", "False", "self.training", None, None
    )
    compiles = [_compile(1, 900, is_recompile=True), _compile(2, 50, is_recompile=True)]
    recompiles = [RecordedRecompile(1, (modes,)), RecordedRecompile(2, (_size(),))]
    size, mode = build_causes(RecordedRun(compiles, recompiles))
    assert (size.category, size.is_expected, size.saved_us) == ("tensor_size", False, 50)
    assert (mode.is_expected, mode.is_fixable, mode.can_try, mode.saved_us, mode.number) == (
        True,
        False,
        False,
        None,
        2,
    )
    assert describe_savings([size, mode], 950, str) == "1 fix saves up to 50 of 950 compile time"
    assert describe_savings([mode], 950, str) == "Nothing to fix: 1 cause is as expected"
    (eager,) = build_causes(RecordedRun([_compile(1, outcome="recompile_limit")], recompiles[:1]))
    assert eager.is_eager and not eager.is_expected
