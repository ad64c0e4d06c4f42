"""Withheld source: no line of the user's code stays, and every identity does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.contract import events as ev
from compileboard.collectors.contract import redaction
from compileboard.collectors.contract.fingerprints import source_hash
from compileboard.collectors.contract.redaction import redact_code, redact_line, redact_source
from compileboard.collectors.decode.decoder import Decoder
from compileboard.collectors.decode.records import PathNamer
from tests.unit.decode.recorded_logs import LOGS, captured, events

PROGRAMS = Path(__file__).parents[2] / "data" / "trace"


def redacted(name: str) -> list[ev.Event]:
    decoder = Decoder(PathNamer(["/srv/bench", "/srv/zoo"]))
    return [
        event
        for record in captured(name)
        for event in decoder.decode(
            replace(
                record,
                metadata=redact_source(record.metadata),
                payload=redact_source(record.payload),
            )
        )
    ]


@pytest.mark.parametrize("name", LOGS)
def test_identities_stay_the_same(name: str) -> None:
    for plain, withheld in zip(events(name), redacted(name), strict=True):
        assert type(plain) is type(withheld)
        if isinstance(plain, ev.GraphBroke) and isinstance(withheld, ev.GraphBroke):
            same = (
                "fingerprint",
                "source_hash",
                "gb_id",
                "function",
                "file",
                "line",
                "outcome",
            )
            assert [getattr(plain, name_of_field) for name_of_field in same] == [
                getattr(withheld, name_of_field) for name_of_field in same
            ]
        if isinstance(plain, ev.Recompiled) and isinstance(withheld, ev.Recompiled):
            assert [(g.fingerprint, g.reason, g.line) for g in plain.guards] == [
                (g.fingerprint, g.reason, g.line) for g in withheld.guards
            ]
        if isinstance(plain, ev.CompileStarted) and isinstance(withheld, ev.CompileStarted):
            assert (plain.function, plain.file, plain.line) == (
                withheld.function,
                withheld.file,
                withheld.line,
            )


@pytest.mark.parametrize("name", ["torch2.13-breaks", "torch2.13-guards"])
def test_no_line_of_the_program_stays(name: str) -> None:
    program = (PROGRAMS / f"record_{name.rsplit('-', 1)[1]}.py").read_text(encoding="utf-8")
    # A short line ("g(x)", "try:") can be a part of torch's own words.
    lines = {line.strip() for line in program.split("\n") if len(line.strip()) > 14}
    text = "\n".join(ev.dump_event(event) for event in redacted(name))
    plain = "\n".join(ev.dump_event(event) for event in events(name))
    escaped = {json.dumps(line)[1:-1] for line in lines}
    assert [line for line in escaped if line in text] == []
    assert sum(line in plain for line in escaped) > 15


def test_placeholder_keeps_indentation_and_hash() -> None:
    line = "    y = secret(x)"
    hidden = redact_line(line)
    assert hidden == f"    <source withheld {source_hash(line)}>" and "secret" not in hidden
    assert source_hash(hidden) == source_hash("y = secret(x)") and redact_line(hidden) == hidden


def test_reason_keeps_the_guard_and_loses_the_line() -> None:
    reason = "0/2: k == 1            # x = self.l(x) * k  # models.py:83 in forward"
    assert "self.l" not in redact_source(reason) and redact_source(reason).startswith(
        "0/2: k == 1   "
    )
    assert redact_source("0/0: tensor 'x' rank mismatch. expected 2, actual 1").endswith("actual 1")


def test_what_a_data_dependent_guard_was_caused_by_loses_the_line() -> None:
    # Torch 2.13
    text = (
        "Caused by: if n > 0:  # models.py:6 in f (_dynamo/variables/tensor.py:2606 in "
        "evaluate_expr)"
    )
    withheld = redact_source(f"Could not guard\n{text}\nFor more information")
    assert "n > 0" not in withheld
    assert (
        withheld.count("  # models.py:6 in f (_dynamo/variables/tensor.py:2606 in evaluate_expr)")
        == 1
    )
    assert redact_source(withheld) == withheld


def test_a_key_is_a_text_too() -> None:
    key = (
        'Data-dependent branching\n        # File "/a/m.py", line 3, in f, code: if '
        "secret.sum() > 0: return x\n"
    )
    redacted = redact_source({"counters": {key: 1}})["counters"]
    assert list(redacted.values()) == [1]
    assert "secret" not in str(redacted) and "line 3, in f, code: <source withheld " in str(
        redacted
    )


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        ("python|-c|CODE", 2),
        ("/usr/bin/python3.13t|-u|-X|dev|-c|CODE|-c|argument", 5),
        ("timeout|9|bash|-lc|CODE|argument", 4),
        ("torchrun|--no-python|sh|-c|CODE", 4),
        ("python|-cCODE|argument", 1),
        ("python|train.py|-c|config.yaml", None),
        ("python|-m|train|-c|config.yaml", None),
        ("ls|-c|folder", None),
        ("python|-c", None),
    ],
)
def test_the_program_on_a_command_line_is_source(words: str, hidden: int | None) -> None:
    argv = words.replace("CODE", "import x\nx.secret()").split("|")
    redacted = redact_code(argv)
    assert [
        position
        for position, (first, other) in enumerate(zip(argv, redacted, strict=True))
        if first != other
    ] == ([] if hidden is None else [hidden])
    assert "secret" not in str(redacted)


def test_loads_under_another_name_and_without_the_rest() -> None:
    folder = Path(redaction.__file__).parents[1]
    program = (
        "import importlib, importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('_x', {str(folder / '__init__.py')!r},"
        f" submodule_search_locations=[{str(folder)!r}])\n"
        "sys.modules['_x'] = importlib.util.module_from_spec(spec)\n"
        "importlib.import_module('_x.contract.redaction').redact_source('x')\n"
        "importlib.import_module('_x.contract.fingerprints').config_hash('x')\n"
        "assert 'collectors' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-I", "-c", program], check=True, timeout=60)


@given(
    st.recursive(
        st.none() | st.text(max_size=60),
        lambda i: st.lists(i, max_size=3) | st.dictionaries(st.text(), i, max_size=3),
    )
)
def test_redaction_never_raises_and_is_idempotent(value: object) -> None:
    once = redact_source(value)
    assert redact_source(once) == once


def test_a_guard_of_several_places_loses_the_line_of_each() -> None:
    guard = "LAMBDA_GUARD: 0 <= L['x'].item() <= 9"
    text = "n = x.item(); check(n >= 0)  # m.py:22 in f (_dynamo/utils.py:42 in run_node)"
    told = redact_source(f"+- {guard}  # {text} and {text}")
    assert told.startswith(f"+- {guard}  # <source withheld ") and "x.item(); " not in told
    assert (
        told.count("# m.py:22 in f (_dynamo/utils.py:42 in run_node)")
        == told.count("<source withheld")
        == 2
    )


def test_a_made_line_without_end_is_withheld_at_once() -> None:
    began_s = time.process_time()
    assert (
        redact_source("  # a" * 200_000 + " # m.py:1 in f").lstrip().startswith("<source withheld")
    )
    assert time.process_time() - began_s < 2
