"""Fixes to try for CUDA graphs of a program that was recorded on an H200."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.cudagraph_reasons import list_cudagraph_reasons
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from compileboard.collectors.store.run_causes import Caller
from compileboard.collectors.trials.cudagraph_candidates import list_cudagraph_fixes
from tests.tools.make_db import DATA, record_events
from tests.tools.observed import ROOT

OVERWRITTEN = "accessing tensor output of CUDAGraphs that has been overwritten by a run"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "a.db")) as opened:
        migrate_connection(opened)
        yield opened


def record(connection: sqlite3.Connection, name: str) -> str:
    events = DATA / "events" / f"torch2.11-cuda-graphs-{name}.jsonl.xz"
    return record_events(Ingestor(connection), events)


def test_what_is_passed_is_cloned_where_the_program_calls_the_function(
    connection: sqlite3.Connection,
) -> None:
    (reason,) = list_cudagraph_reasons(connection, record(connection, "another_output"))
    assert (reason.kind, reason.status) == ("again", "CudagraphManagedIdxMismatch")
    (fix,) = list_cudagraph_fixes([reason], [ROOT])
    (edit,) = fix.edits
    assert fix.fix.id == "passed_clone" and edit.file == "benchmarks/cuda_graphs/programs.py"
    assert edit.replacement == ("            norm(made[step // 3 % 5].clone())",)


def test_a_replaced_parameter_takes_a_person(connection: sqlite3.Connection) -> None:
    reasons = list_cudagraph_reasons(connection, record(connection, "parameter_replaced"))
    (fix,) = list_cudagraph_fixes(reasons, [ROOT])
    assert (fix.fix.id, fix.edits) == ("parameter_copied", ())


def test_an_overwritten_output_is_cloned_where_one_function_made_it(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    run_id = record(connection, "parameter_replaced")
    connection.execute(
        "insert into failures (run_id, process_id, sequence, error_type, message, time_us)"
        " values (?, 'a', 1, 'RuntimeError', ?, 1)",
        (run_id, f"Error: {OVERWRITTEN}"),
    )
    _again, reason = list_cudagraph_reasons(connection, run_id)
    assert reason.kind == "overwritten" and reason.call is not None
    (tmp_path / "a.py").write_text("import torch\nf = torch.compile(g)\nkept.append(f(x))\n")
    here = replace(reason, call=Caller("a.py", 3, "<module>", None))
    (fix,) = list_cudagraph_fixes([here], [tmp_path])
    assert fix.edits[0].replacement == (
        "torch.compiler.cudagraph_mark_step_begin()",
        "kept.append(f(x).clone())",
    )


def test_a_skip_is_mended_in_the_line_that_torch_names(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    run_id = record(connection, "parameter_replaced")
    connection.execute(
        "insert into cudagraph_skips (run_id, process_id, sequence, compile_key, reason, file,"
        " line, code, time_us) select run_id, process_id, 99, id,"
        " 'skipping cudagraphs due to mutated inputs', 'a.py', 2, 'x += 1', 1 from compiles"
    )
    _again, reason = list_cudagraph_reasons(connection, run_id)
    (tmp_path / "a.py").write_text("def step(x):\n    x += 1\n    return x\n")
    (fix,) = list_cudagraph_fixes([reason], [tmp_path])
    assert (fix.fix.id, fix.edits[0].replacement) == ("mutation_returned", ("    x = x + 1",))
