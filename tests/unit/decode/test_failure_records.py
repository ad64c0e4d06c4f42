"""Tracebacks of running code from torch 2.13: which part raised, and where the program was."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.collectors.contract.events import RuntimeFailed, UnknownRecordSeen
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import TorchRecord

RAISED = Path(__file__).resolve().parents[2] / "data" / "raised"


def decode(text: str, **metadata: object) -> RuntimeFailed:
    captured = TorchRecord(
        "p",
        1,
        2,
        "runtime_failed",
        {"position": 3, **metadata},
        text,
        frame_id=0,
        frame_compile_id=1,
    )
    (event,) = Decoder().decode(captured)
    assert isinstance(event, RuntimeFailed)
    return event


@pytest.mark.parametrize(
    ("name", "told", "phase", "function"),
    [
        ("inductor", "forward", "forward", "pick"),
        ("unbind", "forward", "wrapper", "<lambda>"),
        (
            "nested",
            "forward",
            "forward",
            "pick",
        ),  # a custom op's dispatch is in AOTAutograd's module, and is no wrapper
        ("tangent", "backward", "backward", "<lambda>"),
    ],
)
def test_a_failure_has_its_phase_and_the_programs_innermost_line(
    name: str, told: str, phase: str, function: str
) -> None:
    event = decode(
        (RAISED / f"{name}.txt").read_text(),
        phase=told,
        error_type="E",
        message="m",
        occurrence_count=4,
    )
    assert (event.phase, event.function, event.compile_id) == (phase, function, "0/1")
    assert event.file is not None and event.file.endswith("raising.py")
    assert (event.position, event.error_type, event.occurrence_count) == (3, "E", 4)


def test_an_exceptions_causes_are_not_where_it_was_raised() -> None:
    cause = (
        'Traceback (most recent call last):\n  File "/a/inner.py", line 1, in inner\nKeyError: 1\n'
    )
    text = (
        f'{cause}\nand then\n\nTraceback (most recent call last):\n  File "/a/outer.py", line '
        "2, in outer\nE: 2\n"
    )
    assert decode(text, phase="program").function == "outer"


def test_a_later_count_needs_no_traceback() -> None:
    event = decode("", phase="forward", occurrence_count=8, ended_program=True)
    assert (event.text, event.function, event.occurrence_count, event.ended_program) == (
        "",
        None,
        8,
        True,
    )


def test_a_record_without_a_position_is_kept_under_its_own_name() -> None:
    (event,) = Decoder().decode(
        TorchRecord("p", 1, 2, "runtime_failed", {"phase": "forward"}, "text")
    )
    assert isinstance(event, UnknownRecordSeen)
