"""`try` with fixes for CUDA graphs, on programs of the catalogue. Most needs a GPU."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

import pytest

from compileboard.collectors.fixes.fix import find_fix
from compileboard.collectors.record.facts import gpu_facts
from tests.tools.observed import Workplace

pytestmark = pytest.mark.torch
HAS_GPU = bool(gpu_facts(os.environ))
PROGRAM = """
import torch

@torch.compile(backend="eager")
def f(x):
    return x + 1

f(torch.ones(2))
"""


@pytest.mark.skipif(HAS_GPU, reason="of a machine without a GPU")
def test_without_a_gpu_it_says_that_one_is_needed(workplace: Workplace) -> None:
    assert workplace.run(workplace.write(PROGRAM)).returncode == 0
    done = workplace.collect("try", "--db", workplace.database, "latest", "--cuda-graph", "1")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [line for line in done.stderr.splitlines() if "GPU" in line]
    assert "this machine has none that can be used" in line


def test_an_edit_is_tried_and_what_takes_a_person_is_listed(workplace: Workplace) -> None:
    workplace.run(workplace.write(PROGRAM.replace("return x + 1", "x += 1\n    return x * 1")))
    with closing(sqlite3.connect(workplace.database)) as connection, connection:
        for number, reason in enumerate(("mutated inputs", "cpu device (arg1_1)")):
            connection.execute(
                "insert into cudagraph_skips (run_id, process_id, sequence, compile_key, reason,"
                " file, line, code, time_us) select run_id, process_id, ?, id, ?, 'program.py',"
                " 6, 'x += 1', 1 from compiles",
                (9000 + number, f"skipping cudagraphs due to {reason}"),
            )
    smi = workplace.write("#!/bin/sh\necho 0, GPU-1, NVIDIA H200, 143771, 9.0, 570\n", "nvidia-smi")
    smi.chmod(0o755)
    env = {"PATH": f"{workplace.folder}:{os.environ['PATH']}"}
    command = ("try", "--db", workplace.database, "latest", "--cuda-graph")
    done = workplace.collect(*command, "2", "--json", env=env)
    result = json.loads(done.stdout)
    assert (result["outcome"], result["output"]["is_equal"]) == ("unchanged", True), done.stderr
    assert "+    x = x + 1" in result["patch"]
    listed = workplace.collect(*command, "1", env=env)
    assert listed.returncode == 2 and "--cuda-graph 2  Return the changed tensor" in listed.stderr


@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
@pytest.mark.parametrize(
    ("fix_id", "metric"),
    [
        ("passed_clone", "cudagraph_rerecording_count"),
        ("kept_clone", "cudagraph_rerecording_count"),
        ("mutation_static", "cudagraph_skip_count"),
        ("mutation_returned", "cudagraph_skip_count"),
        ("step_marked", "failure_count"),
    ],
)
def test_a_fix_for_cuda_graphs_is_tried(workplace: Workplace, fix_id: str, metric: str) -> None:
    fix = find_fix("cudagraph", fix_id)
    program = workplace.write(fix.before)
    workplace.run(program)
    done = workplace.collect(
        "try", "--db", workplace.database, "latest", "--cuda-graph", "1", "--json", timeout=600
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["title"].startswith(fix.title) and result["outcome"] == "improved"
    counts = {row["name"]: (row["base"], row["new"]) for row in result["metrics"]}
    assert counts[metric][0] > counts[metric][1]
    assert program.read_text(encoding="utf-8") == fix.before
