"""A real CUDA program's recording on an H200 (docs/cuda-run.md), recorded again here."""

import json

import pytest

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.ingest.ingestor import Ingestor
from compileboard.collectors.store.migrations import migrate_connection
from tests.tools.make_db import DATA, record_events

MUTATING = 'mutating = torch.compile(lambda x: x.add_(1).relu(), mode="reduce-overhead")'


@pytest.fixture(scope="module")
def cuda(tmp_path_factory):
    connection = open_writer(tmp_path_factory.mktemp("cuda") / "t.db")
    migrate_connection(connection)
    record_events(Ingestor(connection), DATA / "events" / "torch2.11-cuda-on_cuda.jsonl.xz")
    yield connection
    connection.close()


def test_every_part_of_the_program_is_there(cuda):
    totals = dict(cuda.execute("select * from run_totals").fetchone())
    expected = {
        "compile_count": 21,
        "record_count": 34,
        "graph_break_count": 8,
        "recompile_count": 9,
    }
    expected |= {"failure_count": 1, "cudagraph_skip_count": 1, "loss_count": 0, "process_count": 1}
    assert {name: totals[name] for name in expected} == expected
    kinds = dict(cuda.execute("select kind, count(*) from compilations group by kind").fetchall())
    assert kinds["forward"] == 21 and kinds["backward"] >= 1 and kinds["runtime"] >= 1


def test_the_machine_is_named(cuda):
    run = cuda.execute("select * from runs").fetchone()
    assert (run["gpu_name"], run["cuda_version"], run["torch_version"]) == (
        "NVIDIA H200",
        "13.0",
        "2.11.0+cu130",
    )
    (gpu,) = json.loads(run["facts"])["gpus"]
    assert (
        gpu["driver_version"]
        and gpu["compute_capability"] == "9.0"
        and gpu["memory_bytes"] > 100 << 30
    )
    process = cuda.execute("select * from processes").fetchone()
    assert process["cudnn_version"] == "91900" and set(
        json.loads(process["capabilities"]).values()
    ) == {"ok"}


def test_a_tensor_that_moved_to_the_cpu_is_a_recompile_for_its_device(cuda):
    categories = {row["category"] for row in cuda.execute("select category from recompile_causes")}
    assert {"tensor_size", "tensor_dtype", "tensor_device", "int_value"} <= categories
    assert "unknown" not in categories


def test_cudagraphs_that_could_not_be_used_say_why(cuda):
    (skip,) = cuda.execute("select * from cudagraph_skips")
    assert skip["reason"] == "skipping cudagraphs due to mutated inputs (1 instances)."
    assert (skip["file"].rpartition("/")[2], skip["code"]) == ("on_cuda.py", MUTATING)
