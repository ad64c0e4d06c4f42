"""The guard classifier: all texts that torch 2.13 was made to print, and older ones."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract import events as ev
from compileboard.collectors.contract.categories import BY_NAME, CATEGORIES
from compileboard.collectors.decode.recompile_reasons import (
    parse_failed,
    parse_reason,
    parse_reasons,
)
from compileboard.collectors.fixes.recompile_fixes import describe_guard_fixes
from tests.unit.decode.recorded_logs import events

# The newest cache entry's category for each case of tests/data/trace/record_guards.py.
CASES = {
    "stride": "tensor_stride",
    "rank": "tensor_rank",
    "dtype": "tensor_dtype",
    "device": "tensor_device",
    "reqgrad": "tensor_requires_grad",
    "dispatch": "dispatch_keys",
    "functorch": "dispatch_keys",
    "notensor": "type_change",
    "alias": "tensor_aliasing",
    "alias2": "object_identity",
    "intv": "int_value",
    "closure": "int_value",
    "floatv": "float_value",
    "nan": "float_value",
    "strv": "string_value",
    "cplx": "other_value",
    "boolv": "other_value",
    "nonev": "other_value",
    "dtypev": "other_value",
    "devicev": "other_value",
    "globalv": "global_value",
    "globalattr": "global_value",
    "globaldict": "global_value",
    "modstep": "module_attribute",
    "modmode": "module_attribute",
    "modtrain": "module_attribute",
    "setattr_after": "module_attribute",
    "modswap2": "type_change",
    "listlen": "container_length",
    "listempty": "container_length",
    "dictlen": "container_length",
    "tupit": "container_length",
    "dictkeys": "dict_keys",
    "dictget": "dict_keys",
    "set_other": "dict_keys",
    "kwargs": "dict_keys",
    "fnid": "object_identity",
    "enumv": "object_identity",
    "typechange2": "type_change",
    "gradmode": "grad_mode",
    "autocast": "autocast",
    "autocastdtype": "autocast",
    "determ": "deterministic",
    "threads": "global_state",
    "defdtype": "global_state",
    "defdevice": "global_state",
    "tfmode": "global_state",
    "backend": "backend_mismatch",
    "symeq": "symbolic_shape",
    "symmod": "symbolic_shape",
    "symone": "symbolic_shape",
    "symint": "symbolic_shape",
    "symspec": "tensor_size",
    "markdyn": "symbolic_shape",
    "parameter_shape": "tensor_size",
    "freed_class": "invalidated",
}


def recorded() -> dict[str, ev.GuardFailure]:
    failures_by_case: dict[str, ev.GuardFailure] = {}
    case = ""
    for event in events("torch2.13-guards"):
        if isinstance(event, ev.ArtifactSeen) and event.name.startswith("case_"):
            case = event.name.removeprefix("case_")
        elif isinstance(event, ev.Recompiled):
            failures_by_case.setdefault(case, event.guards[0])
    return failures_by_case


@pytest.mark.parametrize(("case", "category"), CASES.items())
def test_recorded_guard_is_classified(case: str, category: str) -> None:
    failure = recorded()[case]
    assert failure.category == category, failure.reason
    assert describe_guard_fixes(failure)


def test_every_category_but_unknown_was_recorded() -> None:
    assert set(CASES.values()) == {category.name for category in CATEGORIES} - {
        "unknown",
        "several",  # of sets of guards, not of one
    }
    assert all(category.label and category.meaning.endswith(".") for category in CATEGORIES)


@pytest.mark.parametrize(
    ("reason", "category", "source", "expected", "actual"),
    [
        ("0/0: tensor 'L['x']' size mismatch at index 0. expected 4, actual 8",
         "tensor_size", "x", "4", "8"),
        ("tensor 'L['x']' stride mismatch at index 1. expected 1, actual 4",
         "tensor_stride", "x", "1", "4"),
        (
            "0/0: tensor 'x' Tensor device index mismatch. Expected device index to be 0, actual 1",
            "tensor_device",
            "x",
            "0",
            "1",
        ),
        ("0/1: L['k'] == 1", "int_value", "k", "1", None),
        ("0/1: L['n'] == -2.5", "float_value", "n", "-2.5", None),
        ("!0/1/0: L['s'] == 'a  # b'", "string_value", "s", "'a  # b'", None),
        ("___check_obj_id(self._modules['attn'].processor, 140576345756128)",
         "object_identity", None, None, None),
        ("___check_type_id(L['self']._modules['mixer'], 157671424)",
         "type_change", None, None, None),
        ("L['self']._modules['conv'].layer_idx == (8, 'conv')",
         "module_attribute", None, None, None),
        ("___check_global_state()", "global_state", None, None, None),
        ("___check_current_backend(139704947520224)", "backend_mismatch", None, None, None),
        ("utils_device.CURRENT_DEVICE == None", "global_state", None, None, None),
        ("Cache line invalidated because L['self'] got deallocated",
         "invalidated", "self", None, None),
        ("___guarded_code.valid", "invalidated", None, None, None),
        ("L['x'] == np.float64(2.5)", "other_value", "x", "np.float64(2.5)", None),
        ("len(L['x']) == 2", "container_length", "x", "2", None),
        ("list(L['d'].keys()) == ['a']", "dict_keys", "d", "['a']", None),
        ("IndexError on L['xs'][3]", "container_length", "xs", None, "3 missing"),
        ("KeyError on G['SCALE']", "global_value", "G['SCALE']", None, "missing"),
        ("hasattr(L['x'], '_dynamo_dynamic_indices') == False", "symbolic_shape", "x", None, None),
        ("Ne(L['x'].size()[0], 1)", "symbolic_shape", "x.size()[0]", None, None),
        ("L['x'].size()[0] == 2*L['y'].size()[0]",
         "symbolic_shape", "x.size()[0], y.size()[0]", None, None),
        ('"Shape guard failed with values: 3,4"', "symbolic_shape", None, None, None),
        ("L['a'] is L['b']", "object_identity", "a", "b", None),
        ("not L['xs']", "container_length", "xs", "0", None),
        ("GLOBAL_STATE changed: deterministic_algorithms_warn_only ",
         "deterministic", None, None, None),
        ("Unexpected recompilation: runtime guards failed even though they passed",
         "unknown", None, None, None),
        ("0/0: ", "backend_mismatch", None, None, None),
    ],
)  # fmt: skip
def test_older_and_rarer_texts(
    reason: str, category: str, source: str | None, expected: str | None, actual: str | None
) -> None:
    failure = parse_reason(reason)
    assert failure.category == category
    if source is not None:
        assert failure.source == source
    assert (failure.actual == actual) and (expected is None or failure.expected == expected)


def test_hint_turns_an_attribute_into_advice() -> None:
    reason = (
        "0/6: self.step == 30      # self.step += 1  # ork/models.py:82 in forward (HINT: "
        "torch.compile considers "
        "integer attributes of the nn.Module to be static. "
        "torch._dynamo.config.allow_unspec_int_on_nn_module = True)\n"
        'User stack trace:\n  File "/srv/models.py", line 82, in forward\n    self.step += 1'
    )
    failure = parse_reason(reason)
    assert (failure.category, failure.source, failure.cache_entry) == (
        "module_attribute",
        "self.step",
        "0/6",
    )
    assert (failure.file, failure.line, failure.source_line) == ("models.py", 82, "self.step += 1")
    assert (
        describe_guard_fixes(failure)
        == "Name `L['self'].step` in torch.compiler.config.dynamic_sources, which makes self.step "
        "dynamic from the first call on"
    )


@pytest.mark.parametrize("name", ["Float", "torch.float32", "BFloat16", "Float8_e5m2"])
def test_a_dtype_has_one_name(name: str) -> None:
    failure = parse_reason(f"0/0: tensor 'x' dtype mismatch. expected {name}, actual Long")
    python = {"Float": "float32", "BFloat16": "bfloat16", "Float8_e5m2": "float8_e5m2"}
    assert failure.expected == f"torch.{python.get(name, 'float32')}"
    assert failure.actual == "torch.int64"


def test_fingerprint_ignores_values_and_addresses() -> None:
    def prints(*reasons: str) -> set[str]:
        return {parse_reason(reason).fingerprint for reason in reasons}

    assert len(prints("0/0: k == 1", "3/2: k == 2", "L['k'] == 7  # y = k  # f.py:3 in f")) == 1
    assert (
        len(prints("___check_obj_id(f, 139800317371120)", "___check_obj_id(f, 94554616735280)"))
        == 1
    )
    assert len(prints("k == 1", "n == 1", "k == 'a'", "k == 1.5")) == 4
    size = "tensor 'x' size mismatch at index {}. expected 4, actual 8"
    assert len(prints(size.format(0), size.format(1))) == 2


def test_notebook_cell_cut_by_torch_keeps_its_name() -> None:
    reason = "2/0: c == 0.5      # return x + c  # mp/ipykernel_507/3647755280.py:3 in fn"
    failure = parse_reason(reason)
    assert (failure.file, failure.line, failure.source_line) == ("<notebook>", 3, "return x + c")


@pytest.mark.parametrize("payload", ["0/0: k == 1", '[\n"0/0: k == 1"\n]', ["0/0: k == 1"]])
def test_payload_forms_are_alike(payload: object) -> None:
    assert [(g.category, g.cache_entry) for g in parse_reasons(payload)] == [("int_value", "0/0")]


def test_suggestion_keeps_braces_of_the_source() -> None:
    failure = parse_reason("0/0: d['{dim}'] == 1")
    assert "d['{dim}']" in (describe_guard_fixes(failure) or "")


def test_suggestion_names_nothing_that_a_break_left() -> None:
    for message in (
        "size mismatch at index 0. expected 3, actual 4",
        "dtype mismatch. expected Float, actual Double",
    ):
        failure = parse_reason(f"1/0: tensor '___stack0' {message}")
        assert failure.source == "___stack0"
        fixes = describe_guard_fixes(failure) or ""
        assert fixes.startswith("Remove the graph break before this code")


@given(st.text())
def test_any_text_has_a_category(text: str) -> None:
    failure = parse_reason(text)
    assert failure.category in BY_NAME
    assert json.dumps(failure.reason) and len(parse_reasons([text])) <= 1


@given(st.text(alphabet="L['x]()=!<>. 0123456789+-*%#\"\nabnotis,_", max_size=60))
def test_near_expressions_have_a_category(text: str) -> None:
    assert parse_reason(text).category in BY_NAME


@pytest.mark.parametrize("part", ["'", "L['", " # x", "(HINT: ", "  # a:1 in b", "_dynamo_ids "])
def test_long_reasons_are_read_in_time_that_grows_with_their_length(part: str) -> None:
    text = part * (200_000 // len(part))
    started = time.process_time()
    parse_reason(text)
    assert time.process_time() - started < 5  # a second at most; quadratic time takes minutes


CHECKED = (
    "check_tensor(L['x'], Tensor, DispatchKeySet(CPU, BackendSelect), torch.float32, device=None, "
    "requires_grad=False, size=[2, None, 4], stride=[4, 4, 1])"
)
SEEN = {
    "type": "Tensor",
    "size": [3, 9, 5],
    "stride": [4, 4, 1],
    "dtype": "torch.float32",
    "device": "cpu",
    "requires_grad": False,
}


def _failed(*found: object, is_whole: bool = True) -> list[tuple[str, str | None, str | None]]:
    failed, _unread = parse_failed([["0/0", is_whole, list(found)]], [])
    return [(guard.category, guard.source, guard.actual) for guard in failed]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, [("tensor_size", "x", "3"), ("tensor_size", "x", "5")]),
        ({"dtype": "torch.float64"}, [("tensor_dtype", "x", "torch.float64")]),
        ({"requires_grad": True}, [("tensor_requires_grad", "x", "True")]),
        ({"device": "cuda:0"}, [("tensor_device", "x", "cuda")]),
        ({"size": [3, 9], "stride": [9, 1]}, [("tensor_rank", "x", "2")]),
        ({"size": [2, 7, 4], "stride": [28, 4, 1]}, [("tensor_stride", "x", "28")]),
        ({"size": [2, 7, 4]}, [("dispatch_keys", "x", None)]),
    ],
)
def test_a_tensors_guard_says_all_that_differs(seen, expected):
    assert _failed(["TENSOR_MATCH", "L['x']", CHECKED, {**SEEN, **seen}]) == expected


@pytest.mark.parametrize(
    ("stride", "has_other_layout"),
    [([65, 5, 1], False), ([195, 15, 1], True), ([1, 1, 13], True), ([9999, 5, 1], False)],
)
def test_a_stride_that_the_sizes_do_not_explain_is_said_beside_them(stride, has_other_layout):
    text = CHECKED.replace("[2, None, 4], stride=[4, 4, 1]", "[1, 12, 5], stride=[60, 5, 1]")
    seen = {**SEEN, "size": [1, 13, 5], "stride": stride}
    own = [("tensor_stride", "x", str(stride[1]))] * has_other_layout
    assert _failed(["TENSOR_MATCH", "L['x']", text, seen]) == [("tensor_size", "x", "13"), *own]


def test_a_failed_guard_has_the_value_that_was_seen():
    assert _failed(
        ["EQUALS_MATCH", "L['self'].mode", "L['self'].mode == 'a'", "'b'"],
        ["LENGTH_CHECK", "L['xs']", "len(L['xs']) == 1", {"type": "list", "length": 2}],
        ["TENSOR_MATCH", "L['m']", CHECKED, None],
    ) == [
        ("module_attribute", "self.mode", "'b'"),
        ("container_length", "xs", "2"),
        ("type_change", "m", "None"),
    ]


def test_a_guard_on_a_member_of_an_enum_has_the_names_of_both():
    text = "___check_obj_id(L['phase'], 7), type=<class '__main__.Phase'>"
    seen = {"type": "Phase", "seen": "Phase.TEST", "held": "Phase.TRAIN"}
    found = ["ID_MATCH", "L['phase']", text, seen]
    (guard,), _unread = parse_failed([["0/0", True, [found]]], [parse_reason(f"0/0: {text}")])
    assert (guard.source, guard.expected, guard.actual) == ("phase", "Phase.TRAIN", "Phase.TEST")


def test_torchs_own_reason_says_which_global_setting_changed():
    own = parse_reason("0/0: GLOBAL_STATE changed: grad_mode ")
    found = ["GLOBAL_STATE", "L", "___check_global_state() against {}", None]
    failed, unread = parse_failed([["0/0", False, [found]]], [own])
    assert [(guard.category, guard.cache_entry) for guard in failed] == [("grad_mode", "0/0")]
    assert unread == ["0/0"]


@pytest.mark.parametrize("odd", [None, "x", [None], [["0/0", 1, []]], [["0/0", True, [5, ["K"]]]]])
def test_an_odd_list_of_failed_guards_costs_itself(odd):
    assert parse_failed(odd, []) == ([], [])
