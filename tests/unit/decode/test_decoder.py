"""The decoder against recordings of real torch, and against what no torch would write."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract import events as ev
from compileboard.collectors.contract.record_names import METRICS
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import LoggedPayload, TorchRecord
from compileboard.collectors.fixes.recompile_fixes import describe_guard_fixes
from tests.unit.decode.recorded_logs import LOGS, WITH_METRICS, captured, events, torch_metrics

NAMES = [
    "dynamo_start",
    *METRICS,
    "artifact:dynamo_graph_break_reason",
    "artifact:recompile_reasons",
    "artifact:dynamo_error",
    "artifact:fx_graph_cache_miss",
    "artifact:aotautograd_cache_hash",
    "cudagraph_skip",
    "process_started",
    "snapshot",
    "config",
    "run_started",
    "run_ended",
    "artifact:somebody_elses",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)


def captured_one(
    name: str, metadata: object = None, payload: object = None, **more: object
) -> TorchRecord:
    return TorchRecord("p", 100, 5, name, metadata, payload, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WITH_METRICS)
def test_metrics_equal_what_torch_itself_kept(name: str) -> None:
    decoded = [event for event in events(name) if isinstance(event, ev.Compiled)]
    metrics = torch_metrics(name)
    assert len(decoded) == len(metrics)
    for event, expected in zip(decoded, metrics, strict=True):
        got = {key: value for key, value in event.metrics.items() if not key.endswith("_config")}
        # The recording program wrote this list sorted, or as text.
        assert sorted(map(str, got.pop("stack_trace") or ())) == _sorted(
            expected.pop("stack_trace")
        )
        assert got == expected


def _sorted(value: object) -> list[str]:
    if isinstance(value, str):
        value = json.loads(value.replace("'", '"'))
    return sorted(map(str, value)) if isinstance(value, list) else []


@pytest.mark.parametrize("name", LOGS)
def test_every_break_is_one_event_with_its_id(name: str) -> None:
    told = [c for c in captured(name) if c.name == "artifact:dynamo_graph_break_reason"]
    broke = [event for event in events(name) if isinstance(event, ev.GraphBroke)]
    assert len(broke) == len(told)
    for event, record in zip(broke, told, strict=True):
        assert event.sequence == record.sequence and event.compile_id == record.compile_id
        assert event.gb_id or "/gb/" not in event.text
        assert event.reason and event.file and event.line and not event.file.startswith("/")


@pytest.mark.parametrize("name", LOGS)
def test_every_recompile_reason_is_classified(name: str) -> None:
    told = [c for c in captured(name) if c.name == "artifact:recompile_reasons"]
    recompiled = [event for event in events(name) if isinstance(event, ev.Recompiled)]
    assert len(recompiled) == len(told)
    for event in recompiled:
        assert event.guards and event.recompiled_from == event.guards[0].cache_entry
        assert [g.reason for g in event.guards if g.category == "unknown"] == []
        assert all(describe_guard_fixes(g) and g.fingerprint for g in event.guards)


@pytest.mark.parametrize("name", LOGS)
def test_nothing_known_is_only_noted_and_events_round_trip(name: str) -> None:
    for event in events(name):
        assert not isinstance(event, ev.UnknownRecordSeen)
        assert ev.load_event(ev.dump_event(event)) == event


@pytest.mark.parametrize("name", LOGS)
def test_sequences_are_unique(name: str) -> None:
    # A cache record is a look-up and, with what went into its key, an artifact.
    sequences = [event.sequence for event in events(name) if not isinstance(event, ev.ArtifactSeen)]
    assert len(set(sequences)) == len(sequences)


@pytest.mark.parametrize("name", LOGS)
def test_phases_add_up_to_the_duration(name: str) -> None:
    for event in events(name):
        if isinstance(event, ev.Compiled):
            assert event.duration_us is not None and event.start_us is not None
            assert sum(event.phases_us.values()) == event.duration_us
            assert min(event.phases_us.values()) >= 0


def test_recompile_limit_is_an_outcome_of_its_own() -> None:
    limits = [e for e in events("torch2.11-cuda-zoo_recompiles") if isinstance(e, ev.Compiled)]
    assert [e.compile_id for e in limits if e.outcome == "recompile_limit"] == ["0/8"]


@pytest.mark.parametrize(
    ("fail_type", "reason", "outcome"),
    [
        ("Unsupported", "cache_size_limit reached", "recompile_limit"),
        ("Unsupported", "accumulated_cache_size_limit reached", "recompile_limit"),
        ("RecompileLimitExceeded", "recompile_limit reached", "recompile_limit"),
        ("Unsupported", "Dynamo cache limit exceeded\n  Explanation: …", "recompile_limit"),
        ("Unsupported", "generic_jump TensorVariable()", "skipped"),
        ("BackendCompilerFailed", "backend='b' raised", "failed"),
        (None, None, "compiled"),
    ],
)
def test_outcome_of_older_torch_texts(
    fail_type: str | None, reason: str | None, outcome: str
) -> None:
    metadata = {"compile_id": "1/2", "fail_type": fail_type, "fail_reason": reason}
    (event,) = Decoder().decode(captured_one("compilation_metrics", metadata))
    assert isinstance(event, ev.Compiled)
    assert (event.outcome, event.compile_id, event.frame_id, event.frame_compile_id) == (
        outcome,
        "1/2",
        1,
        2,
    )


def test_config_texts_become_events_of_their_own() -> None:
    metadata = {"dynamo_config": '{"a": 1}', "inductor_config": {"config_hash": "abc"}}
    compiled, config = Decoder().decode(captured_one("compilation_metrics", metadata))
    assert isinstance(compiled, ev.Compiled) and isinstance(config, ev.ConfigSeen)
    assert compiled.metrics["dynamo_config"] == {"config_hash": config.config_hash}
    assert compiled.metrics["inductor_config"] == {"config_hash": "abc"}
    assert (config.sequence, config.config_kind, config.body) == (101, "dynamo", '{"a": 1}')


def test_function_names_prefer_what_the_hook_knows() -> None:
    stack = {
        "stack": [
            {"filename": "/r/m.py", "line": 7, "name": "torch_dynamo_resume_in_forward_at_64"}
        ]
    }
    plain = Decoder().decode(captured_one("dynamo_start", stack))[0]
    asked = Decoder(qualify=lambda path, line, name: f"M{line}.forward").decode(
        captured_one("dynamo_start", stack)
    )[0]
    told = Decoder().decode(
        captured_one("dynamo_start", stack, extra={"qualname": "Model.forward"})
    )[0]
    names = [
        (e.function, e.resumed_at) for e in (plain, asked, told) if isinstance(e, ev.CompileStarted)
    ]
    assert names == [("forward", 64), ("M7.forward", 64), ("Model.forward", 64)]


def test_live_records_become_their_events() -> None:
    started = captured_one(
        "process_started", {"run_id": "r", "pid": 4, "capabilities": {"breaks": "ok"}, "new": 1}
    )
    skip = captured_one("cudagraph_skip", {"reason": "cpu device"}, frame_id=0, frame_compile_id=1)
    first, second = (Decoder().decode(record)[0] for record in (started, skip))
    assert isinstance(first, ev.ProcessStarted) and first.capabilities == {"breaks": "ok"}
    assert isinstance(second, ev.CudagraphSkipped) and (second.reason, second.compile_id) == (
        "cpu device",
        "0/1",
    )


def test_recompile_is_the_same_from_log_and_hook() -> None:
    reasons = ["0/1: k == 2", "0/0: k == 1"]
    text = "[\n" + ",\n".join(json.dumps(reason) for reason in reasons) + "\n]"
    live, logged = (
        Decoder().decode(captured_one("artifact:recompile_reasons", {}, p)) for p in (reasons, text)
    )
    assert (
        live == logged and isinstance(live[0], ev.Recompiled) and live[0].recompiled_from == "0/1"
    )


def test_backward_record_of_2_5_is_timed_by_its_name() -> None:
    (event,) = Decoder().decode(
        captured_one("bwd_compilation_metrics", {"inductor_compile_time_s": 1.5})
    )
    assert isinstance(event, ev.Compiled)
    assert (event.record_kind, event.duration_us, event.phases_us["inductor"]) == (
        "backward",
        1_500_000,
        1_500_000,
    )


def test_cudagraph_reason_and_stack_are_told_apart() -> None:
    text = "skipping cudagraphs due to mutated inputs (1 instances). Found from : \n"
    text += '   File "/r/m.py", line 3, in f\n    x.add_(1)\n'
    (event,) = Decoder().decode(captured_one("cudagraph_skip", {"reason": text}))
    assert isinstance(event, ev.CudagraphSkipped)
    assert event.reason == "skipping cudagraphs due to mutated inputs (1 instances)."
    assert event.stack == [{"file": "m.py", "line": 3, "name": "f", "code": "x.add_(1)"}]


def test_what_no_database_holds_is_made_storable() -> None:
    metadata = {"fail_reason": "a\ud800b", "guard_count": 10**30, "stack_trace": {"z", "y"}}
    (event,) = Decoder().decode(captured_one("compilation_metrics", metadata))
    assert isinstance(event, ev.Compiled)
    assert event.metrics["fail_reason"] == r"a\ud800b" and event.metrics["guard_count"] is None
    assert event.metrics["odd_values"] == {"guard_count": hex(10**30)}
    assert event.metrics["stack_trace"] == ["y", "z"] and ev.dump_event(event).isascii()
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    assert "nested too deeply" in ev.dump_event(
        Decoder().decode(captured_one("artifact:x", deep))[0]
    )


def test_an_unknown_record_of_a_hook_is_noted_and_of_a_log_an_artifact() -> None:
    record = captured_one(
        "artifact:somebody_elses", {"name": "somebody_elses", "encoding": "json", "a": 1}, "text"
    )
    (noted,) = Decoder().decode(record)
    assert isinstance(noted, ev.UnknownRecordSeen) and noted.body["payload"] == "text"
    (seen,) = Decoder().decode(replace(record, logged=LoggedPayload("00", 4, "kept")))
    assert (
        isinstance(seen, ev.ArtifactSeen)
        and seen.name == "somebody_elses"
        and seen.metadata == {"a": 1}
    )
    assert (seen.text, seen.encoding, seen.size_bytes, seen.md5) == ("text", "json", 4, "00")


@given(st.sampled_from(NAMES), JSON, JSON)
def test_decoder_never_raises(name: str, metadata: object, payload: object) -> None:
    for event in Decoder().decode(captured_one(name, metadata, payload)):
        assert event.process_id == "p" and ev.dump_event(event).isascii()


@given(st.sampled_from(LOGS), st.integers(0, 400), st.integers(0, 5000), st.text(max_size=30))
def test_damaged_payloads_never_raise(name: str, which: int, cut: int, inserted: str) -> None:
    records = captured(name)
    record = records[which % len(records)]
    if isinstance(record.payload, str):
        damaged = replace(
            record, payload=record.payload[:cut] + inserted + record.payload[cut + 7 :]
        )
        assert Decoder().decode(damaged)
