"""What a child hands over is storable, whatever bytes a model's errors have."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import pytest

from compileboard.collectors.bench.execution.runner import BenchReport, finish
from compileboard.collectors.bench.worker.child import failure
from compileboard.collectors.bench.worker.outcome import (
    ExperimentOutcome,
    load_outcome,
    without_source,
)
from compileboard.collectors.contract.events import BenchMeasured
from compileboard.collectors.record.spool import SpoolReader, append_event, read_journal

ODD = "caf\udce9"  # a byte that is no character, as a file's name or a library's message has it


def test_an_errors_undecodable_text_arrives_with_its_byte_escaped() -> None:
    outcome = load_outcome(failure(RuntimeError(ODD)).dump())
    assert (outcome.status, outcome.message) == ("failed", r"RuntimeError: caf\xe9")
    assert r"caf\xe9" in str(outcome.traceback)


def test_an_outcome_without_source_has_no_line_of_the_models_code() -> None:
    facts = {"export": {"source": "if secret > 0:", "line": "nets.py:3"}}
    text = 'File "nets.py", line 3, in forward\n    if secret > 0:\nError: no'
    outcome = without_source(ExperimentOutcome(facts=facts, message="Error: no", traceback=text))
    assert "secret" not in outcome.dump() and outcome.message == "Error: no"
    assert outcome.facts["export"]["line"] == "nets.py:3"


def test_a_result_that_was_said_with_such_a_text_does_not_stop_those_after_it(
    tmp_path: Path,
) -> None:
    first = BenchMeasured("b", 2, 1, "local", ODD, "performance", message=ODD, facts={ODD: [ODD]})
    for event in (first, replace(first, sequence=3, model="next")):
        append_event(tmp_path, event)
    odd, after = read_journal(SpoolReader(tmp_path))
    assert isinstance(odd, BenchMeasured) and isinstance(after, BenchMeasured)
    assert (odd.model, odd.message, odd.facts) == (
        r"caf\xe9",
        r"caf\xe9",
        {r"caf\xe9": [r"caf\xe9"]},
    )
    assert after.model == "next"


def test_a_result_that_was_said_with_an_odd_value_loses_that_value_only(tmp_path: Path) -> None:
    event = BenchMeasured("b", 2, 1, "local", "Net", "performance", values={"speedup": 2.0})
    odd = replace(event, batch_size=[1], values={"speedup": 2.0, "ms": "x"}, dynamic=None)  # type: ignore[arg-type]
    for odd_event in (odd, replace(event, sequence=2**64), replace(event, suite=None)):  # type: ignore[arg-type]
        append_event(tmp_path, odd_event)
    reader, rejects = SpoolReader(tmp_path), []
    reader.reject = lambda _name, kind, line, _what: rejects.append((kind, line))  # type: ignore[method-assign]
    assert list(read_journal(reader)) == [event]
    assert rejects == [("bad_field", 1)] * 3 + [("bad_event", 2), ("bad_event", 3)]


def test_half_a_line_is_taken_back_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event, write = BenchMeasured("b", 2, 1, "local", "Net", "performance"), os.write
    append_event(tmp_path, event)
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:9]))
        with pytest.raises(OSError, match="No space left"):
            append_event(tmp_path, event)
    append_event(tmp_path, event)
    assert list(read_journal(SpoolReader(tmp_path))) == [event, event]


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ("", 0),
        ("measured", 0),
        ("failed measured", 0),
        ("failed measured skipped", 0),
        ("failed skipped", 1),
        ("failed", 1),
        ("failed failed", 1),
        ("skipped skipped", 3),
    ],
)
def test_zero_says_that_something_was_measured(statuses: str, code: int) -> None:
    results = [
        BenchMeasured("b", n, 1, "s", "m", "performance", status=part)
        for n, part in enumerate(statuses.split())
    ]
    lines: list[str] = []
    arguments = argparse.Namespace(db="t.db", explain=False, server=None)
    assert finish(BenchReport("RUN", results, trouble="away"), arguments, lines.append) == code
    assert lines[-1].startswith(
        f"not recorded yet: {len(results)} result{'' if len(results) == 1 else 's'}; "
    )
