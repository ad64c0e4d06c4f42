"""Phases, times and fields of CompilationMetrics, caches and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract import events as ev
from compileboard.collectors.contract.metric_fields import FIELDS
from compileboard.collectors.decode.caches import parse_lookup
from compileboard.collectors.decode.compilation_metrics import (
    PHASES,
    duration_source,
    duration_us,
    end_us,
    phases_us,
    start_us,
)
from compileboard.collectors.decode.trace_records import parse_error
from tests.unit.decode.recorded_logs import LOGS, events

UNITS = {
    "us",
    "ms",
    "s",
    "time_us",
    "time_s",
    "bytes",
    "count",
    "bool",
    "text",
    "list",
    "json",
    "id",
    "version",
}
TIMES = [name for name, field in FIELDS.items() if field.unit in ("us", "s")]


def test_every_recorded_field_has_a_unit() -> None:
    seen = {
        name
        for log in LOGS
        for e in events(log)
        if isinstance(e, ev.Compiled)
        for name in e.metrics
    }
    assert seen - set(FIELDS) == set() and len(seen) == 99
    assert {field.unit for field in FIELDS.values()} <= UNITS
    assert all(field.help.endswith(".") for field in FIELDS.values())


def test_units_agree_with_the_names_torch_chose() -> None:
    for name, field in FIELDS.items():
        if name.endswith(("_time_us", "_duration_us", "_timeout_us")) and not name.startswith(
            ("start", "end")
        ):
            assert field.unit == "us", name
        if name.endswith("_bytes"):
            assert field.unit == "bytes", name


def test_phases_of_a_forward_compile() -> None:
    (first, *_rest) = [
        e for e in events("torch2.11-cuda-hf_Bert_train") if isinstance(e, ev.Compiled)
    ]
    assert first.phases_us == {
        "dynamo": 12714155 - 11434111, "aot": 11434111 - 7790048, "inductor": 7790048 - 6180859,
        "codegen": 6180859 - 3967735, "triton": 3967735, "cudagraph": 0, "restart": 0,
    }  # fmt: skip


def test_phases_of_backward_and_runtime_records() -> None:
    records = [e for e in events("torch2.11-cuda-hf_Bert_train") if isinstance(e, ev.Compiled)]
    runtime = next(e for e in records if e.record_kind == "runtime")
    backward = next(e for e in records if e.record_kind == "backward")
    assert runtime.phases_us["triton"] == runtime.duration_us == 219871
    assert (backward.phases_us["dynamo"], backward.phases_us["aot"]) == (0, 3750272 - 3695963)


def test_seconds_of_2_4_become_microseconds() -> None:
    old = {
        "entire_frame_compile_time_s": 2.5,
        "backend_compile_time_s": 2.0,
        "inductor_compile_time_s": 1.5,
        "code_gen_time_s": 0.5,
    }
    assert duration_us(old) == 2_500_000
    assert phases_us(old)["codegen"] == 500_000 and phases_us(old)["dynamo"] == 500_000
    assert phases_us({"co_name": "f"}) == {}


@pytest.mark.parametrize(
    ("metrics", "us", "source"),
    [
        ({"duration_us": 7, "entire_frame_compile_time_s": 9.0}, 7, "duration_us"),
        (
            {"duration_us": None, "start_time_us": 100, "end_time_us": 350},
            250,
            "end_time_us - start_time_us",
        ),
        ({"start_time": 0.0001, "end_time_us": 350}, 250, "end_time_us - start_time_us"),
        ({"start_time_us": 350, "end_time_us": 100}, None, None),  # a clock that went back
        ({"dynamo_cumulative_compile_time_us": 40}, 40, "dynamo_cumulative_compile_time_us"),
        (
            {"is_forward": False, "inductor_cumulative_compile_time_us": 30},
            30,
            "inductor_cumulative_compile_time_us",
        ),
        (
            {"is_runtime": True, "is_forward": False, "start_time_us": 1, "end_time_us": 5},
            4,
            "end_time_us - start_time_us",
        ),
        ({"co_name": "f"}, None, None),
    ],
)
def test_duration_is_what_a_version_has_and_names_it(
    metrics: dict[str, Any], us: int | None, source: str | None
) -> None:
    assert (duration_us(metrics), duration_source(metrics)) == (us, source)


@given(
    st.dictionaries(
        st.sampled_from([*TIMES, "is_forward", "is_runtime"]),
        st.none() | st.booleans() | st.integers(-9, 10**7) | st.floats(),
    )
)
def test_phases_always_add_up(metrics: dict[str, object]) -> None:
    phases, total = phases_us(metrics), duration_us(metrics)
    assert (phases == {}) == (total is None)
    assert total is None or (
        list(phases) == list(PHASES) and sum(phases.values()) == total and min(phases.values()) >= 0
    )


def test_cache_lookup_drops_components_and_keeps_their_number() -> None:
    payload = json.dumps(
        {
            "key": "k",
            "components": ["a", "b"],
            "cache_status_detailed": "full_miss",
            "time_taken_ns": 2_000_000,
        }
    )
    lookup = parse_lookup("fx_graph_cache_miss", payload)
    assert lookup and (lookup["cache"], lookup["result"], lookup["reason"]) == (
        "fx_graph",
        "miss",
        "full_miss",
    )
    assert (
        lookup["detail"]["component_count"] == 2
        and "components" not in lookup["detail"]
        and lookup["time_taken_us"] == 2000
    )


def test_cache_lookup_of_2_5_reads_the_state_inside() -> None:
    lookup = parse_lookup(
        "aotautograd_cache_hash",
        {"cache_state": "hit", "key": "k", "forward_time_saved_ms": 3, "time_saved_ms": 7},
    )
    assert lookup and (lookup["cache"], lookup["result"], lookup["time_saved_us"]) == (
        "aot_autograd",
        "hit",
        7000,
    )
    assert (
        parse_lookup("fx_graph_cache_hash", {"key": "k"}) is None
        and parse_lookup("other", {}) is None
    )


def test_recorded_bypasses_say_why() -> None:
    lookups = [e for log in LOGS for e in events(log) if isinstance(e, ev.CacheLookedUp)]
    assert {(e.cache, e.result) for e in lookups} >= {
        ("fx_graph", "hit"),
        ("fx_graph", "miss"),
        ("aot_autograd", "bypass"),
    }
    assert all(e.reason for e in lookups if e.result == "bypass")
    # What a saved package has is taken without a key.
    assert all(e.key or e.detail["bundled"] for e in lookups if e.result == "hit")


def test_error_is_what_was_raised_last() -> None:
    failed = next(
        e for e in events("torch2.11-cuda-zoo_backend_failure") if isinstance(e, ev.CompileFailed)
    )
    assert failed.error_type == "BackendCompilerFailed"
    assert (
        failed.message
        == "backend='bad' raised:\nRuntimeError: backend refused: <b>no kernel</b> for 'linear'"
    )
    assert parse_error("nothing") == (None, "nothing") and parse_error("") == (None, None)


@given(st.text())
def test_any_text_is_some_error(text: str) -> None:
    error_type, message = parse_error(text)
    assert error_type or message or not text.strip()
    assert error_type is None or (error_type.isidentifier() and error_type in text)
    assert message is None or (
        message.strip() == message != "" and all(line in text for line in message.split("\n"))
    )


WHOLE = {  # every phase takes a share of its own; in microseconds, each holds the next
    "duration_us": 1000,
    "runtime_cudagraphify_time_us": 100,
    "aot_autograd_cumulative_compile_time_us": 700,
    "inductor_cumulative_compile_time_us": 600,
    "inductor_code_gen_cumulative_compile_time_us": 400,
    "triton_compile_time_us": 150,
    "dynamo_compile_time_before_restart_us": 50,
}


def phases(metrics: dict[str, object]) -> tuple[int, ...]:
    return tuple(phases_us(metrics).values())


@pytest.mark.parametrize(
    ("changes", "dynamo", "aot", "inductor", "codegen", "triton", "cudagraph", "restart"),
    [
        ({}, 150, 100, 200, 250, 150, 100, 50),
        ({"is_forward": True}, 150, 100, 200, 250, 150, 100, 50),
        ({"is_forward": False}, 0, 300, 200, 250, 150, 100, 0),
        ({"inductor_code_gen_cumulative_compile_time_us": None}, 150, 100, 450, 0, 150, 100, 50),
        ({"inductor_code_gen_cumulative_compile_time_us": 0}, 150, 100, 450, 0, 150, 100, 50),
        ({"triton_compile_time_us": None}, 150, 100, 200, 400, 0, 100, 50),
        ({"triton_compile_time_us": 500}, 150, 100, 200, 0, 400, 100, 50),
        ({"aot_autograd_cumulative_compile_time_us": None}, 250, 0, 200, 250, 150, 100, 50),
        ({"aot_autograd_cumulative_compile_time_us": 5000}, 0, 300, 200, 250, 150, 100, 0),
        ({"inductor_cumulative_compile_time_us": None}, 150, 700, 0, 0, 0, 100, 50),
        ({"inductor_cumulative_compile_time_us": 5000}, 150, 0, 300, 250, 150, 100, 50),
        ({"dynamo_compile_time_before_restart_us": None}, 200, 100, 200, 250, 150, 100, 0),
        ({"dynamo_compile_time_before_restart_us": 5000}, 0, 100, 200, 250, 150, 100, 200),
        ({"runtime_cudagraphify_time_us": None}, 250, 100, 200, 250, 150, 0, 50),
        ({"runtime_cudagraphify_time_us": 5000}, 0, 0, 0, 0, 0, 1000, 0),
    ],
)
def test_each_phase_is_what_it_holds_without_the_next_and_no_more_than_what_holds_it(
    changes: dict[str, object],
    dynamo: int,
    aot: int,
    inductor: int,
    codegen: int,
    triton: int,
    cudagraph: int,
    restart: int,
) -> None:
    assert phases(WHOLE | changes) == (dynamo, aot, inductor, codegen, triton, cudagraph, restart)


def test_phases_of_a_record_that_says_nothing_more_are_dynamos() -> None:
    assert phases({"duration_us": 9}) == (9, 0, 0, 0, 0, 0, 0)
    assert phases({"duration_us": 9, "is_forward": False}) == (0, 9, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({}, {"inductor": 600, "triton": 300, "cudagraph": 100}),
        (
            {"runtime_triton_autotune_time_us": None},
            {"inductor": 900, "triton": 0, "cudagraph": 100},
        ),
        (
            {"runtime_triton_autotune_time_us": 5000},
            {"inductor": 0, "triton": 900, "cudagraph": 100},
        ),
        ({"runtime_cudagraphify_time_us": None}, {"inductor": 700, "triton": 300, "cudagraph": 0}),
        ({"runtime_cudagraphify_time_us": 5000}, {"inductor": 0, "triton": 0, "cudagraph": 1000}),
    ],
)
def test_a_runtime_record_is_autotuning_cudagraphs_and_the_rest(
    changes: dict[str, object], shares: dict[str, int]
) -> None:
    first = {"is_runtime": True, "runtime_triton_autotune_time_us": 300}
    assert phases_us(WHOLE | first | changes) == dict.fromkeys(PHASES, 0) | shares


def test_only_true_makes_a_runtime_record() -> None:
    for flag in (False, None, "True", 1):
        assert phases_us(WHOLE | {"is_runtime": flag}) == phases_us(WHOLE)


@pytest.mark.parametrize(
    ("metrics", "duration"),
    [
        (
            {
                "duration_us": 1,
                "entire_frame_compile_time_s": 2,
                "backward_cumulative_compile_time_us": 3,
            },
            1,
        ),
        ({"entire_frame_compile_time_s": 2, "backward_cumulative_compile_time_us": 3}, 2_000_000),
        (
            {
                "backward_cumulative_compile_time_us": 3,
                "inductor_compile_time_s": 4,
                "is_forward": False,
            },
            3,
        ),
        ({"inductor_compile_time_s": 4, "is_forward": False}, 4_000_000),
        ({"inductor_compile_time_s": 4, "is_forward": True}, None),
        ({"inductor_compile_time_s": 4}, None),
        ({"duration_us": 0, "entire_frame_compile_time_s": 2}, 0),
    ],
)
def test_duration_is_the_outermost_that_was_recorded(
    metrics: dict[str, object], duration: int | None
) -> None:
    assert duration_us(metrics) == duration


@pytest.mark.parametrize(
    "name", ["dynamo_compile_time_before_restart_us", "dynamo_time_before_restart_s"]
)
def test_restarts_are_read_in_either_unit(name: str) -> None:
    value = 2_000_000 if name.endswith("_us") else 2
    assert phases_us({"duration_us": 5_000_000, name: value})["restart"] == 2_000_000


def test_start_and_end_are_torchs_own_or_come_of_the_duration() -> None:
    assert (start_us({"start_time_us": 7, "start_time": 1}), start_us({"start_time": 1.5})) == (
        7,
        1_500_000,
    )
    assert (start_us({}), end_us({}), end_us({"start_time_us": 7}), end_us({"duration_us": 3})) == (
        None,
    ) * 4
    assert end_us({"start_time_us": 7, "duration_us": 3}) == 10
    assert end_us({"start_time_us": 7, "duration_us": 3, "end_time_us": 11}) == 11


@pytest.mark.parametrize(
    "value", [True, False, "1", None, [1], -1, float("nan"), float("inf"), 9e18, 2**63, 1e300]
)
def test_what_is_no_time_is_none(value: object) -> None:
    assert duration_us({"duration_us": value}) is None


def test_the_longest_times_fit_the_store() -> None:
    assert duration_us({"duration_us": 9 * 10**18 - 1}) == 9 * 10**18 - 1
    assert duration_us({"entire_frame_compile_time_s": 9e12}) is None
    assert duration_us({"entire_frame_compile_time_s": 8.9e12}) == 89 * 10**17
    assert duration_us({"entire_frame_compile_time_s": 1.0000006}) == 1_000_001
