"""Graph break texts of every form, from 2.6's to 2.13's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collectors import events as ev
from collectors.decode import registry
from collectors.decode.breaks import parse_break, parse_message
from collectors.decode.paths import PathNamer
from tests.unit.decode.recorded import captured, events

NAMER = PathNamer(["/srv/bench"])
OLD = """Graph break in user code at /srv/bench/m.py:{line}
Reason: Unsupported: call_method UserDefinedObjectVariable(Foo) bar [ConstantVariable(int: {value})] {{}}
User code traceback:
  File "/srv/bench/m.py", line 3, in <module>
    main()
  File "/srv/bench/m.py", line {line}, in torch_dynamo_resume_in_forward_at_7
    y = foo.bar(x)

Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py", line 9, in wrapper
    return inner_fn(self, inst)
torch._dynamo.exc.Unsupported: call_method UserDefinedObjectVariable(Foo) bar []
"""
SKIP = """Graph break: skip: from user code at:
  File "/srv/bench/m.py", line 9, in fn
    assert x is None

Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py", line 9, in wrapper
    raise
torch._dynamo.exc.Unsupported: Data-dependent assertion failed (cannot compile partial graph)
  Explanation: Dynamo has determined when encountering a data-dependent assert failure that it should not compile.
  Hint: Use `torch._assert()`.

  Developer debug context: value: TensorVariable()

"""


def broke(name: str) -> dict[str, list[ev.GraphBroke]]:
    found: dict[str, list[ev.GraphBroke]] = {}
    case = ""
    for event in events(name):
        if isinstance(event, ev.ArtifactSeen) and event.name.startswith("case_"):
            case = event.name.removeprefix("case_")
        elif isinstance(event, ev.GraphBroke):
            found.setdefault(case, []).append(event)
    return found


def test_wrapped_reason_gives_the_type_beneath() -> None:
    (event,) = broke("torch2.13-breaks")["printing"]
    assert (event.gb_id, event.gb_type) == ("GB0059", "Failed to trace builtin operator")
    assert event.explanation and event.explanation.startswith(
        "Dynamo does not know how to trace builtin operator `print`"
    )
    assert len(event.hints) == 3 and event.debug_context and event.debug_context.startswith("builtin print")
    assert (event.file, event.function, event.source_line) == ("record_breaks.py", "f", 'print("hi")')
    assert [frame["name"] for frame in event.stack] == ["<module>", "printing", "f"]


def test_skipped_frames_are_told_by_the_text() -> None:
    cases = broke("torch2.13-breaks")
    assert {name for name, found in cases.items() if found[-1].outcome == "skipped"} == {
        "loop", "withblock", "tryblock", "gen", "openb", "backendfake", "userraise",
    }  # fmt: skip
    assert cases["skipped"][0].outcome == "unknown"


def test_first_break_is_the_cause_of_a_second_one() -> None:
    (event,) = broke("torch2.13-breaks")["loop"]
    assert event.gb_id == "GB0025" and event.debug_context and event.debug_context.startswith("Called `torch")
    assert event.explanation and "graph break in loop" in event.explanation
    assert any("earlier graph break" in hint for hint in event.hints)


def test_attempts_of_one_break_share_a_fingerprint() -> None:
    first, second = broke("torch2.13-breaks")["gen"]
    assert first.fingerprint == second.fingerprint
    loop, nested = (broke("torch2.13-breaks")[name][0] for name in ("loop", "nested"))
    assert len({first.fingerprint, nested.fingerprint}) == 2 and loop.gb_id == nested.gb_id


def test_users_line_is_named_where_torch_names_its_own() -> None:
    event = next(
        e for e in events("torch2.11-cuda-zoo_graph_breaks") if isinstance(e, ev.GraphBroke) and e.gb_id == "GB0023"
    )
    assert "polyfills" in event.text.split("\n")[0]
    assert (event.file, event.line, event.function) == ("models.py", 70, "forward")


def test_frame_that_left_the_stack_is_named_by_the_headline() -> None:
    unconverted, ended = broke("torch2.13-breaks")["backendfake"]
    assert unconverted.function == "f" and unconverted.reason.startswith("DynamicOutputShapeException: ")
    assert ended.gb_id == "GB0219" and ended.file == unconverted.file and ended.line == unconverted.line


def test_text_of_2_6_has_reason_and_function_but_no_id() -> None:
    found = parse_break(OLD.format(line=12, value=3), NAMER)
    assert (found["gb_id"], found["gb_type"], found["outcome"]) == (None, None, "unknown")
    assert found["reason"].startswith("call_method UserDefinedObjectVariable(Foo) bar")
    assert (found["file"], found["line"], found["function"], found["resumed_at"]) == ("m.py", 12, "forward", 7)


def test_fingerprint_ignores_line_numbers_and_values() -> None:
    first, moved = (parse_break(OLD.format(line=n, value=n), NAMER)["fingerprint"] for n in (12, 55))
    assert first == moved
    other = OLD.format(line=12, value=3).replace("y = foo.bar(x)", "y = foo.bar(x, x)")
    assert parse_break(other, NAMER)["fingerprint"] != first


def test_skip_text_takes_its_reason_from_the_exception() -> None:
    found = parse_break(SKIP, NAMER)
    assert found["outcome"] == "skipped" and found["function"] == "fn"
    assert found["gb_type"] == "Data-dependent assertion failed (cannot compile partial graph)"
    assert found["gb_id"] == "GB0034" and found["hints"] == ["Use `torch._assert()`."]


def test_users_own_words_do_not_make_a_skip() -> None:
    text = OLD.format(line=12, value=3).replace("y = foo.bar(x)", 'log("Skipping the frame and falling back to eager")')
    assert parse_break(text, NAMER)["outcome"] == "unknown"


def test_qualified_names_come_from_the_caller() -> None:
    text = OLD.format(line=12, value=3)
    assert parse_break(text, NAMER, lambda path, line, name: f"Net{line}.forward")["function"] == "Net12.forward"
    assert parse_break(text, NAMER, qualname="Net.forward")["function"] == "Net.forward"
    # The compiled frame's name says nothing about a function that was inlined into it.
    assert parse_break(text, NAMER, qualname="Net.other")["function"] == "forward"


def test_registry_knows_every_recorded_id() -> None:
    for found in broke("torch2.13-breaks").values():
        for event in found:
            entry = registry.lookup(event.gb_id) if event.gb_id else None
            assert event.gb_id is None or (entry is not None and entry.gb_type == event.gb_type)
    assert registry.page_url("GB0025").endswith("/gb/gb0025.html")
    assert registry.ids_of_type("Data-dependent branching") == ("GB0170",) and registry.lookup("GB") is None


def test_higher_order_operator_is_no_part_of_the_type() -> None:
    message = parse_message(
        "Failed to trace\n  Higher Order Operator: cond\n  Explanation: a\n    b\n  Hint: c\n    d\n"
    )
    assert (message.reason, message.explanation, message.hints) == ("Failed to trace", "a\nb", ["c\nd"])


@given(st.text())
def test_any_text_parses(text: str) -> None:
    found = parse_break(text, NAMER)
    assert found["text"] == text and found["outcome"] in ("skipped", "unknown")


@given(st.sampled_from([c.payload for c in captured("torch2.13-breaks") if isinstance(c.payload, str)]), st.data())
def test_torn_texts_parse(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    assert parse_break(text[start:], NAMER)["fingerprint"]
    assert parse_break(text[:start], NAMER)["fingerprint"]
