"""A window of steps and its trace, as recorded on an H200 (benchmarks/steps/programs.py)."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from typing import Any

import pytest

from compileboard.collectors.contract.events import ArtifactSeen, StepsTimed, UnknownRecordSeen
from compileboard.collectors.contract.record_names import STEPS, STEPS_TRACE
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import TorchRecord
from compileboard.collectors.decode.steps import parse_trace
from tests.tools.make_db import DATA, read_events

RECORD = DATA / "events" / "torch2.11-steps-loop_of_matmuls.record.json.xz"


@pytest.fixture(scope="module")
def captured() -> TorchRecord:
    return TorchRecord("a" * 32, 7, 1, STEPS, **json.loads(lzma.decompress(RECORD.read_bytes())))


def decode(captured: TorchRecord) -> list[Any]:
    return Decoder().decode(captured)


def test_a_skipped_frame_has_what_it_does_in_a_step(captured: TorchRecord) -> None:
    timed, artifact = decode(captured)
    assert isinstance(timed, StepsTimed) and isinstance(artifact, ArtifactSeen)
    assert (len(timed.steps), timed.graphs, timed.device) == (12, [], "NVIDIA H200")
    (gap,), (frame,) = timed.traced["gaps"], timed.traced["frames"]
    assert (gap["kernel_count"], gap["library_count"], gap["group_count"]) == (18, 6, 6)
    assert (frame["compile_id"], frame["call_count"]) == ("0/0", 1)


def test_what_the_host_does_sums_to_the_traced_call(captured: TorchRecord) -> None:
    traced = decode(captured)[0].traced
    assert traced["step_count"] == 3
    assert sum(row["self_us"] for row in traced["host"]) == pytest.approx(
        traced["step_us"], rel=0.05
    )
    assert {row["kind"] for row in traced["host"]} == {"eager", "python"}
    assert sum(kernel["count"] for kernel in traced["eager_kernels"]) == 24  # a product has two


def test_the_trace_is_kept_as_trace_viewers_read_it(captured: TorchRecord) -> None:
    artifact = decode(captured)[1]
    kept = json.loads(artifact.text)
    assert list(kept) == ["displayTimeUnit", "traceEvents"]
    assert artifact.size_bytes == len(artifact.text.encode())


@pytest.mark.parametrize("trace", ["", "{", "[]", '{"traceEvents": 3}', '{"traceEvents": [3]}'])
def test_a_trace_that_cannot_be_read_costs_itself(captured: TorchRecord, trace: str) -> None:
    timed, *_ = decode(replace(captured, payload=trace))
    assert isinstance(timed, StepsTimed)
    assert timed.traced is None and len(timed.steps) == 12


def test_a_range_of_the_programs_own_is_no_mark(captured: TorchRecord) -> None:
    trace = json.loads(captured.payload)
    own = next(e for e in trace["traceEvents"] if e.get("name") == "compileboard step 1")
    trace["traceEvents"] += [{**own, "name": "compileboard graph of mine"}, {"ph": "X"}]
    trace["traceEvents"][-1] = {**own, "name": "a", "args": {"correlation": [1]}}
    traced = decode(replace(captured, payload=json.dumps(trace)))[0].traced
    assert (traced["step_count"], traced["graphs"]) == (3, [])


def test_a_record_that_is_no_window_is_kept_as_it_came(captured: TorchRecord) -> None:
    (noted,) = decode(replace(captured, metadata={"steps": 3}))
    assert isinstance(noted, UnknownRecordSeen) and noted.name == STEPS


@pytest.mark.parametrize(("renamed", "step_count"), [((), 3), ((1, 3), 1), ((0, 1), 1)])
def test_traced_steps_of_another_function_are_left_out(
    renamed: tuple[int, ...], step_count: int
) -> None:
    events = read_events(DATA / "events" / "torch2.11-steps-in_training.jsonl.xz")
    timed = next(event for event in events if isinstance(event, StepsTimed))
    artifact = next(event for event in events if getattr(event, "name", "") == STEPS_TRACE)
    trace = json.loads(artifact.text)
    marks = [event for event in trace["traceEvents"] if "ts" in event]
    for number in renamed:  # its first graph becomes another function's
        step = next(e for e in marks if e["name"] == f"compileboard step {number}")
        inside = [e for e in marks if 0 <= e["ts"] - step["ts"] < step["dur"]]
        graph = next(e for e in inside if e["name"] == "compileboard graph 2")
        graph["name"] = "compileboard graph 9"
    traced = parse_trace(trace, {"steps": timed.steps, "frames": []})
    assert traced is not None and traced["step_count"] == step_count
    assert {graph["number"] for graph in traced["graphs"]} >= {2, 4}
