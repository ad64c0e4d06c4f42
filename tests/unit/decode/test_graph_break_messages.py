"""Graph break texts of every form, from 2.6's to 2.13's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract import events as ev
from compileboard.collectors.decode import break_texts as break_registry
from compileboard.collectors.decode.break_texts import (
    break_fingerprint,
    parse_break,
    parse_message,
    reason_text,
)
from compileboard.collectors.decode.records import PathNamer
from tests.unit.decode.recorded_logs import captured, events

NAMER = PathNamer(["/srv/bench"])
OLD = """Graph break in user code at /srv/bench/m.py:{line}
Reason: Unsupported: call_method UserDefinedObjectVariable(Foo) bar [ConstantVariable(int: \
{value})] {{}}
User code traceback:
  File "/srv/bench/m.py", line 3, in <module>
    main()
  File "/srv/bench/m.py", line {line}, in torch_dynamo_resume_in_forward_at_7
    y = foo.bar(x)

Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py", line 9, in \
wrapper
    return inner_fn(self, inst)
torch._dynamo.exc.Unsupported: call_method UserDefinedObjectVariable(Foo) bar []
"""
SKIP = """Graph break: skip: from user code at:
  File "/srv/bench/m.py", line 9, in fn
    assert x is None

Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py", line 9, in \
wrapper
    raise
torch._dynamo.exc.Unsupported: Data-dependent assertion failed (cannot compile partial graph)
  Explanation: Dynamo has determined when encountering a data-dependent assert failure that it \
should not compile.
  Hint: Use `torch._assert()`.

  Developer debug context: value: TensorVariable()

"""


def broke(name: str) -> dict[str, list[ev.GraphBroke]]:
    breaks_by_case: dict[str, list[ev.GraphBroke]] = {}
    case = ""
    for event in events(name):
        if isinstance(event, ev.ArtifactSeen) and event.name.startswith("case_"):
            case = event.name.removeprefix("case_")
        elif isinstance(event, ev.GraphBroke):
            breaks_by_case.setdefault(case, []).append(event)
    return breaks_by_case


def test_wrapped_reason_gives_the_type_beneath() -> None:
    (event,) = broke("torch2.13-breaks")["printing"]
    assert (event.gb_id, event.gb_type) == ("GB0059", "Failed to trace builtin operator")
    assert event.explanation and event.explanation.startswith(
        "Dynamo does not know how to trace builtin operator `print`"
    )
    assert (
        len(event.hints) == 3
        and event.debug_context
        and event.debug_context.startswith("builtin print")
    )
    assert (event.file, event.function, event.source_line) == (
        "record_breaks.py",
        "f",
        'print("hi")',
    )
    assert [frame["name"] for frame in event.stack] == ["<module>", "printing", "f"]


def test_skipped_frames_are_told_by_the_text() -> None:
    cases = broke("torch2.13-breaks")
    assert {name for name, breaks in cases.items() if breaks[-1].outcome == "skipped"} == {
        "loop", "withblock", "tryblock", "gen", "openb", "backendfake", "userraise",
    }  # fmt: skip
    assert cases["skipped"][0].outcome == "unknown"


def test_first_break_is_the_cause_of_a_second_one() -> None:
    (event,) = broke("torch2.13-breaks")["loop"]
    assert (
        event.gb_id == "GB0025"
        and event.debug_context
        and event.debug_context.startswith("Called `torch")
    )
    assert event.explanation and "graph break in loop" in event.explanation
    assert any("earlier graph break" in hint for hint in event.hints)


def test_attempts_of_one_break_share_a_fingerprint() -> None:
    first, second = broke("torch2.13-breaks")["gen"]
    assert first.fingerprint == second.fingerprint
    loop, nested = (broke("torch2.13-breaks")[name][0] for name in ("loop", "nested"))
    assert len({first.fingerprint, nested.fingerprint}) == 2 and loop.gb_id == nested.gb_id


def test_users_line_is_named_where_torch_names_its_own() -> None:
    event = next(
        e
        for e in events("torch2.11-cuda-zoo_graph_breaks")
        if isinstance(e, ev.GraphBroke) and e.gb_id == "GB0023"
    )
    assert "polyfills" in event.text.split("\n")[0]
    assert (event.file, event.line, event.function) == ("models.py", 70, "forward")


def test_frame_that_left_the_stack_is_named_by_the_headline() -> None:
    unconverted, ended = broke("torch2.13-breaks")["backendfake"]
    assert unconverted.function == "f" and unconverted.reason.startswith(
        "DynamicOutputShapeException: "
    )
    assert (
        ended.gb_id == "GB0219"
        and ended.file == unconverted.file
        and ended.line == unconverted.line
    )


@pytest.mark.parametrize(
    ("reason", "gb_id", "context"),
    [
        ("builtin: print [<class 'ConstantVariable'>] False", "GB0059", "builtin print [<class"),
        ("generic_jump TensorVariable()", "GB0170", "generic_jump"),
        ("Data-dependent jump", "GB0170", "Data-dependent jump"),
        ("Tensor.item", "GB0124", "Tensor.item"),
        ("copy.deepcopy ListVariable(length=1)", None, None),
    ],
)
def test_a_reason_of_before_the_types_has_the_id_of_its_successor(
    reason: str, gb_id: str | None, context: str | None
) -> None:
    older = OLD.format(line=12, value=3).partition("call_method")
    text = f"{older[0]}{reason}\n{older[2].partition(chr(10))[2]}"
    graph_break = parse_break(text, NAMER)
    assert (graph_break["gb_id"], graph_break["reason"][:7]) == (gb_id, reason[:7])
    assert (graph_break["debug_context"] or "").startswith(context or "")
    assert (graph_break["gb_type"] is None) == (gb_id is None)
    assert "{" not in (graph_break["explanation"] or "")


def test_text_of_2_6_has_reason_and_function_but_no_id() -> None:
    graph_break = parse_break(OLD.format(line=12, value=3), NAMER)
    assert (graph_break["gb_id"], graph_break["gb_type"], graph_break["outcome"]) == (
        None,
        None,
        "unknown",
    )
    assert graph_break["reason"].startswith("call_method UserDefinedObjectVariable(Foo) bar")
    assert (
        graph_break["file"],
        graph_break["line"],
        graph_break["function"],
        graph_break["resumed_at"],
    ) == (
        "m.py",
        12,
        "forward",
        7,
    )


def test_fingerprint_ignores_line_numbers_and_values() -> None:
    first, moved = (
        parse_break(OLD.format(line=n, value=n), NAMER)["fingerprint"] for n in (12, 55)
    )
    assert first == moved
    other = OLD.format(line=12, value=3).replace("y = foo.bar(x)", "y = foo.bar(x, x)")
    assert parse_break(other, NAMER)["fingerprint"] != first


def test_skip_text_takes_its_reason_from_the_exception() -> None:
    graph_break = parse_break(SKIP, NAMER)
    assert graph_break["outcome"] == "skipped" and graph_break["function"] == "fn"
    assert (
        graph_break["gb_type"] == "Data-dependent assertion failed (cannot compile partial graph)"
    )
    assert graph_break["gb_id"] == "GB0034" and graph_break["hints"] == ["Use `torch._assert()`."]


def test_users_own_words_do_not_make_a_skip() -> None:
    text = OLD.format(line=12, value=3).replace(
        "y = foo.bar(x)", 'log("Skipping the frame and falling back to eager")'
    )
    assert parse_break(text, NAMER)["outcome"] == "unknown"


def test_qualified_names_come_from_the_caller() -> None:
    text = OLD.format(line=12, value=3)
    assert (
        parse_break(text, NAMER, lambda path, line, name: f"Net{line}.forward")["function"]
        == "Net12.forward"
    )
    assert parse_break(text, NAMER, qualname="Net.forward")["function"] == "Net.forward"
    # The compiled frame's name says nothing about a function that was inlined into it.
    assert parse_break(text, NAMER, qualname="Net.other")["function"] == "forward"


def test_registry_knows_every_recorded_id() -> None:
    for breaks in broke("torch2.13-breaks").values():
        for event in breaks:
            entry = break_registry.lookup(event.gb_id) if event.gb_id else None
            assert event.gb_id is None or (entry is not None and entry.gb_type == event.gb_type)
    assert break_registry.page_url("GB0025").endswith("/gb/gb0025.html")
    assert (
        break_registry.ids_of_type("Data-dependent branching") == ("GB0170",)
        and break_registry.lookup("GB") is None
    )


def test_higher_order_operator_is_no_part_of_the_type() -> None:
    message = parse_message(
        "Failed to trace\n  Higher Order Operator: cond\n  Explanation: a\n    b\n  Hint: c\n  "
        "  d\n"
    )
    assert (message.reason, message.explanation, message.hints) == (
        "Failed to trace",
        "a\nb",
        ["c\nd"],
    )


@given(st.text())
def test_any_text_parses(text: str) -> None:
    graph_break = parse_break(text, NAMER)
    assert graph_break["text"] == text and graph_break["outcome"] in ("skipped", "unknown")


@given(
    st.sampled_from(
        [c.payload for c in captured("torch2.13-breaks") if isinstance(c.payload, str)]
    ),
    st.data(),
)
def test_torn_texts_parse(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    assert parse_break(text[start:], NAMER)["fingerprint"]
    assert parse_break(text[:start], NAMER)["fingerprint"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Reason: Unsupported: one\nUser code traceback:\n  x", "one"),
        (
            (
                "Graph break in user code at a.py:1\nReason: two\nStack variable source "
                "attribution:\n  x"
            ),
            "two",
        ),
        (
            (
                "torch.compile will\nGraph Break Reason: three\n\nTraceback (most recent call "
                "last):\n  x"
            ),
            "three",
        ),
        ("Graph break\nReason: XX four XX\nTraceback (most recent call last)", "XX four XX"),
        (
            "other words\nReason: not said by torch\na.b.Unsupported: five\n\nfrom user code:\n  x",
            "five",
        ),
        ("Unsupported: first\nUnsupported: six\n==========\n x", "six"),
        ("Unsupported: seven\nUser code traceback:\n x", "seven"),
        ("a.b.MyError: eight\n\nfrom user code:\n  x", "MyError: eight"),
        ("UserWarning: XX nine XX\n==========", "UserWarning: XX nine XX"),
        ("Graph break: ten from user code at:\n  File", "ten"),
        ("Graph break: eleven:\ntwelve\nthirteen", "eleven"),
        ("  :fourteen  \nx", ":fourteen"),
        ("", ""),
    ],
)
def test_reason_is_found_in_every_form_and_ends_where_it_ends(text: str, reason: str) -> None:
    assert reason_text(text) == reason


def test_explanations_and_hints_of_a_second_break_stand_behind_the_firsts() -> None:
    another = "\n*** While handling this graph break, another graph break occurred: ***\n"
    text = "One\n  Explanation: a\n  Hint: h\n  Hint: i\n  Developer debug context: c\n"
    message = parse_message(
        f"{text}{another}Two\n  Explanation: b\n  Hint: i\n  Hint: j\n{another}Three\n"
    )
    assert message.head == ["One"] and message.reason == "One" and message.structured
    assert message.explanation == "a\n\nTwo: b\n\nThree"
    assert (message.hints, message.context) == (["h", "i", "j"], "c")
    assert parse_message(f"One{another}").explanation is None


def test_fields_are_indented_by_one_or_two_spaces() -> None:
    for indent, is_field in ((0, False), (1, True), (2, True), (3, False)):
        message = parse_message(f"What broke\n\nand why\n{' ' * indent}Explanation: x\n")
        assert (message.structured, message.explanation) == (is_field, "x" if is_field else None)
        assert message.head[0] == "What broke"
    empty = parse_message("What\n  Explanation: \n  Hint: \n  Developer debug context:\n")
    assert (empty.explanation, empty.hints, empty.context) == (None, [], None)


def test_a_break_is_the_same_in_every_database() -> None:
    graph_break = parse_break(OLD.format(line=12, value=3), NAMER)
    assert graph_break["fingerprint"] == break_fingerprint(
        None, graph_break["reason"], "forward", "m.py", graph_break["source_hash"]
    )
    assert break_fingerprint("GB0001", "x", "f", "a.py", "h") == break_fingerprint(
        "GB0001", "y", "f", "a.py", "h"
    )
    golden = [
        break_fingerprint("GB0001", "x", "f", "a.py", "h"),
        break_fingerprint(None, "x", "f", "a.py", "h"),
        break_fingerprint(None, "x", None, "a.py", "h"),
        break_fingerprint(None, "x", "f", None, "h"),
        break_fingerprint(None, "x", "f", "a.py", None),
    ]
    assert golden == [
        "eda6a1718573315228dafbaf59918170",
        "1440860fef87dd326f098cd958c29ce7",
        "a442d6483e2bfcf6c388ee30f229694d",
        "b90001cda2d276d4eccba4719f9fdc66",
        "93b71d42784ad441e3d69b684a4f9cfa",
    ]


def test_every_part_of_a_text_without_an_id_has_its_field() -> None:
    text = OLD.format(line=12, value=3)
    graph_break = parse_break(text, NAMER)
    assert (
        graph_break["source_line"],
        graph_break["debug_context"],
        graph_break["explanation"],
    ) == (
        "y = foo.bar(x)",
        None,
        None,
    )
    assert (graph_break["hints"], graph_break["text"], graph_break["outcome"]) == (
        [],
        text,
        "unknown",
    )
    assert [(frame["file"], frame["line"], frame["name"]) for frame in graph_break["stack"]] == [
        ("m.py", 3, "<module>"),
        ("m.py", 12, "forward"),
    ]


def test_an_id_in_the_text_fills_in_what_the_text_leaves_out() -> None:
    link = "https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html"
    entry = break_registry.lookup("GB0059")
    assert entry is not None
    graph_break = parse_break(
        f"Graph break in user code at /srv/bench/m.py:4\nReason: {link}\n", NAMER
    )
    assert (graph_break["gb_id"], graph_break["gb_type"]) == ("GB0059", entry.gb_type)
    assert (graph_break["explanation"], graph_break["hints"]) == (
        None,  # it has a place for a name
        [hint for hint in entry.hints if "{" not in hint],
    )
    told = parse_break(
        f"Reason: Print\n  Explanation: own\n  For more details about this graph break: {link}\n",
        NAMER,
    )
    assert (told["gb_id"], told["gb_type"], told["explanation"], told["hints"]) == (
        "GB0059",
        "Print",
        "own",
        [],
    )


def test_the_headline_names_the_place_that_is_not_on_the_stack() -> None:
    text = (
        "Graph break in user code at /srv/bench/m.py:{line}\nReason: x\n"
        'User code traceback:\n  File "/srv/bench/m.py", line 3, in main\n    f()\n'
    )
    assert parse_break(text.format(line=9), NAMER)["line"] == 9
    assert parse_break(text.format(line=3), NAMER)["function"] == "main"
    assert parse_break(text.format(line="9" * 10), NAMER)["line"] == 3
    assert parse_break(text.format(line="9" * 9), NAMER)["line"] == 999_999_999
    torchs = text.replace("at /srv/bench/m.py", "at /x/site-packages/torch/nn/m.py").format(line=9)
    assert (parse_break(torchs, NAMER)["file"], parse_break(torchs, NAMER)["line"]) == ("m.py", 3)


def test_an_unconverted_frame_is_named_by_its_first_line() -> None:
    text = "WON'T CONVERT forward /srv/bench/m.py line 12\ndue to:\nValueError: no\n"
    graph_break = parse_break(text, NAMER)
    assert (
        graph_break["file"],
        graph_break["line"],
        graph_break["function"],
        graph_break["outcome"],
    ) == (
        "m.py",
        12,
        "forward",
        "skipped",
    )
    assert graph_break["reason"] == "ValueError: no"


@pytest.mark.parametrize("qualname", ["A.B.forward", "forward"])
def test_the_compiled_frames_name_is_taken_where_its_last_part_is_the_same(qualname: str) -> None:
    text = OLD.format(line=12, value=3)
    assert parse_break(text, NAMER, qualname=qualname)["function"] == qualname
    named = parse_break(text, NAMER, lambda path, line, name: f"X.{path[-4:]}.{name}", qualname)
    assert named["function"] == qualname
    inlined = parse_break(
        text, NAMER, lambda path, line, name: f"X.{path[-4:]}.{name}", "A.forward.B"
    )
    assert inlined["function"] == "X.m.py.forward"


def test_words_of_a_skip_count_before_and_in_the_reason_alone() -> None:
    skip = "Skipping the frame and falling back to eager"
    for text, outcome in (
        (f"Reason: {skip}\nUser code traceback:\n", "skipped"),
        (f"{skip}\nUser code traceback:\n", "skipped"),
        (f"Graph break\nReason: x\nUser code traceback:\n {skip}\n", "unknown"),
        (f"User code traceback:\n {skip}\n", "unknown"),
        (f"Graph break\nReason: x\nUser code traceback:\n {skip} x\n", "unknown"),
    ):
        assert parse_break(text, NAMER)["outcome"] == outcome, text


def test_a_data_dependent_guard_is_named_and_not_the_advice_on_debugging_after_it() -> None:
    text = """Graph break in user code at /srv/model.py:8
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. \
f(x, y):

Could not guard on data-dependent expression zuf1 (unhinted: zuf1).  (Size-like symbols: none)

consider using data-dependent friendly APIs such as guard_or_false, guard_or_true and \
statically_known_true.

For C++ stack trace, run with TORCHDYNAMO_EXTENDED_DEBUG_CPP=1
For more information about this error, see: https://pytorch.org/docs/main/generated/exportdb/index.html

User code traceback:
  File "/srv/model.py", line 8, in f
    r = np.random.normal() * 0
"""
    reason = parse_break(text, PathNamer(["/srv"]))["reason"]
    assert reason.startswith("Could not guard on data-dependent expression zuf1")
