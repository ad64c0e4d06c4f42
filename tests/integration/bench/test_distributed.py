"""`bench --ddp` and `--fsdp` on a CPU: two ranks over gloo, observed as ranks of one run."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compileboard.app.ranks.run_queries import list_ranks
from tests.integration.bench.test_bench import bench, rows
from tests.tools.observed import Workplace

pytestmark = pytest.mark.torch

MODELS = f"path:{Path(__file__).parents[2] / 'programs/rank_models.py'}"


def measure(workplace: Workplace, *words: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Run bench; return its results by model and experiment, with the facts read."""
    done = bench(workplace, "--training", *words)
    assert done.returncode in (0, 1), done.stderr
    results = rows(
        workplace,
        "select series.*, results.* from results join series on series.id = results.series_id",
    )
    return {
        (row["model"], row["experiment"]): {**row, "facts": json.loads(row["facts"])}
        for row in results
    }


def test_ddp_is_measured_by_its_slowest_rank_and_gives_one_processes_gradients(
    workplace: Workplace,
) -> None:
    results = measure(workplace, "--ddp", "--only", "mlp", "--performance", "--accuracy")
    timed, checked = results["mlp", "performance"], results["mlp", "accuracy"]
    assert (timed["status"], timed["world_size"]) == ("measured", 2), timed["message"]
    assert timed["backend"].endswith("_ddp=ddp_optimizer")
    ranks = timed["facts"]["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert [rank["splits"] for rank in ranks] == [2, 2], (
        "DDP's first bucket is 1 MB, and the model is 2 MB"
    )
    assert all(rank["collectives"] > 0 and rank["graphs"] > 0 for rank in ranks)
    assert timed["abs_latency_ms"] >= max(rank["latency_ms"] for rank in ranks)
    assert timed["facts"]["distributed"]["one_process_latency_ms"] > 0
    assert timed["facts"]["distributed"]["eager_modules"] == [
        "0 (Linear)",
        "5 (LayerNorm)",
        "6 (Linear)",
    ]
    assert (checked["accuracy"], checked["message"]) == ("pass", None)
    assert checked["facts"]["distributed"]["gradient_error"] < 1e-5
    with sqlite3.connect(workplace.database) as connection:
        connection.row_factory = sqlite3.Row
        (run,) = connection.execute("select id from runs").fetchone()
        sequences = list_ranks(connection, run)
    assert [sequence.rank for sequence in sequences] == [0, 1]
    assert [len(sequence.processes) for sequence in sequences] == [2, 2]
    assert [entry.position for entry in sequences[0].compiles] == [
        entry.position for entry in sequences[1].compiles
    ]


@pytest.mark.nightly
def test_fsdp2_gives_one_processes_gradients(workplace: Workplace) -> None:
    (result,) = measure(workplace, "--fsdp", "--only", "mlp", "--accuracy").values()
    assert (result["accuracy"], result["message"]) == ("pass", None)
    assert result["facts"]["distributed"]["kind"] == "fsdp2"
    assert result["facts"]["distributed"]["gradient_error"] < 1e-5
    assert result["unique_graphs"] > 0, "sharded parts are compiled, of torch's own classes too"


@pytest.mark.nightly
def test_fsdp2_shards_a_decoder_by_its_blocks_and_others_by_size(workplace: Workplace) -> None:
    results = measure(workplace, "--fsdp", "-k", "^(transformer_decoder|lstm)$", "--accuracy")
    how = {model: result["facts"]["distributed"] for (model, _), result in results.items()}
    blocks = how["transformer_decoder"]
    assert (blocks["wrapped_class"], blocks["part_count"], how["lstm"]["wrapped_class"]) == (
        "DecoderBlock",
        4,
        None,
    )
    assert {result["accuracy"] for result in results.values()} == {"pass"} and blocks[
        "gradient_error"
    ] < 1e-5


class Layers(nn.Sequential):
    """Layers whose own frame dynamo skips, as nn.Sequential has no forward of ours."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu()


def test_layers_of_a_frame_that_dynamo_skips_are_eager() -> None:
    from compileboard.collectors.bench.distributed.parallel import list_eager

    torch._dynamo.reset()  # another test may have compiled an nn.Linear by itself
    module = Layers(nn.Linear(4, 4), Layers(nn.Tanh(), Block()))
    all_eager = [name for name, _ in list_eager(module)]

    @torch._dynamo.disable(recursive=False)  # as DDP calls its module
    def call(x: torch.Tensor) -> torch.Tensor:
        return module(x)

    with torch.no_grad():
        torch.compile(lambda x: call(x), backend="eager")(torch.ones(1, 4))
    assert all_eager == ["0", "1.0", "1.1.inner"] and [name for name, _ in list_eager(module)] == [
        "0",
        "1.0",
    ]


@pytest.mark.nightly
def test_checkpointing_and_compiled_autograd_give_one_processes_gradients(
    workplace: Workplace,
) -> None:
    words = [
        "--only",
        f"{MODELS},model:checkpointed",
        "--accuracy",
        "--enable-activation-checkpointing",
    ]
    (result,) = measure(
        workplace, "--ddp", *words, "--compiled-autograd", "--optimize-ddp-mode=python_reducer"
    ).values()
    assert (result["accuracy"], result["message"]) == ("pass", None)
    assert (
        result["backend"].endswith("_checkpoint_ddp=python_reducer")
        and "compiled_autograd" in result["backend"]
    )
    assert result["autograd_captures"] > 0, "the backward pass is compiled"
    assert result["facts"]["distributed"]["gradient_error"] < 1e-5


@pytest.mark.nightly
def test_fsdp2_with_checkpointing_is_compiled_by_inductor(workplace: Workplace) -> None:
    words = [
        "--only",
        f"{MODELS},model:checkpointed",
        "--accuracy",
        "--enable-activation-checkpointing",
    ]
    (result,) = measure(workplace, "--fsdp", *words, "--backend", "inductor").values()
    assert (result["accuracy"], result["message"]) == ("pass", None)
    assert result["backend"].startswith("inductor_quick_") and result["unique_graphs"] > 0
    assert result["facts"]["distributed"]["gradient_error"] < 1e-5


@pytest.mark.nightly
def test_a_missing_exchange_is_a_wrong_answer_and_a_failed_rank_one_status(
    workplace: Workplace,
) -> None:
    results = measure(
        workplace, "--ddp", "--only", MODELS, "-k", "unsynchronized|killed|exhausting", "--accuracy"
    )
    exhausting = results["exhausting", "accuracy"]  # it would go on without a reference
    assert (exhausting["status"], exhausting["reason"]) == ("failed", "eager_1st_run_OOM")
    assert exhausting["message"].startswith("rank 1: RuntimeError")
    wrong, killed = results["unsynchronized", "accuracy"], results["killed", "accuracy"]
    assert (wrong["status"], wrong["accuracy"]) == ("failed", "fail_accuracy")
    assert "gradients are not those of one process" in wrong["message"]
    assert (killed["status"], killed["reason"]) == ("failed", "model_fail_to_load")
    assert killed["message"].startswith("rank 1: killed by SIGKILL")
