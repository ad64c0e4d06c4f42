from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract.events import GuardFailure, Recompiled
from compileboard.collectors.contract.verdicts import LABELS
from compileboard.collectors.decode.recompile_reasons import parse_reason
from compileboard.collectors.fixes.cache_entries import to_recorded
from compileboard.collectors.fixes.causes import Cause, build_causes
from compileboard.collectors.fixes.fix import (
    BreakFacts,
    BreakOccurrence,
    RecordedBreak,
    RecordedCompile,
    RecordedGuard,
    RecordedRecompile,
    RecordedRun,
    SourceLines,
    StackFrame,
    SuggestedFix,
    TriedFix,
    TriedStep,
    list_fixes,
)
from compileboard.collectors.fixes.step_costs import BreakCost, RunSteps
from compileboard.collectors.fixes.titles import (
    describe_saving,
    describe_savings,
    label_break,
    saves_nothing,
)


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


def _again(key: int, of: int, total_us: int, **more: Any) -> RecordedCompile:
    return _compile(key, total_us, frame=(0, of), is_recompile=True, is_dynamic=True, **more)


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
    compiles = [
        _compile(1, 100),
        _compile(2, 100, function="g"),
        _again(3, of=1, total_us=250),
        _again(4, of=2, total_us=250, function="g"),
    ]
    recompiles = [RecordedRecompile(3, (_size("user"),)), RecordedRecompile(4, (_size("item"),))]
    (cause,) = build_causes(RecordedRun(compiles, recompiles))
    # The compile for any size is left of each function.
    assert (cause.saved_us, cause.event_count, cause.place_count) == (200, 2, 2)
    assert cause.title == "Dimension 0 of user, item changes: 16 → 7"
    two = [recompiles[0], RecordedRecompile(4, (_size("item", dim=1),))]
    assert len(build_causes(RecordedRun(compiles, two))) == 2


def test_a_slice_whose_stride_its_sizes_do_not_explain_is_to_be_contiguous_too() -> None:
    stride = replace(_size("x", "96", "32", 1), category="tensor_stride")
    (cause,) = _recompiled_by((_size("x", "12", "13", 1), stride))
    assert cause.title == "The size of x and its stride change together"
    assert [part.partition(" ")[0] for part in cause.fixes[0].parts] == ["Mark", "Make"]


def test_values_of_several_kinds_say_what_they_are() -> None:
    grad = replace(_size(), category="tensor_requires_grad", reason="", expected="False")
    guards = [
        (_size(actual="8"), _size(dim=1)),
        (replace(grad, actual="True", cache_entry="1/0"), _size()),
    ]
    compiles = [_compile(1), _again(2, of=1, total_us=5), _again(3, of=1, total_us=5)]
    recompiles = [
        RecordedRecompile(key, failed, failed) for key, failed in enumerate(guards, start=2)
    ]
    cause = build_causes(RecordedRun(compiles, recompiles))[0]
    assert cause.variation is not None
    assert [value.value for value in cause.variation.sources[0].values] == [
        "requires_grad False",
        "size[0] 8, size[1] 7",
        "size[0] 7, requires_grad True",
    ]


def test_a_part_whose_fix_saves_nothing_does_not_lead() -> None:
    compiles = [_compile(1), _again(2, of=1, total_us=70), _again(3, of=1, total_us=70)]

    def _compared(source: str, reason: str) -> tuple[RecordedGuard]:
        guard = replace(_size(source), category="symbolic_shape", reason=reason)
        return (replace(guard, fingerprint=reason),)

    alone = _compared("x.size()[0]", "6 <= x.size()[0]")
    both = _compared("y.size()[0], x.size()[0]", "y.size()[0] == x.size()[0]")
    recompiles = [RecordedRecompile(2, alone, alone), RecordedRecompile(3, both, both)]
    causes = build_causes(RecordedRun(compiles, recompiles))
    assert sorted(causes, key=lambda cause: -(cause.saved_us or 0)) == causes
    assert [len(cause.sources) for cause in causes] == [2, 1]


def test_grad_mode_has_the_values_that_a_recompile_had() -> None:
    failed = parse_reason("0/0: GLOBAL_STATE changed: grad_mode ")
    event = Recompiled(1, "p", 0, compile_id="0/1", guards=[failed], has_gradients=False)
    recompile = to_recorded(event, 2, "model.py", "f")
    (cause,) = build_causes(RecordedRun([_compile(1), _again(2, of=1, total_us=5)], [recompile]))
    assert cause.variation is not None and cause.is_expected
    values = [(value.compile_id, value.value) for value in cause.variation.sources[0].values]
    assert values == [("0/0", "True"), ("2/0", "False")]
    assert "no_grad" not in cause.fixes[0].title


def test_a_size_that_differs_after_torch_made_it_dynamic_is_not_to_be_marked() -> None:
    first, second = _size(), replace(_size(actual="9"), expected="7", cache_entry="2/0")
    compiles = [_compile(1), _again(2, of=1, total_us=5), _again(3, of=1, total_us=5)]
    recompiles = [
        RecordedRecompile(2, (first,), dynamic_sources=("L['x']:0",)),
        RecordedRecompile(3, (second,), dynamic_sources=("L['x']:0",)),
    ]
    (cause,) = build_causes(RecordedRun(compiles, recompiles))
    assert cause.fixes[0].fix.id == "int-that-is-needed" and not cause.is_fixable


def test_a_guard_in_torchs_own_function_is_at_the_users_call() -> None:
    guard = replace(_size("self.lr"), category="module_attribute", line=229)
    step = {"function": "Adam.step", "torch_function": "Adam.step", "source_line": "opt.step()"}
    compiles = [replace(_compile(1), **step), replace(_again(2, of=1, total_us=5), **step)]
    (cause,) = build_causes(RecordedRun(compiles, [RecordedRecompile(2, (guard,))]))
    assert (cause.line, cause.source_line) == (compiles[1].line, "opt.step()")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("loss = F.cross_entropy(model(x), y)", "x"),
        ("hits += (model(self.x).argmax(1) == y).sum().item()", "self.x"),
        ("y = criterion(model(x), y)", "the first argument"),
        ("y = model(*batch)", "the first argument"),
        ("y = model(x + 1)", "the first argument"),
    ],
)
def test_an_argument_of_torchs_wrapper_has_the_name_that_the_users_call_gives(
    code: str, name: str
) -> None:
    row = {"torch_function": "inner", "source_line": code}
    compiles = [_compile(1, **row), _again(2, of=1, total_us=5, **row)]
    (cause,) = build_causes(RecordedRun(compiles, [RecordedRecompile(2, (_size("args[0]"),))]))
    assert cause.title.startswith(f"Dimension 0 of {name} changes")
    assert cause.variation and cause.variation.sources[0].name == name
    assert f"of {name}" in cause.fixes[0].title


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("kwargs['ids']", "The argument ids changes: 3 → 5"),
        ("args[1]", "The second argument changes: 3 → 5"),
        ("args[1].rows", "args[1].rows changes: 3 → 5"),
    ],
)
def test_an_argument_that_the_users_call_does_not_name_has_its_place(
    source: str, title: str
) -> None:
    row = {"torch_function": "DistributedDataParallel.forward", "source_line": "y = ddp(*batch)"}
    guard = replace(_size(source, "3", "5"), category="int_value", cache_entry="1/0")
    compiles = [_compile(1, **row), _again(2, of=1, total_us=5, **row)]
    (cause,) = build_causes(RecordedRun(compiles, [RecordedRecompile(2, (guard,))]))
    assert cause.title == title


def test_a_guard_of_a_function_that_torchs_wrapper_inlined_is_at_its_line() -> None:
    row = {"torch_function": "inner", "function": "module called by <module>", "line": 33}
    compiles = [_compile(1, **row), _again(2, of=1, total_us=5, **row)]
    text = "0/0: L['fn'].__self__.n == 0  # self.n += 1  # ema.py:13 in update"
    event = Recompiled(1, "p", 0, compile_id="0/1", guards=[parse_reason(text)])
    recompile = to_recorded(event, 2, "torch/_dynamo/external_utils.py", "inner")
    lines = ("@torch.no_grad()", "def update(self, model):", "    self.n += 1")
    code = [SourceLines("ema.py", 11, lines)]
    (cause,) = build_causes(RecordedRun(compiles, [recompile], code=code))
    assert (cause.file, cause.line, cause.function) == ("ema.py", 13, "update")
    assert (cause.source_line, cause.title) == ("self.n += 1", "self.n changes from 0")
    (name, _counter) = cause.fixes
    assert name.title.startswith("Name `L['fn'].__self__.n` in torch.compiler.config.dynamic_s")
    assert name.settings[0].endswith("\"L['fn'].__self__.n\"")


@pytest.mark.parametrize(
    ("reason", "values"),
    [
        ("not ___dict_contains('w', batch)", ["'w' absent", "'w' present"]),
        ("___dict_contains('w', batch)", ["'w' present", "'w' absent"]),
        ("not ___dict_contains('rate', cfg.__dict__)", ["absent", "present"]),
        ("tensor 'x' dispatch key set mismatch. expected CPU, AutogradCPU, actual CPU", []),
        (
            "expected type of 'x' to be a tensor type, but found <class 'NoneType'>",
            ["a tensor", "None"],
        ),
    ],
)
def test_what_varied_has_values_and_no_types_or_dispatch_keys(
    reason: str, values: list[str]
) -> None:
    guard = parse_reason(f"0/0: {reason}")
    guard = replace(guard, actual=guard.actual or "dict", cache_entry="0/0")
    event = Recompiled(1, "p", 0, compile_id="0/1", guards=[guard])
    recompile = to_recorded(event, 2, "model.py", "f")
    (cause,) = build_causes(RecordedRun([_compile(1), _again(2, of=1, total_us=5)], [recompile]))
    assert cause.variation is not None
    assert [seen.value for seen in cause.variation.sources[0].values] == values
    assert "<class" not in cause.title and "not recorded" not in cause.variation.lines[0]


def test_a_condition_on_a_number_is_not_called_a_shape() -> None:
    reason = "(step % 2) != 0"
    guard = replace(_size("step"), category="symbolic_shape", reason=reason, expected=None)
    (cause,) = _recompiled_by((replace(guard, actual=None),))
    assert cause.title == "Condition on step changes"


def test_a_guard_of_an_unknown_kind_is_called_so() -> None:
    guard = replace(_size("x"), category="unknown", source=None, reason="check(7)")
    (alone,) = _recompiled_by((guard,))
    (together,) = _recompiled_by((guard, _size("y")))
    assert alone.title == "A guard of an unknown kind fails"
    assert "unknown kind" in together.title and "Unknown" not in together.title


def test_recompiles_after_a_break_belong_to_the_break() -> None:
    compiles = [
        _compile(1, 90, restart_us=30),
        _compile(2, 60, 22),
        _compile(3, 60, 22, is_recompile=True),
    ]
    recompiles = [RecordedRecompile(3, (_size("___stack0"),))]
    breaks, occurrences = [_break(1, 22)], [BreakOccurrence(1, 1, "resumed", 22)]
    (cause,) = build_causes(RecordedRun(compiles, recompiles, breaks, occurrences))
    assert (cause.kind, cause.saved_us, cause.graph_count) == ("graph_break", 30 + 60 + 60, 2)
    assert cause.resumed[0].recompile_keys == (3,)
    (alone,) = build_causes(RecordedRun(compiles, recompiles))  # the break itself was not recorded
    assert (alone.kind, alone.saved_us) == ("recompile", 60)


def test_what_a_break_left_recompiles_as_an_argument_too_where_the_fix_passes_it_in() -> None:
    compiles = [_compile(1), _compile(2, 60, 8), _again(3, 2, 60, resumed_at=8)]
    guard = RecordedGuard(
        "g", "int_value", "___stack0[0]", "3", "4", "___stack0[0] == 3", None, None
    )
    code = [
        SourceLines("model.py", 7, ("def f(x, n):", "    for i in n.tolist():", "        x += i"))
    ]
    line = replace(_break(1, 8), gb_id="GB0109", source_line="for i in n.tolist():")
    recorded = RecordedRun(
        compiles,
        [RecordedRecompile(3, (guard,))],
        [line],
        [BreakOccurrence(1, 1, "resumed", 8)],
        code,
    )
    (cause,) = build_causes(recorded)
    assert cause.fixes[0].fix.id == "tolist_in_caller" and (cause.saved_us or 0) <= 60
    assert cause.passed_keys == (3,)
    assert cause.passed_sentence.startswith("1 recompile remains: ")


def test_the_fix_to_try_is_the_first_that_can_be_applied_and_was_not_in_vain() -> None:
    (cause,) = build_causes(RecordedRun([_compile(1)], [], [_break(1, 3)]))
    by_hand, setting = list_fixes("graph_break")[:2]
    fixes = (SuggestedFix(by_hand, "move it"), SuggestedFix(setting, "set it", settings=("a = 1",)))
    cause = replace(cause, fixes=fixes)
    assert (cause.automatic, cause.can_try) == (1, True)
    in_vain = replace(_try(cause, "unchanged"), fix_id=setting.id)
    assert replace(cause, trials=(in_vain,)).automatic is None
    assert replace(cause, fixes=fixes[:1]).automatic is None


def test_a_function_compiled_alone_only_because_a_break_is_in_it_belongs_to_the_break() -> None:
    inner = {"function": "inner", "frame": (0, 2)}
    compiles = [_compile(1), _compile(2, **inner), _compile(3, is_recompile=True, **inner)]
    recompiles = [RecordedRecompile(3, (replace(_size("x"), category="requires_grad"),))]
    print_in_inner = replace(_break(1, 22), function="inner")
    above = (StackFrame("model.py", "f", 3),)
    occurrences = [BreakOccurrence(1, 1, "resumed", 3, is_inlined=True)]
    occurrences += [BreakOccurrence(1, key, "resumed", 22, above) for key in (2, 3)]
    (cause,) = build_causes(RecordedRun(compiles, recompiles, [print_in_inner], occurrences))
    assert (cause.kind, cause.saved_us) == ("graph_break", 200)


def test_a_break_in_the_rest_of_a_function_is_joined_to_that_rest() -> None:
    compiles = [_compile(1), _compile(2, 100, 5), _compile(3, 60, 7)]
    above = (StackFrame("model.py", "f", 3),)  # the function calls its own rest
    occurrences = [BreakOccurrence(1, 1, "resumed", 5)]
    occurrences += [BreakOccurrence(2, 2, "resumed", 7, above)]
    causes = build_causes(RecordedRun(compiles, [], [_break(1, 5), _break(2, 7)], occurrences))
    assert [(cause.line, cause.saved_us) for cause in causes] == [(5, 80), (7, 60)]


def test_a_report_moved_out_with_its_if_saves_the_recompiles_by_what_that_reads() -> None:
    lines = (
        "def f(x, n):\n    y = x * 2\n    if n % 3 == 0:\n"
        "        log.info(y.mean().item())\n    return y + 1"
    )
    code = [SourceLines("model.py", 1, tuple(lines.split("\n")))]
    compiles = [_compile(1), _compile(2, 60, 4), _again(3, 1, 80)]
    int_guard = RecordedGuard("n", "int_value", "n", "0", "1", "n == 0", None, None)
    line = replace(_break(1, 4), gb_id="GB0124", source_line=lines.split("\n")[3].strip())
    occurrences = [BreakOccurrence(1, 1, "resumed", 4)]
    recorded = RecordedRun(
        compiles, [RecordedRecompile(3, (int_guard,))], [line], occurrences, code
    )
    (cause,) = build_causes(recorded)
    assert (cause.freed_keys, cause.has_recompiles) == ((3,), True)
    assert 80 < (cause.saved_us or 0) <= 140
    assert cause.fixes[0].title == (
        "Return `y.mean()`, and call `log.info(y.mean().item())` in the caller, if `n % 3 == 0`"
    )


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


def test_a_context_moved_out_of_a_function_goes_with_the_cache_that_it_would_guard_on() -> None:
    lines = ("def forward(self, x):", "    with timed():", "        return x + self.mask(x)")
    compiles = [
        _compile(1, function="Net.forward", outcome="skipped"),
        _compile(2, function="Net.mask"),
        _again(3, 2, 100, function="Net.mask"),
    ]
    masks = replace(
        _size("self.masks", "0", "1"),
        category="container_length",
        source_line="self.masks.append(x)",
    )
    recorded = RecordedRun(
        compiles,
        [RecordedRecompile(3, (masks,))],
        [replace(_break(1, 2), gb_id="GB0142", function="Net.forward")],
        [BreakOccurrence(1, 1, "skipped", 3)],
        [SourceLines("model.py", 1, lines)],
        called={1: (2, 3)},
    )
    first, second = (cause.fixes[0].title for cause in build_causes(recorded))
    assert "Do it together with fix 2: without that, each call may recompile" in first
    assert second.endswith("Do it together with fix 1")


def test_what_recompiles_the_function_that_breaks_a_loop_stands_below_that() -> None:
    log = {"function": "Log.add", "line": 8}
    compiles = [
        _compile(1, function="Net.forward", outcome="skipped"),
        _compile(2, **log),
        _again(3, 2, 10**6, outcome="recompile_limit", **log),
    ]
    rows = replace(
        _size("self.rows", "0", "1"),
        category="container_length",
        source_line="self.masks.append(x)",
    )
    lines = ("def forward(self, x):", "    for f in self.logs:", "        f.add(x)")
    recorded = RecordedRun(
        compiles,
        [RecordedRecompile(3, (rows,))],
        [replace(_break(1, 9), gb_id="GB0025", function="Log.add")],
        [BreakOccurrence(1, 1, "skipped", 3, is_inlined=True), BreakOccurrence(1, 2, "resumed", 9)],
        [
            SourceLines("model.py", 1, lines),
            SourceLines("model.py", 8, ("def add(self, x):", "    torch._dynamo.graph_break()")),
        ],
        called={1: (2, 3)},
    )
    assert [cause.kind for cause in build_causes(recorded)] == ["graph_break", "recompile"]
    alone = replace(recorded, called={})
    assert [cause.kind for cause in build_causes(alone)] == ["recompile", "graph_break"]


def test_a_fix_is_chosen_by_the_functions_on_the_way_to_an_inlined_break() -> None:
    lines = ("def f(self, x):", "    self.log(x)", "    return self.fc(x)", "", "def log(self, y):")
    code = [
        SourceLines("model.py", 3, lines[:3]),
        SourceLines("model.py", 7, (lines[4], "    json.dumps(y)")),
    ]
    inside = (StackFrame("model.py", "f", 4), StackFrame("model.py", "log", 8))
    log = replace(_break(1, 8), function="Net.log", gb_id="GB0156")

    def suggest(*inside: StackFrame) -> str:
        occurrences = [BreakOccurrence(1, 1, "resumed", 4, (), inside, is_inlined=True)]
        recorded = RecordedRun([_compile(1)], [], [log], occurrences, code)
        return build_causes(recorded)[0].fixes[0].fix.id

    assert suggest(*inside) == "rest_compiled"
    assert suggest(inside[1]) == suggest(StackFrame("of.py", "g", 4), *inside) == "parts_around"


@pytest.mark.parametrize(
    ("explanation", "line", "title"),
    [
        ("trace the Python builtin `_warnings.warn`.", "warnings.warn('x')", "warnings.warn"),
        ("trace the builtin `lib.ext.`", "y = ext(x)", "ext"),
        ("the function `sleep` in file `t.py` should not be traced.", "t.sleep(1)", "t.sleep"),
    ],
)
def test_a_skipped_call_has_one_title_with_and_without_its_context(
    explanation: str, line: str, title: str
) -> None:
    facts = BreakFacts(gb_id="GB0007", explanation=explanation, source_line=line)
    name = "lib.ext" if "lib" in explanation else title.replace("warnings", "_warnings")
    module, _, own = name.rpartition(".")
    whole = replace(facts, context=f"module: {module}, qualname: {own}, skip reason: x")
    assert label_break(facts) == label_break(whole) == f"`{title}` call"


def test_the_outermost_compiled_function_is_the_one_that_a_called_block_leaves() -> None:
    rows = [_compile(1, function="Net.forward"), _compile(2, function="Block.forward")]
    above = (StackFrame("model.py", "forward", 9),)
    leaf = (StackFrame("model.py", "log", 20),)
    broken = replace(_break(1, 20), function="log", gb_id="GB0291", source_line="log.info('x')")

    def first_title(*events: BreakOccurrence) -> str:
        return build_causes(RecordedRun(rows, [], [broken], events))[0].fixes[0].title

    outer = BreakOccurrence(1, 1, "resumed", 4, (), leaf, is_inlined=True)
    inner = BreakOccurrence(1, 2, "resumed", 4, above, leaf, is_inlined=True)
    assert first_title(outer, inner).endswith("in the caller of `Net.forward`")
    assert first_title(outer, replace(inner, above=())).endswith("of the compiled function")


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ("return str(grads.tolist())", "Return `y.abs()`, and call `writer.write(norms(y.abs()))`"),
        ("grads.mul_(2); return grads.tolist()", "Return `grads`, and call `.tolist()`"),
    ],
)
def test_what_only_a_report_calls_moves_with_the_report(body: str, title: str) -> None:
    step = ("def step(x):", "    y = x * 2", "    writer.write(norms(y.abs()))", "    return -y")
    helper = ("def norms(grads):", f"    {body}")
    code = [SourceLines("model.py", 4, step), SourceLines("model.py", 20, helper)]
    inside = (StackFrame("model.py", "step", 6), StackFrame("model.py", "norms", 21))
    broken = replace(_break(1, 21), function="norms", gb_id="GB0109", source_line=body)
    occurrences = [BreakOccurrence(1, 1, "resumed", 6, (), inside, is_inlined=True)]
    decorated = _compile(1, function="step", line=3)  # the line of its decorator
    (cause,) = build_causes(RecordedRun([decorated], [], [broken], occurrences, code))
    assert cause.fixes[0].title.startswith(title)


def test_a_break_in_a_package_is_mended_at_the_users_call() -> None:
    call = StackFrame("train.py", "forward", 17, "y = run_steps(torch.sin, x, 3)")
    broken = replace(_break(1, 9), file="site-packages/stepping/run.py", call=call)
    skipped = [BreakOccurrence(1, 1, "skipped", 9)]
    rows = [_compile(1, file=broken.file), _compile(2, file="train.py", function="Net.forward")]
    (inside,) = build_causes(RecordedRun(rows, [], [broken], skipped))
    assert [suggested.fix.id for suggested in inside.fixes] == ["library_outside", "library_call"]
    assert "`run_steps(torch.sin, x, 3)` at `train.py:17`" in inside.fixes[0].title
    assert inside.fixes[1].title == (
        "At `train.py:17`, give `run_steps(torch.sin, x, 3)` other arguments or call "
        "another function, so that `site-packages/stepping/run.py:9` is not reached"
    )
    (outside,) = build_causes(RecordedRun(rows[:1], [], [broken], skipped))
    assert [suggested.fix.id for suggested in outside.fixes] == ["library_parts", "library_call"]
    resumed = [BreakOccurrence(1, 1, "resumed", 9)]
    (compiled,) = build_causes(RecordedRun(rows[:1], [], [broken], resumed))
    assert [suggested.fix.id for suggested in compiled.fixes] == ["library_call"]
    assert not any(suggested.edits for suggested in (*inside.fixes, *outside.fixes))


def test_time_that_two_causes_claim_counts_for_the_larger() -> None:
    compiles = [
        _compile(1, 50),
        _compile(2, 50, 22),
        _again(3, of=1, total_us=150),
        _again(4, of=2, total_us=150, resumed_at=22),
    ]
    recompiles = [RecordedRecompile(3, (_size(),)), RecordedRecompile(4, (_size("y"),))]
    breaks = [_break(1, 22)]
    occurrences = [BreakOccurrence(1, 1, "resumed", 22), BreakOccurrence(1, 3, "resumed", 22)]
    causes = build_causes(RecordedRun(compiles, recompiles, breaks, occurrences))
    assert sorted((cause.kind, cause.saved_us) for cause in causes) == [
        ("graph_break", 200),
        ("recompile", 50),
    ]
    (size,) = [cause for cause in causes if cause.kind == "recompile"]
    assert (size.event_count, size.title) == (2, "Dimension 0 of x changes: 16 → 7")


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


def test_breaks_that_one_change_undoes_are_one() -> None:
    lines = ("def f(x):", "    a = time.time()", "    y = x.sin()", "    b = time.time()")
    clock = replace(_break(1, 4), gb_id="GB0007", context="module: time, qualname: time")
    clocks = [replace(clock, source_line=lines[1]), replace(clock, id=2, line=6, fingerprint="b2")]
    occurrences = [BreakOccurrence(number, None, "resumed", None) for number in (1, 2)]
    code = [SourceLines("model.py", 3, lines)]
    (cause,) = build_causes(RecordedRun(breaks=clocks, occurrences=occurrences, code=code))
    assert (cause.content_ids, cause.event_count) == ((1, 2), 2)
    other = replace(clocks[1], function="g")
    run = RecordedRun(breaks=[clocks[0], other], occurrences=occurrences, code=code)
    assert len(build_causes(run)) == 2


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


def test_a_tensor_of_one_row_and_another_kind_has_a_compile_of_its_own() -> None:
    kind = replace(_size("ids"), category="dispatch_keys", reason="dispatch key set mismatch")
    (cause,) = _both(kind, _size("ids", "12", "1", dim=1))
    assert cause.is_expected and cause.fixes[0].title.startswith("Nothing to fix: a size of 0 or 1")
    assert not _both(kind, _size("ids", "12", "7", dim=1))[0].is_expected


def test_an_attribute_of_the_class_that_becomes_the_objects_has_its_own_values() -> None:
    def guard(entry: int, reason: str, actual: str) -> GuardFailure:
        failed = parse_reason(f"{entry}/0: {reason}")
        return replace(failed, actual=actual, cache_entry=f"{entry}/0")

    def recompile(key: int, *failed: GuardFailure) -> RecordedRecompile:
        event = Recompiled(1, "p", 0, compile_id=f"{key}/0", guards=failed[:1], failed=failed)
        return to_recorded(event, key, "model.py", "f")

    came = guard(1, "not ___dict_contains('rate', G['cfg'].__dict__)", "dict")
    rate = guard(2, "G['cfg'].rate == 1.2", "0.9")
    rows = [_compile(1), _again(2, 1, 60), _again(3, 1, 60)]
    found = build_causes(RecordedRun(rows, [recompile(2, came), recompile(3, rate, came)]))
    (varying,) = [one for one in found[0].variation.sources if "rate" in one.source]
    assert [value.value for value in varying.values] == ["absent", "1.2", "0.9"]
    assert not any("global" in fix.title or "dict" in fix.title for c in found for fix in c.fixes)


def test_sizes_of_one_row_are_judged_and_named_for_each_input() -> None:
    (prefill,) = _both(_size("cache", "1", "9"), _size("q", "8", "1"))
    assert prefill.is_expected and [fix.fix.id for fix in prefill.fixes] == ["size-zero-or-one"]
    assert prefill.title == "The size of cache and the size of q change together"
    (batch,) = _both(_size("x", "8", "1"), _size("y", "8", "1"))
    assert batch.title == "Dimension 0 of x, y changes: 8 → 1"
    (both,) = _both(_size("x", "3", "5"), _size("y", "4", "7"))
    assert both.title == "Dimension 0 of x, y changes" and both.is_fixable


def test_a_key_that_comes_and_goes_hides_no_sizes_and_all_of_one_size_are_marked() -> None:
    x, w, keys = "batch['x']", "batch['w']", "not ___dict_contains('w', batch)"

    def failed(entry: int, before: str, now: str, *sources: str) -> list[RecordedGuard]:
        return [replace(_size(one, before, now), cache_entry=f"{entry}/0") for one in sources]

    def other_keys(entry: int) -> RecordedGuard:
        guard = replace(_size("batch"), category="dict_keys", reason=keys, fingerprint="keys")
        return replace(guard, cache_entry=f"{entry}/0")

    calls = [
        [other_keys(1), *failed(1, "5", "6", x)],
        [other_keys(2), *failed(2, "6", "7", x), *failed(1, "5", "7", x)],  # 6 was that of w
        [other_keys(3), *failed(2, "6", "8", x, w), other_keys(1), *failed(1, "5", "8", x)],
    ]
    marks = ["L['batch']['x']:0", "L['batch']['w']:0"]
    recompiles = [
        RecordedRecompile(key, (), tuple(guards), dynamic_sources=tuple(marks[: 1 + (key == 4)]))
        for key, guards in enumerate(calls, 2)
    ]
    rows = [_compile(1), *(_again(key, of=1, total_us=100) for key in (2, 3, 4))]
    causes = {cause.sources: cause for cause in build_causes(RecordedRun(rows, recompiles))}
    size = causes[x,]
    assert {*causes} == {("batch",), (x,), ("batch", x)}
    assert all(mark in size.fixes[0].settings[0] for mark in marks)


def test_several_values_that_a_break_left_are_named_once() -> None:
    value = replace(_size(), category="int_value")
    stack = (f"___stack{number}" for number in range(2))
    (cause,) = _both(*(replace(value, source=name, fingerprint=name) for name in stack))
    assert cause.title == "The values left by the break change together"


def test_each_global_of_several_is_named() -> None:
    value = replace(_size(), category="global_value")
    rates = (replace(value, source=f"G['{name}']", fingerprint=name) for name in ("LOW", "HIGH"))
    (cause,) = _both(*rates)
    assert cause.title == "HIGH and LOW change together"


def test_a_cache_that_is_empty_at_first_hides_no_size_that_grows() -> None:
    cache = replace(_size(), category="other_value", source="cache", expected="None", reason="")
    empty = (replace(cache, actual="tuple", cache_entry="1/0"), _size("ids", "8", "1", dim=1))
    empty = tuple(replace(guard, cache_entry="1/0") for guard in empty)
    grown = [replace(_size(f"cache[{n}]", "8", "9", dim=1), cache_entry="1/1") for n in (0, 1)]
    dynamic = ("L['ids']:1", "L['cache'][0]:1", "L['cache'][1]:1")  # ids is of size 1 then
    recompiles = [
        RecordedRecompile(2, empty[:1], empty),
        RecordedRecompile(3, (grown[0],), (*grown, *empty), dynamic_sources=dynamic),
    ]
    compiles = [_compile(1), *(_again(key, of=1, total_us=250) for key in (2, 3))]
    first, last = build_causes(RecordedRun(compiles, recompiles))
    assert first.fixes[0].title.startswith("Mark dimension 1 of cache[0] and cache[1] dynamic")
    assert (last.sources, last.is_expected) == (("cache", "ids"), True)
    assert first.variation is not None
    sets = [(steady.sources, steady.saved_count) for steady in first.variation.sets]
    assert sets == [(("cache", "ids"), 2), (("cache[0]", "cache[1]"), 1)]
    alone = "If cache[0] and cache[1] stayed the same, 1 of 2 recompiles would not happen"
    assert alone in first.variation.sentence


def _recompiled_by(*entries: tuple[RecordedGuard, ...]) -> list[Cause]:
    """Build the causes of recompiles of one function, by what failed of the entries of each."""
    recompiles = [
        RecordedRecompile(
            key,
            guards[:1],
            tuple(replace(guard, cache_entry=guard.cache_entry or "1/0") for guard in guards),
        )
        for key, guards in enumerate(entries, start=2)
    ]
    more = [_again(recompile.compile_key, of=1, total_us=250) for recompile in recompiles]
    return build_causes(RecordedRun([_compile(1), *more], recompiles))


def test_inputs_that_vary_one_at_a_time_are_one_cause() -> None:
    names = ("audio", "video", "text")
    (cause,) = _recompiled_by(*((_size(name),) for name in names))
    assert (cause.sources, cause.event_count) == (names, 3)
    assert cause.title == "Dimension 0 of audio, video, text changes: 16 → 7"
    scale = replace(_size(), category="float_value")
    (cause,) = _recompiled_by(*((replace(scale, source=n, fingerprint=n),) for n in names))
    assert cause.title == "audio, video and text change one at a time"
    assert len(_recompiled_by((_size("x"),), (replace(scale, source="y", fingerprint="y"),))) == 2


@pytest.mark.parametrize("category", ["object_identity", "string_value"])
def test_what_can_be_cured_is_chosen_before_a_member_of_an_enum_or_a_string(category: str) -> None:
    reason = "___check_obj_id(pool, 1), type=<class '__main__.Pool'>"
    pool = replace(_size("pool"), category=category, reason=reason, expected="Pool", actual="Pool")
    pool = replace(pool, source_line="if pool is Pool.MEAN:")
    scale = replace(_size("scale"), category="float_value", fingerprint="scale")
    sizes = (_size("ids"), scale)
    first, last = _recompiled_by((*sizes, pool), (*sizes, replace(pool, cache_entry="1/1")))
    assert first.sources == ("ids", "scale") and first.is_fixable
    assert last.sources == ("ids", "pool", "scale") and last.is_expected
    assert last.fixes[0].title == "Nothing to fix: each value of pool needs a compile of its own"
    assert "Together: Mark dimension 0 of ids" in first.fixes[0].title
    assert first.fixes[0].title.count(". ") == 1 and ";" not in first.fixes[0].title


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        (", type=<class '__main__.Pool'>", "Pool.MAX"),
        (", type=<enum 'Pool'>", "Pool"),
        (", type=<Pool.MEAN: 1>", "Pool"),
        ("", "Pool.MAX"),  # before torch 2.6
    ],
)
def test_members_of_an_enum_save_nothing_whatever_the_code_reads(written: str, seen: str) -> None:
    pool = replace(_size("pool"), category="object_identity", expected="Pool.MEAN", actual=seen)
    pool = replace(pool, reason=f"___check_obj_id(pool, 1){written}", source_line="")
    (cause,) = _recompiled_by((pool,))
    assert cause.title == f"pool changes: Pool.MEAN → {seen}"
    assert cause.is_expected and not cause.saved_us


def test_a_fix_that_contains_others_names_them() -> None:
    keys = replace(_size("meta"), category="dict_keys", fingerprint="k")
    sizes, offset = _size("x"), replace(_size("x"), category="symbolic_shape", fingerprint="o")
    offset = replace(offset, reason="2 <= x.storage_offset()", source="y")
    causes = _recompiled_by((sizes,), (keys,), (sizes, keys), (sizes, offset))
    titles = {cause.sources: (cause.number, cause.fixes[0].title) for cause in causes}
    (x, _), (meta, _) = titles[("x",)], titles[("meta",)]
    assert titles[("meta", "x")][1] in (
        f"Do fix {first} and fix {second} together" for first, second in ((x, meta), (meta, x))
    )
    more = "Pass y.clone() at every call: where a slice begins in its tensor varies"
    assert titles[("x", "y")][1] == f"Together with fix {x}: {more}"


def test_a_call_with_other_keywords_is_another_use_of_a_wrapper() -> None:
    keys = replace(_size("kwargs"), category="dict_keys", fingerprint="k", cache_entry="1/0")
    size = replace(_size("kwargs['x']"), cache_entry="1/1")
    compiles = [_compile(1), *(_again(key, of=1, total_us=250) for key in (2, 3))]
    recompiles = [
        RecordedRecompile(2, (keys,), (keys,)),
        RecordedRecompile(3, (size,), (size, keys)),
    ]
    first, last = build_causes(RecordedRun(compiles, recompiles))
    assert first.sources == ("kwargs['x']",) and not first.is_expected
    assert last.sources == ("kwargs",) and last.is_expected


def test_all_dimensions_of_an_input_that_differed_are_named() -> None:
    rows, columns = (replace(_size("x", dim=dim), cache_entry="1/0") for dim in (0, 1))
    compiles = [_compile(1), _again(2, of=1, total_us=250)]
    recompiles = [RecordedRecompile(2, (rows,), (rows, columns), is_static=True)]
    (cause,) = build_causes(RecordedRun(compiles, recompiles))
    assert cause.title == "Dimensions 0 and 1 of x change"
    assert cause.fixes[0].title.startswith("Mark dimensions 0 and 1 of x")
    assert cause.fixes[0].settings[0].endswith("\"L['x']:0,L['x']:1\"")


def test_all_that_recompiled_a_function_to_its_limit_make_it_run_eagerly() -> None:
    number = replace(_size("n"), category="int_value", fingerprint="n")
    recompiles = [RecordedRecompile(2, (_size(),)), RecordedRecompile(3, (number,))]
    limit = _again(3, of=1, total_us=0, outcome="recompile_limit")
    compiles = [_compile(1, 400), _again(2, of=1, total_us=900), limit]
    causes = build_causes(RecordedRun(compiles, recompiles))
    assert [(cause.sources, cause.is_eager) for cause in causes] == [(("x",), True), (("n",), True)]


def _varied_size(**more: Any) -> tuple[list[RecordedCompile], list[RecordedRecompile]]:
    recompile = RecordedRecompile(2, (_size(),), **more)
    return [_compile(1, 400), _again(2, of=1, total_us=1_000)], [recompile]


def test_what_the_body_of_a_loop_over_a_size_recompiles_for_is_not_saved() -> None:
    lines = ("def f(x):", "    for t in range(x.shape[0]):", "        h = step(x[t], h)")
    code = [SourceLines("model.py", 3, lines)]
    (cause,) = build_causes(RecordedRun(*_varied_size(), code=code))
    assert cause.fixes[0].fix.id == "size-that-a-loop-runs-to"
    assert cause.saved_us == 400  # of 1,000: one compile for any size stays


def _try(cause: Cause, outcome: str) -> TriedFix:
    (first, *_others) = cause.fixes
    return TriedFix(
        outcome=outcome,
        label=outcome.capitalize(),
        summary="",
        title=first.title,
        new_run_id=None,
        base_run_id=None,
        fix_id=first.fix.id,
        cause_fingerprint=cause.fingerprint,
        ended_us=1_796_000_000_000_000,
        settings=first.settings,
        base_us=5_000,
        new_us=4_000,
    )


def test_a_second_fix_that_was_verified_comes_first_with_what_it_saved() -> None:
    run = RecordedRun(*_varied_size())
    (cause,) = build_causes(run)
    second = replace(cause, fixes=cause.fixes[1:2])
    (tried,) = build_causes(replace(run, trials=[_try(second, "improved")]))
    assert tried.fixes[0] == cause.fixes[1] and tried.verified == tried.measured
    assert tried.saved_us == 280


def test_what_a_trial_measured_stands_in_place_of_the_estimate() -> None:
    run = RecordedRun(*_varied_size())
    (cause,) = build_causes(run)
    assert describe_saving(cause, str) == "saves an estimated 400"
    (measured,) = build_causes(replace(run, trials=[_try(cause, "improved")]))
    assert measured.saved_us == 280  # a fifth, as in the trial
    assert describe_saving(measured, str) == "compile time 5000 → 4000, verified 2026-11-30"


def _timed_run() -> RecordedRun:
    """Return a run of a break and a recompile that costs more compile time."""
    compiles = [_compile(1, 100), _compile(2, 60, 5), _compile(3), _again(4, of=3, total_us=900)]
    recompiles = [RecordedRecompile(4, (_size(),))]
    return RecordedRun(compiles, recompiles, [_break(1, 5)], [BreakOccurrence(1, 1, "resumed", 5)])


def test_where_steps_were_timed_what_costs_the_run_most_comes_first() -> None:
    run = _timed_run()
    assert [cause.kind for cause in build_causes(run)] == ["recompile", "graph_break"]
    steps = RunSteps(500.0, 1000, {1: BreakCost(20.0, 1000)})
    first, second = build_causes(replace(run, steps=steps))
    assert (first.kind, first.step_us, first.whole_step_us) == ("graph_break", 20, 500)
    assert first.run_us == (first.saved_us or 0) + 20 * 1000
    assert second.run_us == second.saved_us
    assert "20 of each step: 20060 of the run" in (describe_saving(first, str) or "")


def test_a_step_that_a_trial_measured_stands_in_place_of_the_estimate() -> None:
    steps = RunSteps(500.0, 1000, {1: BreakCost(20.0, 1000)})
    run = replace(_timed_run(), steps=steps)
    cause = next(cause for cause in build_causes(run) if cause.kind == "graph_break")
    step = TriedStep("f", 500.0, 470.0, 25.0, 35.0, "3 executions a side", "better")
    trial = replace(_try(cause, "improved"), step=step, has_fewer_breaks=True)
    first, *_others = build_causes(replace(run, trials=[trial]))
    assert (first.kind, first.step_us, first.measured_step) == ("graph_break", 30, step)
    assert "step 500 → 470, verified" in (describe_saving(first, str) or "")
    (fixable,) = build_causes(RecordedRun(*_varied_size()))
    tried = replace(first, fixes=fixable.fixes)
    assert describe_savings([tried], 1_000, str).endswith("verified, and 30 of each 500 step")
    once = replace(trial, step=replace(step, label=LABELS["single"]))
    first, *_others = build_causes(replace(run, trials=[once]))
    assert "step 500 → 470 in one execution, verified" in (describe_saving(first, str) or "")
    tried = replace(first, fixes=fixable.fixes)
    assert "and an estimated 30 of each 500 step" in describe_savings([tried], 1_000, str)


def test_fixes_tried_together_save_what_they_saved_together() -> None:
    guards = (_size("x"), replace(_size("n"), category="int_value", fingerprint="n"))
    recompiles = [RecordedRecompile(key, (guard,)) for key, guard in enumerate(guards, start=2)]
    compiles = [_compile(1, 400), _again(2, of=1, total_us=800), _again(3, of=1, total_us=800)]
    run = RecordedRun(compiles, recompiles)
    alone = [
        replace(_try(cause, "improved"), new_run_id=cause.fingerprint)
        for cause in build_causes(run)
    ]
    tried = build_causes(replace(run, trials=alone))
    assert [cause.saved_us for cause in tried] == [400, 400]  # a fifth each
    words = "2 fixes, verified each alone: the best saves 20% of 2000 compile time"
    assert describe_savings(tried, 2_000, str) == words
    names = tuple(cause.fingerprint for cause in tried)
    both = replace(alone[0], fix_id=None, cause_fingerprint=None, causes=names, new_us=3_500)
    together = build_causes(replace(run, trials=[*alone, both]))
    words = "2 fixes save 30% of 2000 compile time, verified"
    assert describe_savings(together, 2_000, str) == words


def _two_sizes() -> RecordedRun:
    guards = (_size("x"), replace(_size("n"), category="int_value", fingerprint="n"))
    recompiles = [RecordedRecompile(key, (guard,)) for key, guard in enumerate(guards, start=2)]
    compiles = [_compile(1, 400), _again(2, of=1, total_us=900), _again(3, of=1, total_us=700)]
    return RecordedRun(compiles, recompiles)


def test_a_verified_fix_that_takes_longer_stands_last_and_is_no_saving() -> None:
    run = _two_sizes()
    first, second = build_causes(run)
    slower = "compile time 12% more in one execution"
    costly = replace(
        _try(first, "improved"), new_us=5_600, fewer="1 recompile fewer", slower=(slower,)
    )
    saving, tried = build_causes(replace(run, trials=[costly]))
    assert (saving.number, tried.number, tried.saved_us) == (2, 1, -240)  # of 2,000
    assert describe_saving(tried, str) == f"verified 2026-11-30: 1 recompile fewer, {slower}"
    words = f"1 of 2 fixes saves an estimated {second.saved_us} of 2000 compile time"
    assert describe_savings([saving, tried], 2_000, str) == words
    words = "1 fix known, saves no compile time, verified"
    assert describe_savings([tried], 2_000, str) == words
    assert [saves_nothing(cause) for cause in (saving, tried)] == [False, True]


def test_what_is_within_noise_is_said_and_saves_nothing() -> None:
    run = RecordedRun(*_varied_size())
    (cause,) = build_causes(run)
    trial = replace(_try(cause, "improved"), compile_label=LABELS["noise"])
    (tried,) = build_causes(replace(run, trials=[trial]))
    assert tried.saved_us == 0
    words = "compile time 5000 → 4000 (no clear difference), verified 2026-11-30"
    assert describe_saving(tried, str) == words


def _list_fixable(count: int) -> list[Cause]:
    """Return causes of equal fixes, without an estimate or a trial."""
    (cause,) = build_causes(RecordedRun(*_varied_size()))
    return [replace(cause, number=number, saved_us=0) for number in range(1, count + 1)]


def test_only_fixes_that_were_measured_to_save_are_counted_as_verified() -> None:
    first, second, third = _list_fixable(3)
    saving = replace(first, saved_us=600, trials=(_try(first, "improved"),))
    trial = replace(_try(second, "improved"), compile_label=LABELS["noise"])
    words = "1 of 2 fixes saves 30% of 2000 compile time, verified"
    assert describe_savings([saving, third], 2_000, str) == words
    in_vain = replace(second, trials=(trial,))
    words = "1 of 3 fixes saves 30% of 2000 compile time, verified"
    assert describe_savings([saving, in_vain, third], 2_000, str) == words
    step = replace(third, step_us=30, whole_step_us=500)
    words = "2 fixes save 30% of 2000 compile time, verified, and an estimated 30 of each 500 step"
    assert describe_savings([saving, step], 2_000, str) == words


@pytest.mark.parametrize("new_us", [5_100, 4_900])
def test_fixes_without_a_clear_difference_together_keep_what_they_saved_alone(new_us: int) -> None:
    run = _two_sizes()
    causes = build_causes(run)
    alone = [
        replace(_try(cause, "improved"), new_run_id=cause.fingerprint, new_us=us)
        for cause, us in zip(causes, (3_500, 4_000), strict=True)
    ]
    both = replace(
        alone[0],
        fix_id=None,
        cause_fingerprint=None,
        causes=tuple(cause.fingerprint for cause in causes),
        new_us=new_us,
        compile_label=LABELS["noise"],
    )
    tried = build_causes(replace(run, trials=[*alone, both]))
    assert [cause.saved_us for cause in tried] == [600, 400]
    words = "2 fixes, verified each alone; together no clear difference in compile time (2000)"
    assert describe_savings(tried, 2_000, str) == words
    assert not any(map(saves_nothing, tried))


def test_a_step_that_was_judged_is_no_estimate_where_compile_time_is_within_noise() -> None:
    first, second = _list_fixable(2)
    step = TriedStep("f", 100.0, 50.0, 45.0, 55.0, "3 executions a side", LABELS["better"])
    trial = replace(_try(first, "improved"), step=step, compile_label=LABELS["noise"])
    tried = replace(first, trials=(trial,), step_trial=trial, step_us=50, whole_step_us=100)
    words = "1 fix saves 50 of each 100 step, verified"
    assert describe_savings([tried], 2_000, str) == words
    assert describe_savings([tried, second], 2_000, str) == words.replace("1 fix", "1 of 2 fixes")
    once = replace(trial, step=replace(step, label=LABELS["single"]))
    tried = replace(tried, trials=(once,), step_trial=once)
    assert describe_savings([tried], 2_000, str) == "1 fix saves an estimated 50 of each 100 step"


def test_a_fix_whose_steps_outweigh_its_compile_time_takes_no_longer() -> None:
    (first,) = _list_fixable(1)
    slower, label = "compile time 12% more in one execution", LABELS["single"]
    step = TriedStep("f", 100.0, 50.0, None, None, "one execution a side", label)
    trial = replace(
        _try(first, "improved"),
        new_us=5_600,
        is_single=True,
        fewer="1 graph break fewer",
        slower=(slower,),
        step=step,
    )
    tried = replace(
        first, saved_us=-240, trials=(trial,), step_trial=trial, step_us=50, whole_step_us=100
    )
    saving, costly = replace(tried, run_us=9_760), replace(tried, run_us=-40)
    assert [saving.takes_longer, costly.takes_longer] == [False, True]
    steps = "step 100 → 50 in one execution"
    words = f"verified 2026-11-30: 1 graph break fewer, {slower}, {steps}"
    assert describe_saving(costly, str) == words
    words = f"1 graph break fewer, compile time 5000 → 5600 in one execution, {steps}, verified"
    assert describe_saving(saving, str) == f"{words} 2026-11-30"


def test_one_fix_of_two_causes_counts_once_in_equal_parts() -> None:
    run = _two_sizes()
    trials = [replace(_try(cause, "improved"), new_run_id="R") for cause in build_causes(run)]
    assert [cause.saved_us for cause in build_causes(replace(run, trials=trials))] == [200, 200]


def test_what_varied_stays_with_the_cause_that_leads_after_a_trial() -> None:
    compiles = [_compile(1), _again(2, of=1, total_us=500), _again(3, of=1, total_us=400)]
    mode = replace(_size("mode"), category="module_attribute", fingerprint="mode")
    entries = [(_size(),), (_size(), mode)]
    run = RecordedRun(
        compiles, [RecordedRecompile(key, failed, failed) for key, failed in enumerate(entries, 2)]
    )
    trial = replace(_try(build_causes(run)[0], "improved"), new_us=5_000)  # saves no time
    first, second = build_causes(replace(run, trials=[trial]))
    assert (first.sources, first.saved_us, second.saved_us) == (("x",), 0, 400)
    assert first.variation is not None and second.variation is None
    assert (first.beyond, second.beyond) == (None, first.number)


def test_a_fix_is_not_offered_again_after_a_trial_found_no_effect() -> None:
    run = RecordedRun(*_varied_size())
    (cause,) = build_causes(run)
    (tried,) = build_causes(replace(run, trials=[_try(cause, "unchanged")]))
    assert tried.fixes == cause.fixes[1:] and tried.measured is None
    interrupted = replace(run, trials=[_try(cause, "interrupted"), _try(cause, "unchanged")])
    assert build_causes(interrupted)[0].fixes == tried.fixes


def test_a_setting_is_offered_only_where_it_changes_something() -> None:
    (cause,) = build_causes(RecordedRun(*_varied_size()))
    assert cause.fixes[0].settings == ("torch._dynamo.config.assume_static_by_default = False",)
    (static,) = build_causes(RecordedRun(*_varied_size(is_static=True)))  # dynamic=False
    assert static.fixes[0].settings == ("torch.compiler.config.dynamic_sources = \"L['x']:0\"",)
    so_already = {"assume_static_by_default": False}
    (same,) = build_causes(RecordedRun(*_varied_size(), settings=so_already))
    assert same.fixes[0].settings == () and not same.can_try


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
    compiles = [_compile(1, 50), _compile(2, 900, is_recompile=True), _again(3, 1, 50)]
    recompiles = [RecordedRecompile(2, (modes,)), RecordedRecompile(3, (_size(),))]
    size, mode = build_causes(RecordedRun(compiles, recompiles))
    assert (size.category, size.is_expected, size.saved_us) == ("tensor_size", False, 50)
    assert (mode.is_expected, mode.is_fixable, mode.can_try, mode.saved_us, mode.number) == (
        True,
        False,
        False,
        None,
        2,
    )
    assert (
        describe_savings([size, mode], 950, str)
        == "1 fix saves an estimated 50 of 950 compile time"
    )
    assert describe_savings([mode], 950, str) == "Nothing to fix: 1 cause is as expected"
    (eager,) = build_causes(RecordedRun([_compile(2, outcome="recompile_limit")], recompiles[:1]))
    assert eager.is_eager and not eager.is_expected
