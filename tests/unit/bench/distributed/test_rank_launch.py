"""The launcher of ranks, without torch: first failure, a taken port, no rank outlives it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from compileboard.collectors.bench.distributed.launcher import (
    describe_stages,
    launch,
    listen,
    rank_environment,
)
from compileboard.collectors.bench.plan.models import ModelRef
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome, Stages
from tests.tools.killing import running
from tests.tools.observed import wait_for

RANK = """import json, os, pathlib, sys, time
here, rank = pathlib.Path(sys.argv[-1]), int(os.environ["RANK"])
(here.parent / f"pid{rank}").write_text(str(os.getpid()))
def leave(**result):
    (here / "result.json").write_text(json.dumps(result))
"""


def run(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    size: int = 2,
    port: int | None = None,
) -> ExperimentOutcome:
    """Run a program as each rank of a task."""
    monkeypatch.setattr("compileboard.start.SHARED", RANK + program)
    monkeypatch.setattr("compileboard.collectors.bench.distributed.launcher.PATIENCE_S", 1.0)
    settings = BenchSettings(
        mode="training", ddp=True, world_size=size, distributed_master_port=port
    )
    task = Task("performance", ModelRef("local", "Net", "nowhere:build"), settings)
    return launch(task, folder, Stages(folder))


def test_the_slowest_rank_of_each_repeat_is_the_time_and_the_highest_memory_the_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
times = [[2.0, 6.0, 2.0], [4.0, 3.0, 3.0]][rank]
distributed = {"one_process_latency_ms": 2.0} if rank == 0 else {"bucket_count": 2}
leave(values={"dynamo_peak_mem": 1.0 + rank, "eager_peak_mem": 4.0, "abs_latency": times[0],
              "graph_breaks": 5},
      repeats={"eager": [8.0, 8.0, 8.0], "compiled": times},
      facts={"distributed": distributed, "rank": {"splits": rank}})
"""
    outcome = run(tmp_path, monkeypatch, program)
    assert outcome.repeats["compiled"] == [4.0, 6.0, 3.0]
    assert (outcome.values["abs_latency"], outcome.values["speedup"]) == (4.0, 2.0)
    assert (outcome.values["dynamo_peak_mem"], outcome.values["compression_ratio"]) == (2.0, 2.0)
    assert outcome.values["scaling_efficiency"] == 0.5
    assert [rank["splits"] for rank in outcome.facts["ranks"]] == [0, 1]
    assert [rank["latency_ms"] for rank in outcome.facts["ranks"]] == [2.0, 4.0]
    assert outcome.facts["distributed"] == {
        "kind": "ddp",
        "mode": "ddp_optimizer",
        "world_size": 2,
        "one_process_latency_ms": 2.0,
        "bucket_count": 2,
    }


def test_a_killed_rank_ends_the_others_and_is_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
(here / "stage").write_text("compile")
if rank == 1:
    print("last words", flush=True)
    os.kill(os.getpid(), 9)
time.sleep(60)
"""
    outcome = run(tmp_path, monkeypatch, program, size=3)
    assert (outcome.status, outcome.reason, outcome.facts["distributed"]["failed_rank"]) == (
        "failed",
        "fail_to_run",
        1,
    )
    assert str(outcome.message).startswith("rank 1: killed by SIGKILL")
    assert outcome.traceback == "last words\n"
    pids = [int((tmp_path / f"pid{rank}").read_text()) for rank in range(3)]
    wait_for(lambda: not any(map(running, pids)))


def test_the_rank_that_failed_first_is_named_and_not_those_whose_connection_it_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
while rank == 0 and not list(here.parent.glob("*/result.json")):
    time.sleep(0.01)
reason, message = ("OOM", "no memory") if rank else ("fail_to_run", "closed by peer")
leave(status="failed", reason=reason, message=message)
"""
    outcome = run(tmp_path, monkeypatch, program)
    assert (outcome.reason, outcome.message) == ("OOM", "rank 1: no memory")


def test_a_taken_port_is_replaced_and_only_this_machine_is_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listen(None) as taken:
        port = taken.getsockname()[1]
        assert taken.getsockname()[0] == "127.0.0.1"
        outcome = run(
            tmp_path,
            monkeypatch,
            "leave(facts={'distributed': {'port': os.environ['MASTER_PORT']}})",
            2,
            port,
        )
    assert outcome.facts["distributed"]["port_taken"] == port
    assert outcome.facts["distributed"]["port"] != str(port)


def test_rank_0_inherits_the_listening_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import socket
name = socket.socket(fileno=int(sys.argv[-2])).getsockname() if sys.argv[-2] else None
leave(facts={"distributed": {"names": [name, os.environ["MASTER_PORT"]]} if rank == 0 else {}})
"""
    name, port = run(tmp_path, monkeypatch, program).facts["distributed"]["names"]
    assert name == ["127.0.0.1", int(port)]


def test_a_rank_has_caches_of_its_own_and_what_the_caller_has_set() -> None:
    given = {"TORCHINDUCTOR_CACHE_DIR": "/c", "NCCL_NVLS_ENABLE": "1", "RANK": "7"}
    variables = rank_environment(given, 1, 4, 29500, is_cpu=True)
    assert (variables["RANK"], variables["WORLD_SIZE"], variables["MASTER_PORT"]) == (
        "1",
        "4",
        "29500",
    )
    assert (variables["TORCHINDUCTOR_CACHE_DIR"], variables["NCCL_NVLS_ENABLE"]) == (
        "/c/rank1",
        "1",
    )
    assert "OMP_NUM_THREADS" not in rank_environment({}, 0, 2, 1, is_cpu=False)


def test_a_stage_is_each_ranks_where_they_differ() -> None:
    assert describe_stages({0: "compile", 1: "compile"}) == "compile"
    assert describe_stages({1: "load", 0: "measure"}) == "measure (rank 0), load (rank 1)"


def test_a_free_port_is_kept() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    with listen(port) as listener:
        assert listener.getsockname()[1] == port
