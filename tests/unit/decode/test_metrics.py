"""Phases, times and fields of CompilationMetrics, caches and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import events as ev
from collectors.decode.caches import parse_lookup
from collectors.decode.failures import parse_error
from collectors.decode.metrics import FIELDS, PHASES, duration_source, duration_us, phases_us
from tests.unit.decode.recorded import LOGS, events

UNITS = {"us", "ms", "s", "time_us", "time_s", "bytes", "count", "bool", "text", "list", "json", "id", "version"}
TIMES = [name for name, field in FIELDS.items() if field.unit in ("us", "s")]


def test_every_recorded_field_has_a_unit() -> None:
    seen = {name for log in LOGS for e in events(log) if isinstance(e, ev.Compiled) for name in e.metrics}
    assert seen - set(FIELDS) == set() and len(seen) == 99
    assert {field.unit for field in FIELDS.values()} <= UNITS
    assert all(field.help.endswith(".") for field in FIELDS.values())


def test_units_agree_with_the_names_torch_chose() -> None:
    for name, field in FIELDS.items():
        if name.endswith(("_time_us", "_duration_us", "_timeout_us")) and not name.startswith(("start", "end")):
            assert field.unit == "us", name
        if name.endswith("_bytes"):
            assert field.unit == "bytes", name


def test_phases_of_a_forward_compile() -> None:
    (first, *_rest) = [e for e in events("torch2.11-cuda-hf_Bert_train") if isinstance(e, ev.Compiled)]
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
        ({"duration_us": None, "start_time_us": 100, "end_time_us": 350}, 250, "end_time_us - start_time_us"),
        ({"start_time": 0.0001, "end_time_us": 350}, 250, "end_time_us - start_time_us"),
        ({"start_time_us": 350, "end_time_us": 100}, None, None),  # a clock that went back
        ({"dynamo_cumulative_compile_time_us": 40}, 40, "dynamo_cumulative_compile_time_us"),
        ({"is_forward": False, "inductor_cumulative_compile_time_us": 30}, 30, "inductor_cumulative_compile_time_us"),
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
        {"key": "k", "components": ["a", "b"], "cache_status_detailed": "full_miss", "time_taken_ns": 2_000_000}
    )
    found = parse_lookup("fx_graph_cache_miss", payload)
    assert found and (found["cache"], found["result"], found["reason"]) == ("fx_graph", "miss", "full_miss")
    assert (
        found["detail"]["component_count"] == 2
        and "components" not in found["detail"]
        and found["time_taken_us"] == 2000
    )


def test_cache_lookup_of_2_5_reads_the_state_inside() -> None:
    found = parse_lookup(
        "aotautograd_cache_hash", {"cache_state": "hit", "key": "k", "forward_time_saved_ms": 3, "time_saved_ms": 7}
    )
    assert found and (found["cache"], found["result"], found["time_saved_us"]) == ("aot_autograd", "hit", 7000)
    assert parse_lookup("fx_graph_cache_hash", {"key": "k"}) is None and parse_lookup("other", {}) is None


def test_recorded_bypasses_say_why() -> None:
    lookups = [e for log in LOGS for e in events(log) if isinstance(e, ev.CacheLookedUp)]
    assert {(e.cache, e.result) for e in lookups} >= {
        ("fx_graph", "hit"),
        ("fx_graph", "miss"),
        ("aot_autograd", "bypass"),
    }
    assert all(e.reason for e in lookups if e.result == "bypass") and all(e.key for e in lookups if e.result == "hit")


def test_error_is_what_was_raised_last() -> None:
    failed = next(e for e in events("torch2.11-cuda-zoo_backend_failure") if isinstance(e, ev.CompileFailed))
    assert failed.error_type == "BackendCompilerFailed"
    assert failed.message == "backend='bad' raised:\nRuntimeError: backend refused: <b>no kernel</b> for 'linear'"
    assert parse_error("nothing") == (None, "nothing") and parse_error("") == (None, None)


@given(st.text())
def test_any_text_is_some_error(text: str) -> None:
    parse_error(text)
